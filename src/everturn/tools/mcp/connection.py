"""One session with an MCP server, from opening to end."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.tool import ToolResult
from everturn.tools.mcp.catalog import Catalog, Definition, read_catalog
from everturn.tools.mcp.content import result_of
from everturn.tools.mcp.elicitation import Elicitation, Reply, read_elicitation
from everturn.tools.mcp.http import RequestFate, follow_fate
from everturn.tools.mcp.wire import Link, McpClient, Progress, SdkMessage, load_sdk
from everturn.tools.policy.judgement import ArgumentValues, one_line
from everturn.tools.profiles import McpServer
from everturn.tools.schema import ToolFailed

T = TypeVar("T")
_log = logging.getLogger("everturn.tools")
START_TIMEOUT_S = 30.0
_CHANGES = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
_IDLE_S = 600.0
_LISTENS = "2026-07-28"  # from this protocol version on, we listen for changes

# Called with the cause of a failure, the server's last output, and the error if there was one.
Report = Callable[[str, str, Exception | None], None]
# Called with the server's current tools.
Changed = Callable[[Catalog], Awaitable[None]]
# Asks the user and returns the answer for the server.
AskUser = Callable[[Elicitation], Awaitable[Reply]]


class ServerDied(ToolFailed):
    """The server died during a call. Whether the call took effect is unknown."""


class ServerSignInNeeded(ToolFailed):
    """The server refused the request because the user has to sign in. Nothing was done."""


class Connection:
    """A session with a server. ``serve`` runs it; call the other methods while it runs.

    A brief link is closed when its last ``use`` ends.
    """

    def __init__(self, server: McpServer, link: Link, clock: Clock, report: Report, changed: Changed) -> None:
        self.server = server
        self._link = link
        self._clock = clock
        self._report = report
        self._changed = changed
        self._opened = anyio.Event()  # set when opened, or when opening failed
        self._closed = anyio.Event()
        self._stop = anyio.Event()
        self._stale = anyio.Event()  # the server reported that its tools, prompts or resources changed
        self._client: McpClient | None = None
        self._asking: list[AskUser] = []  # of the running calls
        self._users = 0
        self._used_at = clock.monotonic()
        self._failure = ""
        self._wants_sign_in = False
        self.catalog = Catalog()
        self.is_ended = False

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self.is_ended

    @property
    def definitions(self) -> tuple[Definition, ...]:
        return self.catalog.tools

    @property
    def set_aside(self) -> list[str]:
        return self._link.set_aside

    def stop(self) -> None:
        self._stop.set()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        """Keep the session open during the block. Raises ToolFailed."""
        self._users += 1
        try:
            await self._opened.wait()
            if self._failure:
                raise ServerSignInNeeded(self._failure) if self._wants_sign_in else ToolFailed(self._failure)
            yield
        finally:
            self._users -= 1
            self._used_at = self._clock.monotonic()
            if self._link.is_brief and not self._users:
                self._give_up()
                if self._opened.is_set():
                    with anyio.CancelScope(shield=True):
                        await self._closed.wait()

    async def serve(self) -> None:
        """Run the session until the server exits, is stopped, or was idle too long.

        The broad catch is the boundary to a foreign program: ``use`` raises its errors, and nothing else
        fails.
        """
        caught: Exception | None = None
        fate = follow_fate()
        try:
            await self._run()
        except Exception as error:
            caught = error
            self._failure = self._failure or self._why(error, fate)
        finally:
            self.is_ended = True
            self._client = None
            if not self._opened.is_set():
                self._failure = self._failure or f"The MCP server {self.server.name} ended at once."
            if self._failure:
                self._report(self._failure, self._last_words(), caught)
                self._failure += self._last_words()
            self._opened.set()
            self._closed.set()

    async def _run(self) -> None:
        sdk = await load_sdk()
        with anyio.fail_after(START_TIMEOUT_S) as limit:
            async with (
                anyio.create_task_group() as group,
                sdk.Client(
                    self._link.open(), elicitation_callback=self._elicit, message_handler=self._hear
                ) as client,
            ):
                self.catalog = await read_catalog(client)
                limit.deadline = float("inf")
                self._client = client
                self._opened.set()
                group.start_soon(self._watch_tools, client, name="mcp changes")
                await self._until_over()
                group.cancel_scope.cancel()

    async def _until_over(self) -> None:
        async with anyio.create_task_group() as group:

            async def until(condition: Callable[[], Awaitable[object]]) -> None:
                await condition()
                group.cancel_scope.cancel()

            async def until_ended() -> None:
                self._failure = await self._link.until_over()

            group.start_soon(until, until_ended, name="mcp end")
            group.start_soon(until, self._stop.wait, name="mcp stop")
            while self._users or self._clock.monotonic() - self._used_at < _IDLE_S:
                await self._clock.sleep(_IDLE_S / 4)
            group.cancel_scope.cancel()
        # Calls that start from here on must not get a session that is closing.
        self._client = None
        self.is_ended = True

    # --- messages from the server --------------------------------------------------------------------

    async def _watch_tools(self, client: McpClient) -> None:
        """Read tools, prompts and resources again when they change. New tools are off until trusted."""
        async with anyio.create_task_group() as group:
            if client.protocol_version >= _LISTENS:
                group.start_soon(self._listen, client, name="mcp listen")
            while True:
                await self._stale.wait()
                self._stale = anyio.Event()
                try:
                    self.catalog = await read_catalog(client)
                except Exception as error:  # the boundary to a foreign program
                    _log.info("the MCP server %s did not list again: %s", self.server.name, error)
                    continue
                await self._changed(self.catalog)

    async def read_again(self) -> None:
        """Read the server's tools, prompts and resources again. Raises ToolFailed."""
        self.catalog = await self.ask_server(read_catalog, "tools/list", START_TIMEOUT_S)

    async def _listen(self, client: McpClient) -> None:
        try:
            able = client.server_capabilities
            async with client.listen(
                tools_list_changed=True,
                prompts_list_changed=able is not None and able.prompts is not None,
                resources_list_changed=able is not None and able.resources is not None,
            ) as events:
                async for _ in events:
                    self._stale.set()
        except Exception as error:  # the boundary to a foreign program; it is asked again when it starts
            _log.debug("the MCP server %s tells of no changes: %s", self.server.name, error)

    async def _hear(self, message: SdkMessage) -> None:
        if getattr(message, "method", "") in _CHANGES:
            self._stale.set()

    # ``Any``: values of the SDK.
    async def _elicit(self, context: Any, params: Any) -> Any:
        """Ask the user for the server.

        Cancelled while several calls run, because the server does not say which one asks.
        """
        types = importlib.import_module("mcp_types")
        if len(self._asking) != 1:
            return types.ElicitResult(action="cancel")
        reply = await self._asking[0](read_elicitation(self.server.name, params))
        return types.ElicitResult(action=reply.action, content=reply.content)

    # --- calls ---------------------------------------------------------------------------------------

    async def call(
        self, name: str, arguments: ArgumentValues, timeout_s: float, progress: Progress, ask: AskUser
    ) -> ToolResult:
        """Call a tool. The time limit excludes the time that the user takes to answer. Raises ToolFailed."""
        with anyio.CancelScope(deadline=anyio.current_time() + timeout_s) as scope:

            async def wait_for_user(asked: Elicitation) -> Reply:
                left_s, scope.deadline = scope.deadline - anyio.current_time(), float("inf")
                try:
                    return await ask(asked)
                finally:
                    scope.deadline = anyio.current_time() + left_s

            self._asking.append(wait_for_user)
            try:
                answer = await self._send(
                    lambda client: client.call_tool(name, arguments, progress_callback=progress), name
                )
            finally:
                self._asking.remove(wait_for_user)
            return self._with_refused(result_of(answer))
        self._give_up()
        raise ServerDied(
            f"{self.server.name} did not answer within {timeout_s:g} s; whether {name} took effect is "
            "unknown."
        )

    async def ask_server(self, send: Callable[[McpClient], Awaitable[T]], what: str, timeout_s: float) -> T:
        """Send a request that changes nothing. Raises ToolFailed."""
        with anyio.move_on_after(timeout_s):
            return await self._send(send, what)
        raise ToolFailed(f"{self.server.name} did not answer within {timeout_s:g} s.")

    async def _send(self, send: Callable[[McpClient], Awaitable[T]], what: str) -> T:
        if self._client is None:
            raise ToolFailed(f"The MCP server {self.server.name} is not running; nothing was done.")
        fate = follow_fate()
        try:
            return await send(self._client)
        except Exception as error:  # the boundary to a foreign program: everything becomes a result
            raise self._failure_of(what, error, fate) from error

    def _with_refused(self, result: ToolResult) -> ToolResult:
        """Return the result with the hosts that the server was refused, each named once."""
        if not self._link.refused:
            return result
        names = ", ".join(self._link.refused)
        self._link.refused.clear()
        note = (
            f"[not allowed, and not contacted: {names}. The user can add them to hosts of "
            f"[mcp.{self.server.name}] in config.toml.]"
        )
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    def _give_up(self) -> None:
        """Treat the server as dead: the next call starts another without waiting for this one to exit."""
        self._client = None
        self.is_ended = True
        self._stop.set()

    def _failure_of(self, what: str, error: Exception, fate: RequestFate) -> ToolFailed:
        name = self.server.name
        if fate.wants_sign_in:
            self._give_up()  # the next session starts with the new sign-in
            return ServerSignInNeeded(f"The MCP server {name} wants you to sign in.")
        if fate.is_gone:
            self._give_up()
            return ToolFailed(f"{name} has ended the session; {what} was not called. Try again.")
        if fate.status in (401, 403):
            return ToolFailed(f"{name} refuses the key (status {fate.status}); {what} was not called.")
        if self.is_ended or "closed" in str(error).lower():
            self._give_up()
            return ServerDied(
                f"The MCP server {name} died during {what}; whether it took effect is unknown."
                f"{' ' + self._failure if self._failure else self._last_words()}"
            )
        if fate.status >= 500:
            return ServerDied(
                f"{name} answered {what} with status {fate.status}; whether it took effect is unknown."
            )
        return ToolFailed(f"{name} refused {what}: {one_line(str(error), 2000)}")

    def _why(self, error: BaseException, fate: RequestFate) -> str:
        name = self.server.name
        if fate.wants_sign_in:
            self._wants_sign_in = True
            return f"The MCP server {name} wants you to sign in."
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        words = "it did not answer in time" if isinstance(error, TimeoutError) else one_line(str(error), 600)
        if fate.status >= 400:
            words = f"it answered with status {fate.status}"
        return f"The MCP server {name} could not be used: {words or type(error).__name__}."

    def _last_words(self) -> str:
        text = self._link.last_words()
        return f" It said: {one_line(text[-600:], 600)}" if text else ""
