"""A tool that lists and reads the resources of one server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.model import ToolSchema
from everturn.domain.tool import Emit, ToolCall, ToolQuestion, ToolResult, ToolSpec
from everturn.tools.mcp.connection import ServerSignInNeeded
from everturn.tools.mcp.content import resource_result, resource_rows
from everturn.tools.mcp.servers import McpServers, ask_sign_in, tool_name
from everturn.tools.mcp.wire import McpClient, SdkValue
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.profiles import McpServer
from everturn.tools.schema import Arguments, ToolFailed, failure

NAME = "read_resource"
_ROWS_MAX = 200


class ResourceTool:
    """Lists a server's resources, or reads one. It changes nothing, so it may be repeated."""

    def __init__(self, servers: McpServers, server: McpServer) -> None:
        self._servers = servers
        self.server = server
        self._arguments = Arguments(_shape, skip=0)
        self.spec = ToolSpec(
            schema=ToolSchema(
                tool_name(server.name, NAME),
                f"Read a resource of the MCP server {server.name}, or list them. Without uri: a list of "
                "resources, and of templates with parts in braces to fill in.",
                self._arguments.schema,
            ),
            is_safe_to_repeat=True,
            goes_on=True,
            timeout_s=server.timeout_s + 30,
        )

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult | ToolQuestion:
        try:
            given = self._arguments.check(call.arguments)
            uri, cursor = given["uri"], given["cursor"]
            if uri:
                answer = await self._servers.ask_server(
                    call, self.server, lambda client: client.read_resource(uri), f"reading {uri[:100]}"
                )
                return resource_result(answer)
            return await self._servers.ask_server(
                call, self.server, lambda client: _list(client, cursor), "listing resources"
            )
        except msgspec.ValidationError as error:
            return failure(f"The arguments are wrong: {error}.")
        except ServerSignInNeeded as error:
            if call.answer is not None and call.answer.text != "signed in":
                return failure(f"The user did not sign in to {self.server.name}.")
            return ask_sign_in(self.server, error)
        except ToolFailed as error:
            return failure(str(error))

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        uri = str(arguments.get("uri") or "")
        concern = Concern(
            f"it reads from the MCP server {self.server.name}",
            key=f"mcp resources {self.server.name} {self.server.url or self.server.command}",
            sends=self.server.is_remote or self.server.network or self.server.host_network,
            covers=f"list and read all resources of {self.server.name}",
        )
        return Judgement(one_line(f"read {uri}" if uri else "list resources"), concerns=(concern,))


# Only describes the tool's arguments; it is never called.
def _shape(
    uri: Annotated[str, "The resource to read; leave it out to list them"] = "",
    cursor: Annotated[str, "Of the page before, for the next page of the list"] = "",
) -> None: ...


async def _list(client: McpClient, cursor: str) -> ToolResult:
    page = await client.list_resources(cursor=cursor or None)
    rows = resource_rows(page, "resources")[:_ROWS_MAX]
    templates = [] if cursor else await _templates(client)
    lines = [_line(row) for row in rows]
    if templates:
        lines += ["", "Templates:", *map(_line, templates)]
    if page.next_cursor:
        lines += ["", f"There are more: cursor = {page.next_cursor}"]
    return ToolResult("\n".join(lines) or "[no resources]", display={"kind": "found", "count": len(rows)})


async def _templates(client: McpClient) -> list[JsonObject]:
    try:
        page: SdkValue = await client.list_resource_templates(cursor=None)
    except Exception:
        return []
    return resource_rows(page, "resource_templates")[:_ROWS_MAX]


def _line(row: JsonObject) -> str:
    about = " ".join(f"{row['name']} {row['description']}".split())[:300]
    return f"{row['uri']}  {about}  {row['mime_type']}".rstrip()
