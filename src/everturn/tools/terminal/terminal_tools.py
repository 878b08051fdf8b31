"""Shell commands and Python code, in the sandbox where there is one.

Each comes in two forms. With a network behind the gate the model also names the hosts that a call needs, and
the user is asked about those; without one the model is not told of hosts at all.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterable
from typing import Annotated

import msgspec

from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.policy.commands import judge_command, new_hosts
from everturn.tools.policy.hosts import HostName, host_of, hosts_in_code
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.terminal.process import Command
from everturn.tools.terminal.runner import CommandRunner, GatedRunner

_TIMEOUT_S_MAX = 1800
Seconds = Annotated[int, msgspec.Meta(ge=1, le=_TIMEOUT_S_MAX)]
Timeout = Annotated[Seconds, "Stop it after this many seconds"]
ShellCommand = Annotated[str, "The command, as typed in bash"]
Code = Annotated[str, "The program"]
Hosts = Annotated[
    Annotated[tuple[HostName, ...], msgspec.Meta(max_length=20)],
    "Hosts that it has to reach; the user is asked",
]


class Terminal(Action):
    """Run a shell command in the workspace and return its output (stdout and stderr together).

    Each call is a fresh bash: the folder and variables of an earlier call are gone. Nothing can be typed
    into a running command, and what it started ends with it.
    """

    name = "terminal"
    asks_when = (
        "it destroys work, reaches a new host or startup files; without the sandbox, unless it only reads"
    )
    timeout_s = _TIMEOUT_S_MAX + 30

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner
        self._shell = shell_program()

    async def act(
        self, call: ToolCall, emit: Emit, command: ShellCommand, timeout_s: Timeout = 120
    ) -> ToolResult:
        if "\0" in command:
            raise ToolFailed("The command holds a NUL character; nothing was run.")
        shell = Command((*self._shell, "-c", command), timeout_s)
        return await self._runner.run(call, emit, shell, self.spec.output_bytes_max)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return judge_command(arguments["command"], context)


class NetworkTerminal(Terminal):
    __doc__ = f"{inspect.cleandoc(Terminal.__doc__ or '')} It reaches only hosts that the user allows."

    def __init__(self, runner: GatedRunner) -> None:
        super().__init__(runner)

    async def act(
        self, call: ToolCall, emit: Emit, command: ShellCommand, timeout_s: Timeout = 120, hosts: Hosts = ()
    ) -> ToolResult:
        return await super().act(call, emit, command, timeout_s)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return _with_hosts(super().judge(call, arguments, context), arguments["hosts"], context)


class Python(Action):
    """Run Python code in the workspace and return what it prints, and the value of its last expression.

    Variables are kept for your next calls until your answer is complete, unless a result says that they
    are not or that the interpreter is new. Modules in the workspace can be imported. Figures of
    matplotlib, where it is installed, are shown to the user; show and savefig are not needed.
    """

    name = "python"
    asks_when = "it can reach the network, packages of the profile are not installed, or there is no sandbox"
    timeout_s = _TIMEOUT_S_MAX + 30

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner

    async def act(self, call: ToolCall, emit: Emit, code: Code, timeout_s: Timeout = 120) -> ToolResult:
        return await self._runner.run_code(call, emit, code, timeout_s, self.spec.output_bytes_max)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        code = arguments["code"]
        label = one_line(next((line for line in code.splitlines() if line.strip()), "python"))
        if context.is_contained:
            return Judgement(label=label)
        where = "that can reach the network" if context.is_sandboxed else "without a sandbox"
        if context.is_sandboxed and not context.is_guarded:
            where = "that could change what other programs run in this project"
        concern = Concern(
            f"it runs Python code {where}", sends=True, is_outside=context.reaches_outside, is_opaque=True
        )
        return Judgement(label=label, concerns=(concern,))

    async def assess(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        judgement = self.judge(call, arguments, context)
        try:
            plan = await self._runner.plan_packages(call)
        except ToolFailed as error:
            # Denied, not asked: what would be installed is unknown.
            return msgspec.structs.replace(judgement, denied=f"its packages are not there: {error}")
        if plan is None:
            return judgement
        # Of what was resolved, and never covered by an earlier answer: they come once, for all sessions.
        concern = Concern(f"it installs {plan.words}", is_outside=True, asks_always=True)
        # The plan is part of what is approved: one that is made anew while the question waits asks again.
        terms = (*judgement.terms, f"packages {plan.digest}")
        return msgspec.structs.replace(judgement, concerns=(*judgement.concerns, concern), terms=terms)


class NetworkPython(Python):
    __doc__ = (
        f"{inspect.cleandoc(Python.__doc__ or '')}\n"
        "It reaches only hosts that the user allows, through the proxy variables."
    )

    def __init__(self, runner: GatedRunner) -> None:
        super().__init__(runner)

    async def act(
        self, call: ToolCall, emit: Emit, code: Code, timeout_s: Timeout = 120, hosts: Hosts = ()
    ) -> ToolResult:
        return await super().act(call, emit, code, timeout_s)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        hosts = [*hosts_in_code(arguments["code"]), *arguments["hosts"]]
        return _with_hosts(super().judge(call, arguments, context), hosts, context)


def shell_program() -> tuple[str, ...]:
    """Bash where there is one. Without ``--norc`` it would read ~/.bashrc if its input is a socket, as for a
    network login; some event loops give sockets to their children."""
    bash = shutil.which("bash", path="/usr/local/bin:/usr/bin:/bin")
    return (bash, "--noprofile", "--norc") if bash else ("/bin/sh",)


def _with_hosts(judgement: Judgement, hosts: Iterable[str], context: CallContext) -> Judgement:
    asked = (*judgement.concerns, *new_hosts(map(host_of, hosts), context))
    return msgspec.structs.replace(judgement, concerns=tuple(dict.fromkeys(asked)))
