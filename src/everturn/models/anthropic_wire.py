"""Anthropic's protocol: ``POST {base_url}/v1/messages``, streamed.

Thinking blocks are sent back with their signatures to the model that made them. Cache marks are set at three
places: after the system prompt (the tools stand before it) and at the user's two newest messages, so that a
step finds what the previous step stored.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Message, Outcome, Reasoning, Result
from everturn.domain.model import (
    Chunk,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
)
from everturn.domain.parameters import Effort
from everturn.domain.turns import FinishReason, Usage
from everturn.models.event_wire import EventReading, EventWire
from everturn.models.history import Image, ModelStep, UserStep, arguments_of, history_steps
from everturn.models.history_cache import HistoryCache
from everturn.models.refusals import Sent, send_once
from everturn.models.wire import Price, RequestSender, Target, encode, no_price

VERSION = "2023-06-01"
_OUTPUT_TOKENS = 16_384
_THINKING_TOKENS = 8_192
_BUDGETS: Mapping[Effort, int] = {Effort.LOW: 2_048, Effort.MEDIUM: 8_192, Effort.HIGH: 24_576}
_MARKED = 2  # of the user's messages, the last: up to each of them the provider keeps what it has read
_EPHEMERAL: Mapping[str, str] = {"type": "ephemeral"}

_FINISHES: Mapping[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "pause_turn": FinishReason.STOP,
    "tool_use": FinishReason.CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.FILTERED,
}


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: JsonObject | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Event(msgspec.Struct, gc=False):
    """All events in one struct: a tagged union would fail on a kind that is added later."""

    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Json = None


_decode = msgspec.json.Decoder(_Event).decode


class Generation(msgspec.Struct, frozen=True):
    """What a model accepts, derived from its name."""

    version: tuple[int, int] | None

    @property
    def takes_prefix(self) -> bool:
        return self.version is not None and self.version < (4, 6)

    @property
    def takes_temperature(self) -> bool:
        return self.version is not None and self.version < (4, 7)

    @property
    def thinks_adaptively(self) -> bool:
        return self.version is None or self.version >= (4, 6)

    @property
    def takes_schema(self) -> bool:
        return self.version is None or self.version >= (4, 5)

    @property
    def output_tokens(self) -> int:
        if self.version is None or self.version >= (3, 7):
            return _OUTPUT_TOKENS
        return 8_192 if self.version >= (3, 5) else 4_096


def generation_of(model: str) -> Generation:
    """``claude-3-5-haiku-…`` is (3, 5), ``claude-opus-4-1-…`` is (4, 1); others are unknown."""
    found = re.search(r"claude(?:-[a-z]+)?-(\d)(?:[-.](\d{1,2}))?(?![\d])", model)
    return Generation((int(found[1]), int(found[2] or 0)) if found else None)


class AnthropicModel(EventWire):
    """One model of Anthropic's API or a compatible server."""

    _address_hint = "Check the address (base_url): it is what comes before /v1/messages."

    def __init__(
        self,
        target: Target,
        client: httpx2.AsyncClient,
        clock: Clock,
        price: Price = no_price,
        cache: HistoryCache | None = None,
    ) -> None:
        super().__init__(target, client, clock, price, cache)
        self._generation = generation_of(target.model)

    def body(self, request: ModelRequest) -> bytes:
        """The exact bytes of the request; equal requests give equal bytes."""
        target, generation = self._target, self._generation
        body: JsonObject = {
            "model": target.model,
            "max_tokens": request.output_tokens_max
            or target.abilities.output_tokens
            or generation.output_tokens,
            "messages": _messages(request, target, self._history_cache),
            "stream": True,
        }
        if request.system:
            body["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
        if request.tools and target.abilities.tools:
            body["tools"] = _tools(request.tools, is_marked=not request.system)
        if self._is_thinking(request):
            body |= _thinking(generation, body["max_tokens"], request.effort)
        elif request.temperature is not None and generation.takes_temperature:
            body["temperature"] = request.temperature
        if request.json_schema is not None and generation.takes_schema:
            form = {"type": "json_schema", "schema": request.json_schema}
            body["output_config"] = {**body.get("output_config", {}), "format": form}
        return encode({**target.extra, **body})

    def _is_thinking(self, request: ModelRequest) -> bool:
        if request.effort is None:
            return self._target.thinks
        # Thinking and continuing a prefix exclude each other.
        goes_on = bool(request.prefix.strip() and self._target.continues_by)
        return request.effort is not Effort.OFF and not goes_on

    async def _send(self, stack: AsyncExitStack, request: ModelRequest) -> Sent:
        headers = {"content-type": "application/json", "anthropic-version": VERSION}
        if self._target.key is not None:
            headers["x-api-key"] = self._target.key.reveal()
        return await send_once(stack, self._caller, "/v1/messages", headers, self.body(request))

    def _new_reading(self, request: ModelRequest) -> EventReading:
        return _Reading(self._caller, _space_not_sent(request, self._target))


class _Reading(EventReading):
    """One answer, assembled from its events."""

    def __init__(self, caller: RequestSender, lost_space: str) -> None:
        super().__init__(caller)
        self._space_not_sent = lost_space
        self._blocks: dict[int, _OpenBlock] = {}
        self._input = _Usage()
        self._output_tokens: int | None = None

    def take(self, events: list[bytes]) -> list[Chunk]:
        chunks: list[Chunk] = []
        text = ""
        for data in events:
            if data.startswith(b"[DONE]"):  # the other wire's last word, from servers that speak both
                break
            event = self._decode(data)
            if event is None:
                break
            if event.type == "content_block_delta" and event.delta is not None:
                if event.delta.text:
                    text += event.delta.text
                elif (thought := self._take_rare(event.index, event.delta)) is not None:
                    self._give(text, chunks)
                    text = ""
                    chunks.append(thought)
            elif event.type == "content_block_start" and event.content_block is not None:
                self._blocks[event.index] = _OpenBlock(event.content_block)
                text += event.content_block.text or ""
                if event.content_block.thinking:
                    self._give(text, chunks)
                    text = ""
                    chunks.append(ReasoningChunk(event.content_block.thinking))
            else:
                self._take_frame(event)
        self._give(text, chunks)
        return chunks

    def _decode(self, data: bytes) -> _Event | None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._note_unreadable()
            return None
        return None if self._note_error(event.error) else event

    def _give(self, text: str, chunks: list[Chunk]) -> None:
        """Yield the text, without the space at the end of the prefix, which the request could not carry."""
        while self._space_not_sent and text.startswith(self._space_not_sent[0]):
            text, self._space_not_sent = text[1:], self._space_not_sent[1:]
        if text:
            self._space_not_sent = ""
            chunks.append(TextChunk(text))

    def _take_rare(self, index: int, delta: _Delta) -> ReasoningChunk | None:
        block = self._blocks.setdefault(index, _OpenBlock(_Block()))
        if delta.partial_json is not None:
            block.input.append(delta.partial_json)
        if delta.signature is not None:
            block.signature += delta.signature
        if not delta.thinking:
            return None
        block.thinking.append(delta.thinking)
        return ReasoningChunk(delta.thinking)

    def _take_frame(self, event: _Event) -> None:
        """Handle the events around the content: start, finish reason, end."""
        if event.message is not None and event.message.usage is not None:
            self._take_usage(event.message.usage)
        if event.usage is not None:
            self._take_usage(event.usage)
        if event.delta is not None and event.delta.stop_reason is not None:
            self.finish = _FINISHES.get(event.delta.stop_reason, FinishReason.STOP)
        if event.type == "message_stop":
            self.is_done = True

    def _take_usage(self, usage: _Usage) -> None:
        """Merge usage: later figures replace earlier ones; missing ones stay."""
        if usage.output_tokens is not None:
            self._output_tokens = usage.output_tokens
        for field in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            value = getattr(usage, field)
            if value is not None:
                setattr(self._input, field, value)

    @property
    def written_tokens(self) -> int:
        return self._input.cache_creation_input_tokens or 0

    def usage(self) -> Usage:
        """The usage in our terms: input counts all tokens that were read, cached or not."""
        fresh, cached = self._input.input_tokens, self._input.cache_read_input_tokens
        total = None if fresh is None else fresh + (cached or 0) + self.written_tokens
        return Usage(input_tokens=total, output_tokens=self._output_tokens, cached_tokens=cached)

    def calls(self) -> list[Call]:
        return [
            Call(block.id, block.name, block.arguments)
            for _, block in sorted(self._blocks.items())
            if block.type == "tool_use"
        ]

    def reasoning(self) -> tuple[Reasoning, ...]:
        blocks = [block for _, block in sorted(self._blocks.items())]
        return tuple(
            Reasoning("".join(block.thinking), opaque=block.opaque, model=self._name)
            for block in blocks
            if block.type in ("thinking", "redacted_thinking")
        )


class _OpenBlock:
    __slots__ = ("_given", "data", "id", "input", "name", "signature", "thinking", "type")

    def __init__(self, block: _Block) -> None:
        self.type = block.type
        self.id = block.id or ""
        self.name = block.name or ""
        self.signature = block.signature or ""
        self.data = block.data or ""
        self.thinking: list[str] = [block.thinking] if block.thinking else []
        self.input: list[str] = []
        self._given = block.input

    @property
    def arguments(self) -> str:
        text = "".join(self.input)
        return text or (encode(self._given).decode() if self._given else "{}")

    @property
    def opaque(self) -> dict[str, str]:
        return {"data": self.data} if self.type == "redacted_thinking" else {"signature": self.signature}


# --- the request -----------------------------------------------------------------------------------


def _messages(request: ModelRequest, target: Target, cache: HistoryCache) -> list[Json]:
    kept, rest = cache.split(
        target, request.messages, partial(_write_all, request, target, is_end=False), spare=_MARKED + 1
    )
    messages = _write_all(request, target, rest)
    users = [message for message in messages if message["role"] == "user"]
    if kept and len(users) < _MARKED:
        # Several messages of the user were merged, and a mark belongs into a part that is already encoded.
        kept, messages = (), _write_all(request, target, request.messages)
        users = [message for message in messages if message["role"] == "user"]
    for message in users[-_MARKED:]:
        message["content"][-1]["cache_control"] = _EPHEMERAL
    if request.prefix.strip() and target.continues_by:
        messages.append({"role": "assistant", "content": request.prefix.rstrip()})
    return [*kept, *messages]


def _write_all(
    request: ModelRequest, target: Target, spoken: Sequence[Message], *, is_end: bool = True
) -> list[JsonObject]:
    messages: list[JsonObject] = []
    for step in history_steps(request, spoken, sees_images=target.abilities.images, is_end=is_end):
        if isinstance(step, UserStep):
            _add_user(messages, [_write_asked_part(part) for part in step.parts])
        else:
            messages.append({"role": "assistant", "content": _write_step(step, target)})
            if step.results:
                _add_user(messages, _results(step))
    return messages


def _space_not_sent(request: ModelRequest, target: Target) -> str:
    """Trailing space of the prefix, which the API rejects; the model will write it again."""
    return request.prefix[len(request.prefix.rstrip()) :] if target.continues_by else ""


def _add_user(messages: list[JsonObject], content: list[JsonObject]) -> None:
    """Merge results with the user's next message: the API requires them in one."""
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"] += content
    else:
        messages.append({"role": "user", "content": content})


def _write_asked_part(part: str | Image) -> JsonObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = base64.b64encode(part.content).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": data}}


def _write_step(said: ModelStep, target: Target) -> list[JsonObject]:
    content: list[JsonObject] = []
    for thought in said.reasoning:
        # A signature of another model is refused, and unsigned thinking has no place here.
        opaque = thought.opaque if isinstance(thought.opaque, dict) else {}
        if thought.model != target.name:
            continue
        if opaque.get("data"):
            content.append({"type": "redacted_thinking", "data": opaque["data"]})
        elif opaque.get("signature"):
            content.append({"type": "thinking", "thinking": thought.text, "signature": opaque["signature"]})
    if said.text.strip():
        content.append({"type": "text", "text": said.text})
    content += [
        {"type": "tool_use", "id": _wire_id(call.id), "name": call.name, "input": arguments_of(call)}
        for call in said.calls
    ]
    return content


def _wire_id(call_id: str) -> str:
    """The id without characters that this provider rejects; another one may have made it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)


def _results(said: ModelStep) -> list[JsonObject]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": _wire_id(result.call_id),
            "content": _result_content(result, said.pictures.get(result.call_id, ())),
            "is_error": result.outcome is not Outcome.OK,
        }
        for result in said.results
    ]


def _result_content(result: Result, pictures: tuple[Image, ...]) -> str | list[JsonObject]:
    text = result.text or "(no output)"
    if not pictures or result.outcome is not Outcome.OK:  # an error may hold nothing but text
        return text
    return [{"type": "text", "text": text}, *map(_write_asked_part, pictures)]


def _tools(tools: tuple[ToolSchema, ...], *, is_marked: bool) -> list[JsonObject]:
    described: list[JsonObject] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    if is_marked:
        described[-1]["cache_control"] = _EPHEMERAL
    return described


def _thinking(generation: Generation, max_tokens: int, effort: Effort | None) -> JsonObject:
    if generation.thinks_adaptively:
        thinking: JsonObject = {"thinking": {"type": "adaptive", "display": "summarized"}}
        return thinking if effort is None else {**thinking, "output_config": {"effort": effort.value}}
    wanted = _THINKING_TOKENS if effort is None else _BUDGETS.get(effort, _THINKING_TOKENS)
    budget = max(1024, min(wanted, max_tokens // 2))
    return {
        "thinking": {"type": "enabled", "budget_tokens": budget},
        "max_tokens": max(max_tokens, budget + 1024),
    }
