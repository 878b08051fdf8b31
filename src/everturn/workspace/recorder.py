"""Records a workspace as a checkpoint: scan, store the bytes, then the row that names them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.checkpoints import (
    LISTED_MAX,
    Cause,
    ChangeKind,
    Changes,
    Checkpoint,
    FileChange,
    LeftOut,
    NewCheckpoint,
    NewSave,
)
from everturn.domain.errors import (
    BlobDamaged,
    BlobMissing,
    DiskFull,
    DiskReadOnly,
    EverturnError,
    WorkspaceUnreadable,
    WorkspaceUnwritable,
)
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.store_values import Claim
from everturn.domain.trees import EMPTY_TREE, Kind, Tree, show_path
from everturn.domain.working_copies import KeptFile, RestoredFiles, WorkingCopy
from everturn.tools.paths import open_folder
from everturn.workspace.diff import Change, diff
from everturn.workspace.ignore import IgnoreRules
from everturn.workspace.index import EMPTY_FOLDER, Folder, Indexes, trees_of
from everturn.workspace.restore import Report, Restore
from everturn.workspace.scan import OPEN_FOLDER, Limits, Scan, left_out
from everturn.workspace.settings import FilesSettings
from everturn.workspace.steps import find_steps
from everturn.workspace.thread_blobs import ThreadBlobs

SCANS_AT_ONCE: Final = 8


class Seen(msgspec.Struct, frozen=True):
    """What a scan of a workspace found. ``last``: the session's last checkpoint. ``tree``: what the folder
    holds now; all of it is in the blobs. ``changes``: what turned ``before``, the last tree, into it; None:
    nothing changed."""

    last: Checkpoint | None
    before: str
    folder: Folder
    changes: Changes | None

    @property
    def tree(self) -> str:
        return self.folder.tree


class Recorder:
    """Makes checkpoints of workspaces. ``folder`` holds the indexes, one file for each session."""

    def __init__(self, store: Store, folder: Path, settings: FilesSettings) -> None:
        self._store = store
        self._indexes = Indexes(folder)
        self._settings = settings
        self._blobs = ThreadBlobs(store.blobs)
        # Separate threads: a scan waits for the blobs, which need threads too.
        self._threads = anyio.CapacityLimiter(SCANS_AT_ONCE)

    async def record(
        self, claim: Claim, workspace: Path, call_id: str | None, *, is_of_parent: bool = False
    ) -> Checkpoint | None:
        """Store what changed in the workspace since the session's last checkpoint; None if nothing did.
        ``is_of_parent``: it changed before the turn's first call.

        On return the bytes and then the row are durable. If cancelled, there is a whole checkpoint or none.
        Raises Fenced, WorkspaceUnreadable, and what the blobs and the store raise.
        """
        seen = await self.look(claim.session, workspace)
        if seen.changes is None:
            return None
        new = NewCheckpoint(
            turn_id=claim.turn.id,
            epoch=claim.epoch,
            before=seen.before,
            tree=seen.tree,
            changes=seen.changes,
            cause=Cause.FOUND if call_id is None else Cause.CALL,
            call_id=call_id,
            is_of_parent=is_of_parent,
            project=claim.session.project,
        )
        made = await self._store.checkpoints.put(new)
        await self.remember(claim.session.id, seen.folder)
        return made

    async def save(self, session: Session, workspace: Path) -> Checkpoint | None:
        """Like ``record``, for what a user saved; the last checkpoint if nothing changed."""
        while True:
            seen = await self.look(session, workspace)
            if seen.changes is None:
                return seen.last
            after = None if seen.last is None else seen.last.id
            new = NewSave(after=after, before=seen.before, tree=seen.tree, changes=seen.changes)
            made = await self._store.checkpoints.save(session.owner, session.id, new)
            if made is not None:
                await self.remember(session.id, seen.folder)
                return made

    async def look(self, session: Session, workspace: Path) -> Seen:
        """Find what changed since the last checkpoint, and store its bytes. No row names them yet; unnamed
        blobs are kept for a day. Raises WorkspaceUnreadable, and what the blobs and the store raise."""
        last = await self._store.checkpoints.last(session.owner, session.id)
        is_project = session.project is not None
        # What was in a project before its first checkpoint is not a change of this session.
        before = last.tree if last is not None else "" if is_project else EMPTY_TREE
        here = _Workspace(session.id, workspace, is_project)
        known, found, changes = await anyio.to_thread.run_sync(
            self._look, here, before, limiter=self._threads
        )
        if changes is None and found is not known and last is not None:
            await self.remember(session.id, found)
        return Seen(last, before, found, changes)

    async def bring(
        self,
        session: Session,
        workspace: Path,
        copy: WorkingCopy,
        *,
        known: Folder | None = None,
        report: Report | None = None,
    ) -> Brought:
        """Bring the folder from ``copy.present`` to ``copy.wanted``, from any point at which that was cut
        off. ``known``: what a recent scan of it found. The caller holds the folder's lock.

        On return the files are durable. No row is written. Repeating it after a crash is harmless.
        A file with damaged bytes is kept as it is. Raises DiskFull, DiskReadOnly, WorkspaceUnwritable,
        WorkspaceUnreadable, and what the blobs raise, e.g. if the tree itself is damaged.
        """
        here = _Workspace(session.id, workspace, session.project is not None)
        return await anyio.to_thread.run_sync(self._bring, here, copy, known, report, limiter=self._threads)

    async def compare(self, before: str, after: str) -> Changes:
        """What turns one tree into another."""
        return await anyio.to_thread.run_sync(self._compare, before, after, limiter=self._threads)

    async def forget(self, session_id: str) -> None:
        """Remove the index of a deleted session."""
        await anyio.to_thread.run_sync(self._indexes.delete, session_id, limiter=self._threads)

    async def remember(self, session_id: str, found: Folder) -> None:
        """Keep what a scan found as the index. Called once a row names the tree: the index claims that what
        it lists is stored, and only a row keeps that true."""
        await anyio.to_thread.run_sync(self._indexes.put, session_id, found, limiter=self._threads)

    # --- in a thread -------------------------------------------------------------------------------

    def _look(self, here: _Workspace, before: str) -> tuple[Folder | None, Folder, Changes | None]:
        """The index as it was, what the scan found, and what changed; None if nothing did."""
        known = self._indexes.get(here.session_id)
        if known is not None and known.tree != before:  # guard: e01
            known = None  # no row keeps what it lists, or the workspace was recorded on another machine
        if known is None and before == EMPTY_TREE:
            known = EMPTY_FOLDER
        found = self._scan(here, known)
        changes = None if found.tree == before else self._changes(before, known, found)
        return known, found, changes

    def _scan(self, here: _Workspace, known: Folder | None) -> Folder:
        limits = Limits(self._settings.file_bytes_max, self._settings.workspace_files_max)
        try:
            with open_listable(here.folder) as root:
                rules = IgnoreRules.of_workspace(self._settings.ignore, is_project=here.is_project, root=root)
                return Scan(rules, limits, self._blobs.put).run(root, known)
        except OSError as error:
            raise WorkspaceUnreadable(
                f"The files of the workspace could not be recorded: {error.strerror or error}. "
                "They are still there."
            ) from error

    def _bring(
        self, here: _Workspace, copy: WorkingCopy, known: Folder | None, report: Report | None
    ) -> Brought:
        wanted = copy.tree if copy.wanted is None else copy.wanted
        seen = self._scan(here, known)
        steps = find_steps(self._blobs.load, copy, seen.tree, wanted)
        try:
            with open_listable(here.folder) as root:
                restore = Restore(
                    root, self._fetch, fetch_small=self._blobs.fetch_small, seen=seen, report=report
                )
                restored = restore.run(steps.changes)
        except OSError as error:
            raise _explain(error) from error
        kept = steps.kept | restored.kept
        files = [one for one in steps.whole if is_of_file(one) and one.path not in kept]
        after = self._scan(here, seen)
        return Brought(
            after,
            Changes(tuple(map(file_change, files[:LISTED_MAX])), len(files)),
            self._changes(wanted, seen, after),
            {show_path(path): why for path, why in sorted(kept.items())},
            is_damaged=bool(kept) and restored.damaged == kept.keys(),
        )

    def _fetch(self, sha256: str) -> Iterator[bytes]:
        """Damaged bytes affect one file only: it is kept as it is, and named in the result."""
        try:
            yield from self._blobs.fetch(sha256)
        except (BlobMissing, BlobDamaged) as error:
            raise OSError(errno.ENODATA, error.message) from error

    def _compare(self, before: str, after: str) -> Changes:
        changed = [] if not before else diff(self._blobs.load, before, after)
        files = [change for change in changed if is_of_file(change)]
        return Changes(tuple(map(file_change, files[:LISTED_MAX])), len(files))

    def _changes(self, before: str, known: Folder | None, found: Folder) -> Changes:
        at_hand = trees_of(found) if known is None else {**trees_of(known), **trees_of(found)}

        def load(sha256: str) -> Tree:
            return at_hand.get(sha256) or self._blobs.load(sha256)

        changed = [] if not before else diff(load, before, found.tree)
        files = [change for change in changed if is_of_file(change)]
        missing = list(left_out(found))
        return Changes(
            tuple(map(file_change, files[:LISTED_MAX])),
            len(files),
            tuple(LeftOut(show_path(path), reason) for path, reason in missing[:LISTED_MAX]),
            len(missing),
        )


class Brought(msgspec.Struct, frozen=True):
    """What ``bring`` did. ``after``: the folder as it is now. ``done``: what it changed, also before it was
    cut off. ``rest``: how the folder still differs from the tree, where paths were ``kept``, and what
    checkpoints leave out there. ``is_damaged``: paths were kept only because their bytes are damaged."""

    after: Folder
    done: Changes
    rest: Changes
    kept: dict[str, str]
    is_damaged: bool = False

    @property
    def restored(self) -> RestoredFiles:
        kept = [KeptFile(path, why) for path, why in self.kept.items()]
        return RestoredFiles(self.done.changed, self.done.changed_total, tuple(kept[:LISTED_MAX]))


class _Workspace(msgspec.Struct, frozen=True):
    """The workspace of a session."""

    session_id: str
    folder: Path
    is_project: bool


@contextmanager
def open_listable(folder: Path) -> Iterator[int]:
    """A handle of the folder that can be listed; no link on its path is followed."""
    place = open_folder(folder)
    try:
        handle = os.open(".", OPEN_FOLDER, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield handle
    finally:
        os.close(handle)


def is_of_file(change: Change) -> bool:
    """True for files and links; folders show by what is in them."""
    return any(entry is not None and entry.kind is not Kind.FOLDER for entry in (change.before, change.after))


def file_change(change: Change) -> FileChange:
    before, after = change.before, change.after
    if after is None or after.kind is Kind.FOLDER:
        return FileChange(show_path(change.path), ChangeKind.DELETED)
    is_new = before is None or before.kind is Kind.FOLDER
    return FileChange(show_path(change.path), ChangeKind.ADDED if is_new else ChangeKind.CHANGED, after.size)


def _explain(error: OSError) -> EverturnError:
    name = f" ({os.fsdecode(error.filename)})" if error.filename else ""
    message = (
        f"The files of the workspace could not be restored: {error.strerror or error}{name}. "
        "They are safe in the store; the rest is restored before the next call."
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(message)
    return DiskReadOnly(message) if error.errno == errno.EROFS else WorkspaceUnwritable(message)
