"""The ASGI application: what every request goes through, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
import msgspec

from everturn.domain.errors import EverturnError, Overloaded
from everturn.web.access.accounts import Accounts
from everturn.web.access.peers import OwnerCheck, never_owner
from everturn.web.admission import RequestAdmission
from everturn.web.http import problems
from everturn.web.http.asgi import Message, Receive, Scope, Send
from everturn.web.http.guard import API_POLICY, HEADERS
from everturn.web.http.page_files import PageFiles
from everturn.web.http.problems import BadRequest, NoRoute, Stopping
from everturn.web.http.routing import (
    NOTHING,
    Answer,
    AnyCall,
    AnyEndpoint,
    ApiCall,
    BodyReader,
    ClientGone,
    Raw,
    Streaming,
    Table,
    decode_query,
)
from everturn.web.request_log import RequestLog
from everturn.web.settings import WebSettings
from everturn.web.streams.streams import Streams

_encoder = msgspec.json.Encoder()
_DRAIN_BYTES_MAX = 8_000_000
_DRAIN_S = 2.0
_NO_STORE = (b"cache-control", b"no-store")
_POLICY = (b"content-security-policy", API_POLICY.encode())
_SINGLE = frozenset(
    {
        "host",
        "authorization",
        "content-length",
        "content-type",
        "origin",
        "idempotency-key",
        "if-match",
        "last-event-id",
        "x-everturn-session",
    }
)


class Web:
    """The application, and the context in which its background work runs."""

    def __init__(
        self,
        settings: WebSettings,
        table: Table,
        accounts: Accounts,
        streams: Streams,
        lifespan: Callable[[], AbstractAsyncContextManager[None]],
        log: RequestLog,
    ) -> None:
        self.settings = settings
        # Names in config.toml of what has this machine's network; ``build_web`` puts them here.
        self.host_network: tuple[str, ...] = ()
        self.table = table
        self.streams = streams
        self.log = log
        self._lifespan = lifespan
        self.admission = RequestAdmission(settings, accounts)
        self._bodies = BodyReader(settings.body_bytes_max, settings.body_timeout_s)
        self._page = PageFiles(settings.page)
        self.in_flight = 0
        self._exits = AsyncExitStack()
        self.is_stopping = False
        # The server that serves us puts its own here.
        self.stop: Callable[[], None] = lambda: None
        self.is_owner: OwnerCheck = never_owner

    @property
    def accounts(self) -> Accounts:
        return self.admission.accounts

    async def __aenter__(self) -> Self:
        await self._exits.enter_async_context(self._lifespan())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self.is_stopping = True
        return await self._exits.__aexit__(kind, error, trace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    # --- steps of an exchange ------------------------------------------------------------------------

    async def perform(self, endpoint: AnyEndpoint, call: AnyCall) -> object:
        """Run the endpoint, if the server is not busy beyond its bound."""
        if self.is_stopping and endpoint.writes:
            raise Stopping
        self._refuse_busy(endpoint)
        if not endpoint.takes:
            # Not counted as work meanwhile: clients that send slowly would fill the bound for all others.
            call.body = await self._bodies.read(endpoint, call.headers, call.receive)
            self._refuse_busy(endpoint)
        self.in_flight += 1
        try:
            return await endpoint.run(call)
        finally:
            self.in_flight -= 1

    def _refuse_busy(self, endpoint: AnyEndpoint) -> None:
        # A busy server is asked how it is above all: a probe that is refused would have it restarted.
        if self.in_flight >= self.settings.requests_max and endpoint.tag != "server":
            raise Overloaded(
                f"The server is busy with {self.in_flight} requests. Nothing was changed.",
                hint="Try again in a second.",
            )

    def is_bare_root(self, path: str) -> bool:
        """The base path without its slash: the page's links would lead beside it."""
        return bool(self.settings.root) and path == self.settings.root

    async def page(self, method: str, path: str, headers: Mapping[str, str]) -> Streaming | Raw:
        found = await self._page.find(path, headers) if method in ("GET", "HEAD") else None
        if found is None:
            raise NoRoute(path)
        return found

    def inside(self, path: str) -> str:
        """The path without the base path; a proxy may or may not have taken it off already."""
        root = self.settings.root
        if root and (path == root or path.startswith(root + "/")):
            return path[len(root) :] or "/"
        return path


class _Exchange:
    """One request and its answer."""

    def __init__(self, web: Web, scope: Scope, receive: Receive, send: Send) -> None:
        self._web = web
        self._scope = scope
        self._receive = receive
        self._send = send
        self._method: str = scope["method"]
        self._path = web.inside(scope["path"])
        self._endpoint: AnyEndpoint | None = None
        self._status = 0
        self._is_body_read = False

    async def run(self) -> None:
        started = self._web.log.now()
        try:
            try:
                answer = await self._answer()
            except EverturnError as error:
                await self._refuse(error)
            else:
                await self._reply(answer)
        except ClientGone:
            self._status = self._status or 499
        except Exception as error:
            problem = self._web.log.note_failure(error)
            if self._status:
                raise  # part of the answer was sent: only closing the connection tells the client
            await self._refuse(problem)
        finally:
            route = self._endpoint.path if self._endpoint else "page"
            is_stream = self._endpoint is not None and self._endpoint.is_stream
            self._web.log.note_end(self._method, route, self._path, self._status, started, is_stream)

    async def _answer(self) -> object:
        headers = _headers_of(self._scope)
        visitor = await self._web.admission.admit(self._method, headers, self._scope)
        if self._web.is_bare_root(self._scope["path"]):
            there = self._web.settings.root.encode() + b"/"
            return Raw(b"", "text/plain", 308, ((b"location", there),))
        if not self._web.table.knows(self._path):
            return await self._web.page(self._method, self._path, headers)
        match = self._web.table.find(self._method, self._path)
        self._endpoint = match.endpoint
        caller = await self._web.admission.identify(match.endpoint, headers, visitor)
        query = decode_query(match.endpoint, self._scope["query_string"])
        call: AnyCall = ApiCall(self._scope, self._take, headers, visitor, caller, match.path, query, NOTHING)
        return await self._web.perform(match.endpoint, call)

    # --- answering -----------------------------------------------------------------------------------

    async def _reply(self, answer: object) -> None:
        if isinstance(answer, Streaming):
            await answer(self._scope, self._receive, self._start)
            return
        if isinstance(answer, Raw):
            head = [(b"content-type", answer.media.encode()), *answer.headers]
            await self._write(answer.status, head, answer.body)
            return
        assert self._endpoint is not None  # noqa: S101 - only endpoints answer with values
        status, extra, value = self._endpoint.status, [_NO_STORE], answer
        if isinstance(answer, Answer):
            status, value = answer.status or status, answer.value
            extra += answer.headers
        if value is None:
            await self._write(204 if status == 200 else status, extra, b"")
            return
        await self._write(status, [(b"content-type", b"application/json"), *extra], _encoder.encode(value))

    async def _refuse(self, error: EverturnError) -> None:
        members = problems.document(error)
        if self._endpoint is not None and self._endpoint.is_openai:
            members = problems.for_openai(members)
        head = [(b"content-type", problems.MEDIA_TYPE.encode()), _NO_STORE, *problems.headers(error)]
        if self._has_unread_body():
            # The body was not read. Take a bounded rest of it, so that the client gets to see the answer,
            # then give up the connection.
            await self._drain()
            head.append((b"connection", b"close"))
        await self._write(error.status, head, _encoder.encode(members))

    async def _write(self, status: int, head: list[tuple[bytes, bytes]], body: bytes) -> None:
        if status not in (204, 304):
            head.append((b"content-length", str(len(body)).encode()))
        await self._start({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    def _start(self, message: Message) -> Awaitable[None]:
        """Send, with our headers on every answer. Not a coroutine itself: it is called for every token."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            given = message["headers"]
            names = {name for name, _ in given}
            ours = [header for header in (*HEADERS, _POLICY) if header[0] not in names]
            message["headers"] = [*given, *ours]
        return self._send(message)

    # --- the body ------------------------------------------------------------------------------------

    async def _take(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._is_body_read = True
        return message

    def _has_unread_body(self) -> bool:
        if self._is_body_read:
            return False
        names = dict(self._scope["headers"])
        return names.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in names

    async def _drain(self) -> None:
        size = 0
        with anyio.move_on_after(_DRAIN_S):
            while not self._is_body_read and size < _DRAIN_BYTES_MAX:
                message = await self._take()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                size += len(message.get("body", b""))


def _headers_of(scope: Scope) -> dict[str, str]:
    """Headers by lower-case name. Raises BadRequest where a second one could mean another thing."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        if key not in headers:
            headers[key] = text
        elif key in _SINGLE:
            raise BadRequest(f"The header {key} came twice.", hint="Send it once.")
        else:
            headers[key] += ("; " if key == "cookie" else ", ") + text
    if headers.get("transfer-encoding", "chunked").lower() != "chunked":
        raise BadRequest("Bodies are taken plain or chunked.", hint="Leave other transfer codings away.")
    return headers
