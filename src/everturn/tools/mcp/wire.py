"""The link to a server, and the parts of the official SDK that we use.

Importing the SDK takes most of a second, so it happens on first use. The types that we use are therefore
described here.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from everturn.domain.extras import install_command
from everturn.tools.policy.judgement import ArgumentValues
from everturn.tools.schema import ToolFailed

LINE_BYTES_MAX = 16 * 1024 * 1024

# ``Any``: the SDK's messages pass through unread, and the kind of each answer block is checked.
SdkMessage = Any
SdkBlock = Any
SdkValue = Any
Sender = MemoryObjectSendStream[SdkMessage]
Receiver = MemoryObjectReceiveStream[SdkMessage]
Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class SdkAnswer(Protocol):
    content: Sequence[SdkBlock]
    structured_content: object
    is_error: bool


class McpClient(Protocol):
    @property
    def server_capabilities(self) -> SdkValue: ...

    @property
    def protocol_version(self) -> str: ...

    async def list_tools(self, *, cursor: str | None, cache_mode: str) -> SdkValue: ...

    async def list_prompts(self, *, cursor: str | None, cache_mode: str) -> SdkValue: ...

    async def list_resources(self, *, cursor: str | None, cache_mode: str = ...) -> SdkValue: ...

    async def list_resource_templates(self, *, cursor: str | None, cache_mode: str = ...) -> SdkValue: ...

    async def read_resource(self, uri: str) -> SdkValue: ...

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> SdkValue: ...

    async def call_tool(
        self, name: str, arguments: ArgumentValues, *, progress_callback: Progress
    ) -> SdkAnswer: ...

    def listen(
        self, *, tools_list_changed: bool, prompts_list_changed: bool, resources_list_changed: bool
    ) -> AbstractAsyncContextManager[SdkValue]: ...


class Sdk(Protocol):
    def Client(  # noqa: N802 - its name
        self,
        transport: object,
        *,
        elicitation_callback: Callable[..., Awaitable[SdkValue]],
        message_handler: Callable[[SdkMessage], Awaitable[None]],
    ) -> AbstractAsyncContextManager[McpClient]: ...


class Link:
    """The link to one server, a process or an address, for one session."""

    def __init__(self, *, is_brief: bool = False) -> None:
        self.is_brief = is_brief  # open only while in use
        self.refused: list[str] = []  # hosts that it was refused since the last call
        self.set_aside: list[str] = []  # files it created in a project that must never run; known at its end

    def open(self) -> AbstractAsyncContextManager[tuple[Receiver, Sender]]:
        """Yield the streams for the SDK's session. Raises ToolFailed."""
        raise NotImplementedError

    async def until_over(self) -> str:
        """Wait until the server has ended or must be ended; return why, unless it was an ordinary end."""
        raise NotImplementedError

    def last_words(self) -> str:
        """Return the last output outside of the protocol."""
        return ""


async def load_sdk() -> Sdk:
    """Raises ToolFailed where it is not installed."""
    return cast(Sdk, await load("mcp"))


# ``Any``: a module of the SDK. The parts in use are described above or are passed on unread.
async def load(module: str) -> Any:
    """Import a module of the SDK. Raises ToolFailed if it is not installed."""
    # The SDK logs failures with full tracebacks and raises them too; we report them in one line.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    try:
        return await anyio.to_thread.run_sync(importlib.import_module, module)
    except ImportError as error:
        raise ToolFailed(f"MCP servers need the extra 'mcp': {install_command('mcp')}") from error
