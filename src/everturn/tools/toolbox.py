"""The toolbox: the tools of each profile, the policy over them, the workspace they work in."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType

import anyio
import msgspec

from everturn.domain.asks import Decision
from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.store import Records, Search
from everturn.domain.tool import Instructions, Ruling, Tool, ToolCall, ToolSpec, Untrusted, Verdict
from everturn.tools.files.file_tools import ApplyPatch, EditFile, ListFiles, ReadFile, SearchFiles, WriteFile
from everturn.tools.files.sync import Durable
from everturn.tools.mcp.servers import McpServers, McpTool, Secret, ServerState
from everturn.tools.mcp.trust import McpTrust, texts_of
from everturn.tools.policy.hosts import host_concern, host_key, is_listed
from everturn.tools.policy.judgement import Concern, Judgement, Surroundings, one_line
from everturn.tools.policy.policy import Policy
from everturn.tools.policy.trust import Trust
from everturn.tools.profiles import HostNetworkRefused, Profile, Profiles
from everturn.tools.sandbox.gate import Door, Gate
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.trial import SandboxState
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.session_tools import AskUser, SearchSessions, Todo
from everturn.tools.terminal.runner import GatedRunner, Runner
from everturn.tools.terminal.terminal_tools import NetworkPython, NetworkTerminal, Python, Terminal
from everturn.tools.web.fetch import Fetcher
from everturn.tools.web.fetch_tool import WebFetch

_log = logging.getLogger("everturn.tools")

TOOL_NAMES = frozenset(
    kind.name
    for kind in (
        *(AskUser, SearchSessions, Todo, WebFetch, Python, Terminal),
        *(ApplyPatch, EditFile, ListFiles, ReadFile, SearchFiles, WriteFile),
    )
)


async def _has_none() -> bool:
    return False


class EverturnToolbox:
    """Everything an agent can do. An async context manager: it tries the sandbox and holds the servers.

    ``extra`` are tools of the embedding program; the policy asks before each of them, once. ``has_sign_in``:
    is there a password now, without which ``host_network`` is refused?
    """

    def __init__(
        self,
        home: Path,
        *,
        records: Records,
        search: Search,
        clock: Clock,
        profiles: Profiles,
        sandbox: Sandbox | None = None,
        fetcher: Fetcher | None = None,
        secret: Secret = lambda name: None,
        extra: Sequence[Tool] = (),
        has_sign_in: Callable[[], Awaitable[bool]] = _has_none,
    ) -> None:
        self._home = home.resolve()
        self._profiles = profiles
        self._sandbox = sandbox or Sandbox(home)
        self._fetcher = fetcher or Fetcher()
        self._gate = Gate(self._fetcher.network)
        self._servers = McpServers(self._sandbox, self._gate, records, clock, secret)
        self._has_sign_in = has_sign_in
        self._stack = AsyncExitStack()
        self.policy = Policy(records, clock)
        self.trust = Trust(records, clock)
        self._mcp_trust = McpTrust(self._servers, self.trust)
        runner = Runner(self._sandbox, clock, self._around)
        built_in: tuple[Action, ...] = (
            *(ReadFile(), WriteFile(), EditFile(), ApplyPatch(), AskUser(), Todo()),
            *(ListFiles(self._sandbox, clock), SearchFiles(self._sandbox, clock)),
            *(Terminal(runner), Python(runner)),
            *(WebFetch(self._fetcher), SearchSessions(search)),
        )
        self._built_in = {tool.name: tool for tool in built_in}
        gated_runner = GatedRunner(self._sandbox, clock, self._around, self._door)
        gated: tuple[Action, ...] = (NetworkTerminal(gated_runner), NetworkPython(gated_runner))
        self._gated = {tool.name: tool for tool in gated}
        self._extra = {tool.spec.name: tool for tool in extra}

    async def __aenter__(self) -> EverturnToolbox:
        try:
            await anyio.to_thread.run_sync(self._make_workspaces)
            await self._stack.enter_async_context(self._gate)
            await self._sandbox.open()
            self._stack.callback(self._sandbox.close)
            await self._stack.enter_async_context(self._servers)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # --- the contract ------------------------------------------------------------------------------

    async def tools(self, owner: str, session_id: str, profile: str | None) -> Sequence[Tool]:
        found = self._profiles.get(profile)
        await self._check_sign_in(profile)
        mcp = await self._mcp_tools(owner, found, self._own_workspace(session_id)) if found.mcp else []
        return self._with_built_in(found, mcp)

    async def known_tools(self, owner: str, profile: str | None) -> Sequence[Tool]:
        """The tools of a profile as far as they are known: no MCP server is started to ask it for its own."""
        found = self._profiles.get(profile)
        return self._with_built_in(found, await self._mcp_tools(owner, found, None))

    async def rule(self, call: ToolCall, spec: ToolSpec) -> Ruling:
        try:
            await self._check_sign_in(call.profile)
            judgement = self._judgement(call, await self._find(call))
            is_sandboxed = self._around(call).is_sandboxed
            return await self.policy.rule(call, judgement, is_sandboxed=is_sandboxed)
        except HostNetworkRefused as error:
            return Ruling(Verdict.DENY, f"{error.message} {error.hint}", label=spec.name, options=())
        except Exception as error:
            # The contract never raises: what cannot be judged asks, with the reason in the question, and
            # an answer to it is good for this one call only.
            if not isinstance(error, ToolFailed):
                _log.warning("a call of %s could not be judged", spec.name, exc_info=error)
            reason = f"It could not be judged: {error}"
            return Ruling(Verdict.ASK, reason, label=spec.name, options=(Decision.ONCE, Decision.DENY))

    async def remember(self, call: ToolCall, decision: Decision) -> None:
        if not decision.is_lasting:
            return
        tool = await self._find(call)
        judgement = self._judgement(call, tool)
        await self.policy.remember(call, judgement, decision)

    async def workspace(self, owner: str, session_id: str, project: str | None) -> Path:
        if project is None:
            return self._own_workspace(session_id)
        return await anyio.to_thread.run_sync(self._project_folder, project)

    # --- for the settings page, the doctor and the engine ------------------------------------------

    def sandbox_state(self) -> SandboxState:
        return self._sandbox.state

    @property
    def profiles(self) -> Profiles:
        return self._profiles

    async def instructions(self, owner: str, workspace: Path) -> Instructions:
        """The workspace's AGENTS.md: its text if it is trusted, else what to ask about."""
        return await self.trust.instructions(owner, workspace)

    async def decide_instructions(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        await self.trust.decide_instructions(owner, workspace, digest, use=use)

    async def untrusted(self, owner: str, session_id: str, profile: str | None) -> list[Untrusted]:
        """What the MCP servers of the profile say, as far as the user has not decided on it."""
        await self._check_sign_in(profile)
        workspace = self._own_workspace(session_id)
        found: list[Untrusted] = []
        for name in self._profiles.get(profile).mcp:
            found += await self._mcp_trust.questions(owner, self._profiles.servers[name], workspace)
        return found

    async def decide_untrusted(
        self, owner: str, session_id: str, name: str, digest: str, *, use: bool
    ) -> None:
        server, workspace = self._profiles.servers[name], self._own_workspace(session_id)
        await self._mcp_trust.decide(owner, server, workspace, digest, use=use)

    async def forget(self, owner: str, session_id: str) -> None:
        """Drop what the session was allowed and the workspace of its own, once it is deleted for good.

        A project's folder is the user's and stays. Forgetting twice is harmless.
        """
        await self.policy.forget_session(owner, session_id)
        folder = self._own_workspace(session_id)
        await anyio.to_thread.run_sync(shutil.rmtree, folder)

    async def servers(self, owner: str) -> list[ServerState]:
        """The configured MCP servers, for GET /api/mcp; starts none."""
        return [await self._server_state(owner, name) for name in sorted(self._profiles.servers)]

    async def trust_server(self, owner: str, name: str, session_id: str, digest: str) -> ServerState:
        """Start the server and tell what it says; accept the text with this digest, if one is given.
        Raises NotFound, Invalid, and WrongState if it says something else now."""
        server = self._profiles.servers.get(name)
        if server is None:
            raise NotFound("MCP server", name)
        self._profiles.check_server(server, is_on=await self._has_sign_in())
        workspace = self._own_workspace(session_id)
        if not await self._servers.definitions(owner, server, workspace):
            raise Invalid(self._servers.state_of(server).detail or f"The MCP server {name} has no tools.")
        if digest and not await self._mcp_trust.decide(owner, server, workspace, digest, use=True):
            raise WrongState(f"The MCP server {name} says something else now.", hint="Read it again.")
        return await self._server_state(owner, name)

    # --- inside ------------------------------------------------------------------------------------

    async def _server_state(self, owner: str, name: str) -> ServerState:
        server = self._profiles.servers[name]
        tools = await self._mcp_trust.known(owner, server)
        new = [tool for tool in tools if not tool.is_trusted]
        return msgspec.structs.replace(
            self._servers.state_of(server),
            tools=tuple(tool.spec.name for tool in tools),
            untrusted=tuple(tool.spec.name for tool in new),
            texts=texts_of(server, new),
        )

    def _with_built_in(self, profile: Profile, mcp: list[McpTool]) -> Sequence[Tool]:
        known: dict[str, Tool] = {**self._own(profile), **self._extra}
        names = known if profile.tools is None else profile.tools
        trusted = [tool for tool in mcp if tool.is_trusted]
        return sorted(
            [*(known[name] for name in names if name in known), *trusted], key=lambda tool: tool.spec.name
        )

    async def _mcp_tools(self, owner: str, profile: Profile, workspace: Path | None) -> list[McpTool]:
        """``workspace``: where a server runs that has to be started to be asked; None: none is started."""
        tools: list[McpTool] = []
        for name in profile.mcp:
            server = self._profiles.servers[name]
            if workspace is None:
                tools += await self._mcp_trust.known(owner, server)
            else:
                tools += await self._mcp_trust.tools(owner, server, workspace)
        return tools

    async def _find(self, call: ToolCall) -> Tool | None:
        profile = self._profiles.get(call.profile)
        known = self._own(profile).get(call.name) or self._extra.get(call.name)
        if known is not None or "__" not in call.name:
            return known
        found = await self._mcp_tools(call.owner, profile, call.workspace)
        return next((tool for tool in found if tool.spec.name == call.name), None)

    def _own(self, profile: Profile) -> Mapping[str, Action]:
        """The built-in tools as this profile has them."""
        is_sandboxed = self._sandbox.state.works and profile.sandbox
        is_gated = is_sandboxed and profile.network and not profile.host_network
        return {**self._built_in, **self._gated} if is_gated else self._built_in

    async def _check_sign_in(self, profile: str | None) -> None:
        """Raises HostNetworkRefused."""
        self._profiles.check_sign_in(profile, is_on=await self._has_sign_in())

    @asynccontextmanager
    async def _door(self, call: ToolCall) -> AsyncIterator[Door]:
        """The way to the network for a call that may run: a host about which it asked is allowed by now."""
        around = self._around(call)
        judgement = self._judgement(call, self._gated[call.name])
        asked = {concern.key for concern in judgement.concerns}

        async def may(host: str) -> bool:
            if host_key(host) in asked or is_listed(host, around.hosts):
                return True
            return await self.policy.allows(call, host_concern(host), is_sandboxed=around.is_sandboxed)

        async with self._gate.door(may) as door:
            yield door
        await self.policy.keep_refused(call, [host_key(host) for host in door.refused], judgement.label)

    def _judgement(self, call: ToolCall, tool: Tool | None) -> Judgement:
        around = self._around(call)
        if isinstance(tool, Action):
            try:
                arguments = tool.check(call.arguments)
            except msgspec.ValidationError:
                return Judgement(label=call.name)  # it will say what is wrong, and do nothing
            return tool.judge(call, arguments, around)
        if isinstance(tool, McpTool):
            return tool.judge(call, call.arguments, around)
        concern = Concern(
            f"it is a tool of another program ({call.name})",
            f"tool {call.name}",
            sends=True,
            is_outside=True,
            covers=f"call {call.name} with any arguments",
        )
        words = " ".join(str(value) for value in call.arguments.values())
        return Judgement(label=one_line(f"{call.name} {words}"), concerns=(concern,))

    def _around(self, call: ToolCall) -> Surroundings:
        profile = self._profiles.get(call.profile)
        return Surroundings(
            workspace=call.workspace,
            home=self._home,
            is_sandboxed=self._sandbox.state.works and profile.sandbox,
            has_network=profile.network or profile.host_network,
            has_host_network=profile.host_network,
            hosts=profile.hosts,
            is_tainted=call.is_tainted,
            limits=profile.limits,
        )

    def _project_folder(self, project: str) -> Path:
        folder = Path(project).expanduser()
        if not folder.is_absolute() or not folder.is_dir():
            raise Invalid(f"The project's folder {project!r} is not there.", hint="Name an existing folder.")
        folder = folder.resolve()
        if self._home.is_relative_to(folder) or folder.is_relative_to(self._home):
            raise Invalid(
                f"The project's folder {project!r} and Everturn's data folder lie in each other.",
                hint="Name a folder that does not hold the data folder.",
            )
        self._sandbox.try_folder(folder)
        return folder

    def _make_workspaces(self) -> None:
        """Make the folder of all workspaces; each of those is synced with what is made in it."""
        (self._home / "workspaces").mkdir(mode=0o700, parents=True, exist_ok=True)
        home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            Durable().sync(home)
        finally:
            os.close(home)

    def _own_workspace(self, session_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", session_id):
            raise Invalid(f"{session_id[:80]!r} is not a session id.")
        folder = self._home / "workspaces" / session_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
