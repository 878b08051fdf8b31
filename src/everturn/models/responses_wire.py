"""OpenAI's Responses protocol: ``POST {base_url}/responses``, streamed.

Nothing is kept at the provider (``store: false``): reasoning comes encrypted, goes through the journal and is
given back in its place among the calls. The end marker is ``response.completed`` or ``response.incomplete``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Message, Reasoning, Result
from everturn.domain.model import Chunk, ModelRequest, ToolSchema
from everturn.domain.parameters import Effort
from everturn.domain.turns import FinishReason, Usage
from everturn.models.event_wire import EventReading, EventWire, Merged
from everturn.models.history import Image, ModelStep, UserStep, arguments_text, history_steps
from everturn.models.history_cache import HistoryCache
from everturn.models.openai_request import has_called, short_id
from everturn.models.refusals import CarefulSender, Refusals, Sent
from everturn.models.wire import Price, RequestSender, Target, encode, no_price

_LIMITS: Mapping[str, FinishReason] = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
}


class _Text(msgspec.Struct, gc=False):
    text: str = ""


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None
    summary: list[_Text] | None = None


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: Json = None


class _Event(msgspec.Struct, gc=False):
    """All events in one struct: a tagged union would fail on a kind that is added later."""

    type: str = ""
    delta: str | JsonObject | None = None
    output_index: int = 0
    summary_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    error: Json = None
    code: Json = None  # of an event that is itself the error
    message: Json = None


_decode = msgspec.json.Decoder(_Event).decode
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class ResponsesModel(EventWire):
    """One model of OpenAI's API or a server that speaks its newer protocol."""

    def __init__(
        self,
        target: Target,
        client: httpx2.AsyncClient,
        clock: Clock,
        price: Price = no_price,
        refusals: Refusals | None = None,
        cache: HistoryCache | None = None,
    ) -> None:
        super().__init__(target, client, clock, price, cache)
        self._sender = CarefulSender(self._caller, refusals or Refusals(clock), _without)

    def body(self, request: ModelRequest) -> bytes:
        return encode(_fields(request, self._target, self._history_cache))

    def _new_reading(self, request: ModelRequest) -> EventReading:
        return _Reading(self._caller)

    async def _send(self, stack: AsyncExitStack, request: ModelRequest) -> Sent:
        headers = {"content-type": "application/json"}
        if self._target.key is not None:
            headers["authorization"] = "Bearer " + self._target.key.reveal()
        fields = _fields(request, self._target, self._history_cache)
        # A turn that has made calls needs its tools: it fails with the server's message.
        kept = {"tools"} if has_called(request) else set()
        return await self._sender.send(stack, "/responses", headers, fields, kept)


class _Reading(EventReading):
    """One answer, assembled from its events."""

    def __init__(self, caller: RequestSender) -> None:
        super().__init__(caller)
        self._items: dict[int, _Item] = {}
        self._arguments: dict[int, list[str]] = {}
        self._usage: _Usage | None = None

    def take(self, events: list[bytes]) -> list[Chunk]:
        merged = Merged()
        for data in events:
            if data.startswith(b"[DONE]"):  # the other wire's last word, from servers that speak both
                break
            event = self._decode(data)
            if event is None:
                break
            if event.delta is not None:
                self._take_delta(event, merged)
            else:
                self._take_frame(event, merged)
        return merged.close()

    def _decode(self, data: bytes) -> _Event | None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._note_unreadable()
            return None
        error = event.error or (event.response.error if event.response is not None else None)
        if error is None and event.type == "error":
            error = {"code": event.code, "message": event.message}
        if error is None and event.type == "response.failed":
            error = {"message": "it failed without a reason"}
        return None if self._note_error(error) else event

    def _take_delta(self, event: _Event, merged: Merged) -> None:
        delta = event.delta
        if delta.__class__ is not str:
            return  # of an event that is added later
        if event.type in _TEXTS:
            merged.say(str(delta))
        elif event.type in _THOUGHTS:
            merged.think(str(delta))
        elif event.type == "response.function_call_arguments.delta":
            self._arguments.setdefault(event.output_index, []).append(str(delta))

    def _take_frame(self, event: _Event, merged: Merged) -> None:
        """Handle the events around the content: items, summaries, the end."""
        if event.item is not None:  # when it begins, and whole when it ends
            self._items[event.output_index] = event.item
        elif event.type == "response.reasoning_summary_part.added" and event.summary_index:
            merged.think("\n\n")
        elif event.type in ("response.completed", "response.incomplete"):
            response = event.response or _Response()
            self._usage = response.usage
            limit = response.incomplete_details.reason if response.incomplete_details else None
            is_whole = event.type == "response.completed"
            self.finish = FinishReason.STOP if is_whole else _LIMITS.get(limit or "", FinishReason.LENGTH)
            self.is_done = True

    def _in_order(self) -> list[tuple[int, _Item]]:
        return sorted(self._items.items())

    def calls(self) -> list[Call]:
        return [
            Call(
                item.call_id or "",
                item.name or "",
                item.arguments or "".join(self._arguments.get(index, ())),
            )
            for index, item in self._in_order()
            if item.type == "function_call"
        ]

    def reasoning(self) -> tuple[Reasoning, ...]:
        found, calls = [], 0
        for _, item in self._in_order():
            calls += item.type == "function_call"
            if item.type == "reasoning":
                text = "\n\n".join(part.text for part in item.summary or ())
                found.append(Reasoning(text, opaque=_opaque(item, calls), model=self._name))
        return tuple(thought for thought in found if thought.text or thought.opaque)

    def usage(self) -> Usage:
        usage = self._usage
        if usage is None:
            return Usage()
        given, made = usage.input_tokens_details, usage.output_tokens_details
        return Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=given.cached_tokens if given else None,
            reasoning_tokens=made.reasoning_tokens if made else None,
        )


def _opaque(item: _Item, calls: int) -> Json:
    """What goes back: the item, and how many calls came before it."""
    if not item.encrypted_content:
        return None
    return {"id": item.id, "encrypted_content": item.encrypted_content, "calls_before": calls}


# --- the request -----------------------------------------------------------------------------------


def _fields(request: ModelRequest, target: Target, cache: HistoryCache) -> JsonObject:
    body: JsonObject = {
        "model": target.model,
        "input": _input(request, target, cache),
        "stream": True,
        "store": False,
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools and target.abilities.tools:
        body["tools"] = [_tool(tool) for tool in sorted(request.tools, key=lambda tool: tool.name)]
    if request.output_tokens_max is not None:
        body["max_output_tokens"] = request.output_tokens_max
    if request.temperature is not None and target.abilities.temperature:
        body["temperature"] = request.temperature
    if request.json_schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": request.json_schema}
        body["text"] = {"format": form}
    if target.abilities.efforts or target.abilities.reasoning:
        body["include"] = ["reasoning.encrypted_content"]
        body["reasoning"] = {"summary": "auto"}
        if request.effort is not None:
            effort = "none" if request.effort is Effort.OFF else request.effort.value
            body["reasoning"] = {"summary": "auto", "effort": effort}
    return {**target.extra, **body}


def _without(fields: JsonObject, refused: str) -> JsonObject:
    reasoning = fields.get("reasoning")
    if refused == "reasoning" and isinstance(reasoning, dict) and "effort" in reasoning:
        return {**fields, "reasoning": {"effort": reasoning["effort"]}}  # a summary is what was refused
    return {name: value for name, value in fields.items() if name != refused}


def _input(request: ModelRequest, target: Target, cache: HistoryCache) -> list[Json]:
    kept, rest = cache.split(target, request.messages, partial(_write_all, request, target, is_end=False))
    return [*kept, *_write_all(request, target, rest)]


def _write_all(
    request: ModelRequest, target: Target, spoken: Sequence[Message], *, is_end: bool = True
) -> list[JsonObject]:
    items: list[JsonObject] = []
    for step in history_steps(request, spoken, sees_images=target.abilities.images, is_end=is_end):
        if isinstance(step, UserStep):
            items.append({"role": "user", "content": [_write_part(part) for part in step.parts]})
        else:
            items += _write_step(step, target)
    return items


def _write_part(part: str | Image) -> JsonObject:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    data = base64.b64encode(part.content).decode()
    return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{data}"}


def _write_step(said: ModelStep, target: Target) -> list[JsonObject]:
    thoughts = [found for thought in said.reasoning if (found := _read_thought(thought, target)) is not None]
    items = [item for before, item in thoughts if before == 0]
    if said.text.strip():
        items.append({"role": "assistant", "content": said.text})
    for number, call in enumerate(said.calls):
        items += [item for before, item in thoughts if before == number and number]
        items.append(
            {
                "type": "function_call",
                "call_id": short_id(call.id),
                "name": call.name,
                "arguments": arguments_text(call),
            }
        )
    items += [
        {
            "type": "function_call_output",
            "call_id": short_id(result.call_id),
            "output": _output(result, said.pictures.get(result.call_id, ())),
        }
        for result in said.results
    ]
    return items


def _output(result: Result, pictures: tuple[Image, ...]) -> str | list[JsonObject]:
    """A plain string if there is only text: not every server takes parts."""
    return result.text if not pictures else [_write_part(result.text), *map(_write_part, pictures)]


def _read_thought(thought: Reasoning, target: Target) -> tuple[int, JsonObject] | None:
    """A reasoning item and the calls before it. Those of another model are rejected."""
    opaque = thought.opaque
    if thought.model != target.name or not isinstance(opaque, dict) or "encrypted_content" not in opaque:
        return None
    summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
    item: JsonObject = {
        "type": "reasoning",
        "id": opaque.get("id"),
        "summary": summary,
        "encrypted_content": opaque["encrypted_content"],
    }
    return int(opaque.get("calls_before") or 0), item


def _tool(tool: ToolSchema) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }
