"""Stored bytes as an answer: whole or one range, piece by piece, each verified before it is sent."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Self
from urllib.parse import quote

import anyio

from everturn.domain.errors import EverturnError
from everturn.web.http.asgi import Receive, Scope, Send
from everturn.web.http.routing import Streaming

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_SEND_TIMEOUT_S = 60.0  # for one piece
_log = logging.getLogger("everturn.web")


def parse_range(headers: Mapping[str, str], size: int) -> tuple[int, int]:
    """The first byte that is asked for, and the one after the last. Everything, if the request asks for no
    range, for several, or for one that is not there."""
    found = _RANGE.fullmatch(headers.get("range", "").replace(" ", ""))
    if found is None or "if-range" in headers:
        return 0, size
    first, last = found[1], found[2]
    if not first:
        start, end = max(0, size - int(last or 0)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
    return (start, end) if start < end else (0, size)


def disposition(name: str, *, is_shown: bool) -> bytes:
    """The header that names a file, to be shown in the browser or saved."""
    plain = "".join(char if (char.isascii() and char.isalnum()) or char in "._- " else "_" for char in name)
    how = "inline" if is_shown else "attachment"
    return f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}".encode()


class BytesAnswer(Streaming):
    def __init__(
        self, first: bytes, pieces: AsyncGenerator[bytes, None], head: list[tuple[bytes, bytes]], status: int
    ) -> None:
        self._first = first
        self._pieces = pieces
        self._head = head
        self._status = status

    @classmethod
    async def open(
        cls,
        pieces: AsyncGenerator[bytes, None],
        start: int,
        end: int,
        size: int,
        media: str,
        headers: tuple[tuple[bytes, bytes], ...],
    ) -> Self:
        """Read the first piece: bytes that are missing are an error, not half an answer."""
        first = await anext(pieces, b"")
        head = [
            (b"content-type", media.encode()),
            (b"content-length", str(end - start).encode()),
            (b"accept-ranges", b"bytes"),
            *headers,
        ]
        is_part = end - start < size
        if is_part:
            head.append((b"content-range", f"bytes {start}-{end - 1}/{size}".encode()))
        return cls(first, pieces, head, 206 if is_part else 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self._status, "headers": self._head})
            if scope["method"] == "HEAD" or not await self._send_all(send):
                await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, EverturnError) as error:
            # The reader takes nothing, or bytes are damaged. The length has been sent, so only a connection
            # that breaks off says that the answer is not whole.
            _log.warning("a download broke off: %s", error)
            abort = scope.get("extensions", {}).get("everturn.abort")
            if abort is not None:
                abort()
        finally:
            await self._pieces.aclose()

    async def _send_all(self, send: Send) -> bool:
        """Send every piece; False if there was none, so that the answer is not ended yet."""
        piece = self._first
        while piece:
            following = await anext(self._pieces, b"")
            with anyio.fail_after(_SEND_TIMEOUT_S):
                await send({"type": "http.response.body", "body": piece, "more_body": bool(following)})
            if not following:
                return True
            piece = following
        return False
