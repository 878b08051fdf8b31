"""What changed between two versions of a workspace: paths, lines, and the versions of one file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Final

import anyio.to_thread
import msgspec

from everturn.domain.checkpoints import Cause, ChangeKind, Checkpoint
from everturn.domain.errors import BlobDamaged, BlobMissing, NotFound
from everturn.domain.trees import Entry, Kind, Tree
from everturn.workspace.diff import Change, diff
from everturn.workspace.lines import count_lines, diff_lines
from everturn.workspace.loop_calls import run_on_loop
from everturn.workspace.mine import find_original
from everturn.workspace.recorder import file_change, is_of_file
from everturn.workspace.versions import Versions

CHANGES_MAX: Final = 500  # that are listed
TEXT_BYTES_MAX: Final = 1_000_000  # of a file whose lines are compared
COUNTED_BYTES_MAX: Final = 4_000_000  # of all files whose lines are counted for one list
DIFF_CHARS_MAX: Final = 500_000
VERSIONS_MAX: Final = 200
THREADS_MAX: Final = 4


class ComparedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """``size`` is the new size. Lines are counted for text that is not too large."""

    path: str
    what: ChangeKind
    size: int = 0
    added: int | None = None
    removed: int | None = None
    is_binary: bool = False


class Comparison(msgspec.Struct, frozen=True):
    """The first changes, and how many there are."""

    changes: tuple[ComparedFile, ...]
    total: int


class FileDiff(msgspec.Struct, frozen=True):
    """A unified diff. ``is_cut``: there is more, or the file is too large to be compared."""

    path: str
    text: str
    is_cut: bool = False
    is_binary: bool = False


class FileVersion(msgspec.Struct, frozen=True):
    """One version of a file. ``what`` happened to it there; a deleted one has no hash."""

    checkpoint: str
    turn_id: str | None
    cause: Cause
    created_at: int
    size: int
    sha256: str | None
    what: ChangeKind


class FileHistory(msgspec.Struct, frozen=True):
    """Newest first. ``is_cut``: there are older ones."""

    versions: tuple[FileVersion, ...]
    is_cut: bool = False


class Compare:
    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._threads = anyio.CapacityLimiter(THREADS_MAX)

    async def changes(self, before: str, after: str) -> list[Change]:
        """Files and links that differ between two trees, sorted by path."""

        def load(sha256: str) -> Tree:
            return run_on_loop(self._versions.tree, sha256)

        found = await anyio.to_thread.run_sync(diff, load, before, after, limiter=self._threads)
        return [change for change in found if is_of_file(change)]

    async def compare(self, before: str, after: str) -> Comparison:
        changed = await self.changes(before, after)
        room = COUNTED_BYTES_MAX
        files = []
        for change in changed[:CHANGES_MAX]:
            room -= sum(_size(entry) for entry in (change.before, change.after))
            files.append(await self._count_lines(change) if room >= 0 else _plain(change))
        return Comparison(tuple(files), len(changed))

    async def _count_lines(self, change: Change) -> ComparedFile:
        plain = _plain(change)
        try:
            texts = await self._texts(change.before, change.after)
        except (BlobMissing, BlobDamaged):
            return plain  # one unreadable file does not stop the comparison
        if texts is None:
            return plain
        before, after = texts
        if before is None or after is None:
            return msgspec.structs.replace(plain, is_binary=True)
        counts = await anyio.to_thread.run_sync(count_lines, before, after, limiter=self._threads)
        return msgspec.structs.replace(plain, added=counts[0], removed=counts[1])

    async def diff(self, before: str, after: str, path: str) -> FileDiff:
        """How one file or link differs. Raises NotFound if it is in neither version."""
        old, new = await self._entry(before, path), await self._entry(after, path)
        if old is None and new is None:
            raise NotFound("file", path[:200])
        texts = await self._texts(old, new)
        if texts is None:
            return FileDiff(path, "", is_cut=True)
        was, now = texts
        if was is None or now is None:
            return FileDiff(path, "", is_binary=True)
        found = await anyio.to_thread.run_sync(diff_lines, was, now, DIFF_CHARS_MAX, limiter=self._threads)
        return FileDiff(path, found.text, found.is_cut)

    async def _entry(self, tree: str, path: str) -> Entry | None:
        """A file or link at this path; None if there is none."""
        try:
            found = await self._versions.find(tree, path, follows=False)
        except NotFound:
            return None
        return found.entry if found.entry.kind in (Kind.FILE, Kind.LINK) else None

    async def _texts(self, old: Entry | None, new: Entry | None) -> tuple[str | None, str | None] | None:
        """The texts of two files, with None for one that is not text. None alone if one of them is too
        large."""
        if max(_size(old), _size(new)) > TEXT_BYTES_MAX:
            return None
        return _text(await self._bytes(old)), _text(await self._bytes(new))

    async def _bytes(self, entry: Entry | None) -> bytes:
        if entry is None or entry.kind is Kind.FOLDER:
            return b""
        return await self._versions.bytes_of(entry.sha256)

    async def history(self, checkpoints: AsyncIterator[Checkpoint], path: str) -> FileHistory:
        """The versions of one file that differ. ``checkpoints``: of its session, newest first.

        Each is compared with what the folder held before it, not with the checkpoint made before it: an
        undo or a redo in between may have restored another version.
        """
        found: list[tuple[FileVersion, Entry | None]] = []
        async for made in checkpoints:
            if not _may_have(made, path):
                continue
            older = await self._entry(made.before, path) if made.before else None
            entry = await self._entry(made.tree, path)
            version = _version(made, path, older, entry)
            if version is None:
                continue
            if found and _is_repeated(*found[-1], version, entry):
                found.pop()  # it was there since the first: moves brought it back, or left it where it was
            elif len(found) >= VERSIONS_MAX:
                return FileHistory(tuple(one for one, _ in found), is_cut=True)
            found.append((version, entry))
        return FileHistory(tuple(one for one, _ in found))


def _version(made: Checkpoint, path: str, older: Entry | None, entry: Entry | None) -> FileVersion | None:
    """What the checkpoint made of the file; None if it is the same as before."""
    if (entry is None and older is None) or (entry is not None and entry.is_same(older)):
        return None
    what = ChangeKind.CHANGED
    if entry is None:
        what = ChangeKind.DELETED
    elif older is None:
        what = ChangeKind.ADDED
    size, sha256 = (0, None) if entry is None else (entry.size, entry.sha256)
    cause = made.cause
    if cause is Cause.FOUND and what is ChangeKind.ADDED and find_original(os.fsencode(path)) is not None:
        cause = Cause.RESTORED  # a restore put it beside the restored file, and a later look found it
    return FileVersion(made.id, made.turn_id, cause, made.created_at, size, sha256, what)


def _is_repeated(newer: FileVersion, entry: Entry | None, older: FileVersion, former: Entry | None) -> bool:
    is_same = entry is former if entry is None else entry.is_same(former)
    if newer.cause is Cause.RESTORED:
        return is_same and (newer.cause, newer.what) == (older.cause, older.what)
    return is_same and newer.cause is Cause.FOUND


def _may_have(made: Checkpoint, path: str) -> bool:
    """False if the checkpoint certainly did not change this file."""
    changes = made.changes
    is_complete = len(changes.changed) == changes.changed_total and bool(made.before)
    return not is_complete or any(change.path == path for change in changes.changed)


def _plain(change: Change) -> ComparedFile:
    told = file_change(change)
    return ComparedFile(told.path, told.what, told.size)


def _size(entry: Entry | None) -> int:
    return 0 if entry is None or entry.kind is Kind.FOLDER else entry.size


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
