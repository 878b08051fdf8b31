"""A session's files as a request names them: in its folder, or in the store."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from everturn.domain.checkpoints import Checkpoint, parse_at
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.engine import Engine
from everturn.tools import EverturnToolbox
from everturn.workspace import Compare, FolderView, Recorder, TreeView, Versions, View


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
        self.versions = Versions(store.blobs)
        self.compare = Compare(self.versions)

    async def at(self, owner: str, session_id: str, at: str) -> FilesAt:
        """The files at ``at``, see ``parse_at``. Raises NotFound, Gone, Invalid."""
        point = parse_at(at)
        session = await self._engine.session(owner, session_id)
        is_project = session.project is not None
        wanted = (await self._store.working_copies.get(owner, session_id)).wanted
        if point is None and wanted is not None:
            return FilesAt(TreeView(self.versions, wanted), is_project, is_restoring=True)
        if point is None:
            return FilesAt(FolderView(await self._folder(session), time.monotonic), is_project)
        tree = await self._store.checkpoints.tree_at(owner, session_id, point)
        return FilesAt(TreeView(self.versions, tree), is_project)

    async def tree(self, owner: str, session_id: str, at: str) -> str:
        """The tree at ``at``. For ``now`` the folder is looked at, and what changed in it is stored."""
        point = parse_at(at)
        if point is not None:
            return await self._store.checkpoints.tree_at(owner, session_id, point)
        session = await self._engine.session(owner, session_id)
        wanted = (await self._store.working_copies.get(owner, session_id)).wanted
        if wanted is not None:
            return wanted
        return (await self._recorder.look(session, await self._folder(session))).tree

    async def checkpoints(self, owner: str, session_id: str) -> AsyncGenerator[Checkpoint, None]:
        """All of a session, newest first."""
        before = None
        while page := await self._store.checkpoints.of_session(owner, session_id, before=before):
            for made in page:
                yield made
            before = page[-1].id

    async def folder(self, owner: str, session_id: str) -> Path:
        return await self._folder(await self._engine.session(owner, session_id))

    async def _folder(self, session: Session) -> Path:
        return await self._toolbox.workspace(session.owner, session.id, session.project)
