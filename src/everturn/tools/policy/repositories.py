"""Finds everything in a project that Git takes for a repository, and every socket."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable

import msgspec

GIT = ".git"
MARKS = ("HEAD", "objects", "refs", "commondir")
_NOT_WALKED = frozenset({"objects", "refs", "logs", "lfs"})  # of a repository
_ENTRIES_MAX = 1_000_000
_MADE_MAX = 1_000  # sockets of commands that are remembered
_LIST_AND_ENTER = stat.S_IRUSR | stat.S_IXUSR
# A folder that changed so shortly before it was read may have changed again within the clock's last step.
_UNSURE_NS = 2_000_000_000


class RepositoryScan(msgspec.Struct, frozen=True):
    """``paths``: those at the top first. ``is_cut``: there may be more, because the project is too large.
    ``closed``: our own folders that we may not list or enter. Git needs no list to find ``.git`` in one.
    ``sockets``: files at which a server may listen."""

    paths: tuple[str, ...]
    is_cut: bool = False
    closed: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()


class _Folder(msgspec.Struct, frozen=True):
    """What was read of a folder. It is read again when its inode says that it changed."""

    state: tuple[int, int, int]
    is_sure: bool
    is_repository: bool
    git: tuple[str, ...]  # its entries of that name
    folders: tuple[str, ...]
    entries: int
    sockets: tuple[str, ...] = ()
    is_closed: bool = False


class Repositories:
    """The repositories and sockets of one project. It remembers the folders that it has read: a second scan
    of 50,000 files takes a tenth of the time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._read: dict[str, _Folder] = {}
        self._made: dict[str, None] = {}

    def is_made(self, version: str) -> bool:
        """True if a command made the socket of this version: no server of the owner listens there."""
        return version in self._made

    def record_made(self, versions: Iterable[str]) -> None:
        """Remember sockets that appeared while a command ran."""
        self._made.update(dict.fromkeys(versions))
        while len(self._made) > _MADE_MAX:
            del self._made[next(iter(self._made))]

    def find(self) -> RepositoryScan:
        """The paths of folders, of files that name a folder, and of links. May be called by many threads."""
        found: dict[str, None] = {}
        read: dict[str, _Folder] = {}
        entries = 0
        waiting = [self._root]
        while waiting:
            path = waiting.pop()
            folder = _look(path, self._read.get(path))
            if folder is None:
                continue
            read[path] = folder
            entries += folder.entries
            if folder.is_repository:
                found[path] = None
            found.update((f"{path}/{name}", None) for name in folder.git)
            if entries > _ENTRIES_MAX:
                break
            skipped = _NOT_WALKED if path in found else frozenset()
            waiting += [f"{path}/{name}" for name in folder.folders if name not in skipped]
        self._read = read
        return RepositoryScan(
            tuple(sorted(found, key=lambda path: path.count("/"))),
            is_cut=entries > _ENTRIES_MAX,
            closed=tuple(path for path, folder in read.items() if folder.is_closed),
            sockets=tuple(f"{path}/{name}" for path, folder in read.items() for name in folder.sockets),
        )


def is_repository(names: set[str]) -> bool:
    """True if a folder with these entries is a repository; its name does not matter."""
    return "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names)


def _look(path: str, known: _Folder | None) -> _Folder | None:
    """Read a folder, unless it is as it was. None if it is gone, is a link, or may not be read."""
    try:
        at = os.lstat(path)
        if not stat.S_ISDIR(at.st_mode):
            return None
        # Not mtime, which any program can set.
        state = (at.st_dev, at.st_ino, at.st_ctime_ns)
        if known is not None and known.is_sure and known.state == state:
            return known
        now = time.time_ns()
        if _is_closed(at):
            return _Folder(state, False, False, (), (), 0, is_closed=True)
        with os.scandir(path) as listing:
            inside = [(entry.name, _kind(entry)) for entry in listing]
    except OSError:
        return None
    return _Folder(
        state=state,
        is_sure=at.st_ctime_ns < now - _UNSURE_NS,
        is_repository=is_repository({name for name, _ in inside}),
        git=tuple(name for name, _ in inside if name.casefold() == GIT),
        folders=tuple(name for name, kind in inside if kind == stat.S_IFDIR),
        entries=len(inside),
        sockets=tuple(name for name, kind in inside if kind == stat.S_IFSOCK),
    )


def _kind(entry: os.DirEntry[str]) -> int:
    """Its kind, of a link itself. Only what is rare costs a system call: the listing tells the rest."""
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_symlink():
        return stat.S_IFLNK
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0  # removed since it was listed


def _is_closed(folder: os.stat_result) -> bool:
    """True if the folder is ours and we may not list or enter it. Root always may."""
    return folder.st_uid == os.geteuid() != 0 and folder.st_mode & _LIST_AND_ENTER != _LIST_AND_ENTER
