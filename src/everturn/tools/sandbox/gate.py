"""A proxy that connects the sandbox to allowed hosts at public addresses.

A sandbox that shared the machine's network could reach everything on loopback: databases, model servers, and
Everturn itself, where it could approve its own calls. Instead each sandbox has an empty network of its own
and sends requests through a socket file to this proxy. Each call gets its own door, which knows the hosts
that the call may reach. Every address is checked as for a web fetch. Programs find the door through the usual
proxy variables; there is no other way out.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
import httpcore2
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

from everturn.tools.policy.hosts import host_label, is_host, is_this_machine
from everturn.tools.schema import ToolFailed

if TYPE_CHECKING:  # it loads an HTTP client, which doctor does not need
    from everturn.tools.web.fetch import CheckedNetwork

_log = logging.getLogger("everturn.tools")

_HEAD_BYTES_MAX = 64 * 1024
_HEAD_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 15.0
_PIECE_BYTES = 64 * 1024
_LINGER_S = 5.0  # for a client to close its side after the server has closed
_REFUSED_MAX = 20  # refused hosts remembered per call
# The Host header is rewritten: a front server would route by what the client wrote, not by what was allowed.
_HOP_HEADERS = re.compile(rb"^(proxy-[^:]*|connection|keep-alive|host)\s*:", re.I)
_FOLDED = re.compile(rb"[\r\n]|^[ \t]")

May = Callable[[str], Awaitable[bool]]


class Gate:
    """An async context manager. Each call, and each MCP server with a network, has a door of its own."""

    def __init__(self, network: CheckedNetwork) -> None:
        self._network = network
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self._numbers = itertools.count(1)
        self._folder = Path()

    async def __aenter__(self) -> Gate:
        # Not in the data folder: a socket path may have at most about 100 characters.
        self._folder = Path(await anyio.to_thread.run_sync(tempfile.mkdtemp, None, "everturn-"))
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def door(self, may: May) -> AsyncIterator[Door]:
        """Open a door for the body of the block, to the hosts that ``may`` allows."""
        if self._group is None:
            raise RuntimeError("the gate is used before it was opened")
        door = Door(self._folder / f"gate-{next(self._numbers)}", self._network, may)
        async with self._serve(await anyio.create_unix_listener(door.path, mode=0o600), door):
            try:
                yield door
            finally:
                door.path.unlink(missing_ok=True)

    @asynccontextmanager
    async def tunnel(self, host: str, bytes_max: int) -> AsyncIterator[str]:
        """Open a proxy on loopback to one host for the body of the block, and yield its address."""

        async def may(asked: str) -> bool:
            return asked == host

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with self._serve(listener, Door(Path(), self._network, may, bytes_max)):
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - not Django's

    @asynccontextmanager
    async def _serve(self, listener: Listener[SocketStream], door: Door) -> AsyncIterator[None]:
        if self._group is None:
            raise RuntimeError("the gate is used before it was opened")
        scope, is_closed = anyio.CancelScope(), anyio.Event()

        async def serve() -> None:
            try:
                with scope:
                    async with listener:
                        await listener.serve(door.serve)
            finally:
                is_closed.set()

        # In the gate's own group: a group around the body would wrap what the body raises.
        self._group.start_soon(serve, name="gate")
        try:
            yield
        finally:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await is_closed.wait()


class Door:
    """What one call may reach.

    ``refused`` lists the hosts that it asked for and may not reach. Answers longer than ``bytes_max`` are cut
    off.
    """

    def __init__(self, path: Path, network: CheckedNetwork, may: May, bytes_max: float = math.inf) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self.refused: list[str] = []
        self._network = network
        self._may = may

    async def serve(self, client: SocketStream) -> None:
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
                return  # the client sent no request, or went away
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
            if any(_FOLDED.search(line) for line in lines):
                raise ToolFailed("The request has a line that servers read in different ways.")
            kept = [line for line in lines[1:] if not _HOP_HEADERS.match(line)]
            first = b" ".join((method, found[2] or b"/", version))
            own = [b"Host: " + found[1], b"Connection: close"]
            request = b"\r\n".join([first, *own, *kept]) + b"\r\n\r\n" + rest
        await self._check(host_label(host, port))
        server = await self._network.connect_tcp(host, port, timeout=_CONNECT_TIMEOUT_S)
        try:
            if method == b"CONNECT":
                await client.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            if request:
                await server.write(request)
            await _pump(client, server, self._bytes_max)
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()

    async def _check(self, host: str) -> None:
        """Raise ToolFailed for a host that is not allowed, before its name is looked up."""
        if is_this_machine(host):
            raise ToolFailed(f"{host} is this machine, which cannot be reached from the sandbox.")
        if await self._may(host):
            return
        if host not in self.refused and len(self.refused) < _REFUSED_MAX:
            self.refused.append(host)
        raise ToolFailed(f"{host} is not allowed; it was not contacted.")


async def _head(client: SocketStream) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > _HEAD_BYTES_MAX:
            raise ToolFailed("The request has no end.")
        data += await client.receive()
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


async def _pump(client: SocketStream, server: httpcore2.AsyncNetworkStream, bytes_max: float) -> None:
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
                bytes_max -= len(data)
                if bytes_max < 0:
                    group.cancel_scope.cancel()
                await client.send(data)
            # The client sees the end and closes, which ends the other direction by itself. If we cancelled it
            # when the close arrives, anyio would answer a wait that is already over.
            await client.send_eof()
            group.cancel_scope.deadline = anyio.current_time() + _LINGER_S
        except (httpcore2.NetworkError, anyio.BrokenResourceError):
            group.cancel_scope.cancel()  # one side is gone; the other follows


def _host_and_port(text: bytes, default: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?", text.decode("latin-1"))
    port = int(found[2] or default) if found else 0
    if found is None or not is_host(found[1]) or not 0 < port < 65536:
        raise ToolFailed("That is not the name of a host and a port.")
    return found[1].strip("[]"), port


async def _refuse(client: SocketStream, status: int, words: str) -> None:
    body = words.encode() + b"\n"
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    try:
        await client.send(head.encode() + b"Connection: close\r\n\r\n" + body)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the client has gone
