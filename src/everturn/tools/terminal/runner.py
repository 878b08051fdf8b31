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
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.tools.disk_sync import DiskSync
from everturn.tools.policy.judgement import CallContext
from everturn.tools.sandbox.gate import Door
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.background import JobRequest
from everturn.tools.terminal.process import Command, run
from everturn.tools.terminal.result import result_of, with_refused

ContextOf = Callable[[ToolCall], CallContext]
Doors = Callable[[ToolCall], AbstractAsyncContextManager[Door]]


class Surroundings(msgspec.Struct, frozen=True):
    """What surrounds the commands of a call. ``skills``: finds the skills whose files they may read."""

    context_of: ContextOf
    skills: SkillFolders | None = None

    async def folders(self, call: ToolCall) -> tuple[Path, ...]:
        return () if self.skills is None else await self.skills.find(call)


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
        return JobRequest(call, command, argv, view, when_ended, context.is_sandboxed)

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
        ran = await run(self._sandbox, command, view, emit=emit, clock=self._clock)
        sync_error = await self._sync(call.workspace)
        return result_of(ran, command.timeout_s, bytes_max, context.limits, sync_error)

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

    async def in_background(
        self, call: ToolCall, command: str, argv: tuple[str, ...], when_ended: WhenEnded
    ) -> JobRequest:
        request = await super().in_background(call, command, argv, when_ended)
        return msgspec.structs.replace(request, network=self._doors(call))
