"""Where packs are: the contract of a place, and the data folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import anyio.to_thread

from everturn.domain.errors import FileUnreadable
from everturn.store.files.disk import Disk, make_folder, report_errors

P = ParamSpec("P")
T = TypeVar("T")

CHUNK_BYTES = 1 << 20  # what is verified at once, and the largest piece that is held in memory
FOLDER = "blobs"
# Names of packs, and of the files of earlier versions, which are read where they are.
_PATH = re.compile(rf"{FOLDER}/pck_[0-9A-Za-z]+|files/[0-9a-f]{{2}}/[0-9a-f]{{64}}")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class PackGone(Exception):
    """The pack is not in its place, or ends too early."""


class PackWriter(Protocol):
    async def write(self, data: bytes) -> None: ...

    async def finish(self) -> None:
        """Make the bytes durable."""
        ...

    async def discard(self) -> None:
        """Free what can be freed at once. The row of the pack leaves the rest to the collector."""
        ...


class PackReader(Protocol):
    async def read(self, start: int, size: int, check: Callable[[bytes], None]) -> bytes:
        """Exactly so many bytes, after ``check`` was given them in a thread.

        Raises PackGone, FileUnreadable, StoreAway, StorageAway, and what ``check`` raises.
        """
        ...

    async def close(self) -> None: ...


class Packs(Protocol):
    """A place for packs."""

    def path(self, pack: str) -> str:
        """The name of a new pack in this place."""
        ...

    async def create(self, path: str) -> PackWriter: ...

    async def open(self, path: str) -> PackReader:
        """Raises PackGone, FileUnreadable, StoreAway, StorageAway, perhaps only when it is read."""
        ...

    async def delete(self, path: str) -> None:
        """Delete the bytes. Deleting them again is harmless."""
        ...

    async def size(self, path: str) -> int:
        """How many bytes of the pack are there; 0 if it is not there at all."""
        ...

    async def copy_to(self, path: str, backup: Path) -> None:
        """Copy the pack into a backup, unless the copy of the database has it. What is missing is left out:
        'everturn doctor' names it."""
        ...


async def in_thread(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run it in a thread and wait for its end, also when cancelled: it may use a descriptor that the caller
    closes next."""
    return await anyio.to_thread.run_sync(partial(act, *args, **kwargs))


class FolderPacks:
    """Files of the data folder. A path is relative to it, because the folder may move.

    Paths are checked: rows of a restored backup may hold any, and the collector deletes what they name.
    """

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self._data_dir = data_dir
        self._disk = disk
        self._is_made = False

    def path(self, pack: str) -> str:
        return f"{FOLDER}/{pack}"

    async def create(self, path: str) -> PackWriter:
        descriptor = await in_thread(self._create, path)
        return _FileWriter(self._data_dir / path, descriptor, self._disk)

    def _create(self, path: str) -> int:
        target = self._data_dir / path
        with report_errors(target):
            if not self._is_made:
                make_folder(self._disk, target.parent)
                # Even if it was there: the process that made it may not have synced it yet.
                self._disk.sync_folder(target.parent.parent)
                self._is_made = True
            return os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    async def open(self, path: str) -> PackReader:
        return _FileReader(await in_thread(self._open, path))

    def _open(self, path: str) -> int:
        if not _PATH.fullmatch(path):
            raise PackGone(f"{path!r} is not the name of a pack")
        try:
            return os.open(self._data_dir / path, _READ)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise PackGone(f"{path} in the data folder: {error.strerror}") from error
        except OSError as error:
            raise _unreadable(path, error) from error

    async def delete(self, path: str) -> None:
        await in_thread(self._delete, path)

    def _delete(self, path: str) -> None:
        if not _PATH.fullmatch(path):
            return
        target = self._data_dir / path
        with report_errors(target), contextlib.suppress(FileNotFoundError):
            target.unlink()
            self._disk.sync_folder(target.parent)

    async def size(self, path: str) -> int:
        return await in_thread(self._size, path)

    def _size(self, path: str) -> int:
        target = self._data_dir / path
        return target.stat().st_size if _PATH.fullmatch(path) and target.is_file() else 0

    async def copy_to(self, path: str, backup: Path) -> None:
        await in_thread(self._copy_to, path, backup)

    def _copy_to(self, path: str, backup: Path) -> None:
        if not _PATH.fullmatch(path):
            return
        target = backup / path
        with report_errors(target), contextlib.suppress(FileNotFoundError):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(self._data_dir / path, target, follow_symlinks=False)


class _FileWriter:
    def __init__(self, path: Path, descriptor: int, disk: Disk) -> None:
        self._path = path
        self._descriptor = descriptor
        self._disk = disk

    async def write(self, data: bytes) -> None:
        await in_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        with report_errors(self._path):
            self._disk.write(self._descriptor, data)

    async def finish(self) -> None:
        await in_thread(self._finish)

    def _finish(self) -> None:
        with report_errors(self._path):
            self._disk.sync_file(self._descriptor)
            self._close()
            self._disk.sync_folder(self._path.parent)

    async def discard(self) -> None:
        # Not in a thread: the task may be cancelled, and could not wait for it.
        self._close()
        with report_errors(self._path):
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class _FileReader:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self, start: int, size: int, check: Callable[[bytes], None]) -> bytes:
        return await in_thread(self._read, start, size, check)

    def _read(self, start: int, size: int, check: Callable[[bytes], None]) -> bytes:
        try:
            data = os.pread(self._descriptor, size, start)
        except OSError as error:
            raise _unreadable("a pack", error) from error
        if len(data) != size:
            raise PackGone(f"{len(data):,} of {size:,} bytes are there")
        check(data)
        return data

    async def close(self) -> None:
        os.close(self._descriptor)


def _unreadable(path: str, error: OSError) -> FileUnreadable:
    why = error.strerror or str(error)
    return FileUnreadable(f"Could not read {path} in the data folder: {why}.", why=why)
