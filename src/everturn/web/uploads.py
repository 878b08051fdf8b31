"""Uploads: streamed to a file in the data folder, within bounds, with a checked name and type."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio.to_thread
import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from everturn.domain.errors import DiskFull
from everturn.domain.media import RAW, SNIFF_BYTES, safe_name, sniff_media_type
from everturn.web.http.asgi import Receive
from everturn.web.http.problems import BadRequest, BodyTooLarge, NotJson
from everturn.web.http.routing import pieces_of

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FORM = "multipart/form-data"
_FLUSH_BYTES = 1_000_000
_FIELD_BYTES_MAX = 10_000
_REST_BYTES_MAX = 1_000_000  # of a form, beside its file
_PARTS_MAX = 100  # each costs time, and all but one are thrown away
_PREFIX = "upload-"
_LEFT_BEHIND_MS = 3_600_000

# Only these are ever shown inside a page; everything else is handed over as a download.
SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})


class Upload(msgspec.Struct, frozen=True):
    name: str
    media_type: str
    size: int
    path: Path


class Uploads:
    """``folder``: inside the data folder, so that the store can take a file over without copying it."""

    def __init__(self, folder: Path, bytes_max: int, timeout_s: float) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def receive(
        self, headers: Mapping[str, str], receive: Receive, name: str | None
    ) -> AsyncIterator[Upload]:
        """The body on disk; the temporary file is gone when the context ends.

        Raises BodyTooLarge, BodyTooSlow, NotJson (another content type), BadRequest, DiskFull.
        """
        given = headers.get("content-type", "")
        media = given.partition(";")[0].strip().lower()
        if media not in (RAW, FORM):
            raise NotJson(given, f"{RAW} or {FORM}")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._bytes_max + (_REST_BYTES_MAX if media == FORM else 0):
            raise BodyTooLarge(self._bytes_max, is_file=True)
        await anyio.to_thread.run_sync(lambda: self._folder.mkdir(parents=True, exist_ok=True))
        part = _Part(self._folder, self._bytes_max)
        try:
            if media == RAW:
                part.begin(name or "file")
                async for piece in pieces_of(receive, self._timeout_s):
                    await part.write(piece)
            else:
                await self._read_form(given, receive, part, name)
            yield await part.finish()
        finally:
            part.discard()

    async def clear(self, now_ms: int) -> int:
        """Remove what a crash left of uploads; younger ones may be another process's."""
        return await anyio.to_thread.run_sync(self._clear, now_ms - _LEFT_BEHIND_MS)

    def _clear(self, before_ms: int) -> int:
        cleared = 0
        for path in self._folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(FileNotFoundError):  # another process clears it too, or its upload ended
                if path.stat().st_mtime * 1000 < before_ms:
                    path.unlink()
                    cleared += 1
        return cleared

    async def _read_form(self, given: str, receive: Receive, part: _Part, name: str | None) -> None:
        boundary = parse_options_header(given)[1].get(b"boundary")
        if not boundary:
            raise BadRequest("The form has no boundary.", hint="Let the client set Content-Type by itself.")
        form, size = _Form(part, name), 0
        try:
            parser = MultipartParser(boundary, form.callbacks())
            async for piece in pieces_of(receive, self._timeout_s):
                size += len(piece)
                if size > self._bytes_max + _REST_BYTES_MAX:  # other parts are discarded, but count
                    raise BodyTooLarge(self._bytes_max, is_file=True)
                parser.write(piece)
                await part.flush()
        except FormParserError as error:
            raise BadRequest(f"The form is malformed: {error}.") from error
        if not part.has_begun or not form.is_complete:
            raise BadRequest("The form has no complete file in it.", hint="Name the field 'file'.")


class _Form:
    """Takes the first part of a form that has a file name, and ignores the rest."""

    def __init__(self, part: _Part, name: str | None) -> None:
        self._part = part
        self._name = name
        self._headers: dict[bytes, bytes] = {}
        self._field = b""
        self._value = b""
        self._is_inside = False
        self._parts = 0
        self.is_complete = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_field,
            "on_header_value": self._on_value,
            "on_header_end": self._on_header,
            "on_headers_finished": self._on_headers,
            "on_part_data": self._on_data,
            "on_part_end": self._on_end,
        }

    def _begin(self) -> None:
        self._headers = {}
        self._parts += 1
        if self._parts > _PARTS_MAX:
            raise BadRequest(f"The form has more than {_PARTS_MAX} parts.", hint="Send one file.")

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._check_length(self._field)

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_length(self._value)

    def _check_length(self, text: bytes) -> None:
        if len(text) > _FIELD_BYTES_MAX:
            raise BadRequest("A header inside the form is too long.")

    def _on_header(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if b"filename" in options and not self._part.has_begun:
            self._part.begin(self._name or options[b"filename"].decode("utf-8", "replace"))
            self._is_inside = True

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_inside:
            self._part.take(data[start:end])

    def _on_end(self) -> None:
        if self._is_inside:
            self._is_inside = False
            self.is_complete = True


class _Part:
    """A file that grows. Disk writes happen in a thread, a megabyte at a time."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._file: IO[bytes] | None = None
        self._name = ""
        self._head = b""
        self._size = 0
        self._pending = bytearray()

    @property
    def has_begun(self) -> bool:
        return self._file is not None

    def begin(self, name: str) -> None:
        self._name = safe_name(name)
        descriptor, path = tempfile.mkstemp(dir=self._folder, prefix=_PREFIX)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._path = Path(path)

    def take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._bytes_max:
            raise BodyTooLarge(self._bytes_max, is_file=True)
        if len(self._head) < SNIFF_BYTES:
            self._head += data[: SNIFF_BYTES - len(self._head)]
        self._pending += data

    async def write(self, data: bytes) -> None:
        self.take(data)
        await self.flush()

    async def flush(self, *, at_least: int = _FLUSH_BYTES) -> None:
        if self._file is None or len(self._pending) < at_least:
            return
        data, self._pending = bytes(self._pending), bytearray()
        try:
            await anyio.to_thread.run_sync(self._file.write, data)
        except OSError as error:
            raise DiskFull("The upload could not be written to the data folder.") from error

    async def finish(self) -> Upload:
        await self.flush(at_least=1)
        assert self._file is not None  # noqa: S101 - both ways of reading begin the part or raise
        self._file.close()
        return Upload(self._name, sniff_media_type(self._head, self._name), self._size, self._path)

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)  # the store took its own copy, or moved it away
