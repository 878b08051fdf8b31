"""Server-sent events, read fast: bytes in, the data of whole events out.

Names of events are not kept: both wires repeat them inside the data. Works on bytes, so that a
character split between two reads is whole again before anyone decodes it.
"""

from __future__ import annotations

EVENT_BYTES_MAX = 16 * 1024 * 1024


class EventTooLong(Exception):
    """A server that never ends an event must not fill the memory."""


class SseReader:
    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._event_bytes_max = event_bytes_max
        self._pending = b""
        self._ends_in_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        if self._ends_in_cr or b"\r" in chunk:
            chunk = self._without_cr(chunk)
        if self._pending:
            chunk = self._pending + chunk
        end = chunk.rfind(b"\n\n")
        if end < 0:
            if len(chunk) > self._event_bytes_max:
                raise EventTooLong
            self._pending = chunk
            return []
        self._pending = chunk[end + 2 :]
        found = []
        for block in chunk[:end].split(b"\n\n"):
            # Nearly every event is exactly one "data: …" line.
            if block.startswith(b"data: ") and b"\n" not in block:
                found.append(block[6:])
            elif (data := _data_of(block)) is not None:
                found.append(data)
        return found

    def rest(self) -> bytes | None:
        """The data of an event that the end of the stream left without its empty line."""
        pending, self._pending = self._pending, b""
        return _data_of(pending) if pending else None

    def _without_cr(self, chunk: bytes) -> bytes:
        """Lines may end in LF, CRLF or CR; a CRLF may be split between two chunks."""
        if self._ends_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the CR before it already ended the line
        if chunk:
            self._ends_in_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of(block: bytes) -> bytes | None:
    lines = [
        line[6:] if line.startswith(b"data: ") else line[5:]
        for line in block.split(b"\n")
        if line.startswith(b"data:")
    ]
    return b"\n".join(lines) if lines else None
