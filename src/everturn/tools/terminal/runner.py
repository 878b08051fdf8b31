"""Runs the commands of tools: in the sandbox, through a door to the network, durable when they return."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.job_states import WhenEnded
from everturn.domain.skills import SkillFolders
from everturn.domain.tool import Emit, ToolCall, ToolFile, ToolResult
from everturn.tools.disk_sync import DiskSync
from everturn.tools.policy.judgement import CallContext
from everturn.tools.sandbox.gate import Door
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.background import JobRequest
from everturn.tools.terminal.environments import Environments, PackagePlan
from everturn.tools.terminal.interpreter import Interpreter, Interpreters
from everturn.tools.terminal.process import Command, run
from everturn.tools.terminal.result import result_of, with_refused

NEW = "[new interpreter: it has no variables of earlier calls]"
NOT_KEPT = "[the variables of this call are not kept]"
ENDED = "[the interpreter has ended, and its variables are gone]"
ContextOf = Callable[[ToolCall], CallContext]
Doors = Callable[[ToolCall], AbstractAsyncContextManager[Door]]


class Surroundings(msgspec.Struct, frozen=True):
    """What surrounds the commands of a call. ``skills``: finds the skills whose files they may read."""

    context_of: ContextOf
    skills: SkillFolders | None = None
    interpreters: Interpreters | None = None  # that live through a turn; None: none does
    environments: Environments | None = None  # of the packages that profiles choose

    async def folders(self, call: ToolCall) -> tuple[Path, ...]:
        return () if self.skills is None else await self.skills.find(call)

    async def with_packages(self, call: ToolCall, view: SandboxView) -> SandboxView:
        """The view with the packages of the profile, if they are installed, to be read only."""
        packages = self.context_of(call).packages
        if not packages or self.environments is None:
            return view
        site = await self.environments.find(packages, is_used=True)
        return view if site is None else _with_site(view, site)


def _with_site(view: SandboxView, site: Path) -> SandboxView:
    env = {**view.env, "PYTHONPATH": str(site)}
    return msgspec.structs.replace(view, read=(*view.read, site), env=env)


class CommandRunner:
    """Runs one command per call, in the surroundings of that call."""

    def __init__(self, sandbox: Sandbox, clock: Clock, around: Surroundings) -> None:
        self._sandbox = sandbox
        self._clock = clock
        self._around = around
        self._context_of = around.context_of
        self._disk = DiskSync()

    async def run(
        self, call: ToolCall, emit: Emit, command: Command, bytes_max: int, read: tuple[Path, ...] = ()
    ) -> ToolResult:
        """``read``: folders that the command needs besides the system's. ``bytes_max``: of the result."""
        return await self._run(call, emit, command, bytes_max, SandboxView(call.workspace, read=read))

    async def in_background(
        self, call: ToolCall, command: str, argv: tuple[str, ...], when_ended: WhenEnded
    ) -> JobRequest:
        """The same command as a job: the policy, the sandbox and the limits are those of a plain call."""
        context = self._context_of(call)
        view = SandboxView(
            call.workspace,
            host_network=context.has_host_network,
            limits=context.limits,
            read=await self._around.folders(call),
        )
        view = await self._around.with_packages(call, view)
        return JobRequest(call, command, argv, view, when_ended, context.is_sandboxed)

    async def plan_packages(self, call: ToolCall) -> PackagePlan | None:
        """What would have to be installed for Python code, if anything. Raises ToolFailed."""
        packages, environments = self._context_of(call).packages, self._around.environments
        if not packages or environments is None or await environments.find(packages) is not None:
            return None
        return await environments.plan(packages)

    async def _run(
        self, call: ToolCall, emit: Emit, command: Command, bytes_max: int, view: SandboxView
    ) -> ToolResult:
        context = self._context_of(call)
        command = msgspec.structs.replace(command, is_sandboxed=context.is_sandboxed)
        view = msgspec.structs.replace(
            view,
            host_network=context.has_host_network,
            limits=context.limits,
            read=(*view.read, *await self._around.folders(call)),
        )
        view = await self._around.with_packages(call, view)
        ran = await run(self._sandbox, command, view, emit=emit, clock=self._clock)
        sync_error = await self._sync(call.workspace)
        return result_of(ran, command.timeout_s, bytes_max, context.limits, sync_error)

    async def run_code(
        self, call: ToolCall, emit: Emit, code: str, timeout_s: float, bytes_max: int
    ) -> ToolResult:
        """Run Python code. Its interpreter is kept for the turn's next call where the sandbox contains
        it and no other program runs what is in the workspace: what a command made there is looked at
        when it has ended."""
        view, is_kept = SandboxView(call.workspace), self._keeps(call)
        kept = self._around.interpreters if is_kept else None
        return await self._run_code(call, emit, (code, timeout_s, bytes_max), view, kept)

    def _keeps(self, call: ToolCall) -> bool:
        works = self._context_of(call).is_sandboxed and self._sandbox.state.works
        return works and not self._sandbox.is_project(call.workspace)

    async def _run_code(
        self,
        call: ToolCall,
        emit: Emit,
        code: tuple[str, float, int],
        view: SandboxView,
        kept: Interpreters | None,
    ) -> ToolResult:
        context, (source, timeout_s, bytes_max) = self._context_of(call), code
        await self._install_packages(call, emit)
        interpreter = None if kept is None else kept.take(call.turn_id)
        note = NOT_KEPT if kept is None else ""
        if interpreter is None:
            note = note or NEW
            interpreter = await self._new_interpreter(call, view, context)
        ended = await interpreter.run(source, timeout_s, emit)
        ran = ended.command
        if kept is not None and not ended.is_over:
            await kept.put(call.turn_id, interpreter)
        else:
            await interpreter.end()
            ran = interpreter.with_guard(ran)
            note = note if kept is None else ENDED
        sync_error = await self._sync(call.workspace)
        result = result_of(ran, timeout_s, bytes_max, context.limits, sync_error)
        shown = [f"[figures shown to the user: {len(ended.figures)}]"] if ended.figures else []
        shown += ["[the whole table is kept as CSV]"] if ended.table else []
        return msgspec.structs.replace(
            result,
            text="\n".join(part for part in (result.text, *shown, note) if part),
            images=ended.figures,
            files=(ToolFile("table.csv", "text/csv", ended.table),) if ended.table else (),
        )

    async def _install_packages(self, call: ToolCall, emit: Emit) -> None:
        """Install what the profile names, once: the call was approved with the list of what comes."""
        packages, environments = self._context_of(call).packages, self._around.environments
        if packages and environments is not None:
            await environments.make(packages, emit)

    async def _new_interpreter(self, call: ToolCall, view: SandboxView, context: CallContext) -> Interpreter:
        view = msgspec.structs.replace(
            view,
            host_network=context.has_host_network,
            limits=context.limits,
            read=(*view.read, *await self._around.folders(call)),
        )
        view = await self._around.with_packages(call, view)
        is_sandboxed = context.is_sandboxed
        return await Interpreter.start(self._sandbox, view, self._clock, is_sandboxed=is_sandboxed)

    async def _sync(self, workspace: Path) -> str:
        """Make what a command wrote durable, before its step is; say what went wrong, if something did."""
        try:
            await anyio.to_thread.run_sync(self._disk.sync_file_system, workspace)
        except OSError as error:
            return f"[a power cut may lose what it wrote: {error.strerror or error}]"
        return ""


class GatedRunner(CommandRunner):
    """The same with a door to the network. The result names the hosts that were refused."""

    def __init__(self, sandbox: Sandbox, clock: Clock, around: Surroundings, doors: Doors) -> None:
        super().__init__(sandbox, clock, around)
        self._doors = doors

    async def run(
        self, call: ToolCall, emit: Emit, command: Command, bytes_max: int, read: tuple[Path, ...] = ()
    ) -> ToolResult:
        async with self._doors(call) as door:
            view = SandboxView(call.workspace, gate=door.path, read=read)
            result = await self._run(call, emit, command, bytes_max, view)
        return with_refused(result, door.refused)

    async def run_code(
        self, call: ToolCall, emit: Emit, code: str, timeout_s: float, bytes_max: int
    ) -> ToolResult:
        """The door is open for one call, so the interpreter is as well."""
        async with self._doors(call) as door:
            view = SandboxView(call.workspace, gate=door.path)
            result = await self._run_code(call, emit, (code, timeout_s, bytes_max), view, None)
        return with_refused(result, door.refused)

    async def in_background(
        self, call: ToolCall, command: str, argv: tuple[str, ...], when_ended: WhenEnded
    ) -> JobRequest:
        request = await super().in_background(call, command, argv, when_ended)
        return msgspec.structs.replace(request, network=self._doors(call))
