"""Brings a folder from one tree to another, file by file.

A file is written beside its place under a temporary name, synced, and renamed; just before that, the file
in its place is compared again with what the restore is based on. A file that was changed meanwhile is left
alone and named in the result. A restore that was cut off is repeated: each path then holds what it held
before or
what is wanted.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from everturn.domain.trees import MODE_BITS, Entry, Kind, Reason, hash_bytes
from everturn.tools.disk_sync import DiskSync
from everturn.tools.temporary_files import is_of_restore, restore_name
from everturn.workspace.diff import Change
from everturn.workspace.index import Folder, Stamp
from everturn.workspace.scan import OPEN_FOLDER, join, open_file, stamp_of

Fetch = Callable[[str], Iterable[bytes]]  # the bytes of a blob, in pieces
# The bytes of those blobs that are small and whole; each of the others is fetched.
FetchSmall = Callable[[Sequence[str]], Mapping[str, bytes]]
Report = Callable[[int, int], None]  # called after each batch: files that are done, and how many there are
_BATCH_FILES: Final = 2000  # written before one sync and the renames that follow it
_BATCH_BYTES: Final = 64 << 20
_TOGETHER_FILES: Final = 1000  # whose bytes are fetched together
_TOGETHER_BYTES: Final = 8 << 20
_PIECE: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Restored(msgspec.Struct):
    """``done``: paths that now hold what is wanted. ``kept``: paths that were not touched, and why;
    ``damaged``: those of them whose stored bytes are damaged or missing."""

    done: list[bytes] = msgspec.field(default_factory=list)
    kept: dict[bytes, str] = msgspec.field(default_factory=dict)
    damaged: set[bytes] = msgspec.field(default_factory=set)


class Restore:
    """``seen``: the scan that the changes were computed from; its stamps spare reading each file again."""

    def __init__(
        self,
        root: int,
        fetch: Fetch,
        *,
        fetch_small: FetchSmall = lambda hashes: {},
        seen: Folder | None = None,
        disk: DiskSync | None = None,
        report: Report | None = None,
    ) -> None:
        self._folders = _Folders(root)
        self._root = root
        self._fetch = fetch
        self._fetch_small = fetch_small
        self._at_hand: Mapping[str, bytes] = {}
        self._seen = {} if seen is None else dict(_stamps(seen))
        self._disk = disk or DiskSync()
        self._report = report
        self._result = Restored()

    def run(self, changes: Sequence[Change]) -> Restored:
        """Apply the changes. On return they are durable. Raises OSError, e.g. for a full disk; what is
        wanted can then be restored again later."""
        ordered = sorted(changes, key=lambda change: change.path)
        with self._folders:
            self._remove_partials()
            for change in reversed(ordered):  # what is in a folder goes before the folder
                if change.before is not None and _makes_way(change):
                    self._attempt(change, self._remove)
            for change in ordered:
                if _is_folder(change.after) and not _is_folder(change.before):
                    self._attempt(change, self._make_folder)
            files = [change for change in ordered if change.after and not _is_folder(change.after)]
            done = 0
            for batch in _batches(files, _BATCH_FILES, _BATCH_BYTES):
                self._replace(batch)
                done += len(batch)
                if self._report is not None:
                    self._report(done, len(files))
            for change in reversed(ordered):
                if _is_folder(change.after) and change.path not in self._result.kept:
                    self._attempt(change, self._set_mode)
        self._sync()
        return self._result

    def _remove_partials(self) -> None:
        """Remove temporary files that the scan found: they are of a restore that was cut off."""
        for path, (entry, _) in self._seen.items():
            if entry.reason is Reason.PARTIAL and is_of_restore(entry.name):
                with suppress(FileNotFoundError):
                    folder, name = self._folders.open_parent(path)
                    os.unlink(name, dir_fd=folder)

    def _attempt(self, change: Change, act: Callable[[Change], None]) -> None:
        """Apply one change; if that fails, keep the path as it is and note why."""
        try:
            act(change)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
                raise
            self._result.kept[change.path] = error.strerror or str(error)
            if error.errno == errno.ENODATA:
                self._result.damaged.add(change.path)

    # --- removing, folders -------------------------------------------------------------------------

    def _remove(self, change: Change) -> None:
        before = _entry(change.before)
        folder, name = self._folders.open_parent(change.path)
        if before.kind is Kind.FOLDER:
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=folder)  # fails while the folder holds what checkpoints leave out
        elif self._holds(folder, change.path, None):
            pass  # it has gone already
        elif self._holds(folder, change.path, before):
            os.unlink(name, dir_fd=folder)
        else:
            raise _Changed  # guard: e02
        if change.after is None:
            self._result.done.append(change.path)

    def _make_folder(self, change: Change) -> None:
        folder, name = self._folders.open_parent(change.path)
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise

    def _set_mode(self, change: Change) -> None:
        """At the end: nothing can be put into a folder that is read-only."""
        self._folders.set_mode(change.path, _entry(change.after).mode)
        self._result.done.append(change.path)

    # --- files and links ---------------------------------------------------------------------------

    def _replace(self, batch: Sequence[Change]) -> None:
        written: list[Change] = []
        try:
            for group in _batches(batch, _TOGETHER_FILES, _TOGETHER_BYTES):
                self._at_hand = self._fetch_small([_entry(change.after).sha256 for change in group])
                for change in group:
                    written.append(change)
                    self._attempt(change, self._write)
            self._at_hand = {}
            # Before the renames: after a power cut no name may lead to half a file.
            self._sync()  # guard: e02
            for change in written:
                if change.path not in self._result.kept:
                    self._attempt(change, self._rename)
        except Exception:
            for change in written:  # on a full disk they would take up the space that the next attempt needs
                self._discard(change)
            raise
        for change in written:
            if change.path in self._result.kept:
                self._discard(change)

    def _write(self, change: Change) -> None:
        """Write the temporary file, unless what is in its place is not what the restore is based on."""
        folder, _ = self._folders.open_parent(change.path)
        self._check(folder, change)
        after, temporary = _entry(change.after), temporary_name(change)
        try:
            self._write_new(folder, temporary, after)
        except FileExistsError:
            os.unlink(temporary, dir_fd=folder)  # of a restore that was cut off
            self._write_new(folder, temporary, after)

    def _write_new(self, folder: int, temporary: bytes, after: Entry) -> None:
        if after.kind is Kind.LINK:
            os.symlink(b"".join(self._pieces(after.sha256)), temporary, dir_fd=folder)
            return
        handle = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            for piece in self._pieces(after.sha256):
                _write_all(handle, piece)
            os.fchmod(handle, after.mode & MODE_BITS)
        finally:
            os.close(handle)

    def _pieces(self, sha256: str) -> Iterable[bytes]:
        data = self._at_hand.get(sha256)
        return self._fetch(sha256) if data is None else (data,)

    def _rename(self, change: Change) -> None:
        folder, name = self._folders.open_parent(change.path)
        self._check(folder, change)  # guard: e02
        os.rename(temporary_name(change), name, src_dir_fd=folder, dst_dir_fd=folder)
        self._result.done.append(change.path)

    def _discard(self, change: Change) -> None:
        with suppress(OSError):
            folder, _ = self._folders.open_parent(change.path)
            os.unlink(temporary_name(change), dir_fd=folder)

    def _check(self, folder: int, change: Change) -> None:
        """Raises _Changed if the place holds neither what was seen, nor what is wanted, nor nothing."""
        before = None if change.before is None or _is_folder(change.before) else change.before
        for expected in (before, None, change.after):
            if self._holds(folder, change.path, expected):
                return
        raise _Changed

    def _holds(self, folder: int, path: bytes, expected: Entry | None) -> bool:
        name = path.rpartition(b"/")[2]
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return expected is None
        if expected is None or _kind(status) is not expected.kind:
            return False
        if expected.kind is Kind.LINK:
            return hash_bytes(os.readlink(name, dir_fd=folder)) == expected.sha256
        if status.st_mode & MODE_BITS != expected.mode or status.st_size != expected.size:
            return False
        return self._stamp(path, expected) == stamp_of(status) or _hash_file(folder, name) == expected.sha256

    def _stamp(self, path: bytes, expected: Entry) -> Stamp | None:
        """The stamp with which the scan saw exactly this content."""
        entry, stamp = self._seen.get(path, (None, None))
        return stamp if expected.is_same(entry) else None

    def _sync(self) -> None:
        self._disk.sync_file_system(Path(f"/proc/self/fd/{self._root}"))


class _Changed(OSError):
    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "It was changed meanwhile")


class _Folders:
    """Opens folders beneath the root, component by component and never through a link. The last one stays
    open, because changes come in the order of their paths."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._path: bytes | None = None
        self._handle = -1
        self._modes: dict[bytes, int] = {}  # of folders that had to be made writable

    def __enter__(self) -> _Folders:
        return self

    def __exit__(self, *_: object) -> None:
        for path, mode in sorted(self._modes.items(), reverse=True):
            with suppress(FileNotFoundError, NotADirectoryError), self._open_parent(path) as handle:
                os.fchmod(handle, mode)
        self._close()

    def open_parent(self, path: bytes) -> tuple[int, bytes]:
        """A handle of the folder that holds this path, and the name in it. Valid until the next call."""
        parent, _, name = path.rpartition(b"/")
        if parent != self._path:
            self._close()
            self._handle = self._open(parent)
            self._path = parent
            mode = os.fstat(self._handle).st_mode & MODE_BITS
            if mode & 0o300 != 0o300:
                os.fchmod(self._handle, mode | 0o700)
                self._modes[parent] = mode
        return self._handle, name

    def set_mode(self, path: bytes, mode: int) -> None:
        self._modes.pop(path, None)
        with self._open_parent(path) as handle:
            os.fchmod(handle, mode & MODE_BITS)

    @contextmanager
    def _open_parent(self, path: bytes) -> Iterator[int]:
        handle = self._open(path)
        try:
            yield handle
        finally:
            os.close(handle)

    def _open(self, path: bytes) -> int:
        handle = os.open(b".", OPEN_FOLDER, dir_fd=self._root)
        for name in path.split(b"/") if path else ():
            above = handle
            try:
                handle = os.open(name, OPEN_FOLDER, dir_fd=above)
            finally:
                os.close(above)
        return handle

    def _close(self) -> None:
        if self._path is not None:
            os.close(self._handle)
            self._path = None


def temporary_name(change: Change) -> bytes:
    """The same for every attempt at this change: a repeated restore removes what an earlier one left
    behind."""
    wanted = change.path + b"\0" + _entry(change.after).sha256.encode()
    return restore_name(hash_bytes(wanted)[:16])


def _stamps(folder: Folder, path: bytes = b"") -> Iterator[tuple[bytes, tuple[Entry, Stamp | None]]]:
    for entry, stamp in zip(folder.entries, folder.stamps, strict=True):
        yield join(path, entry.name), (entry, stamp)
    for name, inner in folder.folders.items():
        yield from _stamps(inner, join(path, name))


def _makes_way(change: Change) -> bool:
    """True if what is there must be removed first: nothing is wanted, or a file replaces a folder or the
    reverse."""
    return change.after is None or _is_folder(change.before) != _is_folder(change.after)


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.FOLDER


def _entry(entry: Entry | None) -> Entry:
    assert entry is not None  # noqa: S101 - the caller chose changes that have one
    return entry


def _batches(changes: Sequence[Change], files_max: int, bytes_max: int) -> Iterator[list[Change]]:
    """In their order. A change of more bytes is alone."""
    batch: list[Change] = []
    size = 0
    for change in changes:
        more = _entry(change.after).size
        if batch and (len(batch) >= files_max or size + more > bytes_max):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += more
    if batch:
        yield batch


def _kind(status: os.stat_result) -> Kind | None:
    if stat.S_ISLNK(status.st_mode):
        return Kind.LINK
    return Kind.FILE if stat.S_ISREG(status.st_mode) else None


def _hash_file(folder: int, name: bytes) -> str:
    handle = open_file(folder, name)
    try:
        digest = hashlib.sha256()
        while piece := os.read(handle, _PIECE):
            digest.update(piece)
        return digest.hexdigest()
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
