"""The network under the model wires: httpx2 on plain asyncio transports.

Tokens arrive one by one, so the cost of a single wake-up counts. The client's own backend pauses and resumes
the socket and opens a cancel scope for every read. Here a read is one future, and one timer watches a
connection across all reads. That halves the CPU per token (everturn.speed.models). Everything else
(connections, pool, HTTP/1.1, TLS verification) is httpcore2, used through its public interfaces.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpcore2
import httpx2

_POOL_REQUESTS_MAX = 32
_KEEPALIVE_S = 5.0
_BUFFERED_BYTES_MAX = 256 * 1024
_HAPPY_EYEBALLS_S = 0.25


def make_client(*, is_near: bool = False) -> httpx2.AsyncClient:
    """A client for model calls. ``is_near``: for this machine only, past any proxy and without TLS."""
    if not is_near and urllib.request.getproxies():
        # The client knows how to find and use a proxy; a transport of our own would go past it.
        return httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_near else httpx2.create_ssl_context()
    return httpx2.AsyncClient(transport=Transport(context), trust_env=False)


class Transport(httpx2.AsyncBaseTransport):
    """httpcore2's pools on our backend, in httpx2's terms.

    There are several pools, because a pool scans all its connections for every request: a thousand turns at
    once would spend seconds there. The first pool with room is used, so that few turns share few connections.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._pools: list[_Pool] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        core_request = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        pool = self._pool_with_room()
        pool.active += 1
        try:
            with _in_terms_of_the_client():
                response = await pool.core.handle_async_request(core_request)
        except BaseException:
            pool.active -= 1
            raise
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response.stream, pool),
            extensions=response.extensions,
        )

    def _pool_with_room(self) -> _Pool:
        for pool in self._pools:
            if pool.active < _POOL_REQUESTS_MAX:
                return pool
        self._pools.append(_Pool(self._context))
        return self._pools[-1]

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.core.aclose()


class _Pool:
    def __init__(self, context: ssl.SSLContext) -> None:
        self.active = 0
        self.core = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=_POOL_REQUESTS_MAX,
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=Backend(),
        )


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Iterable[bytes] | AsyncIterable[bytes], pool: _Pool) -> None:
        self._stream = cast(AsyncIterable[bytes], stream)  # of the asynchronous pool
        self._pool: _Pool | None = pool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _in_terms_of_the_client():
            async for piece in self._stream:
                yield piece

    async def aclose(self) -> None:
        if self._pool is not None:
            self._pool.active -= 1
            self._pool = None
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


@contextmanager
def _in_terms_of_the_client() -> Iterator[None]:
    """Translate httpcore2's errors to httpx2's."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != httpcore2.__name__:
            raise
        kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise kind(str(error)) from error


class Backend(httpcore2.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        local = (local_address, 0) if local_address else None
        try:
            async with asyncio.timeout(timeout):
                transport, pipe = await loop.create_connection(
                    Pipe, host, port, local_addr=local, happy_eyeballs_delay=_HAPPY_EYEBALLS_S
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return Stream(transport, pipe)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Pipe(asyncio.Protocol):
    """Buffers the bytes of one connection. At most one reader and one writer wait."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_ended = False
        self.error: Exception | None = None

    # --- called by the loop --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream connection, so it is one

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _BUFFERED_BYTES_MAX and self._transport is not None and not self._is_paused:
            self._transport.pause_reading()
            self._is_paused = True
        _wake(self._reader)

    def eof_received(self) -> bool:
        self.is_ended = True
        _wake(self._reader)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_ended = True
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._writer = self._loop.create_future()

    def resume_writing(self) -> None:
        _wake(self._writer)
        self._writer = None

    # --- called by the stream ------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        return self.is_ended or bool(self._pieces)

    def use(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to read, or the end. Raises TimeoutError."""
        if timeout_s is not None:
            self._deadline = self._loop.time() + timeout_s
            # One timer for many reads: the deadline is checked when it fires, not set and cleared each time.
            # It is set again if the new deadline is earlier than the one it was set for.
            if self._timer is not None and self._timer.when() > self._deadline:
                self._timer.cancel()
                self._timer = None
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline, self._ring)
        else:
            self._deadline = float("inf")
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _ring(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done() or self._deadline == float("inf"):
            return
        if self._loop.time() >= self._deadline:
            self._reader.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_at(self._deadline, self._ring)

    def take(self, size_max: int) -> bytes:
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if len(data) > size_max:
            pieces.append(data[size_max:])
            data = data[:size_max]
        self._size -= len(data)
        if self._is_paused and self._size <= _BUFFERED_BYTES_MAX and self._transport is not None:
            self._transport.resume_reading()
            self._is_paused = False
        return data

    async def wait_until_drained(self) -> None:
        """Wait until the peer has read enough of what was written."""
        if self._writer is not None:
            await asyncio.shield(self._writer)


class Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, transport: asyncio.Transport, pipe: Pipe) -> None:
        self._transport = transport
        self._pipe = pipe

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        pipe = self._pipe
        if not pipe.has_news:
            try:
                await pipe.wait(timeout)
            except TimeoutError as error:
                raise httpcore2.ReadTimeout("nothing came in time") from error
        data = pipe.take(max_bytes)
        if not data and pipe.error is not None:
            raise httpcore2.ReadError(str(pipe.error)) from pipe.error
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if not buffer:
            return
        if self._transport.is_closing():
            raise httpcore2.WriteError("the connection is closed")
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await self._pipe.wait_until_drained()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout("nothing was taken in time") from error
        if self._pipe.error is not None:
            raise httpcore2.WriteError(str(self._pipe.error)) from self._pipe.error

    async def aclose(self) -> None:
        # Do not wait: a peer that does not answer the TLS shutdown would block the caller.
        if isinstance(self._transport, asyncio.Transport) and self._transport.get_extra_info("ssl_object"):
            self._transport.abort()
        else:
            self._transport.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                transport = await loop.start_tls(
                    self._transport, self._pipe, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            self._transport.abort()
            raise httpcore2.ConnectTimeout("no TLS in time") from error
        except (OSError, ssl.SSLError) as error:
            self._transport.abort()
            raise httpcore2.ConnectError(str(error)) from error
        if transport is None:
            raise httpcore2.ConnectError("the connection closed before TLS began")
        self._pipe.use(transport)
        return Stream(transport, self._pipe)

    def get_extra_info(self, info: str) -> Any:  # as in httpcore: what it is depends on ``info``
        if info == "is_readable":
            # Called before an idle connection is reused. Check the socket too: the peer may have closed it a
            # moment ago, before the loop has noticed.
            return self._pipe.has_news or _is_readable(self._transport.get_extra_info("socket"))
        if info == "client_addr":
            return self._transport.get_extra_info("sockname")
        if info == "server_addr":
            return self._transport.get_extra_info("peername")
        return self._transport.get_extra_info(info)


def _is_readable(sock: socket.socket | None) -> bool:
    if sock is None or sock.fileno() < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
