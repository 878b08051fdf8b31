"""The configured servers: those of config.toml, and those added on the page or with ``everturn mcp``.

The latter are stored as records, so every worker has them. If both define a name, config.toml wins.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec

from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.json_types import JsonObject
from everturn.domain.store import Records
from everturn.tools.profiles import McpServer

_log = logging.getLogger("everturn.tools")

KIND = "mcp.server"
OWNER = "system"  # owns records that belong to the Everturn server itself
NAME_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9-]{0,30}$(?!\n)"
_SERVERS_MAX = 100


class ServerBook:
    """``servers`` holds the result of the last refresh."""

    def __init__(self, configured: Mapping[str, McpServer], records: Records) -> None:
        self._configured = configured
        self._records = records
        self._rows: JsonObject = {}
        self.servers: Mapping[str, McpServer] = configured

    async def refresh(self) -> Mapping[str, McpServer]:
        """Read the records again. Cheap if nothing changed."""
        rows = await self._records.list(OWNER, KIND)
        if rows != self._rows:
            saved = {name: self._read(name, row) for name, row in rows.items()}
            known = {name: server for name, server in saved.items() if server is not None}
            self._rows, self.servers = rows, {**known, **self._configured}
        return self.servers

    async def get(self, name: str) -> McpServer:
        """Raises NotFound."""
        found = (await self.refresh()).get(name)
        if found is None:
            raise NotFound("MCP server", name)
        return found

    def is_configured(self, name: str) -> bool:
        return name in self._configured

    def of_profile(self, name: str, named: tuple[str, ...]) -> list[McpServer]:
        """Return a profile's servers: those that it names and those that name it."""
        found = {one for one in named if one in self.servers}
        found |= {one for one, server in self.servers.items() if name in server.profiles}
        return [self.servers[one] for one in sorted(found) if self.servers[one].enabled]

    async def add(self, server: McpServer) -> None:
        """Raises Invalid, WrongState."""
        await self.check_new(server)
        await self._records.put(OWNER, KIND, server.name, _row_of(server))

    async def check_new(self, server: McpServer) -> None:
        """Raises Invalid, WrongState."""
        self._check(server)
        if server.name in await self.refresh():
            raise WrongState(
                f"There is an MCP server {server.name} already. Nothing was changed.",
                hint="Choose another name.",
            )
        if len(self._rows) >= _SERVERS_MAX:
            raise WrongState(f"There are {_SERVERS_MAX} MCP servers.", hint="Remove one first.")

    async def change(self, server: McpServer) -> None:
        """Raises Invalid, NotFound, WrongState."""
        self.refuse_configured(server.name)
        self._check(server)
        if not await self._records.replace(OWNER, KIND, server.name, _row_of(server)):
            raise NotFound("MCP server", server.name)

    async def remove(self, name: str) -> None:
        """Raises NotFound, WrongState."""
        self.refuse_configured(name)
        if not await self._records.delete(OWNER, KIND, name):
            raise NotFound("MCP server", name)

    async def forget_profile(self, profile: str) -> None:
        """Remove a deleted profile from the servers that name it, except those of config.toml."""
        for server in (await self.refresh()).values():
            if profile in server.profiles and server.name not in self._configured:
                rest = tuple(name for name in server.profiles if name != profile)
                await self.change(msgspec.structs.replace(server, profiles=rest))

    def refuse_configured(self, name: str) -> None:
        if name in self._configured:
            raise WrongState(
                f"The MCP server {name} is set up in config.toml. Nothing was changed.",
                hint="Change it there, then restart the server.",
            )

    def _check(self, server: McpServer) -> None:
        if not re.match(NAME_PATTERN, server.name):
            raise Invalid(
                f"{server.name[:60]!r} cannot be an MCP server's name.",
                hint="Use up to 31 letters, digits and hyphens; begin with a letter or a digit.",
            )
        if server.host_network:
            raise Invalid(
                "host_network lets a server reach Everturn itself, so it is set in config.toml only.",
                hint="Use network, or add the server there.",
            )

    def _read(self, name: str, row: object) -> McpServer | None:
        try:
            return msgspec.convert({**row, "name": name}, McpServer) if isinstance(row, dict) else None
        except msgspec.ValidationError as error:
            # A newer release wrote it. Ignoring unknown fields could allow more than intended.
            _log.warning("the MCP server %s cannot be read: %s", name, error)
            return None


def place_of(server: McpServer) -> str:
    """Return the server's address, or its command line. Keys and sign-ins are tied to it."""
    return server.url or " ".join((server.command, *server.args))


def make_server(table: JsonObject) -> McpServer:
    """Raises Invalid."""
    try:
        return msgspec.convert(table, McpServer)
    except msgspec.ValidationError as error:
        raise Invalid(f"A setting is wrong: {error}. Nothing was changed.", hint="Correct it.") from error


def _row_of(server: McpServer) -> JsonObject:
    row: JsonObject = msgspec.to_builtins(server)
    return {key: value for key, value in row.items() if key != "name"}
