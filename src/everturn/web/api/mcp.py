"""MCP servers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.store import Sessions
from everturn.tools import EverturnToolbox, ServerState
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import SessionId
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing


class ServerOut(ServerState, frozen=True):
    is_connected: bool = False


class Servers(msgspec.Struct, frozen=True):
    servers: tuple[ServerOut, ...]


class TrustServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session_id``: the session in whose workspace the server is started to be asked. ``digest``: of the
    text that is accepted; without one nothing is accepted, and the answer holds the texts to read."""

    session_id: SessionId
    digest: Annotated[str, Meta(max_length=64)] = ""


class McpApi:
    def __init__(self, toolbox: EverturnToolbox, sessions: Sessions, audit: Audit) -> None:
        self._toolbox = toolbox
        self._sessions = sessions
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/mcp",
                run=self.servers,
                summary="The MCP servers of config.toml.",
                tag="settings",
                answer=Servers,
            ),
            Endpoint(
                method="POST",
                path="/api/mcp/{server}/trust",
                run=self.trust_server,
                summary="Start a server, read its tools' descriptions, and accept them.",
                tag="settings",
                scope=Scope.ADMIN,
                body=TrustServer,
                answer=ServerOut,
                errors=(e.NotFound, e.WrongState),
            ),
        ]

    async def servers(self, call: ApiCall[Nothing, Nothing]) -> Servers:
        return Servers(tuple(_server_out(state) for state in await self._toolbox.servers(call.owner)))

    async def trust_server(self, call: ApiCall[Nothing, TrustServer]) -> ServerOut:
        name, digest = call.path["server"], call.body.digest
        session = await self._sessions.get(call.owner, call.body.session_id)
        state = await self._toolbox.trust_server(call.owner, name, session.id, digest)
        if digest:
            await self._audit.note("mcp.trusted", call.caller, name)
        return _server_out(state)


def _server_out(state: ServerState) -> ServerOut:
    given = {name: getattr(state, name) for name in state.__struct_fields__}
    return ServerOut(**given, is_connected=state.state == "running")
