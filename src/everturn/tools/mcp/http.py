"""An MCP server at an address, over streamable HTTP and only to checked addresses.

The server's own address may be private if the user wrote a private address or ``localhost``, or set
``local``. Every other address that the server names, such as its sign-in page, must be public or listed in
``sign_in_hosts``.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType

import anyio
import httpcore2
import httpx2

from everturn.tools.mcp.wire import LINE_BYTES_MAX, Link, Receiver, Sender, load
from everturn.tools.policy.hosts import host_label, host_of, is_this_machine
from everturn.tools.profiles import McpServer
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import CheckedNetwork, is_public, literal_address

_CONNECT_TIMEOUT_S = 30.0
AuthFlow = AsyncGenerator[httpx2.Request, httpx2.Response]


class RequestFate:
    """What happened to the requests of one call.

    ``wants_sign_in``: the server refused the call until the user signs in. ``is_gone``: the server no longer
    knows the session. In both cases the call was not carried out.
    """

    def __init__(self) -> None:
        self.wants_sign_in = False
        self.is_gone = False
        self.status = 0


# The SDK sends each message in its sender's context. With parallel calls, only that tells whose request was
# refused.
_fate: ContextVar[RequestFate | None] = ContextVar("mcp_fate", default=None)


def follow_fate() -> RequestFate:
    """Follow the requests that are sent from here on."""
    fate = RequestFate()
    _fate.set(fate)
    return fate


def current_fate() -> RequestFate:
    return _fate.get() or RequestFate()


class HttpLink(Link):
    def __init__(self, server: McpServer, make_client: Callable[[], httpx2.AsyncClient]) -> None:
        super().__init__()
        self._server = server
        self._make_client = make_client

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Receiver, Sender]]:
        http = await load("mcp.client.streamable_http")
        async with (
            self._make_client() as client,
            http.streamable_http_client(
                self._server.url, http_client=client, max_sse_event_size=LINE_BYTES_MAX
            ) as streams,
        ):
            yield streams

    async def until_over(self) -> str:
        await anyio.sleep_forever()
        return ""


class StatusAuth(httpx2.Auth):
    """Records how requests are answered, and adds nothing to them."""

    async def async_auth_flow(self, request: httpx2.Request) -> AuthFlow:
        note_status(current_fate(), (yield request))


def note_status(fate: RequestFate, response: httpx2.Response) -> None:
    fate.status = response.status_code
    if response.status_code == 404 and "mcp-session-id" in response.request.headers:
        fate.is_gone = True


def may_be_private(server: McpServer) -> frozenset[str]:
    """Return the hosts (as in ``host_label``) that may be private because the user named them."""
    label = label_of(server.url)
    url = httpx2.URL(server.url)
    literal = literal_address(url.host)
    is_named = is_this_machine(label) or (literal is not None and not is_public(literal))
    named = [label] if server.local or is_named else []
    return frozenset([*named, *map(host_of, server.sign_in_hosts)])


def label_of(address: str) -> str:
    url = httpx2.URL(address)
    return host_label(url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80))


class NamedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to any address of the hosts that the user named, and otherwise only to public addresses."""

    def __init__(self, checked: CheckedNetwork, named: frozenset[str]) -> None:
        self._checked = checked
        self._named = named
        self._plain = httpcore2.AnyIOBackend()

    def is_named(self, label: str) -> bool:
        return label in self._named

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the name is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        network = self._plain if host_label(host, port) in self._named else self._checked
        return await network.connect_tcp(host, port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._plain.sleep(seconds)


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends requests over the checked network. Limits the size of answers that are not event streams."""

    def __init__(self, network: NamedNetwork) -> None:
        self._network = network
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def _open_pool(self) -> httpcore2.AsyncConnectionPool:
        if self._pool is None:
            # Reading all certificates would block the event loop for too long.
            context = await anyio.to_thread.run_sync(ssl.create_default_context)
            self._pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=self._network)
        return self._pool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        if url.scheme not in ("http", "https") or url.userinfo:
            raise ToolFailed(f"{str(url)[:200]!r} was not contacted: it is not a plain web address.")
        pool = await self._open_pool()
        request.headers["accept-encoding"] = "identity"  # so that the bytes we count are the bytes we keep
        answer = await pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        found = {name.lower(): value.lower() for name, value in answer.headers}
        if found.get(b"content-encoding", b"identity") != b"identity":
            await answer.aclose()
            raise ToolFailed(f"{label_of(str(url))} answered in an encoding that was not asked for.")
        is_stream = found.get(b"content-type", b"").startswith(b"text/event-stream")
        stream = _BoundedStream(answer, None if is_stream else LINE_BYTES_MAX)
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions
        )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response, bytes_max: int | None) -> None:
        self._answer = answer
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._answer.aiter_stream():
            size += len(piece)
            if self._bytes_max is not None and size > self._bytes_max:
                raise ToolFailed(f"The answer is larger than {self._bytes_max:,} bytes; it was not read.")
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


def make_client(
    network: NamedNetwork, auth: httpx2.Auth, headers: dict[str, str] | None = None
) -> httpx2.AsyncClient:
    """Return a client without a read timeout: a server may be silent while it works, and calls have their
    own."""
    return httpx2.AsyncClient(
        transport=CheckedTransport(network),
        auth=auth,
        headers=headers,
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=None),
        trust_env=False,
    )
