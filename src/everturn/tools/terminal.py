"""Shell commands and Python code, in the sandbox where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.messages import Outcome
from everturn.domain.tooling import Emit, ToolCall, ToolResult
from everturn.tools.commands import judge_command
from everturn.tools.durable import Durable
from everturn.tools.judging import Concern, Judgement, Surroundings, one_line
from everturn.tools.limits import Limits
from everturn.tools.output import head_and_tail
from everturn.tools.running import Ran, run
from everturn.tools.sandbox import Sandbox, View, python_program
from everturn.tools.schema import Action, ToolFailed

_TIMEOUT_S_MAX = 1800
Seconds = Annotated[int, msgspec.Meta(ge=1, le=_TIMEOUT_S_MAX)]
Around = Callable[[ToolCall], Surroundings]

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
        self._shell = shutil.which("bash", path="/usr/local/bin:/usr/bin:/bin") or "/bin/sh"

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        command: Annotated[str, "The command, as typed in bash"],
        timeout_s: Annotated[Seconds, "Stop it after this many seconds"] = 120,
    ) -> ToolResult:
        if "\0" in command:
            raise ToolFailed("The command holds a NUL character; nothing was run.")
        around = self._around(call)
        ran = await run(
            self._sandbox,
            [self._shell, "-c", command],
            _view(call, around),
            emit=emit,
            clock=self._clock,
            timeout_s=timeout_s,
            is_sandboxed=around.is_sandboxed,
        )
        trouble = await _sync(self._disk, call.workspace)
        return shown(ran, timeout_s, self.spec.output_bytes_max, around.limits, trouble)

    def judge(self, call: ToolCall, arguments: dict[str, Any], around: Surroundings) -> Judgement:
        return judge_command(arguments["command"], around)


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
        around = self._around(call)
        program, folders = python_program()
        ran = await run(
            self._sandbox,
            [program, "-u", "-c", _RUNNER],
            _view(call, around, folders),
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
        if not around.is_sandboxed:
            concern = Concern(
                "it runs Python code without a sandbox", sends=True, is_outside=True, is_opaque=True
            )
        elif around.has_network:
            concern = Concern(
                "it runs Python code that can reach the network",
                key="python",
                sends=True,
                covers="run any Python code",
            )
        else:
            return Judgement(label=label)
        return Judgement(label=label, concerns=(concern,))


def _view(call: ToolCall, around: Surroundings, read: tuple[Path, ...] = ()) -> View:
    return View(
        workspace=call.workspace,
        network=around.has_network,
        host_network=around.has_host_network,
        read=read,
        limits=around.limits,
    )


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
        text="\n".join(part for part in (text.rstrip("\n"), note, trouble) if part),
        outcome=Outcome.ERROR if is_bad else Outcome.OK,
        display={"kind": "terminal", "exit": ran.exit_code, "timed_out": ran.is_timed_out},
        full_output=ran.output if is_cut else None,
    )
