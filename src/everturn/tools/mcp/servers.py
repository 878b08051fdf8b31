"""MCP servers over stdio: started on demand, in the sandbox, restarted when they die.

A server's failures stay its own: they become results, never exceptions. What it says about itself (its
tools, their descriptions) enters the context only when the user has trusted exactly that text, and what
it says about being harmless is never believed.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType

import anyio
import msgspec
from anyio.abc import TaskGroup

from everturn.domain.clock import Clock
from everturn.domain.errors import SecretUnreadable
from everturn.domain.messages import Outcome
from everturn.domain.model import ToolSchema
from everturn.domain.store import Records
from everturn.domain.tool import Emit, ToolCall, ToolResult, ToolSpec, Untrusted
from everturn.tools.disk_sync import DiskSync
from everturn.tools.mcp.connection import START_TIMEOUT_S, Connection, ServerDied, program_of
from everturn.tools.mcp.folders import own_folders
from everturn.tools.mcp.wire import Definition
from everturn.tools.policy.hosts import is_listed
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.profiles import McpServer
from everturn.tools.sandbox.gate import Door, Gate
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, program_folders
from everturn.tools.schema import ToolFailed, failure

_log = logging.getLogger("everturn.tools")

DEFINITIONS = "mcp.tools"
_NEXT_START_S = (
    30.0  # a turn asks for the tools several times; a server that fails can take that long to do so
)

Secret = Callable[[str], str | None]


class ServerState(msgspec.Struct, frozen=True):
    """For GET /api/mcp. ``state``: stopped | running | failed."""

    name: str
    state: str
    detail: str = ""
    tools: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()  # tools whose description the user has not accepted
    texts: tuple[Untrusted, ...] = ()  # those descriptions, whole, as POST /api/mcp/{server}/trust takes them


class McpServers:
    """The running servers, one per configured server and workspace. An async context manager."""

    def __init__(self, sandbox: Sandbox, gate: Gate, records: Records, clock: Clock, secret: Secret) -> None:
        self._sandbox = sandbox
        self._gate = gate
        self._records = records
        self._clock = clock
        self._secret = secret
        self._disk = DiskSync()
        self._connections: dict[tuple[str, Path], Connection] = {}
        self._errors: dict[str, str] = {}
        self._logged: dict[str, str] = {}  # by server: the cause of its last failure, until it works again
        self._failed_at: dict[str, float] = {}  # by the digest of its configuration
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

        A server that does not start has none; why is in ``state_of``. One that has just failed is not started
        again at once, see ``start_again``.
        """
        stored = await self.read_stored(owner, server)
        if stored is not None:
            return stored
        failed_at = self._failed_at.get(_config_digest(server))
        if failed_at is not None and self._clock.monotonic() - failed_at < _NEXT_START_S:
            return []
        try:
            return await self.refresh(owner, server, workspace)
        except ToolFailed:
            return []  # kept in self._errors, where state_of finds it

    async def call(self, call: ToolCall, server: McpServer, definition: Definition) -> ToolResult:
        try:
            async with self._connect(server, call.workspace) as connection:
                result = await self._call(call, server, definition, connection)
        except ToolFailed as error:
            return failure(f"{error} Nothing was done.")
        if not connection.set_aside:
            return result
        names = ", ".join(connection.set_aside)
        note = f"[renamed, because other programs would run it outside the sandbox: {names}]"
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    async def _call(
        self, call: ToolCall, server: McpServer, definition: Definition, connection: Connection
    ) -> ToolResult:
        if definition not in connection.definitions:
            # Between the approval and now the server began to say something else about itself.
            await self._store(call.owner, server, connection.definitions)
            return failure(
                f"{server.name} has changed its tool {definition.name}; it was not called. Try again."
            )
        try:
            result = await connection.call(definition.name, call.arguments, server.timeout_s)
            # It may have written to the workspace; a step is as durable as what it made.
            await anyio.to_thread.run_sync(self._disk.sync_file_system, call.workspace)
            return result
        except ServerDied as error:
            return ToolResult(str(error), outcome=Outcome.UNKNOWN)
        except ToolFailed as error:
            return failure(str(error))
        except OSError as error:
            reason = error.strerror or error
            return failure(f"{definition.name} was done; a power cut may lose what it wrote: {reason}")

    def start_again(self, server: McpServer) -> None:
        """Let ``definitions`` start it although it has just failed: a user asks for it."""
        self._failed_at.pop(_config_digest(server), None)

    async def refresh(self, owner: str, server: McpServer, workspace: Path) -> list[Definition]:
        """Ask the server itself again, started if need be. Raises ToolFailed."""
        async with self._connect(server, workspace) as connection:
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

    @asynccontextmanager
    async def _connect(self, server: McpServer, workspace: Path) -> AsyncIterator[Connection]:
        """The running server for this workspace, started or restarted if need be. Raises ToolFailed."""
        async with AsyncExitStack() as stack:
            try:
                connection = self._connection(server, workspace)
                await stack.enter_async_context(connection.use())
            except ToolFailed as error:
                self._errors[server.name] = str(error)
                raise
            self._errors.pop(server.name, None)
            self._logged.pop(server.name, None)
            yield connection

    def _report(
        self, server: McpServer, cause: str, last_words: str = "", error: Exception | None = None
    ) -> None:
        """Log a failure, once until the server works again or fails for another cause."""
        if error is not None:
            self._failed_at[_config_digest(server)] = self._clock.monotonic()
        if self._logged.get(server.name) == cause:
            return
        self._logged[server.name] = cause
        _log.warning("%s%s", cause, last_words)
        if error is not None:
            _log.debug("how the MCP server %s failed", server.name, exc_info=error)

    def _connection(self, server: McpServer, workspace: Path) -> Connection:
        key = (server.name, workspace)
        connection = self._connections.get(key)
        if connection is None or connection.is_ended:
            if self._group is None:
                raise RuntimeError("McpServers is used before it was opened")
            for gone in [key for key, found in self._connections.items() if found.is_ended]:
                del self._connections[gone]
            report = partial(self._report, server)
            try:
                view, door = self._view(server, workspace), self._door(server)
            except ToolFailed as error:
                report(str(error))
                raise
            connection = Connection(server, self._sandbox, view, self._clock, door, report)
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

    def _view(self, server: McpServer, workspace: Path) -> SandboxView:
        """What the server sees.

        A project is read-only for a server that stays between calls: what it writes then could not be told
        from what the project's owner writes, and other programs may run it.
        """
        program = program_of(server)
        read, write = own_folders(server, self._sandbox.home)
        is_project = self._sandbox.is_project(workspace)
        try:
            secrets = {name: value for name in server.secrets if (value := self._secret(name)) is not None}
        except SecretUnreadable as error:
            raise ToolFailed(f"{error.message} {error.hint}") from error
        return SandboxView(
            workspace=workspace,
            host_network=server.host_network,
            read=(*program_folders(program), *read),
            write=write,
            real=(*read, *write),
            env={**server.env, **secrets},
            limits=server.limits,
            is_read_only=is_project and not server.write_project,
            is_brief=is_project and server.write_project,
        )

    async def read_stored(self, owner: str, server: McpServer) -> list[Definition] | None:
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
            timeout_s=server.timeout_s + START_TIMEOUT_S,
        )

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult:
        return await self._servers.call(call, self._server, self.definition)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        words = ", ".join(f"{name}={value}" for name, value in arguments.items())
        label = one_line(f"{self.definition.name} {words}")
        if not self.is_trusted:
            # It changed while the turn ran; the next turn asks about what it says now.
            return Judgement(label, denied=f"{self._server.name} has changed its description of this tool.")
        reach = not context.is_sandboxed
        concern = Concern(
            f"it calls the MCP server {self._server.name}",
            key=f"mcp {self.spec.name} {self.definition.digest}",
            sends=self._server.network or self._server.host_network or reach,
            is_outside=bool(self._server.write) or reach,
            covers=f"call {self.spec.name} with any arguments",
        )
        return Judgement(label, concerns=(concern,))


def tool_name(server: str, name: str) -> str:
    """``server__tool``, within what every provider takes: letters, digits, _ and -, at most 64."""
    full = f"{server}__{re.sub(r'[^a-zA-Z0-9_-]', '_', name)}"
    if len(full) <= 64 and full == f"{server}__{name}":
        return full
    return f"{full[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _config_digest(server: McpServer) -> str:
    return hashlib.sha256(msgspec.json.encode(server, order="deterministic")).hexdigest()
