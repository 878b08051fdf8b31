"""Bounded output: what the user sees live, what the model sees, what is kept."""

from __future__ import annotations

import codecs

from everturn.domain.clock import Clock
from everturn.domain.tool import Emit

LIVE_BYTES_MAX = 256 * 1024
LIVE_INTERVAL_S = 0.1  # ten events per second
KEPT_BYTES_MAX = 16 * 1024 * 1024


class Capture:
    """Bytes up to a limit: beyond it, the first and the last half of the limit are kept."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._half = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut only when the tail has doubled: then a flood costs no more than a copy of it.
        if len(self._tail) > 2 * self._half:
            del self._tail[: len(self._tail) - self._half]

    def content(self) -> bytes:
        tail = self._tail[-self._half :]
        lost = self.total - len(self._head) - len(tail)
        gap = f"\n[… {lost:,} bytes left out …]\n".encode() if lost else b""
        return bytes(self._head + gap + tail)


class LiveOutput:
    """Passes output on to ``emit``: at most ten pieces a second, and no more bytes than the limit."""

    def __init__(self, emit: Emit, clock: Clock, bytes_max: int = LIVE_BYTES_MAX) -> None:
        self._emit = emit
        self._clock = clock
        self._room = bytes_max
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._next_at = clock.monotonic()

    async def add(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        if self._room <= 0:
            return
        room = self._room
        self._room -= len(text.encode())
        if self._room < 0:
            shown = text.encode()[:room].decode("utf-8", "ignore")
            self._waiting += shown + "\n[… more output than is shown live …]\n"
            await self.flush()
            return
        self._waiting += text
        if self._clock.monotonic() >= self._next_at:
            await self.flush()

    async def flush(self) -> None:
        if not self._waiting:
            return
        text, self._waiting = self._waiting, ""
        self._next_at = self._clock.monotonic() + LIVE_INTERVAL_S
        await self._emit(text)

    @property
    def due_in_s(self) -> float | None:
        """Seconds until waiting text should be flushed; None where none waits."""
        if not self._waiting:
            return None
        return max(0.0, self._next_at - self._clock.monotonic())


def head_and_tail(data: bytes, bytes_max: int) -> tuple[str, bool]:
    """The text for the model, and whether something was left out of it.

    Cut at line ends where a line end is near, so that the model does not see half words.
    """
    if len(data) <= bytes_max:
        return data.decode("utf-8", "replace"), False
    head = data[: bytes_max * 2 // 5]
    tail = data[-(bytes_max * 3 // 5) :]
    near = head.rfind(b"\n", len(head) - 400)
    head = head[: near + 1] if near > 0 else head
    near = tail.find(b"\n", 0, 400)
    tail = tail[near + 1 :] if near >= 0 else tail
    lost = len(data) - len(head) - len(tail)
    note = f"\n[… {lost:,} bytes left out; the full output is kept …]\n"
    return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace"), True
