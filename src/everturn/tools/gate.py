"""The way to the network from inside the sandbox: a proxy that leads to public addresses only.

A sandbox that simply shared the machine's network would reach everything on loopback: databases, model
servers, and Everturn itself, where it could approve its own calls. So the sandbox keeps an empty network
of its own, and what it may reach goes through a socket file to here, where every address is checked as
for a web fetch. Programs find it through the usual proxy variables.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

import anyio
import httpcore2
from anyio.abc import SocketStream, TaskGroup

from everturn.tools.fetching import CheckedNetwork
from everturn.tools.schema import ToolFailed

_log = logging.getLogger("everturn.tools")

_HEAD_BYTES_MAX = 64 * 1024
_HEAD_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 15.0
_PIECE_BYTES = 64 * 1024
_LINGER_S = 5.0  # for a client to close after it was told that there is no more
_HOP_HEADERS = re.compile(rb"^(proxy-[^:]*|connection|keep-alive):", re.I)


class Gate:
    """An async context manager; ``path`` is the socket file while it is open."""

    def __init__(self, network: CheckedNetwork) -> None:
        self._network = network
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self.path = Path()

    async def __aenter__(self) -> Gate:
        # Not in the data folder: the name of a socket may have no more than about 100 characters.
        folder = Path(await anyio.to_thread.run_sync(tempfile.mkdtemp, None, "everturn-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.path = folder / "gate"
        listener = await self._stack.enter_async_context(
            await anyio.create_unix_listener(self.path, mode=0o600)
        )
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self._group.start_soon(listener.serve, self._serve, name="gate")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._group is not None:
            self._group.cancel_scope.cancel()
        await self._stack.aclose()

    async def _serve(self, client: SocketStream) -> None:
        async with client:
            try:
                with anyio.fail_after(_HEAD_TIMEOUT_S):
                    head, rest = await _head(client)
                await self._pass_on(client, head, rest)
            except ToolFailed as error:
                await _refuse(client, 403, str(error))
            except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
                await _refuse(client, 502, f"The connection failed: {error}")
            except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # it asked for nothing, or went away
            except Exception as error:  # the boundary to foreign programs: one of them must not end the gate
                _log.warning("a request through the gate failed", exc_info=error)
                await _refuse(client, 500, f"The request could not be passed on: {error!r}")

    async def _pass_on(self, client: SocketStream, head: bytes, rest: bytes) -> None:
        lines = head.split(b"\r\n")
        method, target, version = (*lines[0].split(b" "), b"", b"")[:3]
        if method == b"CONNECT":
            host, port = _host_and_port(target, 443)
            request = rest
        else:
            found = re.match(rb"^http://([^/]+)(/.*)?$", target)
            if found is None:
                raise ToolFailed("Only http addresses and tunnels are passed on.")
            host, port = _host_and_port(found[1], 80)
            kept = [line for line in lines[1:] if not _HOP_HEADERS.match(line)]
            first = b" ".join((method, found[2] or b"/", version))
            request = b"\r\n".join([first, *kept, b"Connection: close"]) + b"\r\n\r\n" + rest
        server = await self._network.connect_tcp(host, port, timeout=_CONNECT_TIMEOUT_S)
        try:
            if method == b"CONNECT":
                await client.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            if request:
                await server.write(request)
            await _pump(client, server)
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()


async def _head(client: SocketStream) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > _HEAD_BYTES_MAX:
            raise ToolFailed("The request has no end.")
        data += await client.receive()
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


async def _pump(client: SocketStream, server: httpcore2.AsyncNetworkStream) -> None:
    """Carry bytes both ways until the server is done, or either side is gone."""
    async with anyio.create_task_group() as group:

        async def upwards() -> None:
            try:
                async for data in client:
                    await server.write(data)
            except (httpcore2.NetworkError, anyio.BrokenResourceError):
                group.cancel_scope.cancel()

        group.start_soon(upwards, name="gate upwards")
        try:
            while data := await server.read(_PIECE_BYTES):
                await client.send(data)
            # The client hears that this was all, and closes: that ends the other way by itself. Cancelling it
            # in the moment when the close arrives would make anyio answer a wait that is over already.
            await client.send_eof()
            group.cancel_scope.deadline = anyio.current_time() + _LINGER_S
        except (httpcore2.NetworkError, anyio.BrokenResourceError):
            group.cancel_scope.cancel()  # one side is gone; the other follows


def _host_and_port(text: bytes, default: int) -> tuple[str, int]:
    found = re.match(r"^(\[[0-9a-fA-F:.%]+\]|[^:@/\s]+)(?::(\d{1,5}))?$", text.decode("latin-1"))
    port = int(found[2] or default) if found else 0
    if found is None or not 0 < port < 65536:
        raise ToolFailed("That is not the name of a host and a port.")
    return found[1].strip("[]"), port


async def _refuse(client: SocketStream, status: int, words: str) -> None:
    body = words.encode() + b"\n"
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    try:
        await client.send(head.encode() + b"Connection: close\r\n\r\n" + body)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # nobody is there to hear it
