"""Copies a tree that others may be writing to and that may hold links, pipes and unreadable files.

Links are copied as links and never followed, not even one that takes a folder's place meanwhile: what a
command puts into its workspace must not bring a file from elsewhere into a backup.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from everturn.store.files.disk import go_on

DEPTH_MAX = 200  # folders in folders; each of them is held open while those below are copied
_MODE = 0o777  # not setuid and setgid: the copy belongs to the user who makes it, perhaps root
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copy_tree(
    source: Path, target: Path, *, links_below: int = 0, check: Callable[[], None] = go_on
) -> list[str]:
    """Copy what lies in a folder, as it is, into another one, which is made if need be.

    Returns a line for each thing that could not be copied: sockets, pipes and devices, and what may not be
    read. What goes away meanwhile is left out. ``links_below``: links are copied only in folders that lie so
    deep; 1 leaves out those at the top. ``check`` is called before each entry, and may raise to end the copy.
    Raises OSError where the copy cannot be written.
    """
    top = source.resolve()  # the folder may be a link to another place
    left_out: list[str] = []
    modes: list[tuple[Path, int]] = []
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for parent, folders, files, descriptor in os.fwalk(top, onerror=_note_errors_in(left_out)):
        at = Path(parent).relative_to(top)
        if len(at.parts) >= DEPTH_MAX:
            left_out += [f"{at / name}: too deep" for name in folders]
            folders.clear()
        for name in [*folders, *files]:
            check()
            takes_links = len(at.parts) >= links_below
            mode = _copy(descriptor, name, target / at / name, at / name, left_out, takes_links=takes_links)
            if mode is not None:
                modes.append((target / at / name, mode))
    for folder, mode in reversed(modes):  # at the end: into one that is read-only nothing can be put
        folder.chmod(mode)
    return left_out


def _note_errors_in(left_out: list[str]) -> Callable[[OSError], None]:
    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            left_out.append(f"{error.filename}: {error.strerror}")

    return note


def _copy(
    folder: int, name: str, target: Path, shown: Path, left_out: list[str], *, takes_links: bool
) -> int | None:
    """Copy one entry. Of a folder, only an empty one is made; its mode comes back, for when it is full."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        link = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(found.st_mode) else ""
    except FileNotFoundError:
        return None  # it has gone meanwhile
    except PermissionError as error:
        left_out.append(f"{shown}: {error.strerror}")
        return None
    if stat.S_ISDIR(found.st_mode):
        target.mkdir(mode=0o700, exist_ok=True)
        return found.st_mode & _MODE
    if link and not takes_links:
        left_out.append(f"{shown}: a link")
    elif link:
        target.symlink_to(link)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(folder, name, target, shown, left_out)
    else:
        left_out.append(f"{shown}: a {_kind(found.st_mode)}")
    return None


def _copy_file(folder: int, name: str, target: Path, shown: Path, left_out: list[str]) -> None:
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return  # it has gone meanwhile
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO):
            raise
        left_out.append(f"{shown}: {error.strerror}")
        return
    with os.fdopen(descriptor, "rb") as source:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            left_out.append(f"{shown}: a {_kind(found.st_mode)}")
            return
        with os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
            shutil.copyfileobj(source, copy)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        target.chmod(found.st_mode & _MODE)


def _kind(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "socket"
    return "pipe" if stat.S_ISFIFO(mode) else "device"
