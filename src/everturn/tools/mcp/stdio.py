"""An MCP server as a process in its own sandbox, with one JSON message per line on its pipes."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import msgspec
from anyio.abc import Process

from everturn.tools.mcp.wire import LINE_BYTES_MAX, Link, Receiver, SdkMessage, Sender
from everturn.tools.profiles import McpServer
from everturn.tools.sandbox.child import Child
from everturn.tools.sandbox.gate import Door
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.schema import ToolFailed
from everturn.tools.terminal.output import Capture
from everturn.tools.terminal.process import until_breach

_SOCKETS_EVERY_S = 1.0
_SOCKETS_SHARE = 50  # in a large project, at most a fiftieth of the time is spent on looking
_NOISE_LINES_MAX = 1000  # lines that are not messages, over a server's lifetime


class StdioLink(Link):
    """The process, its limits, and its way to the network."""

    def __init__(
        self,
        server: McpServer,
        sandbox: Sandbox,
        view: SandboxView,
        door: AbstractAsyncContextManager[Door | None],
    ) -> None:
        super().__init__(is_brief=view.is_brief)
        self._server = server
        self._sandbox = sandbox
        self._view = view
        self._door = door
        self._errors = Capture(8192)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Receiver, Sender]]:
        async with self._door as door:
            self.refused = door.refused if door else []
            view = msgspec.structs.replace(self._view, gate=door.path if door else None)
            argv = [program_of(self._server), *self._server.args]
            self._child = child = await self._sandbox.spawn(argv, view, stderr=subprocess.PIPE)
            try:
                async with _transport(child, self._errors) as streams:
                    yield streams
            finally:
                await child.end()
                self.set_aside = child.set_aside

    async def until_over(self) -> str:
        over: list[str] = []
        async with anyio.create_task_group() as group:

            async def until_exit() -> None:
                await self._child.process.wait()
                group.cancel_scope.cancel()

            async def until_limit() -> None:
                breach = await until_breach(self._child, self._view.limits)
                over.append(f"The MCP server {self._server.name} was ended: {breach}.")
                group.cancel_scope.cancel()

            async def until_socket() -> None:
                over.append(await self._until_socket())
                group.cancel_scope.cancel()

            group.start_soon(until_exit, name="mcp exit")
            group.start_soon(until_limit, name="mcp limits")
            group.start_soon(until_socket, name="mcp sockets")
        return over[0] if over else ""

    async def _until_socket(self) -> str:
        """Wait until a socket appears in a project that the server reads; return why the server must end.

        Sockets that existed at the start are covered, but nothing can be mounted in a running sandbox. So the
        server is ended and the next call starts another.
        """
        pause_s, child = _SOCKETS_EVERY_S, self._child
        if not (child.is_sandboxed and self._sandbox.shows_sockets(self._view)):
            await anyio.sleep_forever()
        while True:
            await anyio.sleep(pause_s)
            begun = anyio.current_time()
            if made := child.list_uncovered(await self._sandbox.foreign_sockets(self._view)):
                break
            pause_s = max(_SOCKETS_EVERY_S, _SOCKETS_SHARE * (anyio.current_time() - begun))
        return (
            f"The MCP server {self._server.name} was ended: the socket {made[0]} was made, where a program "
            "of yours may listen. The next call starts the server again, without access to it."
        )

    def last_words(self) -> str:
        return self._errors.content().decode("utf-8", "replace").strip()


def program_of(server: McpServer) -> str:
    """Return the absolute path of the server's program. Raises ToolFailed."""
    found = shutil.which(os.path.expanduser(server.command))
    if found is None:
        raise ToolFailed(
            f"The MCP server {server.name} could not be started: there is no program {server.command}."
        )
    return os.path.abspath(found)


@asynccontextmanager
async def _transport(child: Child, errors: Capture) -> AsyncIterator[tuple[Receiver, Sender]]:
    """Yield the process's pipes as the SDK's pair of streams, one JSON message per line."""
    to_session, from_server = anyio.create_memory_object_stream[SdkMessage](0)
    to_server, from_session = anyio.create_memory_object_stream[SdkMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_pump_out, child, to_session, name="mcp stdout")
        group.start_soon(_pump_in, child, from_session, name="mcp stdin")
        group.start_soon(_keep_errors, child.process, errors, name="mcp stderr")
        try:
            yield from_server, to_server
        finally:
            group.cancel_scope.cancel()
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()


async def _pump_out(child: Child, to_session: Sender) -> None:
    message = importlib.import_module("mcp.shared.message")
    types = importlib.import_module("mcp_types")
    noise = 0
    async with to_session:
        async for lines in _lines(child.stdout):
            for line in lines:
                if not line.strip():
                    continue
                try:
                    parsed = message.SessionMessage(
                        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    )
                except ValueError as error:
                    parsed = error  # the session reports it; a stray print must not end the server
                    noise += 1
                    if noise > _NOISE_LINES_MAX:
                        return
                try:
                    await to_session.send(parsed)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return


async def _lines(output: AsyncIterable[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of each read. Stop at a line that is too long, which no MCP server writes.

    Closing the stream then ends the session.
    """
    pieces: list[bytes] = []
    size = 0
    async for chunk in output:
        head, *rest = chunk.split(b"\n")
        pieces.append(head)
        size += len(head)
        if size > LINE_BYTES_MAX:
            return
        if rest:
            yield [b"".join(pieces), *rest[:-1]]
            pieces, size = [rest[-1]], len(rest[-1])


async def _pump_in(child: Child, from_session: Receiver) -> None:
    async with from_session:
        async for message in from_session:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await child.stdin.send(line.encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return  # it died; its exit ends the connection


async def _keep_errors(process: Process, errors: Capture) -> None:
    if process.stderr is not None:
        async for chunk in process.stderr:
            errors.add(chunk)
