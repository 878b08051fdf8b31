"""MCP servers: what they offer, adding and changing them, deciding about their tools, signing in."""

from __future__ import annotations

import html
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.asks import Asks, SignInAnswer, open_sign_ins
from everturn.domain.json_types import JsonObject
from everturn.domain.store import Sessions
from everturn.engine import Engine
from everturn.tools import EverturnToolbox, McpServer, ServerState
from everturn.tools.mcp.http import label_of
from everturn.tools.mcp.server_book import make_server, place_of
from everturn.web.access.audit import Audit
from everturn.web.access.identity import LOCAL_OWNER, Scope
from everturn.web.api.sessions import SessionId
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing, Raw

_CALLBACK = "/api/mcp/callback"
_REFUSALS = (e.Invalid, e.NotFound, e.WrongState)
_Text = Annotated[str, Meta(max_length=2000)]
_Word = Annotated[str, Meta(max_length=200)]
_KeyName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$(?!\n)")]


class ServerOut(ServerState, frozen=True):
    """``kind``: stdio | http. ``place``: its command, or its address. ``origin``: config | page.

    Without the scope ``admin``, ``place`` is the program or the host alone; ``detail`` and ``log`` are empty.
    """

    is_connected: bool = False
    kind: str = "stdio"
    place: str = ""
    origin: str = "page"
    enabled: bool = True
    profiles: tuple[str, ...] = ()
    server: McpServer | None = None  # the settings, where they can be changed here
    keys: tuple[str, ...] = ()  # the names of those that are kept for it


class Servers(msgspec.Struct, frozen=True):
    """``searched``: more tools are on than are listed to the agent, which finds them by words instead."""

    servers: tuple[ServerOut, ...]
    tools_on: int = 0
    searched: bool = False


class TrustServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session_id``: left over from when servers were started in a session's workspace. ``digest``: of the
    text that is accepted; without one nothing is accepted, and the answer holds the texts to read."""

    session_id: SessionId | None = None
    digest: Annotated[str, Meta(max_length=64)] = ""


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can be set on the page; what is left out stays. ``keys`` cannot be read back: environment
    variables of a program, or ``bearer`` of an address; null deletes one."""

    command: _Text | UnsetType = UNSET
    args: Annotated[tuple[_Text, ...], Meta(max_length=100)] | UnsetType = UNSET
    env: Annotated[dict[_Word, _Text], Meta(max_length=100)] | UnsetType = UNSET
    secrets: Annotated[tuple[_Word, ...], Meta(max_length=50)] | UnsetType = UNSET
    read: Annotated[tuple[_Text, ...], Meta(max_length=50)] | UnsetType = UNSET
    write: Annotated[tuple[_Text, ...], Meta(max_length=50)] | UnsetType = UNSET
    network: bool | UnsetType = UNSET
    url: _Text | UnsetType = UNSET
    bearer: _Word | UnsetType = UNSET
    local: bool | UnsetType = UNSET
    sign_in_hosts: Annotated[tuple[_Word, ...], Meta(max_length=20)] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    profiles: Annotated[tuple[_Word, ...], Meta(max_length=200)] | UnsetType = UNSET
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] | UnsetType = UNSET
    keys: Annotated[dict[_KeyName, Annotated[str, Meta(max_length=4000)] | None], Meta(max_length=30)] = {}

    @property
    def settings(self) -> JsonObject:
        given: JsonObject = msgspec.to_builtins(self)
        return {name: value for name, value in given.items() if name != "keys"}


class AddServer(ServerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=31)]


class SetMode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``digest``: of what the tool says, as it was shown."""

    tool: Annotated[str, Meta(min_length=1, max_length=500)]
    digest: Annotated[str, Meta(max_length=64)]
    mode: Literal["allow", "ask", "off"]


class GetPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(min_length=1, max_length=200)]
    arguments: Annotated[dict[_Word, Annotated[str, Meta(max_length=20_000)]], Meta(max_length=20)] = {}


class PromptText(msgspec.Struct, frozen=True):
    text: str


class SignInAt(msgspec.Struct, frozen=True):
    """Where the user's browser goes; empty: there is nothing to do there, the server takes calls."""

    address: str


class Returned(msgspec.Struct, frozen=True):
    """What a sign-in server sends along. Unknown fields are ignored: some send more."""

    state: Annotated[str, Meta(max_length=500)] = ""
    code: Annotated[str, Meta(max_length=4000)] = ""
    iss: Annotated[str, Meta(max_length=2000)] | None = None
    error: Annotated[str, Meta(max_length=500)] = ""
    error_description: Annotated[str, Meta(max_length=2000)] = ""


class McpApi:
    def __init__(
        self,
        toolbox: EverturnToolbox,
        engine: Engine,
        sessions: Sessions,
        asks: Asks,
        audit: Audit,
        public_url: str,
    ) -> None:
        self._toolbox = toolbox
        self._mcp = toolbox.mcp
        self._engine = engine
        self._sessions = sessions
        self._asks = asks
        self._audit = audit
        self._public_url = public_url

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._of_all(), *self._of_one(), *self._of_tools(), *self._of_sign_in()]

    def _of_all(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/mcp",
                run=self.servers,
                summary="The MCP servers, and what they offer.",
                tag="settings",
                answer=Servers,
            ),
            Endpoint(
                method="POST",
                path="/api/mcp",
                run=self.add,
                summary="Add an MCP server. It is on every worker with the next turn.",
                tag="settings",
                scope=Scope.ADMIN,
                body=AddServer,
                answer=ServerOut,
                status=201,
                errors=_REFUSALS,
            ),
        ]

    def _of_one(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="PATCH",
                path="/api/mcp/{server}",
                run=self.change,
                summary="Change an MCP server that was made here.",
                tag="settings",
                scope=Scope.ADMIN,
                body=ServerSettings,
                answer=ServerOut,
                errors=_REFUSALS,
            ),
            Endpoint(
                method="DELETE",
                path="/api/mcp/{server}",
                run=self.remove,
                summary="Remove an MCP server that was made here, with its sign-in.",
                tag="settings",
                scope=Scope.ADMIN,
                status=204,
                errors=_REFUSALS,
            ),
            Endpoint(
                method="POST",
                path="/api/mcp/{server}/test",
                run=self.test,
                summary="Start a server anew and ask it what it offers.",
                tag="settings",
                scope=Scope.ADMIN,
                answer=ServerOut,
                errors=(e.NotFound,),
            ),
        ]

    def _of_tools(self) -> list[AnyEndpoint]:
        return [
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
            Endpoint(
                method="PUT",
                path="/api/mcp/{server}/tools",
                run=self.set_mode,
                summary="Allow a tool, have it ask each time, or switch it off.",
                tag="settings",
                scope=Scope.ADMIN,
                body=SetMode,
                answer=ServerOut,
                errors=(e.NotFound, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/api/mcp/{server}/prompt",
                run=self.prompt,
                summary="The text of a server's prompt, for the composer.",
                tag="settings",
                scope=Scope.CHAT,
                body=GetPrompt,
                answer=PromptText,
                errors=_REFUSALS,
            ),
        ]

    def _of_sign_in(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/mcp/{server}/sign-in",
                run=self.begin_sign_in,
                summary="Begin to sign in at a server.",
                tag="settings",
                scope=Scope.ADMIN,
                answer=SignInAt,
                errors=_REFUSALS,
            ),
            Endpoint(
                method="DELETE",
                path="/api/mcp/{server}/sign-in",
                run=self.sign_out,
                summary="Forget the sign-in at a server.",
                tag="settings",
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="GET",
                path=_CALLBACK,
                run=self.finish_sign_in,
                summary="Where a sign-in server sends the user's browser back to.",
                tag="settings",
                # The browser comes from another site, so it sends no cookie. Who holds the state, which only
                # the caller of sign-in was given, may finish that one sign-in.
                scope=None,
                query=Returned,
                also={400: None},
                media="text/html",
            ),
        ]

    # --- servers -------------------------------------------------------------------------------------

    async def servers(self, call: ApiCall[Nothing, Nothing]) -> Servers:
        states = await self._toolbox.servers(call.owner)
        may_edit = call.caller.may(Scope.ADMIN)
        out = [await self._out(state, may_edit=may_edit) for state in states]
        count = sum(tool.mode != "off" for one in out if one.enabled for tool in one.modes)
        return Servers(tuple(out), count, await self._toolbox.searches_tools(call.owner))

    async def add(self, call: ApiCall[Nothing, AddServer]) -> ServerOut:
        server = make_server({"profiles": ["default"], **call.body.settings})
        await self._check_profiles(server)
        # Keys first: a server without them would start and fail. Those of an earlier one of this name go.
        await self._mcp.book.check_new(server)
        await self._mcp.sign_ins.forget(server.name)
        await self._mcp.sign_ins.keep_keys(server.name, call.body.keys)
        await self._mcp.book.add(server)
        await self._audit.note("mcp.added", call.caller, f"{server.name} ({place_of(server)})")
        return await self._state(call.owner, server.name)

    async def change(self, call: ApiCall[Nothing, ServerSettings]) -> ServerOut:
        before = await self._mcp.book.get(call.path["server"])
        server = make_server({**msgspec.to_builtins(before), **call.body.settings})
        await self._check_profiles(server)
        if place_of(server) != place_of(before):
            # What was given for one place is not sent to another.
            self._mcp.book.refuse_configured(server.name)
            await self._mcp.sign_ins.forget(server.name)
        await self._mcp.book.change(server)
        await self._mcp.sign_ins.keep_keys(server.name, call.body.keys)
        self._mcp.servers.forget(server.name)
        await self._audit.note("mcp.changed", call.caller, f"{server.name} ({place_of(server)})")
        return await self._state(call.owner, server.name)

    async def remove(self, call: ApiCall[Nothing, Nothing]) -> None:
        name = call.path["server"]
        # The server before its sign-in: without it, it would ask the user to sign in again.
        await self._mcp.book.remove(name)
        await self._mcp.sign_ins.forget(name)
        self._mcp.servers.forget(name)
        await self._audit.note("mcp.removed", call.caller, name)

    async def test(self, call: ApiCall[Nothing, Nothing]) -> ServerOut:
        await self._toolbox.check_server(call.path["server"])
        return await self._out(await self._mcp.test(call.owner, call.path["server"]), may_edit=True)

    async def _check_profiles(self, server: McpServer) -> None:
        for name in server.profiles:
            await self._toolbox.profile_book.get(name)

    # --- tools ---------------------------------------------------------------------------------------

    async def trust_server(self, call: ApiCall[Nothing, TrustServer]) -> ServerOut:
        name, digest = call.path["server"], call.body.digest
        if call.body.session_id is not None:
            await self._sessions.get(call.owner, call.body.session_id)
        state = await self._toolbox.trust_server(call.owner, name, digest)
        if digest:
            await self._audit.note("mcp.trusted", call.caller, name)
        return await self._out(state, may_edit=True)

    async def set_mode(self, call: ApiCall[Nothing, SetMode]) -> ServerOut:
        name, body = call.path["server"], call.body
        state = await self._mcp.set_mode(call.owner, name, body.tool, body.digest, body.mode)
        await self._audit.note("mcp.trusted", call.caller, f"{name} {body.tool[:200]}: {body.mode}")
        return await self._out(state, may_edit=True)

    async def prompt(self, call: ApiCall[Nothing, GetPrompt]) -> PromptText:
        name, body = call.path["server"], call.body
        await self._toolbox.check_server(name)
        return PromptText(await self._mcp.prompt(call.owner, name, body.prompt, body.arguments))

    # --- signing in ----------------------------------------------------------------------------------

    async def begin_sign_in(self, call: ApiCall[Nothing, Nothing]) -> SignInAt:
        server = await self._mcp.book.get(call.path["server"])
        if not server.is_remote or server.bearer:
            raise e.WrongState(f"The MCP server {server.name} has no sign-in.", hint="Test it.")
        base = self._public_url.rstrip("/") or f"{call.visitor.scheme}://{call.visitor.host}"
        state = await self._mcp.test(call.owner, server.name)
        if state.state == "running":
            await self._let_turns_go_on(server.name)
            return SignInAt("")
        return SignInAt(await self._mcp.sign_ins.begin(server, f"{base}{_CALLBACK}"))

    async def sign_out(self, call: ApiCall[Nothing, Nothing]) -> None:
        server = await self._mcp.book.get(call.path["server"])
        await self._mcp.sign_ins.sign_out(server.name)
        self._mcp.servers.forget(server.name)
        await self._audit.note("mcp.signed_out", call.caller, server.name)

    async def finish_sign_in(self, call: ApiCall[Returned, Nothing]) -> Raw:
        query = call.query
        if query.error or not query.code:
            why = " ".join(f"{query.error} {query.error_description}".split()) or "it sent no code"
            return _page("Not signed in", f"The sign-in server says: {why}", status=400)
        servers = dict(await self._mcp.book.refresh())
        try:
            name = await self._mcp.sign_ins.finish(query.state, query.code, query.iss, servers)
        except e.EverturnError as error:
            return _page("Not signed in", f"{error.message} {error.hint}", status=400)
        self._mcp.servers.forget(name)
        self._mcp.servers.start_again(servers[name])
        await self._let_turns_go_on(name)
        return _page("Signed in", f"You are signed in at {name}. You can close this tab.")

    async def _let_turns_go_on(self, server: str) -> None:
        """Answer the asks that wait for this sign-in. After a crash in between, signing in again does it."""
        for ask in await open_sign_ins(self._asks, LOCAL_OWNER, server):
            await self._engine.answer(LOCAL_OWNER, ask.id, SignInAnswer.DONE, by="sign-in")

    # --- inside --------------------------------------------------------------------------------------

    async def _state(self, owner: str, name: str) -> ServerOut:
        server = await self._mcp.book.get(name)
        return await self._out(await self._mcp.state(owner, server), may_edit=True)

    async def _out(self, state: ServerState, *, may_edit: bool) -> ServerOut:
        server = await self._mcp.book.get(state.name)
        is_configured = self._mcp.book.is_configured(state.name)
        profiles = (await self._toolbox.profile_book.refresh()).profiles
        using = [name for name, one in profiles.items() if state.name in one.mcp or name in server.profiles]
        if not may_edit:
            # Arguments and addresses hold keys and paths often enough, and so does what a program prints.
            state = msgspec.structs.replace(state, detail="", log="")
        return ServerOut(
            **{name: getattr(state, name) for name in state.__struct_fields__},
            is_connected=state.state == "running",
            kind="http" if server.is_remote else "stdio",
            place=place_of(server) if may_edit else _outline(server),
            origin="config" if is_configured else "page",
            enabled=server.enabled,
            profiles=tuple(sorted(using)),
            server=server if may_edit and not is_configured else None,
            keys=self._mcp.sign_ins.key_names(server.name),
        )


def _outline(server: McpServer) -> str:
    """The program without its arguments, or the host of the address."""
    return label_of(server.url) if server.is_remote else server.command


def _page(title: str, text: str, status: int = 200) -> Raw:
    """A page without a script: it is opened by another site."""
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></html>"
    )
    return Raw(body.encode(), "text/html; charset=utf-8", status)
