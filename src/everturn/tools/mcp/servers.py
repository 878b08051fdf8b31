"""MCP servers over stdio: started on demand, in the sandbox, restarted when they die.

A server's failures stay its own: they become results, never exceptions. What it says about itself (its
tools, their descriptions) enters the context only when the user has trusted exactly that text, and what
it says about being harmless is never believed.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
import msgspec
from anyio.abc import Process, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from everturn.domain.clock import Clock
from everturn.domain.messages import Outcome
from everturn.domain.model import ToolSchema
from everturn.domain.store import Records
from everturn.domain.tool import Emit, ToolCall, ToolResult, ToolSpec, Untrusted
from everturn.tools.files.sync import Durable
from everturn.tools.policy.hosts import is_listed
from everturn.tools.policy.judgement import Concern, Judgement, Surroundings, one_line
from everturn.tools.profiles import McpServer
from everturn.tools.sandbox.gate import Door, Gate
from everturn.tools.sandbox.sandbox import Sandbox, View, program_folders
from everturn.tools.schema import ToolFailed, failure
from everturn.tools.terminal.child import Child
from everturn.tools.terminal.output import Capture, head_and_tail
from everturn.tools.terminal.process import until_breach

_log = logging.getLogger("everturn.tools")

DEFINITIONS = "mcp.tools"
_START_TIMEOUT_S = 30.0
_IDLE_S = 600.0
_TOOLS_MAX = 200
_LINE_BYTES_MAX = 16 * 1024 * 1024
_REFUSED_AT_THE_TOP = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})
_NOISE_LINES_MAX = 1000  # that are no messages, in the life of a server

Secret = Callable[[str], str | None]


class Definition(msgspec.Struct, frozen=True):
    """A tool as its server describes it. ``digest`` covers everything the model would be told."""

    name: str
    description: str
    parameters: dict[str, Any]
    digest: str


class ServerState(msgspec.Struct, frozen=True):
    """For GET /api/mcp. ``state``: stopped | running | failed."""

    name: str
    state: str
    detail: str = ""
    tools: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()  # tools whose description the user has not accepted
    texts: tuple[Untrusted, ...] = ()  # those descriptions, whole, as POST /api/mcp/{server}/trust takes them


class Died(ToolFailed):
    """The server went away during a call: nobody knows whether the call took effect."""


class McpServers:
    """The running servers, one per configured server and workspace. An async context manager."""

    def __init__(self, sandbox: Sandbox, gate: Gate, records: Records, clock: Clock, secret: Secret) -> None:
        self._sandbox = sandbox
        self._gate = gate
        self._records = records
        self._clock = clock
        self._secret = secret
        self._disk = Durable()
        self._connections: dict[tuple[str, Path], _Connection] = {}
        self._errors: dict[str, str] = {}
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> McpServers:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.stop()
        if self._group is not None:
            # The error of the body is the caller's, not the servers': it must not come out in a group.
            await self._group.__aexit__(None, None, None)

    async def definitions(self, owner: str, server: McpServer, workspace: Path) -> list[Definition]:
        """The server's tools, from the store if its configuration is unchanged; else it is started.

        A server that does not start has none; why is in ``state_of``.
        """
        stored = await self.stored(owner, server)
        if stored is not None:
            return stored
        try:
            connection = await self._connected(server, workspace)
        except ToolFailed:
            return []  # kept in self._errors, for whoever looks at the servers
        await self._store(owner, server, connection.definitions)
        return connection.definitions

    async def call(self, call: ToolCall, server: McpServer, definition: Definition) -> ToolResult:
        try:
            connection = await self._connected(server, call.workspace)
        except ToolFailed as error:
            return failure(f"{error} Nothing was done.")
        if definition not in connection.definitions:
            # Between the approval and now the server began to say something else about itself.
            await self._store(call.owner, server, connection.definitions)
            return failure(
                f"{server.name} has changed its tool {definition.name}; it was not called. Try again."
            )
        try:
            result = await self._guarded(
                call, connection.call(definition.name, call.arguments, server.timeout_s)
            )
            # It may have written to the workspace; a step is as durable as what it made.
            await anyio.to_thread.run_sync(self._disk.sync_file_system, call.workspace)
            return result
        except Died as error:
            return ToolResult(str(error), outcome=Outcome.UNKNOWN)
        except ToolFailed as error:
            return failure(str(error))
        except OSError as error:
            reason = error.strerror or error
            return failure(f"{definition.name} was done; a power cut may lose what it wrote: {reason}")

    async def _guarded(self, call: ToolCall, work: Awaitable[ToolResult]) -> ToolResult:
        """Do the work; rename what it made in a project that other programs would run, see ``guarded``."""
        guard = await self._sandbox.guard(View(workspace=call.workspace))
        aside: list[str] = []
        try:
            result = await work
        finally:
            with anyio.CancelScope(shield=True):
                if guard is not None:
                    aside = await anyio.to_thread.run_sync(guard.settle)
        if not aside:
            return result
        note = f"[renamed, because other programs would run it outside the sandbox: {', '.join(aside)}]"
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    async def refresh(self, owner: str, server: McpServer, workspace: Path) -> list[Definition]:
        """Ask the server itself again, started if need be. Raises ToolFailed."""
        connection = await self._connected(server, workspace)
        await self._store(owner, server, connection.definitions)
        return connection.definitions

    def state_of(self, server: McpServer) -> ServerState:
        running = [
            found for (name, _), found in self._connections.items() if name == server.name and found.is_open
        ]
        if running:
            return ServerState(server.name, "running")
        error = self._errors.get(server.name)
        return ServerState(server.name, "failed", error) if error else ServerState(server.name, "stopped")

    async def _connected(self, server: McpServer, workspace: Path) -> _Connection:
        """The running server for this workspace, started or restarted if need be. Raises ToolFailed."""
        try:
            connection = self._connection(server, workspace)
            await connection.wait_open()
        except ToolFailed as error:
            self._errors[server.name] = str(error)
            raise
        self._errors.pop(server.name, None)
        return connection

    def _connection(self, server: McpServer, workspace: Path) -> _Connection:
        key = (server.name, workspace)
        connection = self._connections.get(key)
        if connection is None or connection.is_ended:
            if self._group is None:
                raise RuntimeError("McpServers is used before it was opened")
            for gone in [key for key, found in self._connections.items() if found.is_ended]:
                del self._connections[gone]
            view, door = self._view(server, workspace), self._door(server)
            connection = _Connection(server, self._sandbox, view, self._clock, door)
            self._connections[key] = connection
            self._group.start_soon(connection.serve, name=f"mcp {server.name}")
        return connection

    @asynccontextmanager
    async def _door(self, server: McpServer) -> AsyncIterator[Door | None]:
        """The way to the network of a server while it runs; None where it has none, or the machine's own."""
        if not server.network or server.host_network:
            yield None
            return

        async def may(host: str) -> bool:
            return server.hosts is None or is_listed(host, server.hosts)

        async with self._gate.door(may) as door:
            yield door

    def _view(self, server: McpServer, workspace: Path) -> View:
        program = _program(server)
        secrets = {name: value for name in server.secrets if (value := self._secret(name)) is not None}
        folders = tuple(Path(path).expanduser() for path in server.read)
        return View(
            workspace=workspace,
            host_network=server.host_network,
            read=(*program_folders(program), *folders),
            write=tuple(Path(path).expanduser() for path in server.write),
            env={**server.env, **secrets},
            limits=server.limits,
            is_brief=False,
        )

    async def stored(self, owner: str, server: McpServer) -> list[Definition] | None:
        found = await self._records.get(owner, DEFINITIONS, server.name)
        if found is None or found["config"] != _config_digest(server):
            return None
        return msgspec.convert(found["tools"], list[Definition])

    async def _store(self, owner: str, server: McpServer, definitions: list[Definition]) -> None:
        value = {"config": _config_digest(server), "tools": msgspec.to_builtins(definitions)}
        await self._records.put(owner, DEFINITIONS, server.name, value)


class McpTool:
    """One tool of a server, named apart from all others."""

    def __init__(self, servers: McpServers, server: McpServer, definition: Definition) -> None:
        self._servers = servers
        self._server = server
        self.definition = definition
        self.is_trusted = False
        name = tool_name(server.name, definition.name)
        self.spec = ToolSpec(
            schema=ToolSchema(name, definition.description, definition.parameters),
            timeout_s=server.timeout_s + _START_TIMEOUT_S,
        )

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult:
        return await self._servers.call(call, self._server, self.definition)

    def judge(self, call: ToolCall, arguments: dict[str, Any], around: Surroundings) -> Judgement:
        words = ", ".join(f"{name}={value}" for name, value in arguments.items())
        label = one_line(f"{self.definition.name} {words}")
        if not self.is_trusted:
            # It changed while the turn ran; the next turn asks about what it says now.
            return Judgement(label, denied=f"{self._server.name} has changed its description of this tool.")
        reach = not around.is_sandboxed
        concern = Concern(
            f"it calls the MCP server {self._server.name}",
            key=f"mcp {self.spec.name} {self.definition.digest}",
            sends=self._server.network or self._server.host_network or reach,
            is_outside=bool(self._server.write) or reach,
            covers=f"call {self.spec.name} with any arguments",
        )
        return Judgement(label, concerns=(concern,))


class _Connection:
    """One running server process and the session with it."""

    def __init__(
        self,
        server: McpServer,
        sandbox: Sandbox,
        view: View,
        clock: Clock,
        door: AbstractAsyncContextManager[Door | None],
    ) -> None:
        self._server = server
        self._sandbox = sandbox
        self._view = view
        self._clock = clock
        self._door = door
        self._refused: list[str] = []  # hosts that it was kept from since the last call
        self._settled = anyio.Event()  # open, or failed to open
        self._stop = anyio.Event()
        self._errors = Capture(8192)
        self._client: Any = None
        self._calls = 0
        self._used_at = clock.monotonic()
        self._failure = ""
        self.definitions: list[Definition] = []
        self.is_ended = False

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self.is_ended

    def stop(self) -> None:
        self._stop.set()

    async def wait_open(self) -> None:
        await self._settled.wait()
        if self._failure:
            raise ToolFailed(self._failure)

    async def serve(self) -> None:
        """Run the server until it dies, is stopped, or has been idle. The broad catch is the boundary
        to a foreign program: whatever it does, the reason is kept and everything else goes on."""
        try:
            await self._serve()
        except Exception as error:
            self._failure = self._failure or self._why(error)
            _log.warning("MCP server %s ended", self._server.name, exc_info=error)
        finally:
            self.is_ended = True
            self._client = None
            if not self._settled.is_set():
                self._failure = self._failure or f"The MCP server {self._server.name} ended at once."
                self._settled.set()

    async def _serve(self) -> None:
        sdk = await _sdk()
        async with self._door as door:
            self._refused = door.refused if door else []
            await self._run(sdk, msgspec.structs.replace(self._view, gate=door.path if door else None))

    async def _run(self, sdk: Any, view: View) -> None:
        argv = [_program(self._server), *self._server.args]
        child = await self._sandbox.spawn(argv, view, stderr=subprocess.PIPE)
        try:
            with anyio.fail_after(_START_TIMEOUT_S) as limit:
                async with sdk.Client(_transport(child, self._errors)) as client:
                    self.definitions = await _definitions(client)
                    limit.deadline = float("inf")
                    self._client = client
                    self._settled.set()
                    await self._until_over(child)
        finally:
            await child.end()

    async def _until_over(self, child: Child) -> None:
        async with anyio.create_task_group() as group:

            async def until(condition: Callable[[], Any]) -> None:
                await condition()
                group.cancel_scope.cancel()

            group.start_soon(until, child.process.wait, name="mcp exit")
            group.start_soon(until, lambda: self._until_breach(child), name="mcp limits")
            group.start_soon(until, self._stop.wait, name="mcp stop")
            while self._calls or self._clock.monotonic() - self._used_at < _IDLE_S:
                await self._clock.sleep(_IDLE_S / 4)
            group.cancel_scope.cancel()
        # Calls that start from here on must not find a session that is being taken down.
        self._client = None
        self.is_ended = True

    async def _until_breach(self, child: Child) -> None:
        limits = self._view.limits
        breach = await until_breach(child, limits)
        self._failure = f"The MCP server {self._server.name} was ended: {breach}."

    async def call(self, name: str, arguments: dict[str, Any], timeout_s: float) -> ToolResult:
        if self._client is None:
            raise ToolFailed(f"The MCP server {self._server.name} is not running; nothing was done.")
        self._calls += 1
        try:
            with anyio.fail_after(timeout_s):
                answer = await self._client.call_tool(name, arguments)
        except TimeoutError as error:
            self._give_up()
            raise Died(
                f"{self._server.name} did not answer within {timeout_s:g} s; whether {name} took effect "
                "is unknown."
            ) from error
        except Exception as error:  # the boundary to a foreign program: everything becomes a result
            raise self._call_failed(name, error) from error
        finally:
            self._calls -= 1
            self._used_at = self._clock.monotonic()
        return self._with_refused(_result(answer))

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
        """Dead or stuck: from this moment on the next call gets a fresh server, before this one's task
        has even noticed."""
        self._client = None
        self.is_ended = True
        self._stop.set()

    def _call_failed(self, name: str, error: Exception) -> ToolFailed:
        if self.is_ended or "closed" in str(error).lower():
            self._give_up()
            return Died(
                f"The MCP server {self._server.name} died during {name}; whether it took effect is unknown."
                f"{' ' + self._failure if self._failure else self._last_words()}"
            )
        return ToolFailed(f"{self._server.name} refused {name}: {error}")

    def _why(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        words = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
        return f"The MCP server {self._server.name} could not be used: {words or type(error).__name__}." + (
            self._last_words()
        )

    def _last_words(self) -> str:
        text = self._errors.content().decode("utf-8", "replace").strip()
        return f" It said: {one_line(text[-600:], 600)}" if text else ""


# --- the wire --------------------------------------------------------------------------------------


async def _sdk() -> Any:
    """The official SDK, imported on first use: it takes most of a second."""
    try:
        return await anyio.to_thread.run_sync(importlib.import_module, "mcp")
    except ImportError as error:
        raise ToolFailed("MCP servers need the extra 'mcp': pip install 'everturn[mcp]'.") from error


@asynccontextmanager
async def _transport(child: Child, errors: Capture) -> AsyncIterator[Any]:
    """The process's pipes as the SDK's pair of streams, one JSON message per line."""
    to_session: MemoryObjectSendStream[Any]
    from_server: MemoryObjectReceiveStream[Any]
    to_session, from_server = anyio.create_memory_object_stream(0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)
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


async def _pump_out(child: Child, to_session: MemoryObjectSendStream[Any]) -> None:
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
    """The lines of each read. Ends where one has no end: that is no server (any more), and closing the
    stream ends the session."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in output:
        head, *rest = chunk.split(b"\n")
        pieces.append(head)
        size += len(head)
        if size > _LINE_BYTES_MAX:
            return
        if rest:
            yield [b"".join(pieces), *rest[:-1]]
            pieces, size = [rest[-1]], len(rest[-1])


async def _pump_in(child: Child, from_session: MemoryObjectReceiveStream[Any]) -> None:
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


async def _definitions(client: Any) -> list[Definition]:
    found: list[Definition] = []
    cursor = None
    while len(found) < _TOOLS_MAX:
        page = await client.list_tools(cursor=cursor)
        found += [_definition(tool) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    # Providers refuse every request in which a name stands twice.
    named = {definition.name: definition for definition in reversed(found[:_TOOLS_MAX])}
    return sorted(named.values(), key=lambda definition: definition.name)


def _definition(tool: Any) -> Definition:
    """Its arguments are an object with properties, and a choice only further in: with anything else providers
    refuse the request, and with it every tool of every server."""
    kept = {key: value for key, value in tool.input_schema.items() if key not in _REFUSED_AT_THE_TOP}
    parameters = {"properties": {}, **kept, "type": "object"}
    text = msgspec.json.encode([tool.name, tool.description, parameters], order="deterministic")
    description = (tool.description or "").replace("\0", "\ufffd")  # no store keeps that one
    return Definition(tool.name, description, parameters, hashlib.sha256(text).hexdigest())


def _result(answer: Any) -> ToolResult:
    text = "\n".join(_block(block) for block in answer.content)
    if not text and answer.structured_content is not None:
        text = msgspec.json.encode(answer.structured_content).decode()
    shown, is_cut = head_and_tail(text.encode(), 48_000)
    return ToolResult(
        shown or "[no output]",
        outcome=Outcome.ERROR if answer.is_error else Outcome.OK,
        full_output=text.encode() if is_cut else None,
    )


def _block(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    kind = getattr(block, "mime_type", None) or block.type
    return f"[{kind}, not shown]"


# --- names -----------------------------------------------------------------------------------------


def tool_name(server: str, name: str) -> str:
    """``server__tool``, within what every provider takes: letters, digits, _ and -, at most 64."""
    full = f"{server}__{re.sub(r'[^a-zA-Z0-9_-]', '_', name)}"
    if len(full) <= 64 and full == f"{server}__{name}":
        return full
    return f"{full[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _config_digest(server: McpServer) -> str:
    return hashlib.sha256(msgspec.json.encode(server, order="deterministic")).hexdigest()


def _program(server: McpServer) -> str:
    found = shutil.which(os.path.expanduser(server.command))
    if found is None:
        raise ToolFailed(
            f"The MCP server {server.name} could not be started: there is no program {server.command}."
        )
    return os.path.abspath(found)
