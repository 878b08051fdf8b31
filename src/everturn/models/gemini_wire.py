"""Google's Gemini protocol: ``POST {base_url}/models/NAME:streamGenerateContent?alt=sse``.

Each event holds parts of the answer; calls come whole. Signatures of thoughts stand at the parts that they
belong to, go through the journal and are given back at the same parts. The end marker is a finish reason.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from urllib.parse import quote

import msgspec

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Message, Outcome, Reasoning, Result
from everturn.domain.model import Chunk, ModelRequest, ToolSchema
from everturn.domain.parameters import Effort
from everturn.domain.turns import FinishReason, Usage
from everturn.models.event_wire import EventReading, EventWire, Merged
from everturn.models.history import PICTURES, Image, ModelStep, UserStep, arguments_of, history_steps
from everturn.models.history_cache import HistoryCache
from everturn.models.refusals import Sent, send_once
from everturn.models.wire import RequestSender, Target, encode

_FILTERS = (
    "BLOCKLIST IMAGE_PROHIBITED_CONTENT IMAGE_SAFETY LANGUAGE PROHIBITED_CONTENT RECITATION SAFETY SPII"
)
_FINISHES: Mapping[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    **dict.fromkeys(_FILTERS.split(), FinishReason.FILTERED),
}
# Tokens to think with, for the generations before there were levels.
_BUDGETS: Mapping[Effort, int] = {
    Effort.OFF: 0,
    Effort.LOW: 1_024,
    Effort.MEDIUM: 8_192,
    Effort.HIGH: 24_576,
}
# Models from generation 3 on reject a call without a signature; this stands for that of another model's call.
_NO_SIGNATURE = "skip_thought_signature_validator"


class _CallPart(msgspec.Struct, gc=False):
    name: str = ""
    args: JsonObject | None = None
    id: str | None = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: _CallPart | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    error: Json = None


_decode = msgspec.json.Decoder(_Event).decode


class GeminiModel(EventWire):
    """One model of Google's API."""

    _address_hint = "Check the address (base_url): it usually ends in /v1beta."

    def body(self, request: ModelRequest) -> bytes:
        target = self._target
        body: JsonObject = {"contents": _contents(request, target, self._history_cache)}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools and target.abilities.tools:
            declared = [_tool(tool) for tool in sorted(request.tools, key=lambda tool: tool.name)]
            body["tools"] = [{"functionDeclarations": declared}]
        config = _config(request, target)
        if config:
            body["generationConfig"] = config
        return encode({**target.extra, **body})

    async def _send(self, stack: AsyncExitStack, request: ModelRequest) -> Sent:
        headers = {"content-type": "application/json"}
        if self._target.key is not None:
            headers["x-goog-api-key"] = self._target.key.reveal()
        name = quote(self._target.model.removeprefix("models/"))
        return await send_once(
            stack, self._caller, f"/models/{name}:streamGenerateContent?alt=sse", headers, self.body(request)
        )

    def _new_reading(self, request: ModelRequest) -> EventReading:
        return _Reading(self._caller)


class _Reading(EventReading):
    """One answer, assembled from its events."""

    def __init__(self, caller: RequestSender) -> None:
        super().__init__(caller)
        self._calls: list[_CallPart] = []
        self._thoughts: list[str] = []
        self._signatures: dict[str, str] = {}  # by the number of the call; "text" for that of the words
        self._usage: _Usage | None = None

    def take(self, events: list[bytes]) -> list[Chunk]:
        merged = Merged()
        for data in events:
            event = self._decode(data)
            if event is None:
                break
            if event.usage_metadata is not None:
                self._usage = event.usage_metadata
            if event.prompt_feedback is not None and event.prompt_feedback.block_reason:
                self._end(FinishReason.FILTERED)
            if event.candidates:
                self._take_candidate(event.candidates[0], merged)
        return merged.close()

    def _decode(self, data: bytes) -> _Event | None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._note_unreadable()
            return None
        return None if self._note_error(event.error) else event

    def _take_candidate(self, candidate: _Candidate, merged: Merged) -> None:
        for part in (candidate.content.parts if candidate.content else None) or ():
            if part.function_call is None and part.text:
                if part.thought:
                    self._thoughts.append(part.text)
                    merged.think(part.text)
                else:
                    merged.say(part.text)
            elif part.function_call is not None:
                self._calls.append(part.function_call)
            if part.thought_signature and not part.thought:
                place = str(len(self._calls) - 1) if part.function_call is not None else "text"
                self._signatures[place] = part.thought_signature
        reason = candidate.finish_reason
        if reason is None:
            return
        if reason in _FINISHES:
            self._end(_FINISHES[reason])
        else:  # e.g. a malformed call, which the next attempt writes well
            said = candidate.finish_message or f"it ended with {reason!r}"
            self._note_error({"message": said, "type": "server_error"})

    def _end(self, reason: FinishReason) -> None:
        self.finish = reason
        self.is_done = True

    def calls(self) -> list[Call]:
        return [Call(call.id or "", call.name, encode(call.args or {}).decode()) for call in self._calls]

    def reasoning(self) -> tuple[Reasoning, ...]:
        opaque = {"signatures": self._signatures} if self._signatures else None
        text = "".join(self._thoughts)
        return (Reasoning(text, opaque=opaque, model=self._name),) if text or opaque else ()

    def usage(self) -> Usage:
        usage = self._usage
        if usage is None:
            return Usage()
        read, thoughts = usage.prompt_token_count, usage.thoughts_token_count
        said = usage.candidates_token_count
        return Usage(
            input_tokens=None if read is None else read + (usage.tool_use_prompt_token_count or 0),
            output_tokens=None if said is None and thoughts is None else (said or 0) + (thoughts or 0),
            cached_tokens=usage.cached_content_token_count,
            reasoning_tokens=thoughts,
        )


# --- the request -----------------------------------------------------------------------------------


def _config(request: ModelRequest, target: Target) -> JsonObject:
    config: JsonObject = {}
    if request.output_tokens_max is not None:
        config["maxOutputTokens"] = request.output_tokens_max
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.json_schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": request.json_schema}
    if target.abilities.efforts:
        config["thinkingConfig"] = _thinking(request.effort, target)
    return config


def _thinking(effort: Effort | None, target: Target) -> JsonObject:
    if effort is None:
        return {"includeThoughts": True}
    if _has_levels(target):
        return {"includeThoughts": True, "thinkingLevel": effort.value}
    return {"includeThoughts": effort is not Effort.OFF, "thinkingBudget": _BUDGETS.get(effort, 0)}


def _has_levels(target: Target) -> bool:
    """Generation 3 and later."""
    return not target.model.removeprefix("models/").startswith(("gemini-1", "gemini-2"))


def _contents(request: ModelRequest, target: Target, cache: HistoryCache) -> list[Json]:
    kept, rest = cache.split(target, request.messages, partial(_write_all, request, target, is_end=False))
    return [*kept, *_write_all(request, target, rest)]


def _write_all(
    request: ModelRequest, target: Target, spoken: Sequence[Message], *, is_end: bool = True
) -> list[JsonObject]:
    contents: list[JsonObject] = []
    for step in history_steps(request, spoken, sees_images=target.abilities.images, is_end=is_end):
        if isinstance(step, UserStep):
            contents.append({"role": "user", "parts": [_write_part(part) for part in step.parts]})
        else:
            contents.append({"role": "model", "parts": _write_step(step, target)})
            if step.results:
                contents.append({"role": "user", "parts": [*map(_result, step.results), *_pictures(step)]})
    return contents


def _write_part(part: str | Image) -> JsonObject:
    if isinstance(part, str):
        return {"text": part}
    data = base64.b64encode(part.content).decode()
    return {"inlineData": {"mimeType": part.media_type, "data": data}}


def _write_step(said: ModelStep, target: Target) -> list[JsonObject]:
    signatures = _signatures(said, target)
    parts: list[JsonObject] = []
    if said.text.strip():
        parts.append(_sign({"text": said.text}, signatures.get("text")))
    for number, call in enumerate(said.calls):
        part = {"functionCall": {"name": call.name, "args": arguments_of(call)}}
        is_missing = number == 0 and "0" not in signatures and _has_levels(target)
        parts.append(_sign(part, _NO_SIGNATURE if is_missing else signatures.get(str(number))))
    return parts


def _sign(part: JsonObject, signature: Json) -> JsonObject:
    return {**part, "thoughtSignature": signature} if signature else part


def _signatures(said: ModelStep, target: Target) -> JsonObject:
    """Those of this model: another one's are rejected."""
    for thought in said.reasoning:
        if thought.model == target.name and isinstance(thought.opaque, dict):
            found = thought.opaque.get("signatures")
            if isinstance(found, dict):
                return found
    return {}


def _result(result: Result) -> JsonObject:
    field = "output" if result.outcome is Outcome.OK else "error"
    return {"functionResponse": {"name": result.name, "response": {field: result.text}}}


def _pictures(said: ModelStep) -> list[JsonObject]:
    """Beside the results, where every model takes them."""
    pictures = [picture for found in said.pictures.values() for picture in found]
    return [_write_part(PICTURES), *map(_write_part, pictures)] if pictures else []


def _tool(tool: ToolSchema) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
