"""Brings a session's files to this machine, from the last checkpoint that was made on another one (E05).

Until the end no row says that the files are here: after a crash the next caller that needs them begins again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from everturn.domain.checkpoints import Cause, Changes, Checkpoint, NewSave
from everturn.domain.errors import WorkspaceUnreadable
from everturn.domain.machine import Machine
from everturn.domain.probe import Moment, Probe
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.working_copies import WorkingCopy
from everturn.workspace.folder_lock import hold_folder
from everturn.workspace.index import Folder
from everturn.workspace.recorder import Brought, Recorder, Seen
from everturn.workspace.restore import Report
from everturn.workspace.versions import Versions


class Arrived(msgspec.Struct, frozen=True):
    """``former``: the machine from which the files came. ``changes``: of the checkpoint; what it left out may
    be missing here. ``kept``: paths that could not be restored, and why. ``is_aside``: unrecorded files
    that were here were stored first."""

    former: Machine
    checkpoint: str | None
    files: int
    changes: Changes
    kept: dict[str, str]
    is_aside: bool = False


Announce = Callable[[Arrived], Awaitable[None]]


class Arrival:
    def __init__(self, store: Store, recorder: Recorder, probe: Probe | None = None) -> None:
        self._store = store
        self._recorder = recorder
        self._probe = probe or Probe()

    async def is_waiting(self, session: Session, name: bytes) -> bool:
        """True if the files are still on another machine and include one of this name at the top. Raises
        what the blobs and the store raise."""
        copy = await self._store.working_copies.get(session.owner, session.id)
        if self._is_here(session, copy):
            return False
        top = await Versions(self._store.blobs).tree(copy.tree if copy.wanted is None else copy.wanted)
        return any(entry.name == name for entry in top.entries)

    async def bring(
        self,
        session: Session,
        workspace: Path,
        *,
        announce: Announce | None = None,
        report: Report | None = None,
    ) -> Arrived | None:
        """Have the session's files in this machine's folder; None if they are here, or if the folder is a
        project's. ``announce`` is awaited before any row says that they came.

        Raises what ``Recorder.bring`` and the store raise.
        """
        copy = await self._store.working_copies.get(session.owner, session.id)
        if self._is_here(session, copy):
            return None
        async with hold_folder(workspace):
            return await self.bring_held(session, workspace, announce=announce, report=report)

    async def bring_held(
        self,
        session: Session,
        workspace: Path,
        *,
        announce: Announce | None = None,
        report: Report | None = None,
    ) -> Arrived | None:
        """Like ``bring``, for a caller that holds the folder's lock."""
        copy = await self._store.working_copies.get(session.owner, session.id)
        if self._is_here(session, copy):
            return None  # another task has brought them meanwhile
        seen = await self._recorder.look(session, workspace)
        is_aside = False
        if copy.wanted is None and copy.last is not None and await self._is_unknown(session, seen.tree):
            is_aside = True
            copy = await self._keep_aside(session, copy, copy.last, seen)  # guard: e05 postgresql
            await self._probe.reach(Moment.FILES_PUT_ASIDE, session.id)
        brought = await self._restore(session, workspace, copy, seen.folder, report)
        await self._probe.reach(Moment.FILES_RESTORED, session.id)
        arrived = Arrived(
            Machine.parse(copy.machine or ""),
            None if copy.last is None else copy.last.id,
            brought.done.changed_total,
            Changes() if copy.last is None else copy.last.changes,
            brought.kept,
            is_aside,
        )
        if announce is not None:
            await announce(arrived)
        if not await self._settle(session, copy, brought):  # guard: e05 postgresql
            raise WorkspaceUnreadable("The files of the session were recorded elsewhere meanwhile.")
        await self._recorder.remember(session.id, brought.after)
        return arrived

    def _is_here(self, session: Session, copy: WorkingCopy) -> bool:
        return (
            session.project is not None or copy.machine is None or self._store.machine.is_same(copy.machine)
        )

    async def _restore(
        self, session: Session, workspace: Path, copy: WorkingCopy, seen: Folder, report: Report | None
    ) -> Brought:
        """Bring the files as the other machine had them. If a restore was cut off there, finish it here:
        what the user chose to keep is kept."""
        there = WorkingCopy(present=seen.tree, wanted=copy.tree if copy.wanted is None else copy.present)
        brought = await self._recorder.bring(session, workspace, there, known=seen, report=report)
        if copy.wanted is None:
            return brought
        return await self._recorder.bring(session, workspace, copy, known=brought.after, report=report)

    async def _is_unknown(self, session: Session, tree: str) -> bool:
        """True if the folder holds files that no checkpoint has: from a call that never reported back, or
        from a user."""
        if await self._store.checkpoints.find_tree(session.owner, session.id, tree) is not None:
            return False
        return (await self._recorder.compare(EMPTY_TREE, tree)).changed_total > 0

    async def _keep_aside(
        self, session: Session, copy: WorkingCopy, last: Checkpoint, seen: Seen
    ) -> WorkingCopy:
        found = NewSave(after=last.id, before=last.tree, tree=seen.tree, changes=seen.changes or Changes())
        back = await self._recorder.compare(seen.tree, last.tree)
        again = await self._store.checkpoints.keep_aside(session.owner, session.id, found, back)
        if again is None:
            raise WorkspaceUnreadable("The files of the session were recorded elsewhere meanwhile.")
        return msgspec.structs.replace(copy, last=again)

    async def _settle(self, session: Session, copy: WorkingCopy, brought: Brought) -> bool:
        """False if the workspace was recorded meanwhile. The folder can differ from the checkpoint in what
        could not be restored and in what is left out."""
        owner, checkpoints = session.owner, self._store.checkpoints
        if copy.wanted is not None:
            machine, done = self._store.machine.text, brought.restored
            return await self._store.working_copies.settle(owner, session.id, copy.wanted, machine, done)
        if copy.last is None:
            return True
        if brought.after.tree == copy.last.tree:
            return await checkpoints.arrive(owner, session.id, copy.last.id)
        new = NewSave(
            after=copy.last.id,
            before=copy.last.tree,
            tree=brought.after.tree,
            changes=brought.rest,
            cause=Cause.RESTORED,
        )
        return await checkpoints.save(owner, session.id, new) is not None
