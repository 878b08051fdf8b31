"""Shell commands and Python code, in the sandbox where there is one.

Each comes in two forms. With a network behind the gate the model also names the hosts that a call needs, and
the person is asked about those; without one it is not told of hosts at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.messages import Outcome
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.files.sync import Durable
from everturn.tools.policy.commands import judge_command, new_hosts
from everturn.tools.policy.hosts import HostName, host_of, hosts_in_code
from everturn.tools.policy.judgement import Concern, Judgement, Surroundings, one_line
from everturn.tools.sandbox.gate import Door
from everturn.tools.sandbox.limits import Limits
from everturn.tools.sandbox.sandbox import Sandbox, View, python_program
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.terminal.output import head_and_tail
from everturn.tools.terminal.process import Ran, run

_TIMEOUT_S_MAX = 1800
_NOTED_BYTES = 16 * 1024
_NAMED_MAX = 8
_REFUSALS = (b"read-only file system", b"device or resource busy", b"could not lock config file")
Seconds = Annotated[int, msgspec.Meta(ge=1, le=_TIMEOUT_S_MAX)]
Hosts = Annotated[tuple[HostName, ...], msgspec.Meta(max_length=20)]
Around = Callable[[ToolCall], Surroundings]
Doors = Callable[[ToolCall], AbstractAsyncContextManager[Door]]

# Runs the code as a module of its own and shows the value of a last expression, as a console would.
_RUNNER = """
import ast, linecache, sys, traceback
source = sys.stdin.read()
linecache.cache["<code>"] = (len(source), None, source.splitlines(True), "<code>")
sys.argv = ["<code>"]
space = {"__name__": "__main__"}
try:
    tree = ast.parse(source, "<code>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<code>", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
        if value is not None:
            print(repr(value))
except Exception as error:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != "<code>":
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
    sys.exit(1)
"""


class Terminal(Action):
    """Run a shell command in the workspace and return its output (stdout and stderr together).

    Each call is a fresh bash: the folder and variables of an earlier call are gone. Nothing can be typed
    into a running command, and nothing keeps running after it.
    """

    name = "terminal"
    timeout_s = _TIMEOUT_S_MAX + 30

    def __init__(self, sandbox: Sandbox, clock: Clock, around: Around, disk: Durable | None = None) -> None:
        self._sandbox = sandbox
        self._clock = clock
        self._around = around
        self._disk = disk or Durable()
        self._shell = shell_program()

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        command: Annotated[str, "The command, as typed in bash"],
        timeout_s: Annotated[Seconds, "Stop it after this many seconds"] = 120,
    ) -> ToolResult:
        return await self.start(call, emit, command, timeout_s)

    async def start(
        self, call: ToolCall, emit: Emit, command: str, timeout_s: int, gate: Path | None = None
    ) -> ToolResult:
        if "\0" in command:
            raise ToolFailed("The command holds a NUL character; nothing was run.")
        around = self._around(call)
        ran = await run(
            self._sandbox,
            [*self._shell, "-c", command],
            _view(call, around, gate),
            emit=emit,
            clock=self._clock,
            timeout_s=timeout_s,
            is_sandboxed=around.is_sandboxed,
        )
        trouble = await _sync(self._disk, call.workspace)
        return shown(ran, timeout_s, self.spec.output_bytes_max, around.limits, trouble)

    def judge(self, call: ToolCall, arguments: dict[str, Any], around: Surroundings) -> Judgement:
        return judge_command(arguments["command"], around)


class NetworkTerminal(Terminal):
    """Run a shell command in the workspace and return its output (stdout and stderr together).

    Each call is a fresh bash: the folder and variables of an earlier call are gone. Nothing can be typed
    into a running command, and nothing keeps running after it. It reaches only hosts that the user allows.
    """

    def __init__(self, sandbox: Sandbox, clock: Clock, around: Around, doors: Doors) -> None:
        super().__init__(sandbox, clock, around)
        self._doors = doors

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        command: Annotated[str, "The command, as typed in bash"],
        timeout_s: Annotated[Seconds, "Stop it after this many seconds"] = 120,
        hosts: Annotated[Hosts, "Hosts that it has to reach; the user is asked"] = (),
    ) -> ToolResult:
        async with self._doors(call) as door:
            result = await self.start(call, emit, command, timeout_s, door.path)
        return with_refused(result, door.refused)

    def judge(self, call: ToolCall, arguments: dict[str, Any], around: Surroundings) -> Judgement:
        return _with_hosts(super().judge(call, arguments, around), arguments["hosts"], around)


class Python(Action):
    """Run Python code in the workspace and return what it prints, and the value of its last expression.

    Each call is a fresh interpreter with the standard library; modules in the workspace can be imported.
    """

    name = "python"
    timeout_s = _TIMEOUT_S_MAX + 30

    def __init__(self, sandbox: Sandbox, clock: Clock, around: Around, disk: Durable | None = None) -> None:
        self._sandbox = sandbox
        self._clock = clock
        self._around = around
        self._disk = disk or Durable()

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        code: Annotated[str, "The program"],
        timeout_s: Annotated[Seconds, "Stop it after this many seconds"] = 120,
    ) -> ToolResult:
        return await self.start(call, emit, code, timeout_s)

    async def start(
        self, call: ToolCall, emit: Emit, code: str, timeout_s: int, gate: Path | None = None
    ) -> ToolResult:
        around = self._around(call)
        program, folders = python_program()
        ran = await run(
            self._sandbox,
            [program, "-u", "-c", _RUNNER],
            _view(call, around, gate, folders),
            emit=emit,
            clock=self._clock,
            timeout_s=timeout_s,
            stdin=code.encode(),
            is_sandboxed=around.is_sandboxed,
        )
        trouble = await _sync(self._disk, call.workspace)
        return shown(ran, timeout_s, self.spec.output_bytes_max, around.limits, trouble)

    def judge(self, call: ToolCall, arguments: dict[str, Any], around: Surroundings) -> Judgement:
        code = arguments["code"]
        label = one_line(next((line for line in code.splitlines() if line.strip()), "python"))
        if around.is_contained:
            return Judgement(label=label)
        where = "that can reach the network" if around.is_sandboxed else "without a sandbox"
        concern = Concern(
            f"it runs Python code {where}", sends=True, is_outside=not around.is_sandboxed, is_opaque=True
        )
        return Judgement(label=label, concerns=(concern,))


class NetworkPython(Python):
    """Run Python code in the workspace and return what it prints, and the value of its last expression.

    Each call is a fresh interpreter with the standard library; modules in the workspace can be imported.
    It reaches only hosts that the user allows, through the proxy variables.
    """

    def __init__(self, sandbox: Sandbox, clock: Clock, around: Around, doors: Doors) -> None:
        super().__init__(sandbox, clock, around)
        self._doors = doors

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        code: Annotated[str, "The program"],
        timeout_s: Annotated[Seconds, "Stop it after this many seconds"] = 120,
        hosts: Annotated[Hosts, "Hosts that it has to reach; the user is asked"] = (),
    ) -> ToolResult:
        async with self._doors(call) as door:
            result = await self.start(call, emit, code, timeout_s, door.path)
        return with_refused(result, door.refused)

    def judge(self, call: ToolCall, arguments: dict[str, Any], around: Surroundings) -> Judgement:
        hosts = [*hosts_in_code(arguments["code"]), *arguments["hosts"]]
        return _with_hosts(super().judge(call, arguments, around), hosts, around)


def shell_program() -> tuple[str, ...]:
    """Bash where there is one. It takes a socket as its input for a network login and would then read
    ~/.bashrc; some event loops give sockets to their children."""
    bash = shutil.which("bash", path="/usr/local/bin:/usr/bin:/bin")
    return (bash, "--noprofile", "--norc") if bash else ("/bin/sh",)


def _with_hosts(judgement: Judgement, hosts: Iterable[str], around: Surroundings) -> Judgement:
    asked = (*judgement.concerns, *new_hosts(map(host_of, hosts), around))
    return msgspec.structs.replace(judgement, concerns=tuple(dict.fromkeys(asked)))


def with_refused(result: ToolResult, refused: Sequence[str]) -> ToolResult:
    """The result with the hosts that were kept from it, and what to do if they are needed."""
    if not refused:
        return result
    names = ", ".join(refused)
    text = (
        f"[not allowed, and not contacted: {names}. What the call did besides is done. If it needs to reach "
        "them, check what has to be done again and call it with these hosts: the user will be asked.]"
    )
    display = {**(result.display or {}), "refused_hosts": list(refused)}
    return msgspec.structs.replace(result, text=f"{result.text}\n{text}", display=display)


def _view(call: ToolCall, around: Surroundings, gate: Path | None, read: tuple[Path, ...] = ()) -> View:
    return View(
        workspace=call.workspace,
        gate=gate,
        host_network=around.has_host_network,
        read=read,
        limits=around.limits,
    )


def _guard_notes(ran: Ran) -> Iterator[str]:
    """What of the project was kept from the command, because other programs would run it as its owner."""
    if ran.set_aside:
        yield (
            f"[renamed, because other programs would run it outside the sandbox: {', '.join(ran.set_aside)}. "
            "To keep it, write it with write_file, which asks.]"
        )
    lower = ran.output[-_NOTED_BYTES:].lower()
    if ran.read_only and any(words in lower for words in _REFUSALS):
        named = [path for path in ran.read_only if os.fsencode(path) in ran.output]
        yield (
            "[read-only for commands, because other programs run it outside the sandbox: "
            f"{', '.join(named or ran.read_only[:_NAMED_MAX])}. write_file and edit_file ask first.]"
        )
    covered = [path for path in ran.covered if os.fsencode(os.path.basename(path)) in ran.output]
    if covered:
        yield (
            "[cannot be used from the sandbox, because a program outside it may listen there: "
            f"{', '.join(covered[:_NAMED_MAX])}]"
        )
    if ran.is_unguarded:
        yield "[the project is too large to find every repository in it; new ones were not all looked at]"


async def _sync(disk: Durable, workspace: Path) -> str:
    """Make what a command wrote durable, before its step is; say what went wrong, if something did."""
    try:
        await anyio.to_thread.run_sync(disk.sync_file_system, workspace)
    except OSError as error:
        return f"[a power cut may lose what it wrote: {error.strerror or error}]"
    return ""


def shown(ran: Ran, timeout_s: float, bytes_max: int, limits: Limits, trouble: str = "") -> ToolResult:
    """What the model and the page see of a process that ended. ``trouble``: with what it wrote."""
    text, is_cut = head_and_tail(ran.output, bytes_max)
    if ran.breach:
        note = f"[ended, with everything it had started: {ran.breach}]"
    elif ran.is_timed_out:
        note = f"[stopped after {timeout_s:g} s; everything it had started was ended]"
    elif ran.exit_code:
        hint = limits.hint(ran.exit_code, ran.output)
        note = f"[exit {ran.exit_code}; {hint}]" if hint else f"[exit {ran.exit_code}]"
    else:
        note = "" if text.strip() else "[no output]"
    is_bad = ran.breach or ran.is_timed_out or ran.exit_code or trouble
    return ToolResult(
        text="\n".join(part for part in (text.rstrip("\n"), note, *_guard_notes(ran), trouble) if part),
        outcome=Outcome.ERROR if is_bad else Outcome.OK,
        display={"kind": "terminal", "exit": ran.exit_code, "timed_out": ran.is_timed_out},
        full_output=ran.output if is_cut else None,
    )
