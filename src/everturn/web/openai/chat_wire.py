"""The OpenAI chat wire: what clients send and get, and how it becomes our messages and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from everturn.domain.ids import Ids, message_id
from everturn.domain.json_types import JsonObject
from everturn.domain.media import SNIFF_BYTES, sniff_media_type
from everturn.domain.messages import AnyPart, Attachment, Call, Message, Result, Role, Text
from everturn.domain.model import ModelRequest, ToolSchema
from everturn.domain.turns import FinishReason, Usage
from everturn.web.http.problems import BadRequest

AGENT = "everturn"
FINISHES = {
    FinishReason.STOP: "stop",
    FinishReason.CALLS: "tool_calls",
    FinishReason.LENGTH: "length",
    FinishReason.FILTERED: "content_filter",
}


# --- what comes in -----------------------------------------------------------------------------------


class ImageUrl(msgspec.Struct, frozen=True):
    url: str
    detail: str = "auto"


class TextContent(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageContent(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"


class ToolCallIn(msgspec.Struct, frozen=True):
    id: str
    function: FunctionCall
    type: str = "function"


class ChatMessage(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextContent | ImageContent] | None = None
    tool_calls: list[ToolCallIn] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def words(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if isinstance(part, TextContent))

    @property
    def images(self) -> list[str]:
        if not isinstance(self.content, list):
            return []
        return [part.image_url.url for part in self.content if isinstance(part, ImageContent)]


class WireFunction(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
    description: str = ""
    parameters: JsonObject = {}


class ToolIn(msgspec.Struct, frozen=True):
    function: WireFunction
    type: str = "function"


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """What we use of the request; OpenAI's other parameters are taken and have no effect."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ToolIn], Meta(max_length=128)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    response_format: JsonObject | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


# --- what goes out -----------------------------------------------------------------------------------


class FunctionOut(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCallOut(msgspec.Struct, frozen=True):
    id: str
    function: FunctionOut
    type: str = "function"
    index: int = 0


class MessageOut(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    content: str | None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCallOut, ...] | None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: MessageOut
    finish_reason: str
    logprobs: None = None


class UsageDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class UsageOut(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: UsageDetails = UsageDetails()


class Completion(msgspec.Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: UsageOut


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCallOut, ...] | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    finish_reason: str | None = None


class CompletionChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: UsageOut | None = None


def usage_out(usage: Usage) -> UsageOut:
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    return UsageOut(given, made, given + made, UsageDetails(usage.cached_tokens or 0))


def calls_out(calls: tuple[Call, ...]) -> tuple[ToolCallOut, ...] | None:
    made = tuple(
        ToolCallOut(call.id, FunctionOut(call.name, call.arguments), index=index)
        for index, call in enumerate(calls)
    )
    return made or None


# --- into our messages -------------------------------------------------------------------------------


def system_of(messages: list[ChatMessage]) -> str:
    return "\n\n".join(m.words for m in messages if m.role in ("system", "developer") and m.words)


def conversation(messages: list[ChatMessage]) -> list[ChatMessage]:
    return [message for message in messages if message.role not in ("system", "developer")]


def model_request(request: ChatRequest, ids: Ids) -> ModelRequest:
    """The request for a bare model. Raises BadRequest."""
    files: dict[str, bytes] = {}
    turn_id = ids.turn()
    talk = conversation(request.messages)
    names = {call.id: call.function.name for one in talk for call in one.tool_calls or ()}
    return ModelRequest(
        system=system_of(request.messages),
        messages=tuple(
            Message(message_id(turn_id, index), turn_id, *_parts(one, names, files, ids), 0, index)
            for index, one in enumerate(talk)
        ),
        tools=tuple(
            ToolSchema(tool.function.name, tool.function.description, tool.function.parameters or _ANY)
            for tool in request.tools or ()
        ),
        files=files,
        output_tokens_max=request.max_completion_tokens or request.max_tokens,
        json_schema=_schema_of(request.response_format),
        temperature=request.temperature,
    )


_ANY: JsonObject = {"type": "object", "properties": {}}
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}


def _parts(
    one: ChatMessage, names: Mapping[str, str], files: dict[str, bytes], ids: Ids
) -> tuple[Role, tuple[AnyPart, ...]]:
    if one.role == "tool":
        call_id = one.tool_call_id or ""
        if call_id not in names:
            raise BadRequest(f"The tool message answers {call_id[:80]!r}, which no message called.")
        return Role.TOOL, (Result(call_id, names[call_id], one.words),)
    parts: list[AnyPart] = [Text(one.words)] if one.words else []
    for url in one.images:
        data, media = image_bytes(url)
        file_id = ids.file()
        files[file_id] = data
        parts.append(Attachment(file_id, "image", media, len(data)))
    parts += [Call(call.id, call.function.name, call.function.arguments) for call in one.tool_calls or ()]
    return _ROLES[one.role], tuple(parts)


def image_bytes(url: str) -> tuple[bytes, str]:
    """The bytes of a ``data:`` address. Others are refused: fetching them would be done for anyone."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise BadRequest("Images must be data: addresses in base64.", hint="data:image/png;base64,…")
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest("An image is not valid base64.") from error
    media = sniff_media_type(data[:SNIFF_BYTES], "image")
    if not media.startswith("image/"):
        raise BadRequest("An image is not of a kind that can be shown.", hint="png, jpeg, gif, webp, avif")
    return data, media


def _schema_of(response_format: JsonObject | None) -> JsonObject | None:
    if response_format is None or response_format.get("type") != "json_schema":
        return None
    described = response_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    return schema if isinstance(schema, dict) else None
