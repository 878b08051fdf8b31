"""Folders of this machine from which a user chooses one for a session to work in."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.sessions import SessionFilter
from everturn.domain.store import Sessions
from everturn.tools import EverturnToolbox, FolderLine, FolderList
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_RECENT_SESSIONS = 200


class FoldersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``path``: an allowed folder or one in it; default: the allowed ones."""

    path: Annotated[str, Meta(max_length=1000)] = ""


class ShownFolders(FolderList, frozen=True, kw_only=True):
    """``recent``: folders that sessions work in, the latest first; only in the first list."""

    recent: tuple[FolderLine, ...] = ()


class FoldersApi:
    """Needs the scope ``admin``, as choosing a session's folder does."""

    def __init__(self, toolbox: EverturnToolbox, sessions: Sessions) -> None:
        self._folders = toolbox.folders
        self._sessions = sessions

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/folders",
                run=self.list,
                summary="The folders that sessions may work in, or those in one of them.",
                tag="files",
                scope=Scope.ADMIN,
                query=FoldersQuery,
                answer=ShownFolders,
                errors=(e.NotFound, e.Denied),
            )
        ]

    async def list(self, call: ApiCall[FoldersQuery, Nothing]) -> ShownFolders:
        path = call.query.path
        found = await anyio.to_thread.run_sync(self._folders.list, path)
        recent = () if path else await self._recent(call.owner)
        return ShownFolders(found.path, found.above, found.folders, found.is_cut, recent=recent)

    async def _recent(self, owner: str) -> tuple[FolderLine, ...]:
        page = await self._sessions.list(owner, SessionFilter(), limit=_RECENT_SESSIONS)
        projects = [session.project for session in page.items]
        return await anyio.to_thread.run_sync(self._folders.recent, projects)
