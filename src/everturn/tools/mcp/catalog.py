"""Reads what a server offers: tools, prompts and resources. All of it is untrusted text."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.tools.mcp.wire import McpClient, SdkValue

T = TypeVar("T")
_TOOLS_MAX = 200
_PROMPTS_MAX = 100
_PAGES_MAX = 100
_TEXT_CHARS_MAX = 2000
_REFUSED_AT_THE_TOP = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})


class Definition(msgspec.Struct, frozen=True):
    """A tool as its server describes it. ``digest`` covers everything that the model would read."""

    name: str
    description: str
    parameters: JsonObject
    digest: str


class PromptArgument(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    is_required: bool = False


class PromptInfo(msgspec.Struct, frozen=True):
    """A prompt that a server offers."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class Catalog(msgspec.Struct, frozen=True):
    tools: tuple[Definition, ...] = ()
    prompts: tuple[PromptInfo, ...] = ()
    has_resources: bool = False


async def read_catalog(client: McpClient) -> Catalog:
    able = client.server_capabilities
    prompts = await _read_prompts(client) if able is not None and able.prompts is not None else ()
    has_resources = able is not None and able.resources is not None and await _has_resources(client)
    return Catalog(await read_tools(client), prompts, has_resources)


async def _has_resources(client: McpClient) -> bool:
    """True if the server has resources. Many servers declare the capability and have none."""
    if (await client.list_resources(cursor=None, cache_mode="refresh")).resources:
        return True
    templates = await client.list_resource_templates(cursor=None, cache_mode="refresh")
    return bool(templates.resource_templates)


async def read_tools(client: McpClient) -> tuple[Definition, ...]:
    """Return the server's tools sorted by name, at most ``_TOOLS_MAX``."""

    async def page(cursor: str | None) -> tuple[list[Definition], str | None]:
        found = await client.list_tools(cursor=cursor, cache_mode="refresh")
        return [_definition(tool) for tool in found.tools], found.next_cursor

    found = await _pages(page, _TOOLS_MAX)
    # Model providers refuse a request with duplicate tool names.
    named = {definition.name: definition for definition in reversed(found)}
    return tuple(sorted(named.values(), key=lambda definition: definition.name))


async def _read_prompts(client: McpClient) -> tuple[PromptInfo, ...]:
    async def page(cursor: str | None) -> tuple[list[PromptInfo], str | None]:
        found = await client.list_prompts(cursor=cursor, cache_mode="refresh")
        return [_prompt(prompt) for prompt in found.prompts], found.next_cursor

    return tuple(await _pages(page, _PROMPTS_MAX))


async def _pages(
    page: Callable[[str | None], Awaitable[tuple[list[T], str | None]]], count_max: int
) -> list[T]:
    """Read the pages of a list, up to a limit: a server may never stop paging."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(_PAGES_MAX):
        items, cursor = await page(cursor)
        found += items
        if not cursor or len(found) >= count_max:
            break
    return found[:count_max]


def _definition(tool: SdkValue) -> Definition:
    """Return the tool with a schema that providers accept: an object, with no alternatives at the top level.

    Otherwise a provider would refuse the request, and with it every tool of every server.
    """
    kept = {key: value for key, value in tool.input_schema.items() if key not in _REFUSED_AT_THE_TOP}
    parameters = {"properties": {}, **kept, "type": "object"}
    text = msgspec.json.encode([tool.name, tool.description, parameters], order="deterministic")
    return Definition(
        tool.name, storable(tool.description or ""), parameters, hashlib.sha256(text).hexdigest()
    )


def _prompt(prompt: SdkValue) -> PromptInfo:
    arguments = tuple(
        PromptArgument(given.name[:100], _short(given.description), bool(given.required))
        for given in (prompt.arguments or ())[:20]
    )
    return PromptInfo(prompt.name[:200], _short(prompt.description), arguments)


def _short(text: str | None) -> str:
    return storable(text or "")[:_TEXT_CHARS_MAX]


def storable(text: str) -> str:
    return text.replace("\0", "\ufffd")  # no store accepts NUL
