"""uvicorn, extended to end streams cleanly, cut off slow clients and stop faster at a second signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any, cast

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from everturn.domain.clock import SystemClock
from everturn.domain.errors import Stopped
from everturn.domain.json_types import JsonObject
from everturn.web.access.browser import address_to_open, knows_its_owner, open_browser
from everturn.web.access.peers import OwnerCheck, owner_check
from everturn.web.access.visitor import IS_OWNER, is_loopback_name
from everturn.web.settings import WebSettings
from everturn.web.web import Web

_log = logging.getLogger("everturn.server")
_FILES_WANTED = 65_536
_ANSWERS_S = 5  # what requests under way get at shutdown, once the streams have ended
_TICK_S = 0.05

Drain = Callable[[float], Awaitable[None]]


class StartRefused(Stopped):
    """The server refuses to start. The hint says what to change."""

    code = "start_refused"


async def check_start(web: Web) -> None:
    """Raise StartRefused if there is no sign-in and other machines could reach the agent, or the agent itself
    the server: it could approve its own calls."""
    settings = web.settings
    if await web.accounts.is_sign_in_on():
        return
    if web.host_network:
        raise StartRefused(
            "Everturn will not start without sign-in while host_network is on "
            f"({', '.join(web.host_network)}): what the agent runs there could approve its own calls.",
            hint="Set a password with 'everturn password' or EVERTURN_PASSWORD, or take host_network out of "
            "config.toml.",
        )
    if is_loopback_name(settings.host):
        return
    raise StartRefused(
        f"Everturn will not listen on {settings.host} without sign-in: anyone who reaches this machine "
        "could run commands on it.",
        hint="Set a password with 'everturn password' or EVERTURN_PASSWORD, or listen on 127.0.0.1.",
    )


async def serve(
    web: Web,
    settings: WebSettings,
    *,
    drain: Drain | None = None,
    on_ready: Callable[[str], None] | None = None,
    sockets: list[socket.socket] | None = None,
    is_owner: OwnerCheck | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then shut down; a second signal hurries.

    ``drain(grace_s)`` is awaited after the listening sockets are closed and before streams are ended: it
    gives running turns their time and hands the rest over. ``on_ready`` gets the address. ``is_owner``: who
    needs no access token; default: processes of our own user, where the system tells.
    """
    await check_start(web)
    web.is_owner = is_owner or owner_check()
    raise_file_limit()
    bound = sockets or [bind(settings)]
    address = address_of(bound[0], settings)
    carrying = address
    if not await web.accounts.is_sign_in_on():
        carrying = address_to_open(address, place_of(bound[0]), settings.home, SystemClock())
    config = uvicorn.Config(
        web,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_ANSWERS_S,
        backlog=2048,
    )
    server = _Server(config, web, drain, lambda: _say_ready(address, carrying, settings, on_ready))
    web.stop = server.stop
    await server.serve(sockets=bound)


def bind(settings: WebSettings) -> socket.socket:
    """Raises StartRefused if the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only where it can see that it is
    # TCP: without it, the body of a small answer waits 40 ms for the reader's acknowledgement of the head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise StartRefused(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            hint="Is Everturn already running? Choose another port with --port."
            if error.errno == errno.EADDRINUSE
            else "Choose an address of this machine with --host, or a port above 1023 with --port.",
        ) from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket, settings: WebSettings) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not listened on
        host = "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{settings.root}/"


def place_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{host}:{port}"


def raise_file_limit() -> None:
    """A stream is a file: lift the soft limit as far as the hard one allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _say_ready(
    address: str, carrying: str, settings: WebSettings, on_ready: Callable[[str], None] | None
) -> None:
    """``carrying``: the address with a code that signs the browser in."""
    _log.info("ready at %s", address)
    if on_ready is not None:
        on_ready(address if knows_its_owner() else carrying)
    if settings.opens_browser:
        arguments = (address, carrying, settings.home)
        threading.Thread(target=open_browser, args=arguments, name="open browser", daemon=True).start()


class _Server(uvicorn.Server):
    """Shutdown: close the listeners, drain, end the streams, answer what is under way, close."""

    def __init__(
        self, config: uvicorn.Config, web: Web, drain: Drain | None, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._web = web
        self._drain = drain
        self._on_ready = on_ready
        self._signals = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self._web.is_stopping = True
        _log.info("stopping")
        await self._run_drain()
        # uvicorn never ends an endless answer by itself. Ended first, each stream sends a last event.
        self._web.streams.end_all("shutdown")
        await super().shutdown(sockets)

    async def _run_drain(self) -> None:
        if self._drain is None:
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._hurry, group.cancel_scope)
            await self._drain(0.0 if self._is_hurried else self._web.settings.grace_s)
            group.cancel_scope.cancel()
        if self._is_hurried:
            await self._drain(0.0)

    async def _hurry(self, scope: anyio.CancelScope) -> None:
        # Polled: a handler set with signal.signal runs outside the loop and may not wake its events.
        while not self._is_hurried:  # noqa: ASYNC110
            await asyncio.sleep(_TICK_S)
        scope.cancel()

    @property
    def _is_hurried(self) -> bool:
        return self._signals > 1

    def stop(self) -> None:
        """Begin to shut down, as the first signal does."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1
        self.should_exit = True
        if self._signals > 2:
            self.force_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn raises the signal again at the end, which would kill us before the store is closed.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        originals = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in originals.items():
                signal.signal(number, handler)


class _Protocol(HttpToolsProtocol):
    """Bounds what uvicorn leaves open: how long a request's head may take and how large it may be."""

    # ``Any``: what uvicorn gives a protocol is its own affair.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self._web.settings
        self._head_bytes_max = settings.head_bytes_max
        self._head_timeout_s = settings.head_timeout_s
        self._head_bytes = 0
        self._is_owner = False
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def _web(self) -> Web:
        return cast(Web, self.config.app)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio gives this protocol a Transport
        super().connection_made(transport)
        # Now, not at the first request: a client that has sent all it has to say may have closed its half.
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._is_owner = bool(peer and own) and self._web.is_owner(peer[:2], own[:2])
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        extensions: JsonObject = {"everturn.abort": self.transport.abort, IS_OWNER: self._is_owner}
        self.scope["extensions"] = extensions
        if self._head_timer is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))
        if not self.url.startswith((b"/", b"*")) and not self.transport.is_closing():
            # A whole address names a host of its own, beside the Host header that is checked.
            self._answer(b"400 Bad Request")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._head_is_here()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._head_bytes_max and not self.transport.is_closing():
            self._answer(b"431 Request Header Fields Too Large")

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self._head_timeout_s, self._head_is_late)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._answer(b"408 Request Timeout")

    def _answer(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
