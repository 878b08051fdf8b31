"""One running MCP server: its process, the session with it, and its end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.tool import ToolResult
from everturn.tools.mcp.wire import (
    Definition,
    McpClient,
    Sdk,
    load_sdk,
    read_definitions,
    result_of,
    transport,
)
from everturn.tools.policy.judgement import ArgumentValues, one_line
from everturn.tools.profiles import McpServer
from everturn.tools.sandbox.child import Child
from everturn.tools.sandbox.gate import Door
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.schema import ToolFailed
from everturn.tools.terminal.output import Capture
from everturn.tools.terminal.process import until_breach

START_TIMEOUT_S = 30.0
_IDLE_S = 600.0
_SOCKETS_EVERY_S = 1.0
_SOCKETS_SHARE = 50  # of the time in a large project: looking takes a fiftieth of it


# Takes the cause of a failure, what the server said last, and the error if there was one.
Report = Callable[[str, str, Exception | None], None]


class ServerDied(ToolFailed):
    """The server went away during a call; whether the call took effect is unknown."""


class Connection:
    """A server process and the session with it. ``serve`` runs both; call the other methods while it runs.

    If the view is brief, the server is ended when the last ``use`` of it ends.
    """

    def __init__(
        self,
        server: McpServer,
        sandbox: Sandbox,
        view: SandboxView,
        clock: Clock,
        door: AbstractAsyncContextManager[Door | None],
        report: Report,
    ) -> None:
        self._server = server
        self._sandbox = sandbox
        self._view = view
        self._clock = clock
        self._door = door
        self._report = report
        self._refused: list[str] = []  # hosts that it was kept from since the last call
        self._opened = anyio.Event()  # or failed to open
        self._closed = anyio.Event()
        self._stop = anyio.Event()
        self._errors = Capture(8192)
        self._client: McpClient | None = None
        self._users = 0
        self._used_at = clock.monotonic()
        self._failure = ""
        self.definitions: list[Definition] = []
        self.is_ended = False
        self.set_aside: list[str] = []  # what it made in a project and nothing must run; known at its end

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self.is_ended

    def stop(self) -> None:
        self._stop.set()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        """Keep the server running. It is open in the block. Raises ToolFailed."""
        self._users += 1
        try:
            await self._opened.wait()
            if self._failure:
                raise ToolFailed(self._failure)
            yield
        finally:
            self._users -= 1
            self._used_at = self._clock.monotonic()
            if self._view.is_brief and not self._users:
                self._give_up()
                if self._opened.is_set():
                    with anyio.CancelScope(shield=True):
                        await self._closed.wait()

    async def serve(self) -> None:
        """Run the server until it dies, is stopped, or has been idle.

        The broad catch is the boundary to a foreign program: its errors are kept for ``use`` and end
        nothing else.
        """
        caught: Exception | None = None
        try:
            await self._serve()
        except Exception as error:
            caught = error
            self._failure = self._failure or self._why(error)
        finally:
            self.is_ended = True
            self._client = None
            if not self._opened.is_set():
                self._failure = self._failure or f"The MCP server {self._server.name} ended at once."
            if self._failure:
                self._report(self._failure, self._last_words(), caught)
                self._failure += self._last_words()
            self._opened.set()
            self._closed.set()

    async def _serve(self) -> None:
        sdk = await load_sdk()
        async with self._door as door:
            self._refused = door.refused if door else []
            await self._run(sdk, msgspec.structs.replace(self._view, gate=door.path if door else None))

    async def _run(self, sdk: Sdk, view: SandboxView) -> None:
        argv = [program_of(self._server), *self._server.args]
        child = await self._sandbox.spawn(argv, view, stderr=subprocess.PIPE)
        try:
            with anyio.fail_after(START_TIMEOUT_S) as limit:
                async with sdk.Client(transport(child, self._errors)) as client:
                    self.definitions = await read_definitions(client)
                    limit.deadline = float("inf")
                    self._client = client
                    self._opened.set()
                    await self._until_over(child)
        finally:
            await child.end()
            self.set_aside = child.set_aside

    async def _until_over(self, child: Child) -> None:
        async with anyio.create_task_group() as group:

            async def until(condition: Callable[[], Awaitable[object]]) -> None:
                await condition()
                group.cancel_scope.cancel()

            group.start_soon(until, child.process.wait, name="mcp exit")
            group.start_soon(until, lambda: self._until_breach(child), name="mcp limits")
            group.start_soon(until, lambda: self._until_socket(child), name="mcp sockets")
            group.start_soon(until, self._stop.wait, name="mcp stop")
            while self._users or self._clock.monotonic() - self._used_at < _IDLE_S:
                await self._clock.sleep(_IDLE_S / 4)
            group.cancel_scope.cancel()
        # Calls that start from here on must not find a session that is being taken down.
        self._client = None
        self.is_ended = True

    async def _until_breach(self, child: Child) -> None:
        limits = self._view.limits
        breach = await until_breach(child, limits)
        self._failure = f"The MCP server {self._server.name} was ended: {breach}."

    async def _until_socket(self, child: Child) -> None:
        """Wait until a socket is made in a project that the server reads.

        Those that were there at its start are covered, but nothing can be mounted in a sandbox that runs. So
        the server is ended, and the next call starts another.
        """
        pause_s = _SOCKETS_EVERY_S
        if not (child.is_sandboxed and self._sandbox.shows_sockets(self._view)):
            await anyio.sleep_forever()
        while True:
            await anyio.sleep(pause_s)
            begun = anyio.current_time()
            if made := child.uncovered(await self._sandbox.foreign_sockets(self._view)):
                break
            pause_s = max(_SOCKETS_EVERY_S, _SOCKETS_SHARE * (anyio.current_time() - begun))
        self._failure = (
            f"The MCP server {self._server.name} was ended: the socket {made[0]} was made, where a program "
            "of yours may listen. The next call starts the server again, without access to it."
        )

    async def call(self, name: str, arguments: ArgumentValues, timeout_s: float) -> ToolResult:
        if self._client is None:
            raise ToolFailed(f"The MCP server {self._server.name} is not running; nothing was done.")
        try:
            with anyio.fail_after(timeout_s):
                answer = await self._client.call_tool(name, arguments)
        except TimeoutError as error:
            self._give_up()
            raise ServerDied(
                f"{self._server.name} did not answer within {timeout_s:g} s; whether {name} took effect "
                "is unknown."
            ) from error
        except Exception as error:  # the boundary to a foreign program: everything becomes a result
            raise self._call_failed(name, error) from error
        return self._with_refused(result_of(answer))

    def _with_refused(self, result: ToolResult) -> ToolResult:
        """The result with the hosts that the server was kept from; each is named once."""
        if not self._refused:
            return result
        names = ", ".join(self._refused)
        self._refused.clear()
        note = (
            f"[not allowed, and not contacted: {names}. The user can add them to hosts of "
            f"[mcp.{self._server.name}] in config.toml.]"
        )
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    def _give_up(self) -> None:
        """Treat the server as dead: the next call starts another without waiting for this one's end."""
        self._client = None
        self.is_ended = True
        self._stop.set()

    def _call_failed(self, name: str, error: Exception) -> ToolFailed:
        if self.is_ended or "closed" in str(error).lower():
            self._give_up()
            return ServerDied(
                f"The MCP server {self._server.name} died during {name}; whether it took effect is unknown."
                f"{' ' + self._failure if self._failure else self._last_words()}"
            )
        return ToolFailed(f"{self._server.name} refused {name}: {error}")

    def _why(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        words = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
        return f"The MCP server {self._server.name} could not be used: {words or type(error).__name__}."

    def _last_words(self) -> str:
        text = self._errors.content().decode("utf-8", "replace").strip()
        return f" It said: {one_line(text[-600:], 600)}" if text else ""


def program_of(server: McpServer) -> str:
    """The absolute path of the server's program. Raises ToolFailed."""
    found = shutil.which(os.path.expanduser(server.command))
    if found is None:
        raise ToolFailed(
            f"The MCP server {server.name} could not be started: there is no program {server.command}."
        )
    return os.path.abspath(found)
