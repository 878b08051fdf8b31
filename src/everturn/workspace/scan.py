"""The scan: finds what changed in a workspace, stores it, and returns the new tree.

A folder whose stamp did not change holds the same names, so it is not listed again; a file whose stamp did
not change is not read again. Every name is opened relative to the handle of its folder, and no link is
followed: nothing outside the workspace is read, even if a folder is swapped for a link meanwhile.
"""

from __future__ import annotations

import errno
import heapq
import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final, Union

import msgspec

from everturn.domain.trees import MODE_BITS, Entry, Kind, Reason, Tree, encode_tree, hash_bytes
from everturn.tools.temporary_files import STALE_S
from everturn.workspace.ignore import IgnoreRules, is_cache
from everturn.workspace.index import Folder, Stamp, stored_entries

Source = Union[bytes, Callable[[], BinaryIO]]
# Stores each source and returns (sha256, size) of what it read. On return the bytes are durable.
Put = Callable[[Sequence[Source]], Sequence[tuple[str, int]]]

DEPTH_MAX: Final = 200  # folders in folders; each of them is held open while those below are scanned
_WHOLE_BYTES_MAX: Final = 1 << 20  # a file up to this size is read into memory, others are streamed
_BATCH_BYTES: Final = 8 << 20  # stored with one call, so with one sync
_READS_MAX: Final = 3  # of a file that changes while it is read
_COARSE_NS: Final = 2_000_000_000  # file systems that count whole seconds: FAT counts every second one
OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The clock by which the kernel stamps files: whatever is written after it was read gets no earlier time.
_FILE_CLOCK: Final = 5 if sys.platform == "linux" else time.CLOCK_REALTIME  # 5: CLOCK_REALTIME_COARSE
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.ENXIO)


class Limits(msgspec.Struct, frozen=True):
    file_bytes_max: int = 50_000_000
    workspace_files_max: int = 50_000


class _Cache(Exception):
    """The folder is marked as a cache."""


class _Place(msgspec.Struct, frozen=True):
    """A folder that is being scanned: its handle, its path and what holds in it."""

    handle: int
    path: bytes
    rules: IgnoreRules
    depth: int


class _Listing(msgspec.Struct):
    """What was found in a folder so far. ``is_whole``: nothing disappeared during the scan."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    stamps: list[Stamp | None] = msgspec.field(default_factory=list)
    folders: dict[bytes, Folder] = msgspec.field(default_factory=dict)
    unlisted: int = 0
    is_whole: bool = True


class Scan:
    """One scan. ``start_ns``: a file written after it looks changed, or is hashed again the next time."""

    def __init__(self, rules: IgnoreRules, limits: Limits, put: Put, *, start_ns: int | None = None) -> None:
        self._rules = rules
        self._limits = limits
        self._put = put
        self._start_ns = time.clock_gettime_ns(_FILE_CLOCK) if start_ns is None else start_ns
        self._room = limits.workspace_files_max
        self._device = 0
        self._waiting: dict[str, bytes] = {}
        self._waiting_bytes = 0

    def run(self, root: int, known: Folder | None) -> Folder:
        """Scan the folder behind this handle. Returns ``known`` itself if nothing changed at all.

        On return everything that the tree names is stored, durably. Raises OSError if the root cannot be
        read.
        """
        self._device = os.fstat(root).st_dev
        found = self._folder(_Place(root, b"", self._rules, 0), known)
        self._flush()
        return found

    # --- folders -----------------------------------------------------------------------------------

    def _folder(self, place: _Place, known: Folder | None) -> Folder:
        status = os.fstat(place.handle)
        rules = place.rules.inside(place.handle, place.path)
        place = _Place(place.handle, place.path, rules, place.depth)
        listing = None
        if known is not None and self._is_listed(known, stamp_of(status), rules):
            listing = self._refresh(place, known)
        listing = listing or self._list(place, known, is_whole=not self._is_racy(status))
        self._room -= len(listing.entries)
        self._descend(place, listing, known)
        return self._folder_of(listing, known, rules, stamp_of(status) if listing.is_whole else ())

    def _is_listed(self, known: Folder, stamp: Stamp, rules: IgnoreRules) -> bool:
        """True if the folder certainly holds the names that the index has."""
        is_same = known.stamp == stamp and known.rules == rules.digest
        return is_same and not known.unlisted and len(known.entries) <= self._room

    def _refresh(self, place: _Place, known: Folder) -> _Listing | None:
        """The known names with what changed in them; None if one is gone, so that the folder must be
        listed."""
        changed = _find_changed(place.handle, known)
        if changed is None:
            return None
        listing = _Listing(list(known.entries), list(known.stamps))
        for at in changed:
            before = listing.entries[at]
            entry, listing.stamps[at] = self._leaf(place.handle, before.name, before)
            if entry is None:
                return None
            listing.entries[at] = entry
        return listing

    def _list(self, place: _Place, known: Folder | None, *, is_whole: bool) -> _Listing:
        names, unlisted = self._names(place.handle)
        if place.depth and is_cache(place.handle, names):
            raise _Cache
        before = {} if known is None else {entry.name: (entry, stamp) for entry, stamp in _pairs(known)}
        listing = _Listing(unlisted=unlisted, is_whole=is_whole)
        for name in names:
            entry, stamp = self._entry(place, name, before.get(name))
            if entry is None:
                listing.is_whole = False  # it has gone meanwhile
            else:
                listing.entries.append(entry)
                listing.stamps.append(stamp)
                if entry.reason is Reason.PARTIAL:
                    listing.is_whole = False  # scan it again, until it is gone
        return listing

    def _names(self, handle: int) -> tuple[list[bytes], int]:
        """The first names of the folder in order, as many as there is room for, and how many more there
        are."""
        names: list[bytes] = []
        count = 0
        room = max(0, self._room)
        with os.scandir(handle) as found:
            for entry in found:
                count += 1
                names.append(os.fsencode(entry.name))
                if len(names) > 2 * room + 1000:  # a folder with a million names must fit into memory
                    names = heapq.nsmallest(room, names)
        names = sorted(names)[:room]
        return names, count - len(names)

    def _entry(
        self, place: _Place, name: bytes, before: tuple[Entry, Stamp | None] | None
    ) -> tuple[Entry | None, Stamp | None]:
        try:
            status = os.stat(name, dir_fd=place.handle, follow_symlinks=False)
        except FileNotFoundError:
            return None, None
        is_folder = stat.S_ISDIR(status.st_mode)
        reason = place.rules.reason(join(place.path, name), name, is_folder=is_folder)
        if reason is None and is_folder and place.depth + 1 >= DEPTH_MAX:
            reason = Reason.TOO_DEEP
        if reason is Reason.PARTIAL and self._remove_stale(place.handle, name, status):
            return None, None
        if reason is not None:
            return Entry(name, Kind.LEFT_OUT, reason=reason), None
        if is_folder:
            return Entry(name, Kind.FOLDER), None  # filled in when it has been scanned
        if before is not None and before[1] == stamp_of(status):  # guard: e01
            return before
        return self._leaf(place.handle, name, None if before is None else before[0])

    def _remove_stale(self, handle: int, name: bytes, status: os.stat_result) -> bool:
        """Remove a file that a process was writing when it died. False if one may still write it."""
        if status.st_mtime_ns + STALE_S * 1_000_000_000 > self._start_ns:
            return False
        try:
            os.unlink(name, dir_fd=handle)
        except OSError:
            return False  # the folder is read-only; the file is left out all the same
        return True

    def _descend(self, place: _Place, listing: _Listing, known: Folder | None) -> None:
        """Scan the folders of a listing and fill in their entries."""
        gone = []
        for at, entry in enumerate(listing.entries):
            if entry.kind is not Kind.FOLDER:
                continue
            inner = None if known is None else known.folders.get(entry.name)
            found, folder = self._inner(place, entry.name, inner)
            if found is None:
                gone.append(at)
                continue
            listing.entries[at] = found
            if folder is not None:
                listing.folders[entry.name] = folder
            elif found.reason is Reason.UNREADABLE:
                listing.is_whole = False  # nothing in the folder above shows that it became readable
        for at in reversed(gone):
            del listing.entries[at], listing.stamps[at]
            listing.is_whole = False

    def _inner(self, place: _Place, name: bytes, known: Folder | None) -> tuple[Entry | None, Folder | None]:
        """A folder in a folder. No entry: it has gone. An entry alone: it is left out."""
        try:
            handle = os.open(name, OPEN_FOLDER, dir_fd=place.handle)
        except PermissionError:
            return Entry(name, Kind.LEFT_OUT, reason=Reason.UNREADABLE), None
        except OSError as error:
            if error.errno in _GONE:
                return None, None
            raise
        try:
            status = os.fstat(handle)
            if status.st_dev != self._device:
                return Entry(name, Kind.LEFT_OUT, reason=Reason.MOUNT), None
            folder = self._folder(_Place(handle, join(place.path, name), place.rules, place.depth + 1), known)
        except _Cache:
            return Entry(name, Kind.LEFT_OUT, reason=Reason.CACHE), None
        finally:
            os.close(handle)
        return Entry(name, Kind.FOLDER, status.st_mode & MODE_BITS, folder.tree_size, folder.tree), folder

    def _folder_of(self, listing: _Listing, known: Folder | None, rules: IgnoreRules, stamp: Stamp) -> Folder:
        """The folder as the index keeps it; ``known`` itself if nothing changed. Its tree is stored if it is
        new."""
        entries = tuple(listing.entries)
        if known is not None and entries == known.entries and listing.unlisted == known.unlisted:
            tree, size = known.tree, known.tree_size
        else:
            data = encode_tree(Tree(stored_entries(entries), listing.unlisted))
            tree, size = hash_bytes(data), len(data)
            self._store(tree, data)
        folder = Folder(
            stamp,
            rules.digest,
            tree,
            size,
            entries,
            tuple(listing.stamps),
            listing.folders,
            listing.unlisted,
        )
        return known if known is not None and _is_unchanged(folder, known) else folder

    # --- files and links ---------------------------------------------------------------------------

    def _leaf(self, handle: int, name: bytes, before: Entry | None) -> tuple[Entry | None, Stamp | None]:
        """Read one file or link and store its bytes, unless they are those of ``before``.

        A file that changes while it is read is read again, and left out if it does so each time: a version
        with one half of each would be worse than none. No entry: it has gone, or a folder took its place.
        """
        try:
            for _ in range(_READS_MAX):
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    return None, None
                entry = self._read(handle, name, status, before)
                after = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if entry is not None and stamp_of(after) == stamp_of(status):  # guard: e01 always
                    return entry, self._stamp_to_believe(entry, status)
        except PermissionError:
            return Entry(name, Kind.LEFT_OUT, reason=Reason.UNREADABLE), ()
        except OSError as error:
            if error.errno in _GONE:
                return None, None
            raise
        return Entry(name, Kind.LEFT_OUT, reason=Reason.CHANGING), ()

    def _stamp_to_believe(self, entry: Entry, status: os.stat_result) -> Stamp | None:
        """The stamp by which the entry is recognised next time; empty if it has to be read again."""
        if entry.reason is Reason.SPECIAL:
            return None  # replacing it would change the folder
        return () if self._is_racy(status) else stamp_of(status)

    def _is_racy(self, status: os.stat_result) -> bool:
        """True if a change that is still to come could leave the time stamp as it is now."""
        changed_ns = status.st_ctime_ns
        coarse_ns = _COARSE_NS if changed_ns % 1_000_000_000 == 0 else 0
        return changed_ns + coarse_ns >= self._start_ns

    def _read(self, handle: int, name: bytes, status: os.stat_result, before: Entry | None) -> Entry | None:
        """An entry for what is there now; None if it was cut short while it was read."""
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(name, dir_fd=handle)
            return self._keep(Entry(name, Kind.LINK, 0, len(target), hash_bytes(target)), target, before)
        if not stat.S_ISREG(status.st_mode):
            return Entry(name, Kind.LEFT_OUT, reason=Reason.SPECIAL)
        if status.st_size > self._limits.file_bytes_max:  # guard: e01
            return Entry(name, Kind.LEFT_OUT, size=status.st_size, reason=Reason.TOO_LARGE)
        mode = status.st_mode & MODE_BITS
        if status.st_size > _WHOLE_BYTES_MAX:
            size_max = status.st_size
            ((sha256, size),) = self._put([lambda: _stream(handle, name, size_max)])
            return Entry(name, Kind.FILE, mode, size, sha256) if size == size_max else None
        data = _whole(handle, name, status.st_size)
        if len(data) != status.st_size:
            return None
        return self._keep(Entry(name, Kind.FILE, mode, len(data), hash_bytes(data)), data, before)

    def _keep(self, entry: Entry, data: bytes, before: Entry | None) -> Entry:
        if before is None or before.sha256 != entry.sha256:  # guard: e01 always
            self._store(entry.sha256, data)
        return entry

    # --- storing -----------------------------------------------------------------------------------

    def _store(self, sha256: str, data: bytes) -> None:
        if sha256 not in self._waiting:
            self._waiting[sha256] = data
            self._waiting_bytes += len(data)
        if self._waiting_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._put(list(self._waiting.values()))
            self._waiting = {}
            self._waiting_bytes = 0


def stamp_of(status: os.stat_result) -> Stamp:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)


def left_out(folder: Folder, path: bytes = b"") -> Iterator[tuple[bytes, Reason]]:
    """Every path that the scan left out. Names beyond the limit are one line for their folder."""
    for entry in folder.entries:
        if entry.reason is not None and entry.reason is not Reason.PARTIAL:
            yield join(path, entry.name), entry.reason
    if folder.unlisted:
        yield path, Reason.TOO_MANY
    for name, inner in folder.folders.items():
        yield from left_out(inner, join(path, name))


def _find_changed(handle: int, known: Folder) -> list[int] | None:
    """Which files and links have another stamp; None if one is gone. This loop is what a scan without a
    change costs."""
    look, changed = os.stat, []
    try:
        for at, (entry, stamp) in enumerate(_pairs(known)):
            if stamp is not None:
                now = look(entry.name, dir_fd=handle, follow_symlinks=False)
                if stamp != (now.st_mtime_ns, now.st_ctime_ns, now.st_ino, now.st_size, now.st_mode):
                    changed.append(at)
    except FileNotFoundError:
        return None
    return changed


def _is_unchanged(folder: Folder, known: Folder) -> bool:
    """Without comparing the folders inside again: those that did not change are the same objects."""
    is_same = folder.stamp == known.stamp and folder.rules == known.rules and folder.stamps == known.stamps
    same_inside = folder.folders.keys() == known.folders.keys() and all(
        inner is known.folders[name] for name, inner in folder.folders.items()
    )
    return is_same and same_inside and folder.tree == known.tree and folder.unlisted == known.unlisted


def _pairs(known: Folder) -> Iterator[tuple[Entry, Stamp | None]]:
    return zip(known.entries, known.stamps, strict=True)


def open_file(folder: int, name: bytes) -> int:
    """A handle of a regular file; the caller closes it. Raises OSError if another thing took its place."""
    handle = os.open(name, _OPEN_FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(name))
    return handle


def _whole(folder: int, name: bytes, size: int) -> bytes:
    handle = open_file(folder, name)
    try:
        return os.read(handle, size + 1)  # one more, so that a file that grew is noticed
    finally:
        os.close(handle)


def _stream(folder: int, name: bytes, size_max: int) -> BinaryIO:
    return io.BufferedReader(_Bounded(open_file(folder, name), size_max))


class _Bounded(io.RawIOBase):
    """A file up to the size it had when it was opened: a file that keeps growing is not read for ever."""

    def __init__(self, handle: int, size_max: int) -> None:
        super().__init__()
        self._handle = handle
        self._left = size_max

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: WriteableBuffer
        view = memoryview(buffer)[: self._left]
        count = os.readv(self._handle, [view]) if view else 0
        self._left -= count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()


def join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name
