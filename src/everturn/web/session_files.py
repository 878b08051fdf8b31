"""A session's files as a request names them: in its folder, or in the store."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec

from everturn.domain.checkpoints import Checkpoint, parse_at
from everturn.domain.errors import Denied, Retry, WrongState
from everturn.domain.machine import Machine
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.working_copies import WorkingCopy
from everturn.engine import Engine
from everturn.tools import EverturnToolbox
from everturn.workspace import Compare, FolderView, Recorder, Restorer, TreeView, Versions, View, save_file

_log = logging.getLogger("everturn.web")


class FilesAt(msgspec.Struct, frozen=True):
    """``is_restoring``: the folder is being brought to another version, so ``view`` reads the store."""

    view: View
    is_project: bool
    is_restoring: bool = False


class SessionFiles:
    def __init__(self, engine: Engine, store: Store, toolbox: EverturnToolbox, recorder: Recorder) -> None:
        self._engine = engine
        self._store = store
        self._toolbox = toolbox
        self._recorder = recorder
        self._restorer = engine.restorer or Restorer(store, recorder, self._folder)
        self.versions = Versions(store.blobs)
        self.compare = Compare(self.versions)

    async def at(self, owner: str, session_id: str, at: str) -> FilesAt:
        """The files at ``at``, see ``parse_at``. Raises NotFound, Gone, Invalid."""
        point = parse_at(at)
        session = await self._engine.session(owner, session_id)
        is_project = session.project is not None
        copy = await self._store.working_copies.get(owner, session_id)
        if point is None and copy.wanted is not None:
            # A branch that was not used yet has an empty folder, of which nothing is restored.
            is_restoring = copy.present != EMPTY_TREE
            return FilesAt(TreeView(self.versions, copy.wanted), is_project, is_restoring)
        if point is None and not self._is_here(session, copy):
            return FilesAt(TreeView(self.versions, copy.tree), is_project)
        if point is None:
            return FilesAt(FolderView(await self._folder(session), time.monotonic), is_project)
        tree = await self._store.checkpoints.tree_at(owner, session_id, point)
        return FilesAt(TreeView(self.versions, tree), is_project)

    async def tree(self, owner: str, session_id: str, at: str) -> str:
        """The tree at ``at``. For ``now`` the folder is scanned, and what changed in it is stored."""
        point = parse_at(at)
        if point is not None:
            return await self._store.checkpoints.tree_at(owner, session_id, point)
        session = await self._engine.session(owner, session_id)
        copy = await self._store.working_copies.get(owner, session_id)
        if copy.wanted is not None:
            return copy.wanted
        if not self._is_here(session, copy):
            return copy.tree
        return (await self._recorder.look(session, await self._folder(session))).tree

    async def checkpoints(self, owner: str, session_id: str) -> AsyncGenerator[Checkpoint, None]:
        """All checkpoints of a session, newest first."""
        before = None
        while page := await self._store.checkpoints.of_session(owner, session_id, before=before):
            for made in page:
                yield made
            before = page[-1].id

    async def save(
        self, owner: str, session_id: str, path: str, source: Path, tag: str | None
    ) -> tuple[str, Checkpoint | None]:
        """Save a file over the one with this tag, or a new one (None); the path and the checkpoint with it.

        Raises StaleFile, WrongState, and what ``check_profile`` and ``save_file`` raise.
        """
        session = await self._engine.session(owner, session_id)
        copy = await self._store.working_copies.get(owner, session_id)
        is_project = session.project is not None
        if not self._is_here(session, copy) and (is_project or session.active_turn is not None):
            name = Machine.parse(session.machine or copy.machine or "").name
            raise WrongState(
                f"The files of this session are on another machine, {name}. Nothing was saved.",
                hint="Save it there." if is_project else "Try again when its turn has ended.",
            )
        await self.check_profile(session, "saved")
        # Finishes an earlier restore first: a branch that was not used yet has its files to come.
        async with self._restorer.hold(session) as folder:
            save = partial(save_file, folder, path, source, tag, is_project=is_project)
            name = await anyio.to_thread.run_sync(save)
            try:
                return name, await self._recorder.save(session, folder)
            except (Retry, WrongState) as error:
                # The file is saved, also if a restore was asked for meanwhile. The next look at the folder
                # finds the change and records it.
                _log.warning("a saved file is not in a checkpoint yet: %s", error.message)
                return name, None

    async def check_profile(self, session: Session, done: str) -> None:
        """Raises Denied if a profile that only reads works in a project: then a request changes no file there
        either. ``done``: what the request would have done, e.g. ``saved``."""
        profile = await self._toolbox.profile_book.get(session.profile)
        if session.project is not None and not profile.may_change_files:  # guard: e06
            raise Denied(
                f"Nothing was {done}: the profile {profile.name} only reads, and the folder is a project's.",
                hint="Choose another profile, or change the file with your own editor.",
            )

    def _is_here(self, session: Session, copy: WorkingCopy) -> bool:
        """True if this machine has the present folder. Others only know its last checkpoint."""
        return self._store.machine.is_same(copy.machine if session.project is None else session.machine)

    async def _folder(self, session: Session) -> Path:
        return await self._toolbox.workspace(session.owner, session.id, session.project)
