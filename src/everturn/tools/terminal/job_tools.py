"""The terminal with commands in the background, and the tools for such jobs."""

from __future__ import annotations

import inspect
from typing import Annotated

import msgspec

from everturn.domain.errors import NotFound
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job
from everturn.domain.messages import Outcome
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.terminal.background import Jobs
from everturn.tools.terminal.output import head_and_tail
from everturn.tools.terminal.runner import CommandRunner, GatedRunner
from everturn.tools.terminal.terminal_tools import Hosts, NetworkTerminal, ShellCommand, Terminal, Timeout

_WAIT_S_MAX = 600
_LABEL_CHARS_MAX = 120
JobId = Annotated[str, "The job, as terminal or jobs named it"]
Background = Annotated[bool, "Run it as a job: the call returns at once, and the command keeps running"]
AtEnd = Annotated[WhenEnded, "What the end of a job does: wake you with a report, tell the user, or nothing"]
After = Annotated[
    Annotated[int, msgspec.Meta(ge=0)], "Only the output after this many bytes; 0 reads from the beginning"
]
WaitSeconds = Annotated[
    Annotated[int, msgspec.Meta(ge=1, le=_WAIT_S_MAX)],
    "Return after this many seconds, also if it still runs",
]
_DOC = """

With background the command becomes a job: it keeps running after the call, the turn and a restart of the
server. Use it for what takes minutes or never ends by itself; read it with job_output, end it with job_stop.
A server that it starts is reached only from within the same command, not from a browser."""


class JobTerminal(Terminal):
    __doc__ = f"{inspect.cleandoc(Terminal.__doc__ or '')}{_DOC}"

    def __init__(self, runner: CommandRunner, jobs: Jobs) -> None:
        super().__init__(runner)
        self._jobs = jobs

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        command: ShellCommand,
        timeout_s: Timeout = 120,
        background: Background = False,
        when_ended: AtEnd = WhenEnded.WAKE,
    ) -> ToolResult:
        if not background:
            return await super().act(call, emit, command, timeout_s)
        return await start(self._jobs, self._runner, call, command, (*self._shell, "-c", command), when_ended)


class NetworkJobTerminal(NetworkTerminal):
    __doc__ = f"{inspect.cleandoc(NetworkTerminal.__doc__ or '')}{_DOC}"

    def __init__(self, runner: GatedRunner, jobs: Jobs) -> None:
        super().__init__(runner)
        self._jobs = jobs

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        command: ShellCommand,
        timeout_s: Timeout = 120,
        hosts: Hosts = (),
        background: Background = False,
        when_ended: AtEnd = WhenEnded.WAKE,
    ) -> ToolResult:
        if not background:
            return await super().act(call, emit, command, timeout_s, hosts)
        return await start(self._jobs, self._runner, call, command, (*self._shell, "-c", command), when_ended)


class JobOutputTool(Action):
    """Read the output of a job, also while it runs. It says how many bytes there are: pass that as `after` to
    read only what is new."""

    name = "job_output"
    is_safe_to_repeat = True
    reads_only = True

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def act(self, call: ToolCall, emit: Emit, job_id: JobId, after: After = 0) -> ToolResult:
        job = await _own(self._jobs, call, job_id)
        bytes_max = job.output_bytes_max + 1024
        found = await self._jobs.output(call.owner, job.id, after=after, bytes_max=bytes_max)
        text, _ = head_and_tail(found.data, self.spec.output_bytes_max - 1024)
        note = f"[{describe(job)}; {found.total} bytes of output so far]"
        return ToolResult("\n".join(part for part in (text.rstrip("\n"), note) if part))


class JobWait(Action):
    """Wait until a job is over, and say how it ended. Without need: a job reports its end by itself."""

    name = "job_wait"
    is_safe_to_repeat = True
    reads_only = True
    timeout_s = _WAIT_S_MAX + 30

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def act(self, call: ToolCall, emit: Emit, job_id: JobId, seconds: WaitSeconds = 60) -> ToolResult:
        await _own(self._jobs, call, job_id)
        return ToolResult(describe(await self._jobs.wait(call.owner, job_id, seconds=seconds)))


class JobStop(Action):
    """Stop a job, with everything that it started."""

    name = "job_stop"
    is_safe_to_repeat = True

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def act(self, call: ToolCall, emit: Emit, job_id: JobId) -> ToolResult:
        await _own(self._jobs, call, job_id)
        await self._jobs.stop(call.owner, job_id)
        job = await self._jobs.wait(call.owner, job_id, seconds=15)
        note = "" if job.is_sandboxed else " It ran without a sandbox: what hid itself may still run."
        return ToolResult(f"{describe(job)}.{note}", Outcome.OK if job.state.is_over else Outcome.ERROR)


class JobList(Action):
    """List the jobs of this session, the newest first."""

    name = "jobs"
    is_safe_to_repeat = True
    reads_only = True

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def act(self, call: ToolCall, emit: Emit) -> ToolResult:
        found = await self._jobs.list(call.owner, call.session_id)
        return ToolResult("\n".join(map(describe, found)) or "There are no jobs.")


def job_tools(jobs: Jobs) -> tuple[Action, ...]:
    return (JobOutputTool(jobs), JobWait(jobs), JobStop(jobs), JobList(jobs))


async def start(
    jobs: Jobs, runner: CommandRunner, call: ToolCall, command: str, argv: tuple[str, ...], when: WhenEnded
) -> ToolResult:
    if "\0" in command:
        raise ToolFailed("The command holds a NUL character; nothing was run.")
    job = await jobs.start(await runner.in_background(call, command, argv, when))
    end = {
        WhenEnded.WAKE: "You get a report when it ends.",
        WhenEnded.TELL: "You get no report; the user sees its end in the list of jobs.",
        WhenEnded.RECORD: "Its end is only recorded.",
    }[when]
    return ToolResult(f"Started {job.id} in the background. {end} Read its output with job_output.")


def describe(job: Job) -> str:
    """One line about a job."""
    label = " ".join(job.command.split())[:_LABEL_CHARS_MAX]
    if job.state is JobState.ENDED:
        how = f"ended with exit code {job.exit_code}"
    elif job.state is JobState.RUNNING and job.stop_asked_at is not None:
        how = "is being stopped"
    elif job.state is JobState.UNREACHABLE:
        how = "runs on another machine that does not answer"
    else:
        how = {JobState.LOST: "was lost", JobState.STOPPED: "was stopped"}.get(job.state, "is running")
    detail = f" ({job.detail})" if job.detail else ""
    return f"{job.id} {how}{detail}: {label}"


async def _own(jobs: Jobs, call: ToolCall, job_id: str) -> Job:
    """A job of the session that calls. Raises NotFound for those of others."""
    job = await jobs.get(call.owner, job_id)
    if job.session_id != call.session_id:
        raise NotFound("job", job_id)
    return job
