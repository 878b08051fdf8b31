"""A fast parser of server-sent events: bytes in, the data of complete events out.

Event names are dropped: both protocols repeat them inside the data. It works on bytes, so that a character
split between two reads is complete before it is decoded.
"""

from __future__ import annotations

EVENT_BYTES_MAX = 16 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event exceeds the size limit; a server must not fill the memory."""


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
            data = block[6:] if block.startswith(b"data: ") and b"\n" not in block else _data_of(block)
            if data:  # some servers keep the line open with empty events
                found.append(data)
        return found

    def rest(self) -> bytes | None:
        """The data of an event that is not followed by an empty line at the end of the stream."""
        pending, self._pending = self._pending, b""
        if pending.startswith(b"{"):
            return pending  # a failure, by a server that had already promised events
        return _data_of(pending) or None

    def _without_cr(self, chunk: bytes) -> bytes:
        """Lines may end in LF, CRLF or CR; a CRLF may be split between two chunks."""
        if self._ends_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the CR before it already ended the line
        if chunk:
            self._ends_in_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of(block: bytes) -> bytes:
    """The data lines of an event.

    Until late 2025 llama.cpp's server sent failures in a field of its own (``error: {…}``), which the
    standard says to ignore. It is treated as data, as in later versions.
    """
    lines = []
    for line in block.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"error" and value.lstrip().startswith(b"{"):
            lines.append(b'{"error":' + value + b"}")
    return b"\n".join(lines)
