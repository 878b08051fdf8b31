"""A session's files as a request names them: in its folder, or in the store."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everturn.domain.checkpoints import parse_at
from everturn.domain.clock import Clock
from everturn.domain.store import Store
from everturn.engine import Engine
from everturn.tools import EverturnToolbox
from everturn.workspace import FolderView, TreeView, Versions, View


class FilesAt(msgspec.Struct, frozen=True):
    """``is_restoring``: the folder is being brought to another version, so ``view`` reads the store."""

    view: View
    is_project: bool
    is_restoring: bool = False


class SessionFiles:
    def __init__(self, engine: Engine, store: Store, toolbox: EverturnToolbox, clock: Clock) -> None:
        self._engine = engine
        self._store = store
        self._toolbox = toolbox
        self._clock = clock
        self._versions = Versions(store.blobs)

    async def at(self, owner: str, session_id: str, at: str) -> FilesAt:
        """The files at ``at``, see ``parse_at``. Raises NotFound, Gone, Invalid."""
        point = parse_at(at)
        session = await self._engine.session(owner, session_id)
        is_project = session.project is not None
        if point is None:
            folder = await self._toolbox.workspace(owner, session_id, session.project)
            return FilesAt(FolderView(folder, self._clock.monotonic), is_project)
        tree = await self._store.checkpoints.tree_at(owner, session_id, point)
        return FilesAt(TreeView(self._versions, tree), is_project)

    async def folder(self, owner: str, session_id: str) -> Path:
        session = await self._engine.session(owner, session_id)
        return await self._toolbox.workspace(owner, session_id, session.project)
