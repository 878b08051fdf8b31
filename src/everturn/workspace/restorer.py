"""Restores the files of a session: plans what a move changes, then brings the folder there.

A plan scans the folder, stores what it holds, and compares three trees: what the last call or restore left,
what is there now, and what is wanted. A file that differs from both the first and the third is a user's own
work, and is never overwritten unasked. The store then records in one transaction what the folder must hold
(``domain/working_copies``). ``finish`` brings it there; it can be repeated at any time, and until it is done
no tool of the session runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
import msgspec

from everturn.domain.checkpoints import LISTED_MAX, Changes, FileChange
from everturn.domain.errors import (
    BlobDamaged,
    BlobMissing,
    EverturnError,
    FilesConflict,
    Invalid,
    TreeUnreadable,
    WrongState,
)
from everturn.domain.machine import Machine
from everturn.domain.probe import Moment, Probe
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.trees import EMPTY_TREE, show_path
from everturn.domain.working_copies import (
    FileChoices,
    FilesChoice,
    FilesPlan,
    HeldFiles,
    KeptFile,
    Move,
    RestoredFiles,
    WorkingCopy,
)
from everturn.tools.policy.guarded import any_guarded
from everturn.workspace.arrival import Arrival
from everturn.workspace.diff import Change, Load, diff, find_conflicts
from everturn.workspace.folder_lock import hold_folder
from everturn.workspace.index import Folder
from everturn.workspace.mine import find_original
from everturn.workspace.overlay import find_entry, overlay, select
from everturn.workspace.recorder import Recorder, file_change, is_of_file
from everturn.workspace.thread_blobs import ThreadBlobs

FindFolder = Callable[[Session], Awaitable[Path]]
_THREADS: Final = 4
_REMEMBERED_MAX: Final = 32  # scans of plans that may be carried out soon
T = TypeVar("T")
Args = TypeVarTuple("Args")


class ShownPlan(msgspec.Struct, frozen=True):
    """A plan with what a user is shown of it. ``conflicts``: the user's own changes that it would
    overwrite."""

    plan: FilesPlan
    conflicts: tuple[FileChange, ...]

    @property
    def digest(self) -> str:
        """The same only for the same files in the folder and the same to be restored."""
        text = f"{self.plan.after} {self.plan.present} {self.plan.wanted}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def decide(self, choices: FileChoices) -> FilesPlan:
        """The plan with a choice for each conflict. Raises FilesConflict if one is missing."""
        chosen = {conflict.path: choices.of(conflict.path) for conflict in self.conflicts}
        open_ones = tuple(one for one in self.conflicts if chosen[one.path] is None)
        if open_ones:  # guard: e02
            raise FilesConflict(open_ones)
        kept = {path: choice for path, choice in chosen.items() if choice is not None}
        return msgspec.structs.replace(self.plan, choices=kept)


class MadeFiles(msgspec.Struct, frozen=True):
    """A tree that was made from another, ``base``. ``paths``: only these are brought; none: all.
    ``may_guard``: also files of a project that make other programs run something."""

    base: str
    tree: str
    paths: tuple[bytes, ...] = ()
    may_guard: bool = False


class Applied(msgspec.Struct, frozen=True):
    """``conflicts``: files that were changed in the folder meanwhile."""

    restored: RestoredFiles = RestoredFiles()
    conflicts: tuple[FileChange, ...] = ()


class _Merged(msgspec.Struct, frozen=True):
    tree: str
    paths: list[str]
    conflicts: tuple[FileChange, ...]


class Restorer:
    def __init__(
        self, store: Store, recorder: Recorder, find_folder: FindFolder, probe: Probe | None = None
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._find_folder = find_folder
        self._probe = probe or Probe()
        self._blobs = ThreadBlobs(store.blobs)
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._seen: dict[str, Folder] = {}

    # --- planning ----------------------------------------------------------------------------------

    async def plan_move(self, session: Session, move: Move, turn_id: str | None) -> ShownPlan | None:
        """What a move does to the files; None if it leaves them as they are.

        Finishes an earlier restore first. Raises NothingToDo, NotFound, Gone, and what ``finish`` raises.
        """
        wanted = await self._store.working_copies.after_move(session.owner, session.id, move, turn_id)
        return None if wanted is None else await self._plan(session, wanted, None)

    async def plan_branch(self, session: Session) -> ShownPlan:
        """Store what the folder holds, so that another session can have it. Raises what ``finish`` raises."""
        return await self._plan(session, EMPTY_TREE, None)

    async def plan_restore(self, session: Session, tree: str, paths: Sequence[bytes] = ()) -> ShownPlan:
        """What restoring a tree, or some paths of it, does to the files. Raises WrongState if they are in a
        project folder of another machine, and what ``finish`` raises."""
        self._refuse_elsewhere(session)
        return await self._plan(session, tree, tuple(paths))

    def _refuse_elsewhere(self, session: Session) -> None:
        if session.project is not None and not self._store.machine.is_same(
            session.machine
        ):  # guard: e06 postgresql
            # A folder of the same name here is another one.
            name = Machine.parse(session.machine or "").name
            raise WrongState(
                f"The project folder of this session is on another machine, {name}. Nothing was restored.",
                hint="Restore its files there.",
            )

    async def _plan(self, session: Session, wanted: str, paths: tuple[bytes, ...] | None) -> ShownPlan:
        async with self.hold(session) as folder:
            made = await self._store.working_copies.tree_made(session.owner, session.id)
            copy = await self._store.working_copies.get(session.owner, session.id)
            seen = await self._recorder.look(session, folder)
            present = seen.tree
            if paths:
                wanted = await self._in_thread(self._overlay, present, wanted, paths)
            changes, conflicts = await self._in_thread(self._compare, made, present, wanted)
        self._remember(session.id, seen.folder)
        await self._probe.reach(Moment.FILES_PLANNED, session.id)
        files = [file_change(change) for change in changes if is_of_file(change)]
        plan = FilesPlan(
            after=None if copy.last is None else copy.last.id,
            present=present,
            changes=seen.changes or Changes(),
            wanted=wanted,
            restores=Changes(tuple(files[:LISTED_MAX]), len(files)),
        )
        return ShownPlan(plan, tuple(file_change(_reverse(conflict)) for conflict in conflicts))

    async def select(self, tree: str, patterns: Sequence[str]) -> str:
        """The tree with only what the patterns name, stored; unnamed blobs are kept for a day. Raises
        Invalid if that is nothing."""
        return await self._in_thread(select, self._blobs.load, self._blobs.put, tree, patterns)

    def _overlay(self, present: str, wanted: str, paths: tuple[bytes, ...]) -> str:
        return overlay(self._blobs.load, self._blobs.put, present, wanted, paths)

    def _compare(self, made: str, present: str, wanted: str) -> tuple[list[Change], list[Change]]:
        load = self._blobs.load
        conflicts = find_conflicts(load, made, present, wanted)
        return diff(load, present, wanted), [one for one in conflicts if not _is_restored(load, one, wanted)]

    def _remember(self, session_id: str, found: Folder) -> None:
        self._seen.pop(session_id, None)
        self._seen[session_id] = found
        while len(self._seen) > _REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]

    # --- taking over ---------------------------------------------------------------------------------

    async def apply(self, session: Session, made: MadeFiles, choice: FilesChoice | None = None) -> Applied:
        """Bring what differs between two trees into the session's folder, if no file there was changed since
        the first; otherwise ``choice`` decides about such files, and without one nothing is written.

        No row is written: the caller records the folder. Raises Invalid for files of a project that make
        other programs run something, WrongState if the project is on another machine, and as ``finish``.
        """
        self._refuse_elsewhere(session)  # guard: e09 postgresql
        async with self.hold(session) as folder:
            seen = await self._recorder.look(session, folder)
            merged = await self._in_thread(self._merge, made, seen.tree, choice)
            if session.project is not None and not made.may_guard:
                await self._in_thread(_refuse_guarded, folder, merged.paths)  # guard: e09
            if merged.conflicts and choice is None:  # guard: e09
                return Applied(conflicts=merged.conflicts)
            choices = {} if choice is None else {one.path: choice for one in merged.conflicts}
            copy = WorkingCopy(wanted=merged.tree, present=seen.tree, choices=choices)
            brought = await self._recorder.bring(session, folder, copy, known=seen.folder)
        return Applied(brought.restored, merged.conflicts)

    def _merge(self, made: MadeFiles, present: str, choice: FilesChoice | None) -> _Merged:
        load = self._blobs.load
        changes = [
            change
            for change in diff(load, made.base, made.tree)
            if is_of_file(change) and (not made.paths or change.path in made.paths)
        ]
        mine = {change.path for change in changes if _is_mine(load, change, present)}
        kept = mine if choice is FilesChoice.KEEP else set()
        paths = [change.path for change in changes if change.path not in kept]
        conflicts = tuple(file_change(change) for change in changes if change.path in mine)
        tree = overlay(load, self._blobs.put, present, made.tree, paths)
        return _Merged(tree, [show_path(path) for path in paths], conflicts)

    # --- restoring ---------------------------------------------------------------------------------

    async def finish(self, session: Session) -> RestoredFiles | None:
        """Bring the folder to what is wanted; None if it is there, or if it is another machine's.

        On return the files are durable. If cancelled, the next call finishes it. Raises DiskFull,
        DiskReadOnly, WorkspaceUnwritable, WorkspaceUnreadable, and what the blobs and the store raise:
        nothing is lost then, and what is wanted can be restored again.
        """
        copy = await self._store.working_copies.get(session.owner, session.id)
        if copy.wanted is None:
            return None
        folder = await self._find_folder(session)
        async with hold_folder(folder):
            return await self._finish(session, folder)

    @asynccontextmanager
    async def hold(self, session: Session) -> AsyncIterator[Path]:
        """The session's folder with its files in it, under its lock: nothing else restores files there
        meanwhile. Raises as ``finish``."""
        folder = await self._find_folder(session)
        async with hold_folder(folder):
            # Otherwise what another machine has would look as if the user had deleted it here.
            await Arrival(self._store, self._recorder, self._probe).bring_held(session, folder)
            await self._finish(session, folder)
            yield folder

    async def finish_all(self) -> dict[str, EverturnError]:
        """Finish what was cut off; the errors by session. Called once, after a start."""
        troubles: dict[str, EverturnError] = {}
        for left in await self._store.working_copies.find_unsettled():
            try:
                session = await self._store.sessions.get(left.owner, left.session_id)
                if self._store.machine.is_same(left.machine):
                    await self.finish(session)
            except EverturnError as error:
                troubles[left.session_id] = error
        return troubles

    async def _finish(self, session: Session, folder: Path) -> RestoredFiles | None:
        copy = await self._store.working_copies.get(session.owner, session.id)
        if copy.wanted is None or not self._store.machine.is_same(copy.machine):
            return None
        known = self._seen.pop(session.id, None)
        if known is not None and known.tree != copy.present:
            known = None
        done, found, held = await self._bring(session, folder, copy, known)
        await self._probe.reach(Moment.FILES_RESTORED, session.id)
        machine = self._store.machine.text
        with anyio.CancelScope(shield=True):
            await self._store.working_copies.settle(
                session.owner, session.id, copy.wanted, machine, done, held=held
            )
            if found is not None and found.tree == copy.wanted:
                await self._recorder.remember(session.id, found)
        return done

    async def _bring(
        self, session: Session, folder: Path, copy: WorkingCopy, known: Folder | None
    ) -> tuple[RestoredFiles, Folder | None, HeldFiles | None]:
        """What was done, what the folder holds, and the same for the store if damaged bytes are the only
        reason that it is not what is wanted."""
        try:
            brought = await self._recorder.bring(session, folder, copy, known=known)
        except (BlobMissing, BlobDamaged, TreeUnreadable) as error:
            # Nothing can restore those files, and the session must not wait for ever.
            kept = RestoredFiles(kept=(KeptFile("", error.message),))
            return kept, None, HeldFiles(copy.present, Changes())
        held = HeldFiles(brought.after.tree, brought.rest) if brought.is_damaged else None
        return brought.restored, brought.after, held

    async def _in_thread(self, act: Callable[[*Args], T], *args: *Args) -> T:
        return await anyio.to_thread.run_sync(act, *args, limiter=self._threads)


def _refuse_guarded(folder: Path, paths: Sequence[str]) -> None:
    if any_guarded(folder, paths):
        raise Invalid(
            "Some of the files make other programs run something. Nothing was written.",
            hint="Take over the others by name; write these with a tool that asks the user.",
        )


def _is_mine(load: Load, change: Change, present: str) -> bool:
    """True if the folder holds neither what the change began with nor what it leads to."""
    here = find_entry(load, present, change.path)
    return not any(
        here is None if entry is None else entry.is_same(here) for entry in (change.before, change.after)
    )


def _is_restored(load: Load, conflict: Change, wanted: str) -> bool:
    """True for a copy that an earlier restore put beside a file, if that file now gets the same bytes back:
    nothing would be lost."""
    original = find_original(conflict.path)
    if original is None or conflict.before is None or conflict.after is not None:
        return False
    entry = find_entry(load, wanted, original)
    return entry is not None and (entry.kind, entry.sha256) == (conflict.before.kind, conflict.before.sha256)


def _reverse(change: Change) -> Change:
    """A conflict as what the user did: the file is there, changed or added."""
    return Change(change.path, change.after, change.before)
