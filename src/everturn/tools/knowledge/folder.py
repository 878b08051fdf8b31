"""Lists and opens the files of a knowledge folder. Links are never followed."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio.to_thread
import msgspec

from everturn.domain.media import SNIFF_BYTES, document_kind, sniff_media_type
from everturn.tools.paths import FolderHandle, open_folder

FILES_MAX = 20_000
_DEPTH_MAX = 32
_PIECE_BYTES = 1 << 20
_LEFT_OUT = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
_KINDS_OF_TEXT = ("text/", "application/json", "application/xml")


class Listed(msgspec.Struct, frozen=True):
    """The versions of a folder's files by path. ``is_cut``: the folder has more files than are listed."""

    versions: dict[str, str]
    is_cut: bool = False


def list_folder(folder: Path) -> Listed:
    """List the files except hidden ones, links and dependency folders. Raises OSError."""
    found: dict[str, str] = {}
    fd = open_folder(folder)
    try:
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)
    for path, version in _walk(here, "", 0):
        if len(found) >= FILES_MAX:
            return Listed(found, is_cut=True)
        found[path] = version
    return Listed(found)


def _walk(fd: int, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the files of an open folder with their versions, and close it."""
    folders: list[str] = []
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.name.startswith(".") or not entry.name.isprintable():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    yield f"{path}{entry.name}", f"{info.st_mtime_ns}:{info.st_size}:{info.st_ino}"
        for name in sorted(set(folders) - _LEFT_OUT) if depth < _DEPTH_MAX else ():
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except OSError:
                continue  # removed in the meantime, or not readable
            yield from _walk(inner, f"{path}{name}/", depth + 1)
    finally:
        os.close(fd)


def open_file(folder: Path, path: str) -> tuple[int, str | None, int]:
    """Open a file. Return its descriptor, how it is converted (None if it has no text) and its size.

    The caller closes it. Raises OSError.
    """
    with FolderHandle(folder) as files:
        fd = files.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a regular file")
        return fd, kind_of_head(path, os.pread(fd, SNIFF_BYTES, 0)), info.st_size
    except BaseException:
        os.close(fd)
        raise


def kind_of_head(name: str, head: bytes) -> str | None:
    media = sniff_media_type(head, name)
    return document_kind(name, media) or ("text" if media.startswith(_KINDS_OF_TEXT) else None)


async def pieces(fd: int) -> AsyncIterator[bytes]:
    at = 0
    while piece := await anyio.to_thread.run_sync(os.pread, fd, _PIECE_BYTES, at):
        yield piece
        at += len(piece)
