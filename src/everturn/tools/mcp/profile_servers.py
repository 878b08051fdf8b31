"""The MCP servers of profiles: their tools, and what the user has to decide about them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.tool import Untrusted
from everturn.tools.mcp.servers import McpServers, McpTool, ServerState
from everturn.tools.mcp.trust import McpTrust, texts_of
from everturn.tools.policy.trust import Trust
from everturn.tools.profiles import Profile, Profiles
from everturn.tools.workspaces import Workspaces


class ProfileServers:
    def __init__(self, servers: McpServers, trust: Trust, profiles: Profiles, workspaces: Workspaces) -> None:
        self.servers = servers
        self._trust = McpTrust(servers, trust)
        self._profiles = profiles
        self._workspaces = workspaces

    async def tools(self, owner: str, profile: Profile, session_id: str) -> list[McpTool]:
        """The tools of the profile's servers, which are started in the session's own workspace if needed."""
        if not profile.mcp:
            return []
        return await self.tools_in(owner, profile, self._workspaces.of_session(session_id))

    async def tools_in(self, owner: str, profile: Profile, workspace: Path) -> list[McpTool]:
        tools: list[McpTool] = []
        for name in profile.mcp:
            tools += await self._trust.tools(owner, self._profiles.servers[name], workspace)
        return tools

    async def known_tools(self, owner: str, profile: Profile) -> list[McpTool]:
        """The same as far as they are known; no server is started to be asked."""
        tools: list[McpTool] = []
        for name in profile.mcp:
            tools += await self._trust.list_known(owner, self._profiles.servers[name])
        return tools

    async def list_untrusted(self, owner: str, session_id: str, profile: str | None) -> list[Untrusted]:
        """What the profile's servers say, as far as the user has not decided on it."""
        workspace = self._workspaces.of_session(session_id)
        found: list[Untrusted] = []
        for name in self._profiles.get(profile).mcp:
            found += await self._trust.questions(owner, self._profiles.servers[name], workspace)
        return found

    async def decide(self, owner: str, session_id: str, name: str, digest: str, *, use: bool) -> None:
        server, workspace = self._profiles.servers[name], self._workspaces.of_session(session_id)
        await self._trust.decide(owner, server, workspace, digest, use=use)

    async def states(self, owner: str) -> list[ServerState]:
        return [await self._state(owner, name) for name in sorted(self._profiles.servers)]

    async def start_and_trust(
        self, owner: str, name: str, session_id: str, digest: str, *, has_sign_in: bool
    ) -> ServerState:
        """See ``EverturnToolbox.trust_server``."""
        server = self._profiles.servers.get(name)
        if server is None:
            raise NotFound("MCP server", name)
        self._profiles.check_server(server, is_on=has_sign_in)
        workspace = self._workspaces.of_session(session_id)
        self.servers.start_again(server)
        if not await self.servers.definitions(owner, server, workspace):
            raise Invalid(self.servers.state_of(server).detail or f"The MCP server {name} has no tools.")
        if digest and not await self._trust.decide(owner, server, workspace, digest, use=True):
            raise WrongState(f"The MCP server {name} says something else now.", hint="Read it again.")
        return await self._state(owner, name)

    async def _state(self, owner: str, name: str) -> ServerState:
        server = self._profiles.servers[name]
        tools = await self._trust.list_known(owner, server)
        new = [tool for tool in tools if not tool.is_trusted]
        return msgspec.structs.replace(
            self.servers.state_of(server),
            tools=tuple(tool.spec.name for tool in tools),
            untrusted=tuple(tool.spec.name for tool in new),
            texts=texts_of(server, new),
        )
