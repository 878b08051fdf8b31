"""The sessions with MCP servers, opened on demand and reopened after they end.

A server's failures become results, never exceptions. The model sees a server's tools and descriptions only
after the user has trusted exactly that text. A server's claim that a tool is harmless is never believed.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import anyio
import httpx2
import msgspec
from anyio.abc import TaskGroup

from everturn.domain.asks import AskTopic, SignInAnswer
from everturn.domain.clock import Clock
from everturn.domain.errors import SecretUnreadable
from everturn.domain.messages import Outcome
from everturn.domain.model import ToolSchema
from everturn.domain.store import Records
from everturn.domain.tool import (
    Emit,
    ToolCall,
    ToolDoubt,
    ToolQuestion,
    ToolResult,
    ToolSpec,
    Untrusted,
)
from everturn.tools.disk_sync import DiskSync
from everturn.tools.mcp.catalog import Catalog, Definition, PromptInfo
from everturn.tools.mcp.connection import START_TIMEOUT_S, Connection, ServerDied, ServerSignInNeeded
from everturn.tools.mcp.folders import own_folders
from everturn.tools.mcp.held_calls import RunningCall, RunningCalls
from everturn.tools.mcp.http import HttpLink, make_client
from everturn.tools.mcp.sign_in import BEARER, KeyAuth, SignIns, StoredAuth
from everturn.tools.mcp.stdio import StdioLink, program_of
from everturn.tools.mcp.wire import Link, McpClient
from everturn.tools.policy.hosts import is_listed
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.profiles import McpServer
from everturn.tools.sandbox.gate import Door, Gate
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.view import SandboxView, program_folders
from everturn.tools.schema import ToolFailed, failure

T = TypeVar("T")
_log = logging.getLogger("everturn.tools")

DEFINITIONS = "mcp.tools"
ASK_TIMEOUT_S = 30.0
_NEXT_START_S = (
    30.0  # a turn asks for the tools several times, and a failing server can take this long each time
)
_LOG_CHARS_MAX = 4000

Secret = Callable[[str], str | None]


class ToolState(msgspec.Struct, frozen=True):
    """A tool of a server. ``mode``: allow | ask | off. ``is_new``: off until the user decides."""

    name: str  # the server's name for it
    description: str
    digest: str  # over its whole description
    mode: str
    is_new: bool


class ServerState(msgspec.Struct, frozen=True):
    """For GET /api/mcp. ``state``: stopped | running | failed | sign_in | off."""

    name: str
    state: str
    detail: str = ""
    tools: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()  # tools whose description the user has not accepted
    texts: tuple[Untrusted, ...] = ()  # those descriptions in full, for POST /api/mcp/{server}/trust
    modes: tuple[ToolState, ...] = ()
    prompts: tuple[PromptInfo, ...] = ()
    has_resources: bool = False
    log: str = ""  # the server's last output before it failed
    signed_in: bool = False
    signed_in_until: int | None = None


class McpServers:
    """The open sessions. An async context manager.

    A program gets one per workspace. A server at an address gets one per session of ours, so that a question
    from the server belongs to one call.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        gate: Gate,
        records: Records,
        clock: Clock,
        secret: Secret,
        sign_ins: SignIns,
    ) -> None:
        self._sandbox = sandbox
        self._gate = gate
        self._records = records
        self._clock = clock
        self._secret = secret
        self.sign_ins = sign_ins
        self._running = RunningCalls()
        self._disk = DiskSync()
        self._connections: dict[tuple[str, Path], Connection] = {}
        self._errors: dict[str, ToolFailed] = {}
        self._logs: dict[str, str] = {}  # by server: its output at the last failure
        self._logged: dict[str, str] = {}  # by server: the cause of the last failure, until it works again
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
            self._running.release_all()
            # The body's error is the caller's and must not be wrapped in a group.
            await self._group.__aexit__(None, None, None)

    async def definitions(self, owner: str, server: McpServer, workspace: Path) -> tuple[Definition, ...]:
        """Return the server's tools from the store, or start the server if its configuration changed.

        A server that does not start has none; ``state_of`` says why. One that just failed is not restarted at
        once, see ``start_again``.
        """
        stored = await self.read_stored(owner, server)
        if stored is not None:
            return stored.tools
        failed_at = self._failed_at.get(_config_digest(server))
        if failed_at is not None and self._clock.monotonic() - failed_at < _NEXT_START_S:
            return ()
        try:
            return (await self.refresh(owner, server, workspace)).tools
        except ToolFailed:
            return ()  # state_of reports it from self._errors

    # --- calls ---------------------------------------------------------------------------------------

    async def call(
        self, call: ToolCall, server: McpServer, definition: Definition, emit: Emit
    ) -> ToolResult | ToolQuestion | ToolDoubt:
        answer = call.answer
        if answer is not None and answer.topic is AskTopic.QUESTION:
            return await self._running.go_on(call.key, call.name, answer, emit)
        if answer is not None and answer.text != SignInAnswer.DONE:
            return failure(f"The user did not sign in to {server.name}. The tool was not called.")
        if self._group is None:
            raise RuntimeError("McpServers is used before it was opened")
        work = partial(self._work, call, server, definition)
        return await self._running.start(self._group, call.key, work, emit)

    def release(self, turn_id: str) -> None:
        """End the calls that wait for the user in a turn that has ended."""
        self._running.release(turn_id)

    async def _work(
        self, call: ToolCall, server: McpServer, definition: Definition, running: RunningCall
    ) -> ToolResult | ToolQuestion:
        try:
            async with self._connect(call.owner, server, call.workspace, call.session_id) as connection:
                result = await self._call(call, server, definition, connection, running)
        except ServerSignInNeeded as error:
            return ask_sign_in(server, error)
        except ToolFailed as error:
            return failure(f"{error} Nothing was done.")
        if not connection.set_aside or isinstance(result, ToolQuestion):
            return result
        names = ", ".join(connection.set_aside)
        note = f"[renamed, because other programs would run it outside the sandbox: {names}]"
        return msgspec.structs.replace(result, text=f"{result.text}\n{note}")

    async def _call(
        self,
        call: ToolCall,
        server: McpServer,
        definition: Definition,
        connection: Connection,
        running: RunningCall,
    ) -> ToolResult | ToolQuestion:
        if definition not in connection.definitions:
            await connection.read_again()  # another session may have learned of the change first
        if definition not in connection.definitions:
            # The server changed its description after the approval.
            await self._store(call.owner, server, connection.catalog)
            return failure(
                f"{server.name} has changed its tool {definition.name}; it was not called. Try again."
            )
        try:
            result = await connection.call(
                definition.name, call.arguments, server.timeout_s, running.show_progress, running.ask
            )
            if not server.is_remote:
                # It may have written to the workspace, and a step must not be more durable than its files.
                await anyio.to_thread.run_sync(self._disk.sync_file_system, call.workspace)
            return result
        except ServerSignInNeeded as error:
            return ask_sign_in(server, error)
        except ServerDied as error:
            return ToolResult(str(error), outcome=Outcome.UNKNOWN)
        except ToolFailed as error:
            return failure(str(error))
        except OSError as error:
            reason = error.strerror or error
            return failure(f"{definition.name} was done; a power cut may lose what it wrote: {reason}")

    async def ask_server(
        self, call: ToolCall, server: McpServer, send: Callable[[McpClient], Awaitable[T]], what: str
    ) -> T:
        """Send a request that changes nothing. Raises ToolFailed, ServerSignInNeeded."""
        async with self._connect(call.owner, server, call.workspace, call.session_id) as connection:
            return await connection.ask_server(send, what, server.timeout_s)

    async def get_prompt(
        self, owner: str, server: McpServer, workspace: Path, send: Callable[[McpClient], Awaitable[T]]
    ) -> T:
        """Send a request for a prompt, for the settings and the composer."""
        async with self._connect(owner, server, workspace, "") as connection:
            return await connection.ask_server(send, "prompts/get", ASK_TIMEOUT_S)

    # --- starting ------------------------------------------------------------------------------------

    def start_again(self, server: McpServer) -> None:
        """Let ``definitions`` restart a server that just failed, because a user asked for it."""
        self._failed_at.pop(_config_digest(server), None)

    async def refresh(self, owner: str, server: McpServer, workspace: Path) -> Catalog:
        """Ask the server again, and start it if needed. Raises ToolFailed."""
        async with self._connect(owner, server, workspace, "") as connection:
            await self._store(owner, server, connection.catalog)
            return connection.catalog

    def forget(self, name: str) -> None:
        """End the sessions with a server after it was changed or removed, or after a sign-in."""
        for (known, _), connection in self._connections.items():
            if known == name:
                connection.stop()
        self._errors.pop(name, None)
        self._logs.pop(name, None)
        self._logged.pop(name, None)

    def state_of(self, server: McpServer) -> ServerState:
        log = self._logs.get(server.name, "")
        error = self._errors.get(server.name)
        if not server.enabled:
            return ServerState(server.name, "off", log=log)
        if isinstance(error, ServerSignInNeeded):
            return ServerState(server.name, "sign_in", str(error), log=log)
        if any(name == server.name and found.is_open for (name, _), found in self._connections.items()):
            return ServerState(server.name, "running", log=log)
        if error is not None:
            return ServerState(server.name, "failed", str(error), log=log)
        return ServerState(server.name, "stopped", log=log)

    @asynccontextmanager
    async def _connect(
        self, owner: str, server: McpServer, workspace: Path, session_id: str
    ) -> AsyncIterator[Connection]:
        """Return the session with the server for this workspace, and open it if needed. Raises ToolFailed."""
        async with AsyncExitStack() as stack:
            try:
                connection = self._connection(owner, server, workspace, session_id)
                await stack.enter_async_context(connection.use())
            except ToolFailed as error:
                self._errors[server.name] = error
                raise
            self._errors.pop(server.name, None)
            self._logged.pop(server.name, None)
            try:
                yield connection
            except ServerSignInNeeded as error:
                self._errors[server.name] = error
                raise

    def _report(
        self, server: McpServer, cause: str, last_words: str = "", error: Exception | None = None
    ) -> None:
        """Log a failure once, until the server works again or fails for another reason."""
        if error is not None:
            self._failed_at[_config_digest(server)] = self._clock.monotonic()
        self._logs[server.name] = f"{cause}{last_words}"[-_LOG_CHARS_MAX:]
        if self._logged.get(server.name) == cause:
            return
        self._logged[server.name] = cause
        _log.warning("%s%s", cause, last_words)
        if error is not None:
            _log.debug("how the MCP server %s failed", server.name, exc_info=error)

    def _connection(self, owner: str, server: McpServer, workspace: Path, session_id: str) -> Connection:
        key = (server.name, Path(session_id) if server.is_remote else workspace)
        connection = self._connections.get(key)
        if connection is not None and _config_digest(connection.server) != _config_digest(server):
            # Changed on another worker or by the command line: an earlier permission may no longer hold.
            connection.stop()
            connection = None
        if connection is None or connection.is_ended:
            if self._group is None:
                raise RuntimeError("McpServers is used before it was opened")
            for gone in [key for key, found in self._connections.items() if found.is_ended]:
                del self._connections[gone]
            report = partial(self._report, server)
            try:
                link = self._link(server, workspace)
            except ToolFailed as error:
                report(str(error))
                raise
            changed = partial(self._store, owner, server)
            connection = Connection(server, link, self._clock, report, changed)
            self._connections[key] = connection
            self._group.start_soon(connection.serve, name=f"mcp {server.name}")
        return connection

    def _link(self, server: McpServer, workspace: Path) -> Link:
        """Raises ToolFailed."""
        if server.is_remote:
            return HttpLink(server, partial(self._http_client, server, self._auth(server)))
        return StdioLink(server, self._sandbox, self._view(server, workspace), self._door(server))

    def _http_client(self, server: McpServer, auth: httpx2.Auth) -> httpx2.AsyncClient:
        return make_client(self.sign_ins.network_of(server), auth)

    def _auth(self, server: McpServer) -> httpx2.Auth:
        if given := self._keys_of(server).get(BEARER):
            return KeyAuth(given)
        if not server.bearer:
            return StoredAuth(server, self.sign_ins)
        key = self._read_secret(server.bearer)
        if key is None:
            raise ToolFailed(
                f"The MCP server {server.name} needs the key {server.bearer}, which is not stored. Store it "
                f"with 'everturn keys set {server.bearer}'."
            )
        return KeyAuth(key)

    def _keys_of(self, server: McpServer) -> dict[str, str]:
        try:
            return self.sign_ins.keys_of(server)
        except SecretUnreadable as error:
            raise ToolFailed(f"{error.message} {error.hint}") from error

    def _read_secret(self, name: str) -> str | None:
        try:
            return self._secret(name)
        except SecretUnreadable as error:
            raise ToolFailed(f"{error.message} {error.hint}") from error

    @asynccontextmanager
    async def _door(self, server: McpServer) -> AsyncIterator[Door | None]:
        """Yield a running server's door to the network; None if it has no network or uses the machine's."""
        if not server.network or server.host_network:
            yield None
            return

        async def may(host: str) -> bool:
            return server.hosts is None or is_listed(host, server.hosts)

        async with self._gate.door(may) as door:
            yield door

    def _view(self, server: McpServer, workspace: Path) -> SandboxView:
        """Return what the server may see.

        A project is read-only for a server that stays between calls. What it wrote then could not be told
        apart from the owner's own changes, and other programs might run it.
        """
        program = program_of(server)
        read, write = own_folders(server, self._sandbox.home)
        is_project = self._sandbox.is_project(workspace)
        secrets = {name: value for name in server.secrets if (value := self._read_secret(name)) is not None}
        return SandboxView(
            workspace=workspace,
            host_network=server.host_network,
            read=(*program_folders(program), *read),
            write=write,
            real=(*read, *write),
            env={**server.env, **secrets, **self._keys_of(server)},
            limits=server.limits,
            is_read_only=is_project and not server.write_project,
            is_brief=is_project and server.write_project,
        )

    async def read_stored(self, owner: str, server: McpServer) -> Catalog | None:
        found = await self._records.get(owner, DEFINITIONS, server.name)
        if found is None or found["config"] != _config_digest(server):
            return None
        return msgspec.convert(found, Catalog)

    async def _store(self, owner: str, server: McpServer, catalog: Catalog) -> None:
        value = {"config": _config_digest(server), **msgspec.to_builtins(catalog)}
        await self._records.put(owner, DEFINITIONS, server.name, value)


class McpTool:
    """One tool of a server, under a unique name."""

    def __init__(self, servers: McpServers, server: McpServer, definition: Definition) -> None:
        self._servers = servers
        self.server = server
        self.definition = definition
        self.is_trusted = False
        name = tool_name(server.name, definition.name)
        self.spec = ToolSpec(
            schema=ToolSchema(name, definition.description, definition.parameters),
            timeout_s=server.timeout_s + START_TIMEOUT_S,
            goes_on=True,
        )

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult | ToolQuestion | ToolDoubt:
        return await self._servers.call(call, self.server, self.definition, emit)

    @property
    def concern(self) -> Concern:
        """Return what the user is asked about."""
        return Concern(
            f"it calls the MCP server {self.server.name}",
            key=f"mcp {self.spec.name} {self.definition.digest}",
            sends=self.server.is_remote or self.server.network or self.server.host_network,
            is_outside=bool(self.server.write),
            covers=f"call {self.spec.name} with any arguments",
        )

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        words = ", ".join(f"{name}={value}" for name, value in arguments.items())
        label = one_line(f"{self.definition.name} {words}")
        if not self.is_trusted:
            # It changed while the turn ran; the next turn asks about the new text.
            return Judgement(label, denied=f"{self.server.name} has changed its description of this tool.")
        is_open = self.server.write_project and not context.is_guarded
        reach, concern = is_open or not context.is_sandboxed, self.concern
        concern = msgspec.structs.replace(
            concern, sends=concern.sends or reach, is_outside=concern.is_outside or reach
        )
        return Judgement(label, concerns=(concern,))


def ask_sign_in(server: McpServer, error: ServerSignInNeeded) -> ToolQuestion:
    """Ask for the sign-in. Nothing was done yet; the call runs after the user signed in."""
    text = f"{error} Sign in, and this answer goes on."
    return ToolQuestion(text, tuple(SignInAnswer), AskTopic.SIGN_IN, server.name)


def tool_name(server: str, name: str) -> str:
    """Return ``server__tool`` as every provider accepts it: letters, digits, _ and -, at most 64."""
    full = f"{server}__{re.sub(r'[^a-zA-Z0-9_-]', '_', name)}"
    if len(full) <= 64 and full == f"{server}__{name}":
        return full
    return f"{full[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _config_digest(server: McpServer) -> str:
    """Return a digest over the settings that define the server, without the profiles that use it."""
    what = msgspec.structs.replace(server, enabled=True, profiles=())
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()
