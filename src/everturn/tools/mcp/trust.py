"""Decides which MCP tools the agent gets: those whose description the user read and accepted.

Everything that a server says about a tool (its name, description, argument names and values) is untrusted
text that steers the model. The model sees it only after the user accepted that exact text.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from everturn.domain.tool import Untrusted
from everturn.tools.mcp.catalog import Definition
from everturn.tools.mcp.http import label_of
from everturn.tools.mcp.servers import McpServers, McpTool
from everturn.tools.policy.trust import Trust
from everturn.tools.profiles import McpServer

_log = logging.getLogger("everturn.tools")
_QUESTION_CHARS_MAX = 60_000  # longer descriptions are split into several questions


class McpTrust:
    def __init__(self, servers: McpServers, trust: Trust) -> None:
        self._servers = servers
        self._trust = trust

    async def tools(self, owner: str, server: McpServer, workspace: Path) -> list[McpTool]:
        """Return all of the server's tools.

        Untrusted ones are for questions to the user, not for the model.
        """
        definitions = await self._servers.definitions(owner, server, workspace)
        return await self._mark_trusted(owner, server, definitions)

    async def list_known(self, owner: str, server: McpServer) -> list[McpTool]:
        """Return the tools that are already known, without starting the server."""
        known = await self._servers.read_stored(owner, server)
        return await self._mark_trusted(owner, server, () if known is None else known.tools)

    async def _mark_trusted(
        self, owner: str, server: McpServer, definitions: Sequence[Definition]
    ) -> list[McpTool]:
        tools = [McpTool(self._servers, server, definition) for definition in definitions]
        for tool in tools:
            tool.is_trusted = await self._trust.has(owner, _record(tool), tool.definition.digest)
        return tools

    async def questions(self, owner: str, server: McpServer, workspace: Path) -> list[Untrusted]:
        """Return the full text of what the user neither accepted nor declined."""
        new = [tool for tool in await self.tools(owner, server, workspace) if not tool.is_trusted]
        return list(texts_of(server, await self._without_declined(owner, new)))

    async def decide(self, owner: str, server: McpServer, workspace: Path, digest: str, *, use: bool) -> bool:
        """Store the decision on the text with this digest; False if the server's text has changed."""
        new = [tool for tool in await self.tools(owner, server, workspace) if not tool.is_trusted]
        # A declined text can still be accepted, so search all texts that are not trusted.
        candidates = [*_batches(new), *_batches(await self._without_declined(owner, new))]
        found = next((batch for batch in candidates if _digest(batch) == digest), None)
        for tool in found or ():
            await self._trust.decide(owner, _record(tool), tool.definition.digest, use=use)
        return found is not None

    async def decide_tool(self, owner: str, tool: McpTool, *, use: bool) -> None:
        """Store the decision on one tool with its current description."""
        await self._trust.decide(owner, _record(tool), tool.definition.digest, use=use)

    async def is_declined(self, owner: str, tool: McpTool) -> bool:
        return await self._trust.is_declined(owner, _record(tool), tool.definition.digest)

    async def _without_declined(self, owner: str, tools: Sequence[McpTool]) -> list[McpTool]:
        return [tool for tool in tools if not await self.is_declined(owner, tool)]


def _record(tool: McpTool) -> str:
    return f"mcp {tool.spec.name}"


def texts_of(server: McpServer, tools: Sequence[McpTool]) -> tuple[Untrusted, ...]:
    """Return the full descriptions of these tools, in as many parts as needed."""
    return tuple(_question(server, batch) for batch in _batches(tools))


def _question(server: McpServer, tools: Sequence[McpTool]) -> Untrusted:
    count, which = ("a tool", "it") if len(tools) == 1 else (f"{len(tools)} tools", "them")
    return Untrusted(
        name=server.name,
        question=f"The MCP server {server.name} describes {count} to the agent{_reach(server)}. Use {which}?",
        text="\n\n".join(map(describe, tools)),
        digest=_digest(tools),
    )


def _reach(server: McpServer) -> str:
    """Say where the server can send the data that the agent gives it."""
    if server.is_remote:
        return f" and receives at {label_of(server.url)} what the agent gives it"
    if server.host_network:
        return " and reaches everything that this machine reaches"
    if not server.network:
        return ""
    if server.hosts is None:
        return " and reaches every public host"
    return f" and reaches {', '.join(server.hosts)}" if server.hosts else ""


def describe(tool: McpTool) -> str:
    """Return everything that the model would read about the tool."""
    schema = tool.spec.schema
    arguments = msgspec.json.format(msgspec.json.encode(schema.parameters), indent=2).decode()
    return f"{schema.name}\n{schema.description}\nArguments: {arguments}"


def _digest(tools: Sequence[McpTool]) -> str:
    return hashlib.sha256("".join(tool.definition.digest for tool in tools).encode()).hexdigest()


def _batches(tools: Sequence[McpTool]) -> list[list[McpTool]]:
    """Group tools so that one question can show each group in full; leave out tools that are too long."""
    batches: list[list[McpTool]] = []
    room = 0
    for tool in tools:
        size = len(describe(tool))
        if size > _QUESTION_CHARS_MAX:
            _log.warning("%s is left out: its description has %d characters", tool.spec.name, size)
            continue
        if size > room:
            batches.append([])
            room = _QUESTION_CHARS_MAX
        batches[-1].append(tool)
        room -= size
    return batches
