"""Reading a session's workspace: folders, file names by a part of them, one file's text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio.to_thread
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.clock import Clock
from everturn.engine import Engine
from everturn.tools import (
    EverturnToolbox,
    WorkspaceFiles,
    WorkspaceText,
    files_in,
    files_named,
    text_of,
)
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_PATH_CHARS_MAX = 500  # as a query: up to 12 bytes for each


class FilesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``path``: a folder of the workspace; default: the workspace itself. ``q``: a part of a name, looked
    for in that folder and all below it."""

    path: Annotated[str, Meta(max_length=_PATH_CHARS_MAX)] = ""
    q: Annotated[str, Meta(max_length=100)] = ""


class TextQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, max_length=_PATH_CHARS_MAX)]


class WorkspaceApi:
    """Needs the scope ``chat``: such a token can have the agent read the same files."""

    def __init__(self, engine: Engine, toolbox: EverturnToolbox, clock: Clock) -> None:
        self._engine = engine
        self._toolbox = toolbox
        self._clock = clock

    def endpoints(self) -> list[AnyEndpoint]:
        refusals = (e.NotFound, e.Gone, e.Denied)
        return [
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/files",
                run=self.files,
                summary="What is in a folder of the session's workspace, or files by a part of their name.",
                tag="files",
                scope=Scope.CHAT,
                query=FilesQuery,
                answer=WorkspaceFiles,
                errors=refusals,
            ),
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/text",
                run=self.text,
                summary="The text of one file of the session's workspace.",
                tag="files",
                scope=Scope.CHAT,
                query=TextQuery,
                answer=WorkspaceText,
                errors=refusals,
            ),
        ]

    async def files(self, call: ApiCall[FilesQuery, Nothing]) -> WorkspaceFiles:
        workspace, query = await self._workspace(call.owner, call.path["session"]), call.query
        if not query.q:
            return await anyio.to_thread.run_sync(files_in, workspace, query.path)
        return await anyio.to_thread.run_sync(
            files_named, workspace, query.path, query.q, self._clock.monotonic
        )

    async def text(self, call: ApiCall[TextQuery, Nothing]) -> WorkspaceText:
        workspace = await self._workspace(call.owner, call.path["session"])
        return await anyio.to_thread.run_sync(text_of, workspace, call.query.path)

    async def _workspace(self, owner: str, session_id: str) -> Path:
        session = await self._engine.session(owner, session_id)
        return await self._toolbox.workspace(owner, session_id, session.project)
