"""A workspace as the page shows it: the entries of a folder, and files by a part of their name.

Everything is opened beneath a handle of the workspace, as tools do, so a link that leads out is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from everturn.domain.errors import Denied, DiskFull, Invalid, NotFound
from everturn.tools.files.search_program import Walk
from everturn.tools.paths import FolderHandle, OutsideWorkspace
from everturn.tools.schema import ToolFailed
from everturn.tools.temporary_files import is_temporary

FOLDER_ENTRIES_MAX = 2_000
FOUND_MAX = 100
LOOKED_AT_MAX = 50_000
LOOK_S = 1.0


class WorkspaceFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind``: file | folder | link | other, and left_out in an older version, for the given ``reason``.
    ``path`` begins at the workspace. A file of an older version has a hash and no time."""

    path: str
    name: str
    kind: str
    size: int
    modified_at: int | None = None
    sha256: str | None = None
    reason: str | None = None


class FileList(msgspec.Struct, frozen=True):
    """``is_cut``: there are more than these."""

    path: str
    files: tuple[WorkspaceFile, ...]
    is_cut: bool


def files_in(workspace: Path, path: str) -> FileList:
    """What is in one folder, folders first. Raises NotFound, Invalid, Denied."""
    with FolderHandle(workspace) as beneath:
        name, fd = open_beneath(beneath, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                listed = (entry.name for entry in entries if not is_temporary(os.fsencode(entry.name)))
                names = list(islice(listed, FOLDER_ENTRIES_MAX + 1))
            base = "" if name == "." else f"{name}/"
            found = [
                one for each in names[:FOLDER_ENTRIES_MAX] if (one := _stat_entry(fd, base, each)) is not None
            ]
        finally:
            os.close(fd)
    return FileList(name, folders_first(found), len(names) > FOLDER_ENTRIES_MAX)


def folders_first(files: Iterable[WorkspaceFile]) -> tuple[WorkspaceFile, ...]:
    return tuple(sorted(files, key=lambda one: (one.kind != "folder", one.name.casefold(), one.name)))


def files_named(workspace: Path, path: str, part: str, monotonic: Callable[[], float]) -> FileList:
    """Files and folders beneath a folder whose path has this part, best first: those whose name begins with
    it, then those whose name has it. What .gitignore leaves out, and what is hidden, is left out."""
    with FolderHandle(workspace) as beneath:
        name, fd = open_beneath(beneath, path, os.O_RDONLY | os.O_DIRECTORY)
        with closing(_BoundedWalk(fd, monotonic)) as looking:
            base = "" if name == "." else f"{name}/"
            found = best_named((_file_of(base, inner, status) for inner, status in looking.files()), part)
    return FileList(name, tuple(found[:FOUND_MAX]), looking.is_cut or len(found) > FOUND_MAX)


def best_named(files: Iterable[WorkspaceFile], part: str) -> list[WorkspaceFile]:
    """Those whose path has this part, best first."""
    wanted = part.casefold()
    ranked = []
    for one in files:
        rank = _rank(one, wanted)
        if rank is not None:
            ranked.append(((rank, one.path.count("/"), one.path), one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


class _BoundedWalk:
    """A walk with a limit on entries and on time."""

    def __init__(self, root: int, monotonic: Callable[[], float]) -> None:
        self._root = root
        self._monotonic = monotonic
        self.is_cut = False

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        until = self._monotonic() + LOOK_S
        with closing(Walk(self._root, everything=False).files(".", None)) as walk:  # type: ignore[type-var]  # a generator, which can be closed
            for count, (path, found, _) in enumerate(walk):
                if count >= LOOKED_AT_MAX or self._monotonic() > until:
                    self.is_cut = True
                    return
                yield path, found

    def close(self) -> None:
        os.close(self._root)


def open_beneath(beneath: FolderHandle, path: str, flags: int) -> tuple[str, int]:
    """The path as it is shown, and a handle; the caller closes it. Raises NotFound, Invalid, Denied."""
    with refusals(path):
        return beneath.name(path or "."), beneath.open(path or ".", flags)


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Says of a path that cannot be used why that is. Raises NotFound, Invalid, Denied, DiskFull."""
    try:
        yield
    except OutsideWorkspace as error:
        raise Denied(str(error)) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound("file", path[:200]) from error
    except PermissionError as error:
        raise Denied(f"{path[:200]} may not be read.") from error
    except (OSError, ToolFailed, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{path[:200]} was not written: the disk is full.") from error
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid(f"{path[:200]!r} cannot be used: {why.rstrip('.')}.") from error


def _stat_entry(folder: int, base: str, name: str) -> WorkspaceFile | None:
    try:
        return _file_of(base, name, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None  # removed since it was listed


def _file_of(base: str, inner: str, found: os.stat_result) -> WorkspaceFile:
    kinds = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    # A name that is not text is shown with a mark, and cannot be opened by it.
    path = os.fsencode(base + inner).decode("utf-8", "replace")
    return WorkspaceFile(path, path.rpartition("/")[2], kind, found.st_size, _ms(found))


def _rank(one: WorkspaceFile, wanted: str) -> int | None:
    name = one.name.casefold()
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    return 2 if wanted in one.path.casefold() else None


def _ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000
