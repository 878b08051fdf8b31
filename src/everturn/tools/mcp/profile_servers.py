"""The MCP servers of profiles: their tools, and the decisions that the user has to make."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.tool import Untrusted
from everturn.tools.mcp.catalog import PromptInfo
from everturn.tools.mcp.content import prompt_text
from everturn.tools.mcp.resources import NAME as READ_RESOURCE
from everturn.tools.mcp.resources import ResourceTool
from everturn.tools.mcp.server_book import ServerBook
from everturn.tools.mcp.servers import McpServers, McpTool, ServerState, ToolState
from everturn.tools.mcp.sign_in import SignIns
from everturn.tools.mcp.trust import McpTrust, texts_of
from everturn.tools.policy.policy import Policy
from everturn.tools.policy.trust import Trust
from everturn.tools.profile_book import ProfileBook
from everturn.tools.profiles import McpServer, Profile
from everturn.tools.schema import ToolFailed
from everturn.tools.workspaces import Workspaces

Mode = Literal["allow", "ask", "off"]
ServerTool = McpTool | ResourceTool
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_SETTINGS = "mcp-settings"  # the workspace of servers that the settings page starts


class OfferedPrompt(msgspec.Struct, frozen=True):
    """A prompt that the user can type after a slash, and its server."""

    server: str
    prompt: PromptInfo


class ProfileServers:
    def __init__(
        self,
        servers: McpServers,
        book: ServerBook,
        trust: Trust,
        policy: Policy,
        profiles: ProfileBook,
        workspaces: Workspaces,
    ) -> None:
        self.servers = servers
        self.book = book
        self._trust = McpTrust(servers, trust)
        self._policy = policy
        self._profiles = profiles
        self._workspaces = workspaces

    @property
    def sign_ins(self) -> SignIns:
        return self.servers.sign_ins

    async def of_profile(self, profile: Profile) -> list[McpServer]:
        await self.book.refresh()
        return self.book.of_profile(profile.name, profile.mcp)

    async def check_sign_in(self, profile: Profile, *, is_on: bool) -> None:
        """Raises HostNetworkRefused."""
        for server in await self.of_profile(profile):
            self._profiles.in_force.check_server(server, is_on=is_on)

    # --- tools ---------------------------------------------------------------------------------------

    async def tools(self, owner: str, profile: Profile, session_id: str) -> list[ServerTool]:
        """Return the tools of the profile's servers, started in the session's own workspace if needed."""
        servers = await self.of_profile(profile)
        if not servers:
            return []
        return await self._tools_in(owner, servers, self._workspaces.of_session(session_id))

    async def tools_in(self, owner: str, profile: Profile, workspace: Path) -> list[ServerTool]:
        return await self._tools_in(owner, await self.of_profile(profile), workspace)

    async def _tools_in(self, owner: str, servers: list[McpServer], workspace: Path) -> list[ServerTool]:
        tools: list[ServerTool] = []
        for server in servers:
            tools += await self._with_resources(
                owner, server, await self._trust.tools(owner, server, workspace)
            )
        return tools

    async def known_tools(self, owner: str, profile: Profile) -> list[ServerTool]:
        """Return the tools that are already known, without starting a server."""
        tools: list[ServerTool] = []
        for server in await self.of_profile(profile):
            tools += await self._with_resources(owner, server, await self._trust.list_known(owner, server))
        return tools

    async def _with_resources(self, owner: str, server: McpServer, tools: list[McpTool]) -> list[ServerTool]:
        """Add a server's resources once the user trusts one of its tools, if it has any."""
        known = await self.servers.read_stored(owner, server)
        is_offered = known is not None and known.has_resources
        is_used = any(tool.is_trusted for tool in tools) or not tools
        if is_offered and is_used and all(tool.definition.name != READ_RESOURCE for tool in tools):
            return [*tools, ResourceTool(self.servers, server)]
        return list(tools)

    # --- trust ---------------------------------------------------------------------------------------

    async def list_untrusted(self, owner: str, session_id: str, profile: Profile) -> list[Untrusted]:
        """Return the texts of the profile's servers that the user has not decided on."""
        found: list[Untrusted] = []
        for server in await self.of_profile(profile):
            workspace = self._workspaces.of_session(session_id)
            found += await self._trust.questions(owner, server, workspace)
        return found

    async def decide(self, owner: str, session_id: str, name: str, digest: str, *, use: bool) -> None:
        workspace = self._workspaces.of_session(session_id)
        await self._trust.decide(owner, await self.book.get(name), workspace, digest, use=use)

    async def trust_text(self, owner: str, name: str, digest: str) -> ServerState:
        """Accept the text with this digest. Without one, only ask the server for its text.

        See ``EverturnToolbox.trust_server``.
        """
        server = await self.book.get(name)
        workspace = self._settings_folder()
        self.servers.start_again(server)
        if not await self.servers.definitions(owner, server, workspace):
            raise Invalid(self.servers.state_of(server).detail or f"The MCP server {name} has no tools.")
        if digest and not await self._trust.decide(owner, server, workspace, digest, use=True):
            raise WrongState(f"The MCP server {name} says something else now.", hint="Read it again.")
        return await self.state(owner, server)

    async def set_mode(self, owner: str, name: str, tool: str, digest: str, mode: Mode) -> ServerState:
        """Decide on the tool whose description has this digest. Raises NotFound, WrongState."""
        server = await self.book.get(name)
        known = await self._trust.list_known(owner, server)
        found = next((one for one in known if one.definition.name == tool), None)
        if found is None:
            raise NotFound("tool", f"{name}: {tool}"[:200])
        if mode != "off" and digest != found.definition.digest:
            raise WrongState(f"{name} describes {tool} in other words now.", hint="Read it again.")
        # Revoke before granting: a crash in between then allows less, not more.
        if mode != "allow":
            await self._policy.disallow(owner, found.concern)
        await self._trust.decide_tool(owner, found, use=mode != "off")
        if mode == "allow":
            await self._policy.allow_always(owner, found.spec.name, found.concern)
        return await self.state(owner, server)

    # --- the settings --------------------------------------------------------------------------------

    async def states(self, owner: str) -> list[ServerState]:
        servers: Mapping[str, McpServer] = await self.book.refresh()
        return [await self.state(owner, servers[name]) for name in sorted(servers)]

    async def test(self, owner: str, name: str) -> ServerState:
        """Restart the server and ask what it offers. The state reports a failure."""
        server = await self.book.get(name)
        self.servers.forget(name)
        self.servers.start_again(server)
        with contextlib.suppress(ToolFailed):  # the state says why
            await self.servers.refresh(owner, server, self._settings_folder())
        return await self.state(owner, server)

    async def offered_prompts(self, owner: str, profile: str | None) -> dict[str, OfferedPrompt]:
        """Return the prompts that the profile's servers offered when last asked, by the name after the
        slash."""
        found: dict[str, OfferedPrompt] = {}
        for server in await self.of_profile(await self._profiles.get(profile)):
            known = await self.servers.read_stored(owner, server)
            for prompt in () if known is None else known.prompts:
                if all(_WORD.fullmatch(one.name) for one in prompt.arguments):
                    name = re.sub(r"[^a-z0-9]+", "-", f"{server.name}-{prompt.name}".lower()).strip("-")
                    found.setdefault(name[:64], OfferedPrompt(server.name, prompt))
        return found

    async def prompt(self, owner: str, name: str, prompt: str, arguments: dict[str, str]) -> str:
        """Return the text of a server's prompt. Raises NotFound, Invalid, WrongState."""
        server = await self.book.get(name)
        if not server.enabled:
            raise WrongState(f"The MCP server {name} is switched off.", hint="Switch it on in the settings.")
        try:
            answer = await self.servers.get_prompt(
                owner,
                server,
                self._settings_folder(),
                lambda client: client.get_prompt(prompt, arguments),
            )
        except ToolFailed as error:
            raise Invalid(str(error), hint="Test the server in the settings.") from error
        return prompt_text(answer)

    async def state(self, owner: str, server: McpServer) -> ServerState:
        tools = await self._trust.list_known(owner, server)
        new = [tool for tool in tools if not tool.is_trusted]
        known = await self.servers.read_stored(owner, server)
        grant = self.sign_ins.grant_of(server) if server.is_remote else None
        return msgspec.structs.replace(
            self.servers.state_of(server),
            tools=tuple(tool.spec.name for tool in tools),
            untrusted=tuple(tool.spec.name for tool in new),
            texts=texts_of(server, new),
            modes=tuple([await self._mode(owner, tool) for tool in tools]),
            prompts=() if known is None else known.prompts,
            has_resources=known is not None and known.has_resources,
            signed_in=grant is not None,
            signed_in_until=None if grant is None or grant.refresh_token else grant.expires_at,
        )

    async def _mode(self, owner: str, tool: McpTool) -> ToolState:
        mode: Mode = "off"
        if tool.is_trusted:
            mode = "allow" if await self._policy.is_allowed_always(owner, tool.concern) else "ask"
        is_new = not tool.is_trusted and not await self._trust.is_declined(owner, tool)
        definition = tool.definition
        return ToolState(definition.name, definition.description, definition.digest, mode, is_new)

    def _settings_folder(self) -> Path:
        return self._workspaces.of_session(_SETTINGS)
