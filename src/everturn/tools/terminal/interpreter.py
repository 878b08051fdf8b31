"""A Python interpreter in the sandbox that lives through the calls of a turn."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.tool import Emit, ToolImage
from everturn.tools.limits import ProcessLimits
from everturn.tools.sandbox.child import Child
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, python_program
from everturn.tools.terminal import interpreter_program
from everturn.tools.terminal.output import Capture, LiveOutput
from everturn.tools.terminal.process import CommandEnd, until_breach

AT_ONCE_MAX: Final = 8  # in one server; the one that was used longest ago is ended for a new one
_FRAME_BYTES_MAX = 16 * 1024 * 1024
_ENV = {"MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp"}  # noqa: S108 - private inside the sandbox


class CodeEnd(msgspec.Struct, frozen=True):
    """How a piece of code ended. ``is_over``: its interpreter has ended as well."""

    command: CommandEnd
    is_over: bool
    figures: tuple[ToolImage, ...] = ()
    table: bytes | None = None


class Interpreter:
    """One process. A single caller at a time runs code in it; ``end`` ends it and all that it started."""

    def __init__(self, child: Child, limits: ProcessLimits, clock: Clock) -> None:
        self._child = child
        self._limits = limits
        self._clock = clock
        self._held = bytearray()

    @classmethod
    async def start(
        cls, sandbox: Sandbox, view: SandboxView, clock: Clock, *, is_sandboxed: bool
    ) -> Interpreter:
        program, folders = python_program()
        script = Path(interpreter_program.__file__)
        view = msgspec.structs.replace(view, read=(*view.read, *folders, script), env={**view.env, **_ENV})
        words = (program, "-u", str(script))
        return cls(await sandbox.spawn(words, view, is_sandboxed=is_sandboxed), view.limits, clock)

    async def end(self) -> None:
        await self._child.end()

    async def run(self, code: str, timeout_s: float, emit: Emit) -> CodeEnd:
        """Run the code. After a time-out, a breach of limits or its own end, and if cancelled, it has
        ended."""
        capture, live = Capture(), LiveOutput(emit, self._clock)
        figures: list[ToolImage] = []
        table: bytes | None = None
        is_well: bool | None = None
        breach = ""
        is_kept = False
        try:
            with anyio.move_on_after(timeout_s) as limit:
                async with anyio.create_task_group() as group:

                    async def watch() -> None:
                        nonlocal breach
                        breach = await until_breach(self._child, self._limits)
                        group.cancel_scope.cancel()

                    group.start_soon(watch, name="tool limits")
                    data = code.encode("utf-8", "replace")
                    group.start_soon(self._send, struct.pack(">Q", len(data)) + data, name="tool stdin")
                    async for kind, content in self._frames(live):
                        if kind == b"O":
                            capture.add(content)
                            await live.add(content)
                        elif kind == b"F":
                            figures.append(ToolImage("image/png", content))
                        elif kind == b"T":
                            table = content
                        else:
                            is_well = content == b"1"
                            break
                    group.cancel_scope.cancel()
            is_kept = is_well is not None and not limit.cancelled_caught and not breach
        finally:
            if not is_kept:
                await self.end()
        await live.flush()
        if self._child.is_out_of_memory:
            breach = self._limits.memory_breach
        code_of_end = self._child.process.returncode if is_well is None else int(not is_well)
        ended = CommandEnd(
            capture.content(), -1 if code_of_end is None else code_of_end, limit.cancelled_caught, breach
        )
        return CodeEnd(ended, not is_kept, tuple(figures[: interpreter_program.FIGURES_MAX]), table)

    def with_guard(self, ended: CommandEnd) -> CommandEnd:
        """With what the guard of a project did; known once the interpreter has ended."""
        guard = self._child.guard
        return msgspec.structs.replace(
            ended,
            set_aside=tuple(self._child.set_aside),
            read_only=guard.read_only if guard else (),
            covered=guard.covered if guard else (),
            is_unguarded=guard.is_cut if guard else False,
        )

    async def _send(self, data: bytes) -> None:
        try:
            await self._child.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it has ended; its exit code tells the rest

    async def _frames(self, live: LiveOutput) -> AsyncIterator[tuple[bytes, bytes]]:
        """The frames until it ends or writes what is none."""
        while True:
            while len(self._held) >= 5:
                kind, size = bytes(self._held[:1]), struct.unpack(">I", self._held[1:5])[0]
                if kind not in b"OFTD" or size > _FRAME_BYTES_MAX:
                    yield (
                        b"O",
                        bytes(self._held[:2000]),
                    )  # the interpreter could not even start, or was replaced
                    return
                if len(self._held) < 5 + size:
                    break
                content = bytes(self._held[5 : 5 + size])
                del self._held[: 5 + size]
                yield kind, content
            due = live.due_in_s
            with anyio.move_on_after(float("inf") if due is None else due) as pause:
                try:
                    self._held += await self._child.stdout.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    with anyio.move_on_after(1):
                        await self._child.process.wait()
                    if self._held:
                        yield b"O", bytes(self._held)
                    return
            if pause.cancelled_caught:
                await live.flush()


class Interpreters:
    """The interpreters of the turns that run here, by turn. Ended when the turn leaves this server."""

    def __init__(self) -> None:
        self._by_turn: dict[str, Interpreter] = {}  # the last one is the latest

    def take(self, turn_id: str) -> Interpreter | None:
        """The turn's interpreter, for one call; ``put`` gives it back."""
        return self._by_turn.pop(turn_id, None)

    async def put(self, turn_id: str, interpreter: Interpreter) -> None:
        self._by_turn[turn_id] = interpreter
        while len(self._by_turn) > AT_ONCE_MAX:
            await self.end(next(iter(self._by_turn)))

    async def end(self, turn_id: str) -> None:
        interpreter = self._by_turn.pop(turn_id, None)
        if interpreter is not None:
            await interpreter.end()

    async def end_all(self) -> None:
        for turn_id in list(self._by_turn):
            await self.end(turn_id)
