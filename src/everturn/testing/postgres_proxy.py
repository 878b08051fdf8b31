"""A proxy in front of PostgreSQL that can swap connections, go away, and lose the answer to a commit.

With ``swaps`` it behaves like a transaction-mode pooler at its worst: after every transaction the client
continues on another connection of the server, without any session state.
"""

from __future__ import annotations

import asyncio
import struct
from types import TracebackType
from typing import Self

_SSL_REQUEST = 80877103
_GSS_REQUEST = 80877104


class _Backend:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = b""

    async def greet(self, startup: bytes) -> None:
        self.writer.write(startup)
        while True:
            message = await _message(self.reader)
            self.greeting += message
            if message[:1] == b"Z":
                return
            if message[:1] == b"E":
                raise ConnectionRefusedError(message)


class _Client:
    """One client and the server connections that it alternates between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.backends: list[_Backend] = []
        self.active = 0
        self.loss: asyncio.Event | None = None  # lose the answer that is about to be sent


class PostgresProxy:
    """Listens on a port of its own. ``commits`` counts the commits that passed, ``swapped`` the swaps;
    ``is_swapping`` can be changed at any time if ``swaps`` is set."""

    def __init__(self, port: int, *, swaps: bool = False) -> None:
        self._target = port
        self._swaps = swaps
        self.is_swapping = swaps
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_away = False
        self._losses: list[tuple[bool, asyncio.Event]] = []
        self.commits = 0
        self.swapped = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.go_away()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def address(self, address: str) -> str:
        """The same database through this proxy."""
        return address.replace(f":{self._target}/", f":{self.port}/")

    def go_away(self) -> None:
        """Break every connection and accept no new ones."""
        self._is_away = True
        for client in list(self._clients):
            client.transport.abort()

    def come_back(self) -> None:
        self._is_away = False

    def lose_commit(self, *, is_stored: bool) -> asyncio.Event:
        """Break the connection of the next commit: before it reaches the server, or (``is_stored``) after it
        was done and before its answer reaches the client. The event is set when that has happened."""
        happened = asyncio.Event()
        self._losses.append((is_stored, happened))
        return happened

    # --- one client ----------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._tasks.add(task)
        self._clients.add(writer)
        client = _Client(reader, writer)
        try:
            if not self._is_away:
                await self._greet(client)
                await self._serve(client)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has closed: the other is closed below
        finally:
            self._tasks.discard(task)
            self._clients.discard(writer)
            for side in (writer, *(backend.writer for backend in client.backends)):
                side.transport.abort()

    async def _greet(self, client: _Client) -> None:
        startup = await self._startup(client.reader, client.writer)
        for _ in range(2 if self._swaps else 1):
            backend = _Backend(*await asyncio.open_connection("127.0.0.1", self._target))
            client.backends.append(backend)
            await backend.greet(startup)
        client.writer.write(client.backends[0].greeting)

    async def _serve(self, client: _Client) -> None:
        """Pass messages both ways until one side is gone."""
        pumps = [asyncio.create_task(self._requests(client))]
        pumps += [asyncio.create_task(self._answers(client, backend)) for backend in client.backends]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(self, client: _Client) -> None:
        while True:
            message = await _message(client.reader)
            if message[:1] == b"Q" and message[5:].rstrip(b"\0") == b"COMMIT":
                self.commits += 1
                if self._losses:
                    is_stored, happened = self._losses.pop(0)
                    if not is_stored:
                        happened.set()
                        return
                    client.loss = happened
            client.backends[client.active].writer.write(message)

    async def _answers(self, client: _Client, backend: _Backend) -> None:
        while True:
            message = await _message(backend.reader)
            is_end = message[:1] == b"Z"
            if client.loss is None:
                client.writer.write(message)
            elif is_end:
                client.loss.set()
                return
            if is_end and message[5:6] == b"I" and self.is_swapping:
                client.active = 1 - client.active
                self.swapped += 1

    async def _startup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack(">II", head)
            if code not in (_SSL_REQUEST, _GSS_REQUEST):
                return head + await reader.readexactly(length - 8)
            writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)
