"""A disk that loses power and fails on demand: it distinguishes written bytes from synced bytes.

``Platter`` records every operation in order, with the marks that a test puts between
them. ``FaultyVfs`` is how SQLite writes to it (``Disk(vfs.name)``), ``FaultyDisk`` how the
store's other files are written. The files themselves are real and are in the test's folder; the platter
can write to another folder what would be left on the disk if the power failed at any operation.

Faults are planned with ``fail``: the n-th write fails with "disk full", a sync with an I/O error, and so
on. After a failed sync, the bytes that it should have made durable can still be read but are never
durable, as with real kernels.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from everturn.store.files.disk import Disk

SECTOR = 512

_ERRORS: dict[int, tuple[type[apsw.Error], int]] = {
    errno.ENOSPC: (apsw.FullError, apsw.SQLITE_FULL),
    errno.EROFS: (apsw.ReadOnlyError, apsw.SQLITE_READONLY),
}
_IO_ERRORS = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "open": apsw.SQLITE_CANTOPEN,
}


class Operation(msgspec.Struct, frozen=True):
    """One operation on the disk. ``mark`` is a test's note, not an operation."""

    kind: str  # write | sync | sync_failed | truncate | delete | rename | sync_folder | mark
    path: str
    offset: int = 0
    data: bytes = b""
    target: str = ""
    folders: tuple[str, ...] = ()  # of sync_folder: the folders in it
    is_database: bool = False


class _Fault(msgspec.Struct):
    kind: str
    code: int
    passes: int  # how many operations still succeed
    times: int  # how many fail after that
    suffix: str
    result: int | None  # SQLite's code for it, if it differs from the usual one


class PlannedError(OSError):
    """An operating system error, with SQLite's own code for it if the test chose one."""

    def __init__(self, code: int, path: str, result: int | None = None) -> None:
        super().__init__(code, os.strerror(code), path)
        self.result = result


class Platter:
    """Records all operations on the disk, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[Operation] = []
        self._lock = threading.RLock()
        self._faults: list[_Fault] = []
        self.is_read_only = False
        self.last_errno = 0

    def mark(self, note: str) -> None:
        """Record a note between the operations, such as what was acknowledged at this point."""
        with self._lock:
            self.log.append(Operation("mark", note))

    def marks(self, upto: int) -> list[str]:
        return [operation.path for operation in self.log[:upto] if operation.kind == "mark"]

    def fail(
        self,
        kind: str,
        code: int,
        *,
        after: int = 0,
        times: int = 1 << 60,
        suffix: str = "",
        result: int | None = None,
    ) -> None:
        """From now on, ``after`` operations of this kind succeed, then ``times`` fail with ``code``.

        ``suffix`` chooses files by the end of their name, e.g. ``-wal``. ``result`` is the extended code that
        SQLite reports, e.g. one for shared memory, which this disk does not handle.
        """
        with self._lock:
            self._faults.append(_Fault(kind, code, after, times, suffix, result))

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()
            self.is_read_only = False

    @contextmanager
    def doing(self, operation: Operation) -> Iterator[None]:
        """Perform and record the operation, or raise the OSError that was planned for it."""
        with self._lock:
            error = self._planned(operation)
            if error is not None:
                if operation.kind == "sync":
                    self.log.append(msgspec.structs.replace(operation, kind="sync_failed"))
                self.last_errno = error.errno or 0
                raise error
            yield
            self.log.append(operation)

    def _planned(self, operation: Operation) -> PlannedError | None:
        if self.is_read_only and operation.kind in ("write", "truncate", "delete", "rename", "open"):
            return PlannedError(errno.EROFS, operation.path)
        for fault in self._faults:
            if fault.kind != operation.kind or not operation.path.endswith(fault.suffix):
                continue
            if fault.passes:
                fault.passes -= 1
            elif fault.times:
                fault.times -= 1
                return PlannedError(fault.code, operation.path, fault.result)
        return None

    # --- what is left ----------------------------------------------------------------------------------

    def cut(self, target: Path, upto: int | None = None, *, how: str = "lost", seed: int = 0) -> None:
        """Write to ``target`` what is left if the power fails after the first ``upto`` operations.

        ``how``: lost (nothing that was not synced) | kept (all of it, as after kill -9) | torn (all but
        the last write, of which half) | mixed (any part of it in any order, chosen by ``seed``).
        """
        state = _Replay(how, random.Random(seed))  # noqa: S311 - a test must be repeatable
        for operation in self.log[: len(self.log) if upto is None else upto]:
            state.do(operation)
        target.mkdir(parents=True, exist_ok=True)
        for path, content in state.found(str(self.root)).items():
            place = target / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


class _Inode:
    """One file: its content at the last sync, and the operations since."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[Operation] = []

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.synced, operation)
        self.pending = []

    def found(self, how: str, choice: random.Random) -> bytes:
        content = bytearray(self.synced)
        for operation in _survivors(self.pending, how, choice):
            _apply(content, operation)
        return bytes(content)


class _Replay:
    """Rebuilds the disk, operation by operation."""

    def __init__(self, how: str, choice: random.Random) -> None:
        self._how = how
        self._choice = choice
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._synced_folders: set[str] = set()

    def do(self, operation: Operation) -> None:
        path = operation.path
        match operation.kind:
            case "write" | "truncate":
                self._names.setdefault(path, _Inode()).pending.append(operation)
            case "sync":
                inode = self._names.setdefault(path, _Inode())
                inode.sync()
                if operation.is_database:
                    # SQLite syncs the folder itself when it first syncs a log or a journal.
                    self._synced_names[path] = inode
            case "sync_failed":
                self._names.setdefault(path, _Inode()).pending = []
            case "delete":
                self._names.pop(path, None)
                self._synced_names.pop(path, None)
            case "rename":
                self._names[operation.target] = self._names.pop(path)
            case "sync_folder":
                self._sync_folder(operation)

    def _sync_folder(self, operation: Operation) -> None:
        inside = {p: i for p, i in self._names.items() if os.path.dirname(p) == operation.path}
        gone = [p for p in self._synced_names if os.path.dirname(p) == operation.path and p not in inside]
        for path in gone:
            del self._synced_names[path]
        self._synced_names.update(inside)
        self._synced_folders.update(operation.folders)

    def found(self, root: str) -> dict[str, bytes]:
        names = self._names if self._how == "kept" else self._synced_names
        return {
            os.path.relpath(path, root): inode.found(self._how, self._choice)
            for path, inode in names.items()
            if self._how == "kept" or self._is_reachable(os.path.dirname(path), root)
        }

    def _is_reachable(self, folder: str, root: str) -> bool:
        while folder not in (root, "/"):
            if folder not in self._synced_folders:
                return False
            folder = os.path.dirname(folder)
        return True


def _survivors(pending: list[Operation], how: str, choice: random.Random) -> list[Operation]:
    if how == "lost" or not pending:
        return []
    if how == "kept":
        return pending
    if how == "torn":
        last = pending[-1]
        return [*pending[:-1], msgspec.structs.replace(last, data=last.data[: len(last.data) // 2])]
    pieces = [piece for operation in pending for piece in _sectors(operation)]
    return [piece for piece in pieces if choice.random() < 0.5]


def _sectors(operation: Operation) -> list[Operation]:
    if operation.kind != "write":
        return [operation]
    return [
        msgspec.structs.replace(
            operation, offset=operation.offset + start, data=operation.data[start : start + SECTOR]
        )
        for start in range(0, len(operation.data), SECTOR)
    ]


def _apply(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        return
    end = operation.offset + len(operation.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[operation.offset : end] = operation.data


# --- the store's files ------------------------------------------------------------------------------------


class FaultyDisk(Disk):
    """For attachments, exports and spools: ``open_store(..., disk=FaultyDisk(platter))``."""

    def __init__(self, platter: Platter, vfs: str | None = None) -> None:
        super().__init__(vfs)
        self._platter = platter

    def write(self, descriptor: int, data: bytes) -> None:
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        with self._platter.doing(Operation("write", _path_of(descriptor), offset, bytes(data))):
            super().write(descriptor, data)

    def sync_file(self, descriptor: int) -> None:
        with self._platter.doing(Operation("sync", _path_of(descriptor))):
            super().sync_file(descriptor)

    def sync_folder(self, folder: Path) -> None:
        inside = tuple(entry.path for entry in os.scandir(folder) if entry.is_dir())
        with self._platter.doing(Operation("sync_folder", str(folder), folders=inside)):
            super().sync_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        with self._platter.doing(Operation("rename", str(source), target=str(target))):
            super().rename(source, target)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


# --- SQLite -----------------------------------------------------------------------------------------------


_FileName = str | apsw.URIFilename | None


class FaultyVfs(apsw.VFS):
    """SQLite's access to the platter. Locks and shared memory are real, so WAL works as usual."""

    def __init__(self, platter: Platter) -> None:
        self.name = f"faulty-{id(platter):x}"
        self._platter = platter
        super().__init__(self.name, "")

    def xOpen(self, name: _FileName, flags: list[int]) -> FaultyFile:  # noqa: N802 - SQLite's name
        path = "" if name is None else name if isinstance(name, str) else name.filename()
        if self._platter.is_read_only:
            if path and not os.path.exists(path):
                raise _told(OSError(errno.EROFS, "read-only"), "open")
            flags[0] = (flags[0] & ~apsw.SQLITE_OPEN_READWRITE & ~apsw.SQLITE_OPEN_CREATE) | (
                apsw.SQLITE_OPEN_READONLY
            )
        return FaultyFile(self._platter, path, name, flags)

    def xGetLastError(self) -> tuple[int, str]:  # noqa: N802
        return self._platter.last_errno, os.strerror(self._platter.last_errno)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        try:
            with self._platter.doing(Operation("delete", filename, is_database=True)):
                super().xDelete(filename, syncdir)
        except OSError as error:
            raise _told(error, "delete") from error


class FaultyFile(apsw.VFSFile):
    def __init__(self, platter: Platter, path: str, name: _FileName, flags: list[int]) -> None:
        self._platter = platter
        self._path = path
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with _telling("write"), self._platter.doing(self._did("write", offset, bytes(data))):
            super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        with _telling("sync"), self._platter.doing(self._did("sync")):
            super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with _telling("truncate"), self._platter.doing(self._did("truncate", newsize)):
            super().xTruncate(newsize)

    def _did(self, kind: str, offset: int = 0, data: bytes = b"") -> Operation:
        return Operation(kind, self._path, offset, data, is_database=True)


@contextmanager
def _telling(kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _told(error, kind) from error


def _told(error: OSError, kind: str) -> apsw.Error:
    """The planned error as SQLite's own disk layer would report it."""
    result = _IO_ERRORS[kind]
    told: apsw.Error = apsw.CantOpenError() if kind == "open" else apsw.IOError()
    if kind != "sync" and error.errno in _ERRORS:
        make, result = _ERRORS[error.errno]
        told = make()
    if isinstance(error, PlannedError) and error.result is not None:
        result = error.result
        told = apsw.exception_for(result)  # type: ignore[assignment]  # one of apsw's errors
    # apsw reads this attribute when it turns the exception back into SQLite's code.
    told.extendedresult = result  # type: ignore[attr-defined]  # apsw reads it
    return told
