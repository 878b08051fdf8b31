"""The wire to an MCP server: the official SDK over a process's pipes, one JSON message per line.

The SDK is imported on first use, because that takes most of a second. So its types are described here, as far
as we use them.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolResult
from everturn.tools.policy.judgement import ArgumentValues
from everturn.tools.sandbox.child import Child
from everturn.tools.schema import ToolFailed
from everturn.tools.terminal.output import Capture, head_and_tail

_TOOLS_MAX = 200
_LINE_BYTES_MAX = 16 * 1024 * 1024
_REFUSED_AT_THE_TOP = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})
_NOISE_LINES_MAX = 1000  # that are no messages, in the life of a server
_OUTPUT_BYTES_MAX = 48_000

# ``Any``: the SDK's messages pass through unseen, and each block of an answer is asked for its kind.
_SdkMessage = Any
_SdkBlock = Any
_Sender = MemoryObjectSendStream[_SdkMessage]
_Receiver = MemoryObjectReceiveStream[_SdkMessage]


class SdkTool(Protocol):
    name: str
    description: str | None
    input_schema: JsonObject


class SdkPage(Protocol):
    tools: Sequence[SdkTool]
    next_cursor: str | None


class SdkAnswer(Protocol):
    content: Sequence[_SdkBlock]
    structured_content: object
    is_error: bool


class McpClient(Protocol):
    async def list_tools(self, *, cursor: str | None) -> SdkPage: ...

    async def call_tool(self, name: str, arguments: ArgumentValues) -> SdkAnswer: ...


class Sdk(Protocol):
    def Client(self, transport: object) -> AbstractAsyncContextManager[McpClient]: ...  # noqa: N802 - its name


class Definition(msgspec.Struct, frozen=True):
    """A tool as its server describes it. ``digest`` covers everything that the model would read."""

    name: str
    description: str
    parameters: JsonObject
    digest: str


async def load_sdk() -> Sdk:
    """Raises ToolFailed where it is not installed."""
    try:
        return cast(Sdk, await anyio.to_thread.run_sync(importlib.import_module, "mcp"))
    except ImportError as error:
        raise ToolFailed("MCP servers need the extra 'mcp': pip install 'everturn[mcp]'.") from error


@asynccontextmanager
async def transport(child: Child, errors: Capture) -> AsyncIterator[tuple[_Receiver, _Sender]]:
    """The process's pipes as the SDK's pair of streams, one JSON message per line."""
    to_session, from_server = anyio.create_memory_object_stream[_SdkMessage](0)
    to_server, from_session = anyio.create_memory_object_stream[_SdkMessage](0)
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


async def _pump_out(child: Child, to_session: _Sender) -> None:
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
    """The lines of each read. Stops at a line that is too long: a program that writes one is no MCP server,
    and closing the stream ends the session."""
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


async def _pump_in(child: Child, from_session: _Receiver) -> None:
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


async def read_definitions(client: McpClient) -> list[Definition]:
    """The tools that the server describes, sorted by name; at most ``_TOOLS_MAX``."""
    found: list[Definition] = []
    cursor: str | None = None
    while len(found) < _TOOLS_MAX:
        page = await client.list_tools(cursor=cursor)
        found += [_definition(tool) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    # Model providers refuse a request that names a tool twice.
    named = {definition.name: definition for definition in reversed(found[:_TOOLS_MAX])}
    return sorted(named.values(), key=lambda definition: definition.name)


def _definition(tool: SdkTool) -> Definition:
    """Its arguments are an object with properties, and a choice only further in. With anything else model
    providers refuse the request, and with it every tool of every server."""
    kept = {key: value for key, value in tool.input_schema.items() if key not in _REFUSED_AT_THE_TOP}
    parameters = {"properties": {}, **kept, "type": "object"}
    text = msgspec.json.encode([tool.name, tool.description, parameters], order="deterministic")
    description = (tool.description or "").replace("\0", "\ufffd")  # no store keeps that one
    return Definition(tool.name, description, parameters, hashlib.sha256(text).hexdigest())


def result_of(answer: SdkAnswer) -> ToolResult:
    """The answer as text for the model."""
    text = "\n".join(_block(block) for block in answer.content)
    if not text and answer.structured_content is not None:
        text = msgspec.json.encode(answer.structured_content).decode()
    shown, is_cut = head_and_tail(text.encode(), _OUTPUT_BYTES_MAX)
    return ToolResult(
        shown or "[no output]",
        outcome=Outcome.ERROR if answer.is_error else Outcome.OK,
        full_output=text.encode() if is_cut else None,
    )


def _block(block: _SdkBlock) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    kind = getattr(block, "mime_type", None) or block.type
    return f"[{kind}, not shown]"
