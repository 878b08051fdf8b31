"""The toolbox: the tools of each profile, the policy over them, the workspace they work in."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType

import anyio
import msgspec

from everturn.domain.asks import Decision
from everturn.domain.blobs import Blobs
from everturn.domain.clock import Clock
from everturn.domain.machine import Machine
from everturn.domain.secrets import Secrets
from everturn.domain.skills import SkillFolders
from everturn.domain.store import Files, Records, Search
from everturn.domain.store_values import File
from everturn.domain.tool import Instructions, Ruling, Tool, ToolCall, ToolSpec, Untrusted, Verdict
from everturn.tools.delegate_tools import Delegates, OwnRights, delegate_tools
from everturn.tools.document_tools import DocumentShelf, document_tools
from everturn.tools.documents.converter import Converter
from everturn.tools.documents.documents import Documents, show
from everturn.tools.folders import Folders
from everturn.tools.function_tool import FunctionTool, judge_unknown
from everturn.tools.knowledge.book import KnowledgeBook
from everturn.tools.knowledge.library import KnowledgeLibrary
from everturn.tools.mcp.profile_servers import ProfileServers, ServerTool
from everturn.tools.mcp.resources import ResourceTool
from everturn.tools.mcp.server_book import ServerBook
from everturn.tools.mcp.servers import McpServers, McpTool, Secret, ServerState
from everturn.tools.mcp.sign_in import SignIns
from everturn.tools.mcp.tool_search import CALL, FIND, TOOLS_MAX, CallFoundTool, FindTools, as_called
from everturn.tools.names import BUILT_IN_NAMES
from everturn.tools.own.own_tool import OwnTool
from everturn.tools.own.own_tools import FOLDER, OwnTools
from everturn.tools.policy.hosts import host_concern, host_key, is_listed
from everturn.tools.policy.judgement import CallContext, Judgement
from everturn.tools.policy.policy import Policy
from everturn.tools.policy.trust import Trust
from everturn.tools.profile_book import ProfileBook
from everturn.tools.profiles import DEFAULT, HostNetworkRefused, Profile, Profiles, find_excess
from everturn.tools.sandbox.gate import Door, Gate
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.sandbox.trial import SandboxState
from everturn.tools.schema import Action, ToolFailed
from everturn.tools.terminal.background import Jobs
from everturn.tools.terminal.environments import Environments
from everturn.tools.terminal.interpreter import Interpreters
from everturn.tools.terminal.package_settings import PackageSettings
from everturn.tools.terminal.runner import Surroundings
from everturn.tools.tool_set import ToolSet, gated_tools, plain_tools
from everturn.tools.web.fetch import Fetcher
from everturn.tools.web.search_providers import SearchProviders
from everturn.tools.web.search_tool import WebSearch
from everturn.tools.web.settings import SearchSettings
from everturn.tools.workspaces import Workspaces

_log = logging.getLogger("everturn.tools")
_STOP_S_MAX = 10.0  # what still runs then is stopped when its machine finds that its session is gone


async def _has_no_sign_in() -> bool:
    return False


class ToolServices(msgspec.Struct, frozen=True):
    """What the toolbox needs of the program around it.

    ``secret`` finds a key by its name, for MCP servers. ``has_sign_in``: is there a password now, without
    which ``host_network`` is refused? ``roots``: the folders in which projects may lie; none: anywhere.
    ``jobs``: runs commands in the background; None: none can. ``delegates``: the same for tasks.
    ``web_search``: the search services; by default none. ``secrets``: keeps sign-ins at MCP servers.
    ``files``: the attached ones; None: documents are not read. ``blobs``: what knowledge keeps; None: there
    is none. ``skill_folders``: what commands may read of skills.
    """

    records: Records
    search: Search
    clock: Clock
    secret: Secret = lambda name: None
    has_sign_in: Callable[[], Awaitable[bool]] = _has_no_sign_in
    roots: tuple[Path, ...] = ()
    jobs: Jobs | None = None
    delegates: Delegates | None = None
    web_search: SearchSettings = SearchSettings(provider="off")
    packages: PackageSettings = PackageSettings()
    secrets: Secrets | None = None
    files: Files | None = None
    skill_folders: SkillFolders | None = None
    blobs: Blobs | None = None
    machine: Machine = Machine("", "")


class EverturnToolbox:
    """Everything an agent can do. An async context manager: it tries the sandbox and holds the servers.

    ``extra`` are tools of the embedding program; the policy asks before each of them, once.
    """

    def __init__(
        self,
        home: Path,
        services: ToolServices,
        profiles: Profiles,
        *,
        sandbox: Sandbox | None = None,
        fetcher: Fetcher | None = None,
        extra: Sequence[Tool] = (),
    ) -> None:
        records, clock = services.records, services.clock
        fetcher = fetcher or Fetcher()
        self._workspaces = Workspaces(home, services.roots)
        self.folders = Folders(self._workspaces)
        self.profile_book = ProfileBook(profiles, records)
        self._sandbox = sandbox or Sandbox(home)
        self._gate = Gate(fetcher.network)
        self._has_sign_in = services.has_sign_in
        self._jobs = services.jobs
        self.clock = clock
        self._stack = AsyncExitStack()
        self.policy = Policy(records, clock)
        self.trust = Trust(records, clock)
        converter = Converter(self._sandbox, clock)
        self._documents = None if services.files is None else Documents(converter, services.files, records)
        self.knowledge = self._library(services, converter)
        sign_ins = SignIns(services.secrets, fetcher.network, clock)
        servers = McpServers(self._sandbox, self._gate, records, clock, services.secret, sign_ins)
        book = ServerBook(profiles.servers, records)
        self.mcp = ProfileServers(servers, book, self.trust, self.policy, self.profile_book, self._workspaces)
        self._interpreters = Interpreters()
        taken = BUILT_IN_NAMES | {FIND, CALL} | {tool.spec.name for tool in extra}
        self.own = OwnTools(home / FOLDER, taken)
        self.environments = Environments(home, self._sandbox, self._gate, clock, services.packages)
        around = Surroundings(self._context_of, services.skill_folders, self._interpreters, self.environments)
        self._tools = ToolSet(
            (
                *plain_tools(self._sandbox, fetcher, services.search, clock, around, services.jobs),
                *self._delegate_tools(services.delegates),
                *self._document_tools(converter),
                WebSearch(SearchProviders(services.web_search, fetcher, services.secret, self._gate.tunnel)),
            ),
            gated_tools(self._sandbox, clock, around, self._door, services.jobs),
            extra,
            self.own,
        )

    async def __aenter__(self) -> EverturnToolbox:
        try:
            await anyio.to_thread.run_sync(self._workspaces.make)
            await self._stack.enter_async_context(self._gate)
            await self._sandbox.open()
            self._stack.callback(self._sandbox.close)
            await self._stack.enter_async_context(self.mcp.servers)
            self._stack.push_async_callback(self._interpreters.end_all)
            await self.own.look()
            profiles = (await self.profile_book.refresh()).profiles.values()
            await self.environments.collect([one.packages for one in profiles if one.packages])
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # --- the contract ------------------------------------------------------------------------------

    async def tools(
        self, owner: str, session_id: str, profile: str | None, only: Collection[str] | None = None
    ) -> Sequence[Tool]:
        found = await self.profile_book.get(profile)
        await self._check_sign_in(profile)
        await self.own.look()
        own, trusted = self._split(found, await self.mcp.tools(owner, found, session_id))
        if only is not None:
            # Before those of servers are packed into one that calls them: it calls no others (E09).
            own, trusted = _only(own, only), _only(trusted, only)  # guard: e09
        return _list_tools(own, trusted)

    async def tool_names(self) -> frozenset[str]:
        """The names that a profile can list: of every tool but those of MCP servers."""
        await self.own.look()
        return self._tools.names | BUILT_IN_NAMES

    async def known_tools(self, owner: str, profile: str | None) -> Sequence[Tool]:
        """The tools of a profile as far as they are known: no MCP server is started to ask it for its own."""
        await self.own.look()
        return _list_tools(*await self._known_tools(owner, profile))

    async def rule(self, call: ToolCall, spec: ToolSpec) -> Ruling:
        # The policy first: a hook can refuse what it allows or asks about, and allow nothing.
        return await self.own.hooks.rule(as_called(call), await self._rule(call, spec))

    async def _rule(self, call: ToolCall, spec: ToolSpec) -> Ruling:
        try:
            await self._check_sign_in(call.profile)
            judgement = await self._judgement(call, await self._find(call))
            context = self._context_of(call)
            ruling = await self.policy.rule(call, judgement, is_sandboxed=context.is_sandboxed)
            return msgspec.structs.replace(ruling, terms=(*context.terms, *judgement.terms))
        except HostNetworkRefused as error:
            return Ruling(Verdict.DENY, f"{error.message} {error.hint}", label=spec.name, options=())
        except Exception as error:
            # The contract never raises: what cannot be judged asks, with the reason in the question, and
            # an answer to it is good for this one call only.
            if not isinstance(error, ToolFailed):
                _log.warning("a call of %s could not be judged", spec.name, exc_info=error)
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            reason = f"Everturn could not check what it would do ({why.rstrip('.')})."
            options = (Decision.ONCE, Decision.DENY)
            return Ruling(Verdict.ASK, reason, label=spec.name, options=options, terms=("unchecked",))

    async def remember(self, call: ToolCall, decision: Decision) -> None:
        if not decision.is_lasting:
            return
        tool = await self._find(call)
        judgement = await self._judgement(call, tool)
        await self.policy.remember(call, judgement, decision)

    async def check_project(self, folder: str) -> str:
        return str(await anyio.to_thread.run_sync(self._workspaces.real_project, folder))

    async def workspace(self, owner: str, session_id: str, project: str | None) -> Path:
        if project is None:
            return self._workspaces.of_session(session_id)
        folder = await anyio.to_thread.run_sync(self._workspaces.of_project, project)
        await anyio.to_thread.run_sync(self._sandbox.try_folder, folder)
        return folder

    # --- for the settings page, the doctor and the engine ------------------------------------------

    def sandbox_state(self) -> SandboxState:
        return self._sandbox.state

    @property
    def profiles(self) -> Profiles:
        """As the last reading found them; ``profile_book`` reads again."""
        return self.profile_book.in_force

    async def instructions(self, owner: str, workspace: Path) -> Instructions:
        """The workspace's AGENTS.md: its text if it is trusted, else what to ask about."""
        return await self.trust.instructions(owner, workspace)

    async def decide_instructions(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        await self.trust.decide_instructions(owner, workspace, digest, use=use)

    async def list_untrusted(self, owner: str, session_id: str, profile: str | None) -> list[Untrusted]:
        """What the MCP servers of the profile say, as far as the user has not decided on it."""
        await self._check_sign_in(profile)
        return await self.mcp.list_untrusted(owner, session_id, self.profiles.get(profile))

    async def decide_untrusted(
        self, owner: str, session_id: str, name: str, digest: str, *, use: bool
    ) -> None:
        await self.mcp.decide(owner, session_id, name, digest, use=use)

    async def stop_jobs(self, owner: str, session_id: str) -> None:
        if self._jobs is not None:
            await self._jobs.stop_all(owner, session_id, seconds=_STOP_S_MAX)

    async def forget(self, owner: str, session_id: str) -> None:
        """Drop what the session was allowed and the workspace of its own, once it is deleted for good.

        A project's folder is the user's and stays. Forgetting twice is harmless.
        """
        await self.policy.forget_session(owner, session_id)
        if self._documents is not None:
            await self._documents.forget(owner, session_id)
        await anyio.to_thread.run_sync(self._workspaces.delete, session_id)

    async def release(self, turn_id: str) -> None:
        """End what the calls of a turn that has ended left waiting for the user."""
        self.mcp.servers.release(turn_id)

    async def leave(self, turn_id: str) -> None:
        await self._interpreters.end(turn_id)

    async def show_document(
        self, owner: str, session_id: str, file: File, chars_max: int, *, can_search: bool
    ) -> str:
        if self._documents is None:
            return f"[{file.name} is not read here.]"
        found = await self._documents.read(owner, session_id, file)
        return show(found, file, chars_max, can_search=can_search)

    async def servers(self, owner: str) -> list[ServerState]:
        """The MCP servers, for GET /api/mcp; starts none."""
        return await self.mcp.states(owner)

    async def searches_tools(self, owner: str) -> bool:
        """Are the tools of servers found by words in the default profile?"""
        return any(tool.spec.name == FIND for tool in await self.known_tools(owner, None))

    async def trust_server(self, owner: str, name: str, digest: str) -> ServerState:
        """Start the server and return what it says; accept the text with this digest, if one is given.
        Raises NotFound, Invalid, and WrongState if it says something else now."""
        await self.check_server(name)
        return await self.mcp.trust_text(owner, name, digest)

    async def check_server(self, name: str) -> None:
        """Raises NotFound, HostNetworkRefused."""
        self.profiles.check_server(await self.mcp.book.get(name), is_on=await self._has_sign_in())

    # --- inside ------------------------------------------------------------------------------------

    def _library(self, services: ToolServices, converter: Converter) -> KnowledgeLibrary | None:
        if services.blobs is None:
            return None
        book = KnowledgeBook(services.records, services.blobs, services.machine)
        services.blobs.add_roots(book.hashes)
        return KnowledgeLibrary(book, services.blobs, converter, services.clock, self._workspaces)

    def _document_tools(self, converter: Converter) -> tuple[Action, ...]:
        if self._documents is None:
            return ()
        return document_tools(DocumentShelf(self._documents, converter, self.knowledge))

    def _delegate_tools(self, delegates: Delegates | None) -> tuple[Action, ...]:
        if delegates is None:
            return ()
        return delegate_tools(delegates, self._rights_of, self._find_excess, self._model_of)

    def _model_of(self, profile: str | None) -> str | None:
        """The one that the profile names. Whether there is such a profile is not said here."""
        known = {**self.profiles.trials, **self.profiles.profiles}
        found = known.get(profile or DEFAULT)
        return None if found is None else found.model

    async def _rights_of(self, call: ToolCall) -> OwnRights:
        own, trusted = await self._known_tools(call.owner, call.profile)
        found = frozenset(tool.spec.name for tool in trusted)
        all_listed = _list_tools(own, trusted)
        listed = frozenset(tool.spec.name for tool in all_listed)
        reading = frozenset(tool.spec.name for tool in all_listed if tool.spec.reads_only)
        return OwnRights(listed, frozenset() if found <= listed else found, reading)

    async def _find_excess(self, call: ToolCall, wanted: str) -> str:
        """What a session with this profile could do that the caller's cannot, in a few words."""
        profiles = await self.profile_book.refresh()
        other, own = profiles.get(wanted), profiles.get(call.profile)
        if excess := find_excess(other, own):
            return excess
        known = {server.name for server in await self.mcp.of_profile(own)}
        servers = sorted({server.name for server in await self.mcp.of_profile(other)} - known)
        if servers:
            return f"it has the MCP server {servers[0]}"
        if self.knowledge is None:
            return ""
        read = {one.id for one in await self.knowledge.used_by(call.owner, call.session_id, own.name)}
        more = [one for one in await self.knowledge.used_by(call.owner, "", other.name) if one.id not in read]
        return f"it searches {more[0].name}" if more else ""

    async def _known_tools(self, owner: str, profile: str | None) -> tuple[Sequence[Tool], Sequence[Tool]]:
        found = await self.profile_book.get(profile)
        return self._split(found, await self.mcp.known_tools(owner, found))

    def _split(self, profile: Profile, mcp: Sequence[ServerTool]) -> tuple[Sequence[Tool], Sequence[Tool]]:
        """The profile's own tools, and those of its MCP servers that are trusted."""
        own = self._tools.of_profile(profile, is_gated=self._is_gated(profile))
        return own, [tool for tool in mcp if isinstance(tool, ResourceTool) or tool.is_trusted]

    async def _find(self, call: ToolCall) -> Tool | None:
        profile = self.profiles.get(call.profile)
        known = self._tools.find(call.name, is_gated=self._is_gated(profile))
        if known is not None or ("__" not in call.name and call.name not in (FIND, CALL)):
            return known
        found = await self.mcp.tools_in(call.owner, profile, call.workspace)
        if call.name == FIND:
            return FindTools(found)
        if call.name == CALL:
            return CallFoundTool(found)
        return next((tool for tool in found if tool.spec.name == call.name), None)

    def _is_gated(self, profile: Profile) -> bool:
        """Does the sandbox of this profile reach the network through the gate?"""
        is_sandboxed = self._sandbox.state.works and self._sandbox.has_gate and profile.sandbox
        return is_sandboxed and profile.network and not profile.host_network

    async def _check_sign_in(self, profile: str | None) -> None:
        """Raises HostNetworkRefused."""
        is_on = await self._has_sign_in()
        profiles = await self.profile_book.refresh()
        profiles.check_sign_in(profile, is_on=is_on)
        await self.mcp.check_sign_in(profiles.get(profile), is_on=is_on)

    @asynccontextmanager
    async def _door(self, call: ToolCall) -> AsyncIterator[Door]:
        """The way to the network for a call that may run: a host about which it asked is allowed by now."""
        context = self._context_of(call)
        judgement = await self._judgement(call, self._tools.get_gated(call.name))
        asked = {concern.key for concern in judgement.concerns}

        async def may(host: str) -> bool:
            if host_key(host) in asked or is_listed(host, context.hosts):
                return True
            return await self.policy.allows(call, host_concern(host), is_sandboxed=context.is_sandboxed)

        async with self._gate.door(may) as door:
            yield door
        await self.policy.record_refused(call, [host_key(host) for host in door.refused], judgement.label)

    async def _judgement(self, call: ToolCall, tool: Tool | None) -> Judgement:
        if isinstance(tool, CallFoundTool):
            try:
                inner, inner_call = tool.inner(call)
            except ToolFailed:
                return Judgement(label=call.name)  # it will say what is wrong, and do nothing
            return await self._judgement(inner_call, inner)
        context = self._context_of(call)
        if isinstance(tool, Action):
            try:
                arguments = tool.check(call.arguments)
            except msgspec.ValidationError:
                return Judgement(label=call.name)  # it will say what is wrong, and do nothing
            return await tool.assess(call, arguments, context)
        if isinstance(tool, (McpTool, ResourceTool, FunctionTool, OwnTool)):
            return tool.judge(call, call.arguments, context)
        return judge_unknown(call, f"it is a tool of another program ({call.name})")

    def _context_of(self, call: ToolCall) -> CallContext:
        profile = self.profiles.get(call.profile)
        return CallContext(
            workspace=call.workspace,
            home=self._workspaces.home,
            is_sandboxed=self._sandbox.state.works and profile.sandbox,
            has_network=(profile.network and self._sandbox.has_gate) or profile.host_network,
            has_host_network=profile.host_network,
            is_guarded=self._sandbox.guards(call.workspace),
            hosts=profile.hosts,
            is_tainted=call.is_tainted,
            limits=profile.limits,
            packages=profile.packages,
        )


def _only(tools: Sequence[Tool], names: Collection[str]) -> Sequence[Tool]:
    return [tool for tool in tools if tool.spec.name in names]


def _list_tools(own: Sequence[Tool], trusted: Sequence[Tool]) -> Sequence[Tool]:
    """Sorted by name. If there are too many to list, those of MCP servers are found instead."""
    if len(trusted) > TOOLS_MAX:
        trusted = (FindTools(trusted), CallFoundTool(trusted))
    return sorted([*own, *trusted], key=lambda tool: tool.spec.name)
