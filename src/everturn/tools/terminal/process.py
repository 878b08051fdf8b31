"""Run one process to its end: live output, a time limit, and an end that leaves nothing behind."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.tool import Emit
from everturn.tools.limits import ProcessLimits
from everturn.tools.sandbox.child import Child
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.output import Capture, LiveOutput


class Command(msgspec.Struct, frozen=True):
    """A program with its arguments, what it reads, and how long it may take."""

    argv: tuple[str, ...]
    timeout_s: float
    stdin: bytes = b""
    is_sandboxed: bool = True


class CommandEnd(msgspec.Struct, frozen=True):
    """How a command ended, and what was kept from it."""

    output: bytes
    exit_code: int
    is_timed_out: bool = False
    breach: str = ""  # the limit for which it was ended, in words
    set_aside: tuple[str, ...] = ()  # what it made that other programs would run, by its old name
    read_only: tuple[str, ...] = ()  # what it could not write to, for the same reason
    covered: tuple[str, ...] = ()  # sockets that it could not connect to
    is_unguarded: bool = False  # the project is too large to find all of that


async def run(
    sandbox: Sandbox, command: Command, view: SandboxView, *, emit: Emit, clock: Clock
) -> CommandEnd:
    """Run it. If cancelled, the process and everything it started are dead when this returns."""
    child = await sandbox.spawn(command.argv, view, is_sandboxed=command.is_sandboxed)
    breach = ""
    capture = Capture()
    live = LiveOutput(emit, clock)
    try:
        with anyio.move_on_after(command.timeout_s) as limit:
            breach = await _watch(child, view.limits, lambda: _exchange(child, command.stdin, capture, live))
    finally:
        # Also after an ordinary end: what it left in the background must not outlive the call.
        await child.end()
    if child.is_out_of_memory:
        breach = view.limits.memory_breach
    await live.flush()
    code = child.process.returncode
    guard = child.guard
    return CommandEnd(
        capture.content(),
        -1 if code is None else code,
        limit.cancelled_caught,
        breach,
        set_aside=tuple(child.set_aside),
        read_only=guard.read_only if guard else (),
        covered=guard.covered if guard else (),
        is_unguarded=guard.is_cut if guard else False,
    )


async def _watch(child: Child, limits: ProcessLimits, work: Callable[[], Awaitable[None]]) -> str:
    """Do the work until the process ends or passes a limit; return the limit, in words."""
    breach = ""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal breach
            breach = await until_breach(child, limits)
            group.cancel_scope.cancel()

        group.start_soon(watch, name="tool limits")
        await work()
        await child.process.wait()
        group.cancel_scope.cancel()
    return breach


async def until_breach(child: Child, limits: ProcessLimits) -> str:
    """Wait until the sandbox has passed a limit; return which, in words. Never returns outside a sandbox."""
    while True:
        await _next_look(child, limits)
        breach = limits.breach(await child.measure(limits))
        if breach:
            return breach
        made = child.guard.forbidden_change() if child.guard else ""
        if made:
            return f"{made} was made or changed, which other programs run outside the sandbox"


async def _next_look(child: Child, limits: ProcessLimits) -> None:
    """Wait a tenth of a second, or until the disk is full, which a fast command can do in less time."""
    if not child.is_sandboxed:
        await anyio.sleep_forever()
    left_s = limits.pause_s(None)
    while left_s > 0 and not limits.disk_breach(child.disk()):
        pause_s = min(left_s, limits.pause_s(child.disk()))
        await anyio.sleep(pause_s)
        left_s -= pause_s


async def _exchange(child: Child, stdin: bytes, capture: Capture, live: LiveOutput) -> None:
    """Give the process its input and read its output until that closes."""
    async with anyio.create_task_group() as group:
        group.start_soon(_feed, child, stdin, name="tool stdin")
        await _read(child, capture, live)
        group.cancel_scope.cancel()


async def _feed(child: Child, data: bytes) -> None:
    try:
        if data:
            await child.stdin.send(data)
        await child.stdin.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # it ended without reading everything; its exit code tells the rest


async def _read(child: Child, capture: Capture, live: LiveOutput) -> None:
    """Read until the output closes, or shortly after the process has ended.

    A background process can hold the output open, but nothing more of the call itself can come then.
    """
    async with anyio.create_task_group() as group:

        async def stop_after_exit() -> None:
            await child.process.wait()
            group.cancel_scope.deadline = anyio.current_time() + 0.2

        group.start_soon(stop_after_exit, name="tool exit")
        while True:
            due = live.due_in_s
            with anyio.move_on_after(math.inf if due is None else due) as pause:
                try:
                    data = await child.stdout.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    break
                capture.add(data)
                await live.add(data)
            if pause.cancelled_caught:
                await live.flush()
        group.cancel_scope.cancel()
