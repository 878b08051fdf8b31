"""Sign-ins to MCP servers with OAuth 2.1: started here, completed in the user's browser, stored as secrets.

The SDK does discovery, registration and the checks of the server's metadata. Between start and completion
nothing is kept in memory, so any worker can complete a sign-in that another started, even after a restart.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets as random
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid, SecretUnreadable, WrongState
from everturn.domain.json_types import JsonObject
from everturn.domain.secrets import Secrets
from everturn.tools.mcp.http import (
    AuthFlow,
    NamedNetwork,
    current_fate,
    label_of,
    make_client,
    may_be_private,
    note_status,
)
from everturn.tools.mcp.wire import load
from everturn.tools.profiles import McpServer
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import CheckedNetwork

_log = logging.getLogger("everturn.tools")

_TOKENS = "mcp"  # kinds of secrets
_PENDING = "mcp_sign_in"
_KEYS = "mcp_key"  # mcp_key/<server>/<name>
BEARER = "bearer"  # name of the key for a server at an address
_PENDING_S = 15 * 60
_PENDING_MAX = 50
_BEGIN_TIMEOUT_S = 40.0
_EARLY_S = 20  # refresh a token this long before it expires
_FIRST_MESSAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "everturn", "version": "1"},
    },
}
_HEADERS = {"accept": "application/json, text/event-stream"}


class Grant(msgspec.Struct, frozen=True):
    """The result of a completed sign-in. It is used only for the address that it was issued for."""

    url: str
    access_token: str
    client: JsonObject
    metadata: JsonObject
    refresh_token: str | None = None
    expires_at: int | None = None  # in milliseconds
    scope: str | None = None
    resource: str | None = None


class _Pending(msgspec.Struct, frozen=True):
    """A sign-in that was started and not completed. ``verifier`` is the PKCE proof."""

    server: str
    url: str
    verifier: str
    redirect: str
    client: JsonObject
    metadata: JsonObject
    scope: str | None
    resource: str | None
    begun_at: int


class SignInRefused(Invalid):
    """A sign-in could not be started or completed, or the server must not be trusted with it."""

    code = "sign_in_refused"


class _Left(Exception):
    """Stops the SDK's flow at the point where the user's browser takes over."""


class SignIns:
    def __init__(self, secrets: Secrets | None, network: CheckedNetwork, clock: Clock) -> None:
        self._kept = secrets
        self._network = network
        self._clock = clock
        self._locks: dict[str, anyio.Lock] = {}

    @property
    def _secrets(self) -> Secrets:
        if self._kept is None:
            raise ToolFailed("Sign-ins cannot be kept here.")
        return self._kept

    def network_of(self, server: McpServer) -> NamedNetwork:
        return NamedNetwork(self._network, may_be_private(server))

    def lock_of(self, server: McpServer) -> anyio.Lock:
        return self._locks.setdefault(server.name, anyio.Lock())

    # --- stored sign-ins and keys --------------------------------------------------------------------

    def grant_of(self, server: McpServer) -> Grant | None:
        """Return the sign-in for exactly this address."""
        kept = self._secrets.get(f"{_TOKENS}/{server.name}") if self._kept is not None else None
        if kept is None:
            return None
        try:
            grant = msgspec.json.decode(kept.reveal(), type=Grant)
        except msgspec.DecodeError:
            return None  # a newer version wrote it; signing in again replaces it
        return grant if grant.url == server.url else None

    async def refresh_kept(self) -> None:
        """Read the sign-ins that other workers stored."""
        await self._secrets.refresh()

    async def keep(self, server: McpServer, grant: Grant) -> None:
        await self._secrets.change({f"{_TOKENS}/{server.name}": msgspec.json.encode(grant).decode()})

    async def sign_out(self, name: str) -> None:
        if self._kept is not None and f"{_TOKENS}/{name}" in self._kept.names():
            await self._kept.change({f"{_TOKENS}/{name}": None})

    async def forget(self, name: str) -> None:
        """Delete everything that is stored for the server."""
        await self.sign_out(name)
        await self.keep_keys(name, dict.fromkeys(self.key_names(name)))

    def keys_of(self, server: McpServer) -> dict[str, str]:
        """Return the server's keys that were entered on the page. Raises SecretUnreadable."""
        found = {
            name: self._secrets.get(f"{_KEYS}/{server.name}/{name}") for name in self.key_names(server.name)
        }
        return {name: kept.reveal() for name, kept in found.items() if kept is not None}

    def key_names(self, name: str) -> tuple[str, ...]:
        prefix = f"{_KEYS}/{name}/"
        names = () if self._kept is None else self._kept.names()
        return tuple(one.removeprefix(prefix) for one in names if one.startswith(prefix))

    async def keep_keys(self, name: str, changes: Mapping[str, str | None]) -> None:
        if changes:
            await self._secrets.change({f"{_KEYS}/{name}/{key}": text for key, text in changes.items()})

    # --- starting ------------------------------------------------------------------------------------

    async def begin(self, server: McpServer, redirect: str) -> str:
        """Start a sign-in and return the address at which the user signs in.

        The browser is then sent to ``redirect``. Raises SignInRefused, WrongState.
        """
        try:
            with anyio.fail_after(_BEGIN_TIMEOUT_S):
                return await self._begin(server, redirect)
        except TimeoutError as error:
            raise _refusal(server, "it did not answer in time") from error

    async def _begin(self, server: McpServer, redirect: str) -> str:
        oauth = await load("mcp.client.auth.oauth2")
        provider, left = self._provider(oauth, server, redirect)
        network = self.network_of(server)
        try:
            async with make_client(network, provider, _HEADERS) as client:
                answer = await client.post(server.url, json=_FIRST_MESSAGE)
        except _Left:
            pass
        except ToolFailed as error:
            raise _refusal(server, str(error)) from error
        except Exception as error:  # the boundary to foreign code: what it says is shown, nothing is kept
            raise _refusal(server, _one_line(error)) from error
        else:
            if answer.status_code < 400:
                raise WrongState(f"The MCP server {server.name} wants no sign-in.", hint="Use it as it is.")
            raise _refusal(server, f"it answered with status {answer.status_code}")
        return await self._hand_over(server, network, provider.context, left[0], redirect)

    # ``Any``: a module of the SDK, and a value of it.
    def _provider(self, oauth: Any, server: McpServer, redirect: str) -> tuple[Any, list[str]]:
        """Return the SDK's flow, which stops where the user takes over, and the address for the user."""
        left: list[str] = []

        async def leave(address: str) -> None:
            left.append(address)
            raise _Left

        async def never() -> None:
            raise _Left

        is_here = redirect.startswith(("http://127.0.0.1", "http://localhost", "http://[::1]"))
        wanted = oauth.OAuthClientMetadata(
            redirect_uris=[redirect],
            client_name="Everturn",
            application_type="native" if is_here else "web",
        )
        grant = self.grant_of(server)
        known = _find_registration(oauth, grant, redirect) if grant is not None else None
        storage = _NoStorage(known)
        provider = oauth.OAuthClientProvider(
            server_url=server.url,
            client_metadata=wanted,
            storage=storage,
            redirect_handler=leave,
            callback_handler=never,
        )
        return provider, left

    async def _hand_over(
        self,
        server: McpServer,
        network: NamedNetwork,
        context: Any,  # ``Any``: the SDK's context of the flow
        address: str,
        redirect: str,
    ) -> str:
        """Store durably what completion needs, before the user goes to the address."""
        metadata = context.oauth_metadata
        if metadata is None:
            raise _refusal(server, "it does not say where to sign in")
        methods = metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise _refusal(server, "where to sign in, S256 (PKCE) is not supported")
        for endpoint in (metadata.authorization_endpoint, metadata.token_endpoint):
            await self._check_endpoint(server, network, str(endpoint))
        verifier, state = random.token_urlsafe(64), random.token_urlsafe(32)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        base, _, query = address.partition("?")
        # Another request, perhaps in another process, completes the flow, so we store the proof ourselves.
        given = {**dict(parse_qsl(query)), "state": state, "code_challenge": challenge}
        pending = _Pending(
            server=server.name,
            url=server.url,
            verifier=verifier,
            redirect=redirect,
            client=context.client_info.model_dump(mode="json", exclude_none=True),
            metadata=metadata.model_dump(mode="json", exclude_none=True),
            scope=context.client_metadata.scope,
            resource=given.get("resource"),
            begun_at=self._clock.now_ms(),
        )
        await self._keep_pending(state, pending)
        return f"{base}?{urlencode(given)}"

    async def _check_endpoint(self, server: McpServer, network: NamedNetwork, address: str) -> None:
        """Refuse an address without TLS or in a private network, unless the user named its host.

        The user's browser or a code is sent there.
        """
        url = httpx2.URL(address)
        label = label_of(address)
        if network.is_named(label):
            return
        if url.scheme != "https":
            raise _refusal(server, f"{label} would be contacted without encryption (http)")
        try:
            await self._network.check(url.host, url.port or 443)
        except ToolFailed as error:
            hint = f"If you trust it, add {label} to sign_in_hosts of the server."
            raise SignInRefused(f"{_cannot(server)}: {error}", hint=hint) from error

    async def _keep_pending(self, state: str, pending: _Pending) -> None:
        """Store a pending sign-in, and drop those that expired so that they do not pile up."""
        known = self._secrets.find(_PENDING)
        oldest = self._clock.now_ms() - _PENDING_S * 1000
        begun = {name: _decode(kept.reveal()) for name, kept in known.items()}
        late = [name for name, one in begun.items() if one is None or one.begun_at < oldest]
        if len(begun) - len(late) >= _PENDING_MAX:
            raise WrongState("Too many sign-ins have been begun.", hint="Finish one, or wait a few minutes.")
        changes: dict[str, str | None] = {f"{_PENDING}/{name}": None for name in late}
        changes[f"{_PENDING}/{_name_of(state)}"] = msgspec.json.encode(pending).decode()
        await self._secrets.change(changes)

    # --- completing ----------------------------------------------------------------------------------

    async def finish(self, state: str, code: str, issuer: str | None, servers: dict[str, McpServer]) -> str:
        """Exchange the code for tokens, store them and return the server's name.

        A sign-in can be completed once, and only by the owner who started it. Raises SignInRefused,
        WrongState.
        """
        await self._secrets.refresh()
        pending, server = await self._take_pending(state, servers)
        oauth = await load("mcp.client.auth.oauth2")
        provider, _ = self._provider(oauth, server, pending.redirect)
        context = provider.context
        context.oauth_metadata = oauth.OAuthMetadata.model_validate(pending.metadata)
        context.client_info = oauth.OAuthClientInformationFull.model_validate(pending.client)
        data = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect,
            "code_verifier": pending.verifier,
        }
        try:
            oauth.validate_authorization_response_iss(issuer, context.oauth_metadata)
            request = _token_request(context, data, pending.resource)
            async with make_client(self.network_of(server), httpx2.Auth(), _HEADERS) as client:
                with anyio.fail_after(_BEGIN_TIMEOUT_S):
                    answer = await client.send(request)
        except Exception as error:  # the boundary to foreign code: what it says is shown, nothing is kept
            raise _refusal(server, _one_line(error)) from error
        grant = self._read_grant(oauth, answer, _base_of(server, pending))
        if isinstance(grant, str):
            raise _refusal(server, grant)
        await self.keep(server, grant)
        return server.name

    async def _take_pending(self, state: str, servers: dict[str, McpServer]) -> tuple[_Pending, McpServer]:
        name = f"{_PENDING}/{_name_of(state)}"
        kept = self._secrets.get(name)
        pending = _decode(kept.reveal()) if kept is not None else None
        if pending is None:
            raise WrongState(
                "This sign-in was finished before, or is not known here.", hint="Begin it again in Everturn."
            )
        await self._secrets.change({name: None})  # a code can be used once, even if this fails
        if pending.begun_at < self._clock.now_ms() - _PENDING_S * 1000:
            raise WrongState("This sign-in took too long.", hint="Begin it again in Everturn.")
        server = servers.get(pending.server)
        if server is None or server.url != pending.url:
            raise WrongState(
                f"The MCP server {pending.server} is not what it was when this sign-in was begun.",
                hint="Begin it again in Everturn.",
            )
        return pending, server

    # ``Any``: a module of the SDK.
    def _read_grant(self, oauth: Any, answer: httpx2.Response, before: Grant) -> Grant | str:
        """Return the sign-in with the new tokens, or the reason why there are none."""
        if answer.status_code not in (200, 201):
            return f"its sign-in server answered with status {answer.status_code}: {_error_of(answer)}"
        try:
            token = oauth.OAuthToken.model_validate_json(answer.content)
        except ValueError:
            return "its sign-in server sent no tokens"
        if not token.access_token.isascii() or not token.access_token.isprintable():
            return "its sign-in server sent a token that cannot be used"
        ends = None if token.expires_in is None else self._clock.now_ms() + max(0, token.expires_in) * 1000
        return msgspec.structs.replace(
            before,
            access_token=token.access_token,
            refresh_token=token.refresh_token or before.refresh_token,
            expires_at=ends,
            scope=token.scope or before.scope,
        )

    # --- refreshing ----------------------------------------------------------------------------------

    def is_old(self, grant: Grant) -> bool:
        return grant.expires_at is not None and grant.expires_at - _EARLY_S * 1000 <= self._clock.now_ms()

    async def refresh_request(self, server: McpServer, grant: Grant) -> httpx2.Request:
        oauth = await load("mcp.client.auth.oauth2")
        provider, _ = self._provider(oauth, server, "http://127.0.0.1/")
        context = provider.context
        context.oauth_metadata = oauth.OAuthMetadata.model_validate(grant.metadata)
        context.client_info = oauth.OAuthClientInformationFull.model_validate(grant.client)
        data = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token or ""}
        return _token_request(context, data, grant.resource)

    async def take_refreshed(self, server: McpServer, before: Grant, answer: httpx2.Response) -> Grant | None:
        """Store the new tokens durably before they are used, because the old ones may already be invalid.

        None if the answer has no tokens and no other worker stored newer ones.
        """
        oauth = await load("mcp.client.auth.oauth2")
        await answer.aread()
        grant = self._read_grant(oauth, answer, before)
        if isinstance(grant, Grant):
            await self.keep(server, grant)
            return grant
        await self.refresh_kept()
        kept = self.grant_of(server)
        if kept is not None and kept.access_token != before.access_token:
            return kept
        _log.info("the sign-in at %s has ended: %s", server.name, grant)
        return None


class StoredAuth(httpx2.Auth):
    """Sends the stored token and refreshes it when it expires.

    It never starts a sign-in. A request that needs one gets the server's answer, and its fate records that.
    """

    requires_response_body = False

    def __init__(self, server: McpServer, sign_ins: SignIns) -> None:
        self._server = server
        self._sign_ins = sign_ins

    async def async_auth_flow(self, request: httpx2.Request) -> AuthFlow:
        sign_ins, server, fate = self._sign_ins, self._server, current_fate()
        grant = self._grant()
        if grant is not None and sign_ins.is_old(grant) and grant.refresh_token:
            async with sign_ins.lock_of(server):
                grant = self._grant() or grant
                if sign_ins.is_old(grant):  # no other request refreshed it in the meantime
                    answer = yield await sign_ins.refresh_request(server, grant)
                    grant = await sign_ins.take_refreshed(server, grant, answer)
        _authorize(request, grant)
        response = yield request
        if response.status_code == 401 and grant is not None and grant.refresh_token:
            used = grant
            async with sign_ins.lock_of(server):
                grant = self._grant() or used
                if grant.access_token == used.access_token:  # it ended early, e.g. was revoked
                    answer = yield await sign_ins.refresh_request(server, grant)
                    grant = await sign_ins.take_refreshed(server, grant, answer)
            if grant is not None:
                _authorize(request, grant)
                response = yield request
        note_status(fate, response)
        challenge = response.headers.get("www-authenticate", "")
        is_too_narrow = response.status_code == 403 and "insufficient_scope" in challenge
        fate.wants_sign_in = response.status_code == 401 or is_too_narrow

    def _grant(self) -> Grant | None:
        try:
            return self._sign_ins.grant_of(self._server)
        except SecretUnreadable:
            return None  # signing in again replaces it


class KeyAuth(httpx2.Auth):
    """Sends a key that the user entered."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def async_auth_flow(self, request: httpx2.Request) -> AuthFlow:
        request.headers["Authorization"] = f"Bearer {self._key}"
        note_status(current_fate(), (yield request))


class _NoStorage:
    """The SDK's storage for a flow that stops before there are tokens.

    ``client``: an earlier registration.
    """

    # ``Any``: values of the SDK.
    def __init__(self, client: Any) -> None:
        self._client = client

    async def get_tokens(self) -> None:
        return None

    async def set_tokens(self, tokens: Any) -> None:
        raise _Left

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client: Any) -> None:
        """Remember the registration; it is stored with the pending sign-in and with the tokens."""


# ``Any``: a module and values of the SDK.
def _find_registration(oauth: Any, grant: Grant, redirect: str) -> Any:
    """Return an earlier registration if it is valid for this redirect address."""
    client = oauth.OAuthClientInformationFull.model_validate(grant.client)
    known = {str(uri) for uri in client.redirect_uris or ()}
    return client if redirect in known else None


def _token_request(context: Any, data: dict[str, str], resource: str | None) -> httpx2.Request:
    data = {**data, "client_id": context.client_info.client_id}
    if resource:
        data["resource"] = resource
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    data, headers = context.prepare_token_auth(data, headers)
    return httpx2.Request("POST", str(context.oauth_metadata.token_endpoint), data=data, headers=headers)


def _base_of(server: McpServer, pending: _Pending) -> Grant:
    return Grant(
        url=server.url,
        access_token="",
        client=pending.client,
        metadata=pending.metadata,
        scope=pending.scope,
        resource=pending.resource,
    )


def _authorize(request: httpx2.Request, grant: Grant | None) -> None:
    if grant is not None:
        request.headers["Authorization"] = f"Bearer {grant.access_token}"


def _decode(text: str) -> _Pending | None:
    try:
        return msgspec.json.decode(text, type=_Pending)
    except msgspec.DecodeError:
        return None


def _name_of(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()[:32]


def _error_of(answer: httpx2.Response) -> str:
    """Return the two fields of an OAuth error, and nothing else of the untrusted answer."""
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, str | None])
    except msgspec.DecodeError:
        return "no reason given"
    words = (found.get("error") or "", found.get("error_description") or "")
    return " ".join(" ".join(word.split())[:200] for word in words if word) or "no reason given"


def _cannot(server: McpServer) -> str:
    return f"The sign-in at the MCP server {server.name} was not made"


def _refusal(server: McpServer, why: str) -> SignInRefused:
    return SignInRefused(
        f"{_cannot(server)}: {why.rstrip('.')}. Nothing was kept.", hint="Check the server's address."
    )


def _one_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())[:400] or type(error).__name__
