"""A real MCP server over streamable HTTP, with a real OAuth server: both are the official SDK's own.

It runs in a thread of the test, and counts outside of what is tested: every effect, every request for tokens.
``lies`` makes the OAuth server say something that must not be believed.
"""

from __future__ import annotations

import base64
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_TOKEN_S = 3600


class Shelf(BaseModel):
    shelf: str


async def ask_shelf(book: str) -> Elicit[Shelf]:
    return Elicit(f"Where does {book} go?", Shelf)


class OAuthServer:
    """The provider behind the SDK's endpoints. ``life_s``: how long an access token is good."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.life_s = _TOKEN_S
        self.refreshes = 0
        self.in_refresh = threading.Event()  # a request for new tokens has come
        self.may_refresh = threading.Event()
        self.may_refresh.set()

    def end_access(self) -> None:
        """Every access token is good for nothing from now on."""
        self.access.clear()

    def end_all(self) -> None:
        """As when the user is signed out there."""
        self.access.clear()
        self.refreshing.clear()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return f"{params.redirect_uri}?{urlencode({'code': code, 'state': params.state or ''})}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client.client_id, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        self.refreshes += 1
        self.in_refresh.set()
        self.may_refresh.wait(30)
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refreshing.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        return self._issue(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)

    def _issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        ends = int(time.time()) + _TOKEN_S
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, expires_at=ends)
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.life_s)


class McpService:
    """``url``: of the MCP server. ``effects``: what its tools did, in order."""

    def __init__(self, port: int, *, has_sign_in: bool, lies: str = "", is_old: bool = False) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.url = f"{self.base}/mcp"
        self.effects: list[str] = []
        self.oauth = OAuthServer()
        self.cancelled = threading.Event()
        self.in_call = threading.Event()
        self.may_end = threading.Event()
        self.lies = lies
        self.is_old = is_old  # it speaks the protocol of 2025, in which the server asks by itself
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(self.base),
            resource_server_url=AnyHttpUrl(self.url),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        )
        options: dict[str, Any] = {"auth_server_provider": self.oauth, "auth": auth} if has_sign_in else {}
        self.server = MCPServer("shelves", log_level="CRITICAL", **options)
        self._add_tools()

    def _add_tools(self) -> None:
        import anyio

        server, service = self.server, self

        @server.tool(description="Put a book on the shelf.")
        async def put(book: str) -> str:
            service.effects.append(book)
            return f"{book} is on the shelf"

        @server.tool(description="Show the shelf.", structured_output=False)
        async def picture() -> Image:
            return Image(data=PIXEL, format="png")

        @server.tool(description="Sort the shelf.")
        async def sort(ctx: Context) -> str:
            for number in (1, 2, 3):
                await ctx.report_progress(number, 3, f"row {number}")
            return "sorted"

        @server.tool(description="Wait until somebody comes.")
        async def wait(book: str) -> str:
            service.effects.append(book)
            service.in_call.set()
            try:
                while not service.may_end.is_set():
                    await anyio.sleep(0.02)
            except anyio.get_cancelled_exc_class():
                service.cancelled.set()
                raise
            return "somebody came"

        @server.tool(description="Put a book where the user wants it.")
        async def place(book: str, answer: Annotated[ElicitationResult[Shelf], Resolve(ask_shelf)]) -> str:
            if answer.action != "accept":
                return f"not placed: {answer.action}"
            service.effects.append(f"{book} on {answer.data.shelf}")
            return f"{book} is on {answer.data.shelf}"

        @server.tool(description="Learn another thing.")
        async def learn(ctx: Context) -> str:
            server.add_tool(lambda: "new", name="learned", description="What was learned.")
            await ctx.notify_tools_changed()
            await ctx.session.send_tool_list_changed()
            return "learned"

        @server.tool(description="Grow: another prompt and another resource.")
        async def grow(ctx: Context) -> str:
            @server.prompt(description="Praise a book.")
            async def praise(book: str) -> str:
                return f"Praise {book}."

            @server.resource("shelf://second", description="The second shelf.")
            async def second() -> str:
                return "a novel"

            await ctx.notify_prompts_changed()
            await ctx.session.send_prompt_list_changed()
            await ctx.notify_resources_changed()
            await ctx.session.send_resource_list_changed()
            return "grown"

        @server.resource("shelf://first", description="The first shelf.")
        async def first() -> str:
            return "a dictionary, an atlas"

        @server.prompt(description="Describe a book.")
        async def describe(book: str) -> str:
            return f"Describe {book} in three sentences."

    def app(self) -> Any:
        inner = self.server.streamable_http_app()
        if self.is_old:
            return _Old(inner)
        return _Liar(inner, self) if self.lies else inner


class _Old:
    """Knows nothing of the newer protocol."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._inner(scope, receive, send)
            return
        message = await receive()
        if b'"server/discover"' in message.get("body", b""):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        read = [message]

        async def replay() -> Any:
            return read.pop() if read else await receive()

        await self._inner(scope, replay, send)


class _Liar:
    """Changes what the OAuth server says about itself."""

    def __init__(self, inner: Any, service: McpService) -> None:
        self._inner = inner
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/.well-known/"):
            await self._inner(scope, receive, send)
            return
        start: dict[str, Any] = {}
        pieces: list[bytes] = []

        async def collect(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                pieces.append(message.get("body", b""))

        await self._inner(scope, receive, collect)
        body = self._lie(scope["path"], b"".join(pieces))
        headers = [(k, v) for k, v in start["headers"] if k.lower() != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
        await send({"type": "http.response.body", "body": body})

    def _lie(self, path: str, body: bytes) -> bytes:
        import json

        if not body.startswith(b"{"):
            return body
        said = json.loads(body)
        if "protected-resource" in path:
            if self._service.lies == "resource":
                said["resource"] = "https://bank.example/mcp"
            if self._service.lies == "elsewhere":
                said["authorization_servers"] = ["http://127.0.0.1:9/"]
        elif self._service.lies == "issuer":
            said["issuer"] = "https://somebody-else.example"
        elif self._service.lies == "http":
            said["authorization_endpoint"] = "http://sign-in.example/authorize"
        elif self._service.lies == "private":
            said["token_endpoint"] = "https://169.254.169.254/token"
        elif self._service.lies == "pkce":
            said["code_challenge_methods_supported"] = ["plain"]
        return json.dumps(said).encode()


@contextmanager
def serve_mcp(
    *, has_sign_in: bool = False, lies: str = "", is_old: bool = False, port: int = 0
) -> Iterator[McpService]:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        service = McpService(listening.getsockname()[1], has_sign_in=has_sign_in, lies=lies, is_old=is_old)
        config = uvicorn.Config(service.app(), log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield service
        finally:
            service.may_end.set()
            service.oauth.may_refresh.set()
            server.should_exit = True
            thread.join(20)


def sign_in_there(address: str) -> dict[str, str]:
    """As the user's browser does: follow the address, agree, and come back with what the server sends along."""
    answer = httpx2.get(address, follow_redirects=False)
    assert answer.status_code in (302, 307), (answer.status_code, answer.text)
    found = parse_qs(urlsplit(answer.headers["location"]).query)
    return {name: values[0] for name, values in found.items()}
