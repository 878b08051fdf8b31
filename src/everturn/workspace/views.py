"""A session's files at one point of its history: in its folder, or in a tree of the store.

Both views answer the same questions, and never with anything from outside the workspace.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread
import msgspec

from everturn.domain.errors import Invalid, NotFound, WorkspaceUnreadable
from everturn.domain.trees import Entry, Kind, show_path
from everturn.tools.files.browse import (
    FOLDER_ENTRIES_MAX,
    FOUND_MAX,
    LOOKED_AT_MAX,
    FileList,
    WorkspaceFile,
    best_named,
    files_in,
    files_named,
    folders_first,
    open_beneath,
)
from everturn.tools.paths import FolderHandle
from everturn.workspace.index import Stamp
from everturn.workspace.scan import join, stamp_of
from everturn.workspace.versions import Versions

HASHED_BYTES_MAX: Final = 16 << 20  # a file in a folder is read once more for its hash
_PIECE: Final = 256 << 10
_SIZE: Final = 3  # its place in a stamp
_READ: Final = os.O_RDONLY | os.O_NONBLOCK  # a pipe must not block the reader


class OpenedFile(msgspec.Struct, frozen=True):
    """A file that can be read, from one byte up to another. ``tag`` changes with its content; ``sha256`` is
    None if the file is too large to be hashed on each read."""

    path: str
    size: int
    sha256: str | None
    tag: str
    read: Callable[[int, int], AsyncGenerator[bytes, None]]


class View(Protocol):
    async def list(self, path: str) -> FileList:
        """What is in one folder, folders first. Raises NotFound, Invalid, Denied."""
        ...

    async def search(self, path: str, part: str) -> FileList:
        """Files and folders beneath a folder by a part of their path, best first."""
        ...

    async def open(self, path: str) -> OpenedFile:
        """Raises NotFound, Invalid if it is not a file, Denied. Reading raises WorkspaceUnreadable if the
        file changes meanwhile, and what the blobs raise."""
        ...


class FolderView:
    """The files as they are in the folder now."""

    def __init__(self, folder: Path, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._monotonic = monotonic

    async def list(self, path: str) -> FileList:
        return await anyio.to_thread.run_sync(files_in, self._folder, path)

    async def search(self, path: str, part: str) -> FileList:
        return await anyio.to_thread.run_sync(files_named, self._folder, path, part, self._monotonic)

    async def open(self, path: str) -> OpenedFile:
        name, stamp, sha256 = await anyio.to_thread.run_sync(_look, self._folder, path)
        size = stamp[_SIZE]
        return OpenedFile(
            name, size, sha256, _tag(stamp, sha256), lambda start, end: self._read(path, stamp, start, end)
        )

    async def _read(self, path: str, stamp: Stamp, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes, in pieces. The last one is given only if the file has not changed since ``open``."""
        name, handle = await anyio.to_thread.run_sync(_open, self._folder, path)
        try:
            at = start
            _check_same(handle, stamp, name)
            while at < end:
                piece = await anyio.to_thread.run_sync(os.pread, handle, min(_PIECE, end - at), at)
                at += len(piece)
                if not piece or at >= end:
                    _check_same(handle, stamp, name)
                yield piece
        finally:
            os.close(handle)


def tag_of(folder: Path, path: str) -> str | None:
    """What ``OpenedFile.tag`` of this file is now; None if there is none."""
    try:
        _, stamp, sha256 = _look(folder, path)
    except NotFound:
        return None
    return _tag(stamp, sha256)


def _tag(stamp: Stamp, sha256: str | None) -> str:
    return sha256 or "-".join(f"{number:x}" for number in stamp)


def _look(folder: Path, path: str) -> tuple[str, Stamp, str | None]:
    name, handle = _open(folder, path)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Invalid(f"{name} is not a file.", hint="Name a file; an archive takes a folder.")
        sha256 = _hash(handle) if status.st_size <= HASHED_BYTES_MAX else None
        _check_same(handle, stamp_of(status), name)
    finally:
        os.close(handle)
    return name, stamp_of(status), sha256


def _open(folder: Path, path: str) -> tuple[str, int]:
    with FolderHandle(folder) as beneath:
        return open_beneath(beneath, path, _READ)


def _hash(handle: int) -> str:
    with open(handle, "rb", buffering=0, closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_same(handle: int, stamp: Stamp, name: str) -> None:
    if stamp_of(os.fstat(handle)) != stamp:
        raise WorkspaceUnreadable(
            f"{name} was changed while it was read. The file itself is fine.", hint="Read it again."
        )


class TreeView:
    """The files of a tree."""

    def __init__(self, versions: Versions, tree: str) -> None:
        self._versions = versions
        self._tree = tree

    async def list(self, path: str) -> FileList:
        here, entry = await self._folder(path)
        inner = (await self._versions.tree(entry.sha256)).entries
        found = folders_first(_file_of(join(here, one.name), one) for one in inner)
        return FileList(show_path(here) or ".", found[:FOLDER_ENTRIES_MAX], len(found) > FOLDER_ENTRIES_MAX)

    async def search(self, path: str, part: str) -> FileList:
        here, entry = await self._folder(path)
        files: list[WorkspaceFile] = []
        async for at, one in self._versions.walk(entry.sha256, here):
            files.append(_file_of(at, one))
            if len(files) >= LOOKED_AT_MAX:
                break
        found = best_named(files, part)
        is_cut = len(files) >= LOOKED_AT_MAX or len(found) > FOUND_MAX
        return FileList(show_path(here) or ".", tuple(found[:FOUND_MAX]), is_cut)

    async def open(self, path: str) -> OpenedFile:
        found = await self._versions.find(self._tree, path)
        entry, name = found.entry, show_path(found.path)
        if entry.kind is Kind.LEFT_OUT:
            raise NotFound("stored version of", name[:200])
        if entry.kind is not Kind.FILE:
            raise Invalid(f"{name or '.'} is not a file.", hint="Name a file; an archive takes a folder.")
        return OpenedFile(
            name,
            entry.size,
            entry.sha256,
            entry.sha256,
            lambda start, end: self._versions.read(entry, start, end),
        )

    async def _folder(self, path: str) -> tuple[bytes, Entry]:
        found = await self._versions.find(self._tree, path)
        if found.entry.kind is not Kind.FOLDER:
            raise NotFound("folder", path[:200])
        return found.path, found.entry


def _file_of(path: bytes, entry: Entry) -> WorkspaceFile:
    is_file = entry.kind is Kind.FILE
    return WorkspaceFile(
        show_path(path),
        show_path(entry.name),
        entry.kind.value,
        0 if entry.kind is Kind.FOLDER else entry.size,
        sha256=entry.sha256 if is_file else None,
        reason=None if entry.reason is None else entry.reason.value,
    )
