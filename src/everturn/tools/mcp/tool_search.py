"""Lets the model search for MCP tools by keyword when there are too many to list in every request.

The model gets two fixed tools: one finds tools and returns their descriptions, the other calls them. The
results are appended to the conversation and nothing before them changes, so the provider's prompt cache stays
valid (see docs/decisions/111).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.model import ToolSchema
from everturn.domain.tool import (
    CALL_FOUND_TOOL,
    Emit,
    Tool,
    ToolCall,
    ToolDoubt,
    ToolQuestion,
    ToolResult,
    ToolSpec,
    ToolWait,
)
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement
from everturn.tools.schema import Action, ToolFailed, failure

TOOLS_MAX = 30  # with more, MCP tools are searched instead of listed
FIND, CALL = "find_tools", CALL_FOUND_TOOL
_FOUND_MAX = 8
_WORD = re.compile(r"[a-z0-9]+")


class FindTools(Action):
    """Find tools of connected services by words, such as what you want to do. Answers with the tools and
    their arguments; call one with call_tool."""

    name = FIND
    is_safe_to_repeat = True
    reads_only = True
    is_untrusted = False  # the user has accepted these descriptions

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools

    async def act(self, call: ToolCall, emit: Emit, query: Annotated[str, "Words to look for"]) -> ToolResult:
        found = search_tools(query, self._tools)
        if not found:
            services = sorted({tool.spec.name.partition("__")[0] for tool in self._tools})
            return ToolResult(f"[no tool found; the services are: {', '.join(services)}]")
        text = "\n\n".join(map(_describe, found))
        return ToolResult(text, display={"kind": "found", "count": len(found)})

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        return Judgement(label=str(arguments["query"])[:80])


class CallFoundTool:
    """Calls a tool that was found. It is judged, approved and run as that tool."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools: Mapping[str, Tool] = {tool.spec.name: tool for tool in tools}
        self.spec = ToolSpec(
            schema=ToolSchema(
                CALL,
                "Call a tool that find_tools has found.",
                {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "The tool's name, as it was found"},
                        "arguments": {"type": "object", "description": "Its arguments"},
                    },
                    "required": ["name", "arguments"],
                },
            ),
            goes_on=True,
            timeout_s=max((tool.spec.timeout_s for tool in tools), default=120.0),
        )

    def inner(self, call: ToolCall) -> tuple[Tool, ToolCall]:
        """Return the tool and the call to it. Raises ToolFailed."""
        name, arguments = call.arguments.get("name"), call.arguments.get("arguments", {})
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ToolFailed(f"There is no tool {str(name)[:100]!r} to be called. Find one with {FIND}.")
        if not isinstance(arguments, dict):
            raise ToolFailed("The arguments must be a JSON object.")
        return tool, msgspec.structs.replace(call, name=tool.spec.name, arguments=arguments)

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult | ToolQuestion | ToolWait | ToolDoubt:
        try:
            tool, inner = self.inner(call)
        except ToolFailed as error:
            return failure(str(error))
        return await tool.run(inner, emit)


def as_called(call: ToolCall) -> ToolCall:
    """Return the call that is really made: to the found tool, if it goes through ``call_tool``."""
    name, arguments = call.arguments.get("name"), call.arguments.get("arguments", {})
    if call.name != CALL or not isinstance(name, str) or not isinstance(arguments, dict):
        return call
    return msgspec.structs.replace(call, name=name, arguments=arguments)


def search_tools(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the best matches. A word in the name counts more than one in the description."""
    words = set(_WORD.findall(query.lower()))
    scores = {tool.spec.name: _score(words, tool) for tool in tools}
    best = sorted((tool for tool in tools if scores[tool.spec.name]), key=lambda t: -scores[t.spec.name])
    return best[:_FOUND_MAX]


def _score(words: set[str], tool: Tool) -> int:
    name = set(_WORD.findall(tool.spec.name.lower().replace("_", " ")))
    described = set(_WORD.findall(tool.spec.schema.description.lower()))
    score = 0
    for word in words:
        score += 4 * (word in name) + (word in described)
        if len(word) > 3:
            score += any(word in other or (len(other) > 3 and other in word) for other in name)
    return score


def _describe(tool: Tool) -> str:
    schema = tool.spec.schema
    parameters: JsonObject = schema.parameters
    arguments = msgspec.json.encode(parameters).decode()
    return f"{schema.name}\n{schema.description}\nArguments: {arguments}"
