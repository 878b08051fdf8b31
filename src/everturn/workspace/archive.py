"""A version of a workspace as a ZIP file, piece by piece: memory does not grow with its size.

Links come last: while a program unpacks the files, no link is there that could lead it out of its folder.
What the version does not hold, and what cannot be read, is listed in a file at the end.
"""

from __future__ import annotations

import re
import stat
import time
import zipfile
from collections.abc import AsyncGenerator, Container
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Final

import anyio.to_thread

from everturn.domain.errors import BlobDamaged, BlobMissing, NotFound, WorkspaceUnreadable
from everturn.domain.trees import Entry, Kind, Reason, show_path
from everturn.workspace.versions import Found, Versions
from everturn.workspace.views import View

MISSING: Final = "everturn-left-out.txt"
_WHOLE_BYTES_MAX: Final = 1 << 20  # read before its entry is begun, so that a damaged one can be left out
_INLINE_BYTES_MAX: Final = 64 << 10  # compressed without a thread
_PIECE_BYTES_MIN: Final = 64 << 10
# A backslash separates folders on Windows; control characters would reach the terminal that lists them.
_UNSAFE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")
_YEAR_MIN: Final = 1980  # ZIP knows no earlier one
# Already compressed: trying again costs time and gains nothing.
_COMPRESSED: Final = frozenset(
    {
        ".7z",
        ".avif",
        ".br",
        ".bz2",
        ".docx",
        ".flac",
        ".gif",
        ".gz",
        ".jpeg",
        ".jpg",
        ".m4a",
        ".mkv",
        ".mov",
        ".mp3",
        ".mp4",
        ".ogg",
        ".pdf",
        ".png",
        ".pptx",
        ".rar",
        ".webm",
        ".webp",
        ".woff2",
        ".xlsx",
        ".xz",
        ".zip",
        ".zst",
    }
)


class ZipSink:
    """Receives a ZIP file as it is written, and gives it out in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def flush(self) -> None:
        """There is nothing to flush."""

    def take(self, at_least: int = 0) -> bytes:
        if len(self._data) < at_least:
            return b""
        data, self._data = bytes(self._data), bytearray()
        return data


class Archive:
    """``now``: a view of the folder itself, which also has the files that are too large for a checkpoint.
    ``only``: these paths alone; None: everything."""

    def __init__(
        self, versions: Versions, now_s: float, now: View | None = None, only: Container[bytes] | None = None
    ) -> None:
        self._versions = versions
        self._now = now
        self._only = only
        self._date = _date_of(now_s)
        self._sink = ZipSink()
        self._zip = zipfile.ZipFile(self._sink, "w")  # type: ignore[call-overload]  # it needs write() and flush()
        self._links: list[tuple[str, Entry]] = []
        self._missing: list[str] = []

    async def pieces(self, root: Found) -> AsyncGenerator[bytes, None]:
        """The archive of a folder or a file. Breaks off if a large file is damaged. Raises BlobDamaged,
        BlobMissing, and whatever else the blobs raise."""
        if root.entry.kind is Kind.FOLDER:
            async with aclosing(self._versions.walk(root.entry.sha256, root.path)) as walk:
                async for path, entry in walk:
                    if self._only is not None and path not in self._only:
                        continue
                    inner = path[len(root.path) :].lstrip(b"/")
                    async with aclosing(self._member(path, show_path(inner), entry)) as pieces:
                        async for piece in pieces:
                            yield piece
        else:
            async with aclosing(self._member(root.path, show_path(root.entry.name), root.entry)) as pieces:
                async for piece in pieces:
                    yield piece
        for name, link in self._links:
            if self._is_free(name):
                await self._whole(name, link)
            if piece := self._sink.take(_PIECE_BYTES_MIN):
                yield piece
        if self._missing:
            text = "Not in this archive:\n" + "".join(f"{line}\n" for line in self._missing)
            self._zip.writestr(self._info(MISSING, stat.S_IFREG | 0o644), text)
        self._zip.close()
        yield self._sink.take()

    async def _member(self, path: bytes, name: str, entry: Entry) -> AsyncGenerator[bytes, None]:
        name = _UNSAFE.sub("_", name)
        if entry.kind is Kind.LINK:
            self._links.append((name, entry))
        elif not self._is_free(name):
            return
        elif entry.kind is Kind.FOLDER:
            self._zip.writestr(self._info(name + "/", stat.S_IFDIR | entry.mode), b"")
        elif entry.kind is Kind.LEFT_OUT:
            async for piece in self._take_left_out(show_path(path), name, entry):
                yield piece
        elif entry.size > _WHOLE_BYTES_MAX:
            info = self._info(name, stat.S_IFREG | entry.mode, entry.size)
            async for piece in self._stream(info, self._versions.read(entry)):
                yield piece
        else:
            await self._whole(name, entry)
        if piece := self._sink.take(_PIECE_BYTES_MIN):
            yield piece

    def _is_free(self, name: str) -> bool:
        """False if an entry has this name already: different names can become equal in an archive."""
        is_taken = name in self._zip.NameToInfo or f"{name}/" in self._zip.NameToInfo
        if is_taken:
            self._missing.append(f"{name}: another file has this name here")
        return not is_taken

    async def _whole(self, name: str, entry: Entry) -> None:
        try:
            data = await self._versions.bytes_of(entry.sha256)
        except (BlobMissing, BlobDamaged):
            self._missing.append(f"{name}: its bytes are damaged")
            return
        mode = stat.S_IFLNK | 0o777 if entry.kind is Kind.LINK else stat.S_IFREG | entry.mode
        info = self._info(name, mode, len(data))
        if len(data) <= _INLINE_BYTES_MAX:
            self._zip.writestr(info, data)
        else:
            await anyio.to_thread.run_sync(self._zip.writestr, info, data)

    async def _take_left_out(self, path: str, name: str, entry: Entry) -> AsyncGenerator[bytes, None]:
        if self._now is not None and entry.reason is Reason.TOO_LARGE:
            try:
                file = await self._now.open(path)
            except (NotFound, WorkspaceUnreadable):
                self._missing.append(f"{name}: it was changed meanwhile")
                return
            info = self._info(name, stat.S_IFREG | 0o644, file.size)
            async for piece in self._stream(info, file.read(0, file.size)):
                yield piece
        else:
            self._missing.append(f"{name}: {entry.reason}")

    async def _stream(
        self, info: zipfile.ZipInfo, pieces: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(pieces):
            with self._zip.open(info, "w", force_zip64=info.file_size >= zipfile.ZIP64_LIMIT) as member:
                async for piece in pieces:
                    await anyio.to_thread.run_sync(member.write, piece)
                    if out := self._sink.take(_PIECE_BYTES_MIN):
                        yield out

    def _info(self, name: str, mode: int, size: int = 0) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(name, self._date)
        info.external_attr = (mode & 0xFFFF) << 16
        info.file_size = size
        is_compressed = PurePosixPath(name).suffix.lower() in _COMPRESSED
        info.compress_type = zipfile.ZIP_STORED if is_compressed else zipfile.ZIP_DEFLATED
        return info


def _date_of(now_s: float) -> tuple[int, int, int, int, int, int]:
    found = time.gmtime(now_s)
    return (
        max(found.tm_year, _YEAR_MIN),
        found.tm_mon,
        found.tm_mday,
        found.tm_hour,
        found.tm_min,
        found.tm_sec,
    )
