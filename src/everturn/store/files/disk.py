"""Files of the data folder: synced before anything names them, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from everturn.domain.errors import DiskFull, DiskReadOnly, EverturnError, StoreBroken


class Disk:
    """The real disk. A test's disk overrides these few calls to fill up, to fail or to forget, and names the
    virtual file system by which SQLite writes to it."""

    def __init__(self, vfs: str | None = None) -> None:
        self.vfs = vfs

    def sync_file(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)


def make_folder(disk: Disk, folder: Path) -> None:
    """Make a folder and those above it that are missing. What is synced inside it is there after a power cut
    only if the folder is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in missing:
        with contextlib.suppress(PermissionError):  # one that may be written and not read cannot be synced
            disk.sync_folder(made.parent)


def write_atomically(disk: Disk, target: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, also after a power cut."""
    temporary = _beside(target)
    try:
        with report_errors(target):
            write_new(disk, temporary, data)
            disk.rename(temporary, target)
            disk.sync_folder(target.parent)  # guard: a15
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_file(disk: Disk, target: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of the target when the context ends without an error."""
    temporary = _beside(target)
    try:
        with report_errors(target):
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                disk.sync_file(descriptor)
            disk.rename(temporary, target)
            disk.sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}-{os.getpid()}-{os.urandom(8).hex()}")


def write_new(disk: Disk, temporary: Path, data: bytes) -> None:
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        disk.write(descriptor, data)
        disk.sync_file(descriptor)  # guard: a15
    finally:
        os.close(descriptor)


def go_on() -> None:
    """The check of long work that nothing stops."""


def sync_tree(disk: Disk, folder: Path, check: Callable[[], None] = go_on) -> None:
    """Make everything below a folder that was just written durable, and the folder itself. A link is
    durable with its folder, and what it names is not ours. ``check`` is called between two files, and may
    raise to end it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            check()
            path = Path(parent) / name
            if path.is_symlink():
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                disk.sync_file(descriptor)
            finally:
                os.close(descriptor)
        disk.sync_folder(Path(parent))
    disk.sync_folder(folder.parent)


class report_errors:  # noqa: N801 - reads as a word where it is used: "with report_errors(path):"
    """Raise the operating system's errors as EverturnErrors that say what is safe and what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise explain_error(error, self._path) from error


def explain_error(error: OSError, path: Path) -> EverturnError:
    where = f"{path.name} in the data folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"Could not write {where}: the disk is full. Nothing names the new file.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return DiskReadOnly(f"Could not write {where}: it is read-only.")
    return StoreBroken(f"Could not write {where}: {error.strerror or error}.")
