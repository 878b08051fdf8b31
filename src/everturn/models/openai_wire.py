"""The protocol of OpenAI, OpenRouter, Ollama, vLLM, llama.cpp, LM Studio and most others.

``POST {base_url}/chat/completions``, streamed. An answer is complete when a ``finish_reason`` has arrived; a
stream that merely stops was cut off (client libraries usually take it for an answer).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

import anyio
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Call, Reasoning
from everturn.domain.model import (
    Chunk,
    Finish,
    ModelRequest,
    ProgressChunk,
    ReasoningChunk,
    TextChunk,
)
from everturn.domain.model_errors import ModelRefused, ModelTrouble
from everturn.domain.turns import FinishReason, Usage
from everturn.models import failures
from everturn.models.history import unique_calls
from everturn.models.history_cache import HistoryCache
from everturn.models.openai_request import fields_of, has_called, without
from everturn.models.refusals import CarefulSender, Refusals, Sent, left_out_notes
from everturn.models.wire import Price, RequestSender, Target, digest, encode, no_price
from everturn.models.wire_model import AnswerReader, WireModel

# Usage and [DONE] usually follow the finish at once. A server that keeps the stream open must not hold up the
# turn; one that closes in time keeps its connection usable.
_TAIL_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 0.25

_FINISHES: Mapping[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "tool_calls": FinishReason.CALLS,
    "function_call": FinishReason.CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
    "refusal": FinishReason.FILTERED,
    "sensitive": FinishReason.FILTERED,
}
# Finish reasons with which a server reports a failure.
_BROKEN_FINISHES = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | JsonObject | None = None


class _CallDelta(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | int | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Json] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[JsonObject] | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None  # from servers that answer in one piece
    finish_reason: str | None = None
    error: Json = None  # a router's, about the provider behind it


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek's name for it
    cost: float | None = None  # OpenRouter's, in dollars


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Json = None


_decode = msgspec.json.Decoder(_Event).decode


class OpenAIModel(WireModel):
    """One model of an OpenAI-compatible server."""

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
        self._sender = CarefulSender(self._caller, refusals or Refusals(clock), without)

    def body(self, request: ModelRequest) -> bytes:
        """The exact bytes of the request; equal requests give equal bytes."""
        return encode(fields_of(request, self._target, self._history_cache))

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        headers = {"content-type": "application/json"}
        if self._target.key is not None:
            headers["authorization"] = "Bearer " + self._target.key.reveal()
        fields = fields_of(request, self._target, self._history_cache)
        async with AsyncExitStack() as stack:
            # A turn that has made calls needs its tools: it fails with the server's message.
            kept = {"tools"} if has_called(request) else set()
            sent = await self._sender.send(stack, "/chat/completions", headers, fields, kept)
            yield await stack.enter_async_context(aclosing(self._chunks(sent, request)))

    async def _chunks(self, sent: Sent, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        answer = sent.answer
        for note in left_out_notes(self.name, sent.left_out):
            yield ProgressChunk(note)
        reading = _Reading(self._caller)
        if answer.media_type == "application/json":
            for chunk in reading.take([await answer.whole()]):
                yield chunk
            reading.check()
        elif answer.media_type == "text/html":
            raise ModelRefused(
                f"{self.name} answered with a web page.",
                hint="Check the address (base_url): it usually ends in /v1.",
            )
        else:
            async with aclosing(answer.pieces()) as pieces:
                with answer.translate_failures():
                    async for piece in pieces:
                        for chunk in reading.take(reading.feed(piece)):
                            yield chunk
                        reading.check()
                        if reading.finish is not None:
                            break
                    while (
                        reading.finish is not None
                        and (more := await reading.after_finish(pieces)) is not None
                    ):
                        for chunk in more:
                            yield chunk
                        reading.check()
                for chunk in reading.rest():
                    yield chunk
                reading.check()
        if reading.finish is None:
            raise failures.cut(self.name, "the stream ended without a finish reason")
        yield await self._finish(reading, request, sent.body)

    async def _finish(self, reading: _Reading, request: ModelRequest, body: bytes) -> Finish:
        calls = unique_calls(reading.calls(), request, partial(digest, body))
        usage = await self._price_usage(reading.usage())
        finish = reading.finish or FinishReason.STOP
        reason = FinishReason.CALLS if calls and finish == FinishReason.STOP else finish
        return Finish(reason, calls, reading.reasoning(), usage)


class _Reading(AnswerReader):
    """One answer, assembled from its events."""

    def __init__(self, caller: RequestSender) -> None:
        super().__init__(caller)
        self._calls: list[_OpenCall] = []
        self._thoughts: list[str] = []
        self._thoughts_field = ""
        self._details: list[JsonObject] = []
        self._usage: _Usage | None = None
        self._is_done = False
        self._goes_on = False  # text or a call came after a finish: that was not the end
        self._tail_ends = 0.0

    def check(self) -> None:
        """Raise the stored error, after the text before it was yielded. Errors after the end are ignored."""
        if self._trouble is not None and self._is_unfinished():
            raise self._trouble

    def _is_unfinished(self) -> bool:
        return self.finish is None or (self._goes_on and not self._is_done)

    def rest(self) -> list[Chunk]:
        data = self._sse.rest() if self._is_unfinished() else None
        return self.take([data]) if data is not None else []

    def take(self, events: list[bytes]) -> list[Chunk]:
        """The chunks of these events; adjacent chunks of one kind are merged."""
        chunks: list[Chunk] = []
        text = ""
        has_choices = False
        finished_at = None if self.finish is None else (0, 0)  # in what comes out of here
        for data in events:
            if data.startswith(b"[DONE]"):
                self._is_done = True
                break
            event = self._decode(data)
            if event is None:
                break
            if event.usage is not None:
                self._usage = event.usage
            if not event.choices:
                self._take_without_choices(data)
                continue
            has_choices = True
            choice = event.choices[0]
            delta = choice.delta or choice.message
            if delta is not None:
                if delta.content.__class__ is str:
                    text += delta.content
                if (
                    delta.reasoning_content
                    or delta.reasoning
                    or delta.tool_calls
                    or delta.refusal
                    or delta.reasoning_details
                    or delta.content.__class__ is list
                ):
                    text = self._take_rare(delta, text, chunks)
            if choice.finish_reason:  # empty until the end, says Ollama
                self._take_finish(choice.finish_reason, choice.error)
                finished_at = finished_at or (len(chunks), len(text))
        if finished_at is not None and finished_at != (len(chunks), len(text)):
            self._goes_on = True
        if has_choices:
            self._tail_ends = 0.0
        if text:
            chunks.append(TextChunk(text))
        return chunks

    def _decode(self, data: bytes) -> _Event | None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            loose = _decode_loosely(data)
            if loose is None:
                self._note_unreadable()
                return None
            event = loose
        return None if self._note_error(event.error) else event

    def _take_without_choices(self, data: bytes) -> None:
        """Handle an event without choices: usage, a greeting, or an error (``{"object": "error", …}``)."""
        value = msgspec.json.decode(data)
        if value.get("object") == "error":
            self._trouble = self._caller.trouble(value)

    def _take_rare(self, delta: _Delta, text: str, chunks: list[Chunk]) -> str:
        """Handle everything but plain text; return text that is still to be yielded."""
        thought = delta.reasoning_content or delta.reasoning or ""
        said = delta.refusal or ""
        if isinstance(delta.content, list):
            said, thought = _typed_content(delta.content)
        if thought:
            if text:
                chunks.append(TextChunk(text))
                text = ""
            self._thoughts.append(thought)
            self._thoughts_field = "reasoning_content" if delta.reasoning_content else "reasoning"
            chunks.append(ReasoningChunk(thought))
        if delta.reasoning_details:
            _merge_details(self._details, delta.reasoning_details)
        for call in delta.tool_calls or ():
            self._take_call(call)
        return text + said

    def _take_call(self, delta: _CallDelta) -> None:
        function = delta.function or _Function()
        known = len(self._calls)
        call = self._open_call(delta, function)
        if function.name and not call.name:
            call.name = function.name
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = encode(arguments).decode()
        if arguments:
            if call.is_blank() and arguments.lstrip().startswith("{"):
                call.arguments.clear()  # said before the real ones were known
            call.arguments.append(arguments)
        if self.finish is not None and (arguments or len(self._calls) > known):
            self._goes_on = True

    def _open_call(self, delta: _CallDelta, function: _Function) -> _OpenCall:
        """The call that this delta continues.

        Some servers number every parallel call 0, or not at all. So a name with a new id, or a name with
        arguments after complete ones, starts a new call regardless of the number. A name alone does not: some
        servers repeat it at the end.
        """
        place = delta.index if delta.index is not None else -1
        ident = "" if delta.id is None else str(delta.id)
        for call in reversed(self._calls):
            is_same = ident == call.id if ident else not function.name or self._is_closing(call, function)
            if call.place == place or (place < 0 and is_same):
                if function.name and call.is_followed_by(ident, function):
                    break
                return call
        call = _OpenCall(place if place >= 0 else len(self._calls), ident)
        self._calls.append(call)
        return call

    def _is_closing(self, call: _OpenCall, function: _Function) -> bool:
        is_last = call is self._calls[-1] and call.name == function.name
        return is_last and not function.arguments and call.is_whole()

    def _take_finish(self, reason: str, error: Json) -> None:
        if reason in _BROKEN_FINISHES:
            self._trouble = self._caller.trouble(error or {"message": f"it ended with {reason!r}"})
        else:
            self.finish = _FINISHES.get(reason, FinishReason.STOP)

    async def after_finish(self, pieces: AsyncGenerator[bytes, None]) -> list[Chunk] | None:
        """One read after the finish: usage, [DONE]; None at the end of the body.

        The answer is complete: a connection that breaks or stalls now costs at most the usage. A few servers
        go on (they put a finish into every event): then only [DONE] or the end of the body is the end, and
        an error before it is raised.
        """
        now = anyio.current_time()
        self._tail_ends = self._tail_ends or now + _TAIL_TIMEOUT_S
        until = min(self._tail_ends, now + _CLOSE_TIMEOUT_S) if self._is_done else self._tail_ends
        try:
            with anyio.move_on_after(None if self._is_unfinished() else until - now):
                return self.take(self.feed(await anext(pieces)))
        except StopAsyncIteration:
            return None
        except (httpx2.HTTPError, ModelTrouble):
            if self._is_unfinished():
                raise
            return None
        return None  # in time

    def calls(self) -> list[Call]:
        return [Call(call.id, call.name, "".join(call.arguments)) for call in self._calls]

    def reasoning(self) -> tuple[Reasoning, ...]:
        """The reasoning, with the data that this provider wants back in the next call."""
        if not self._thoughts and not self._details:
            return ()
        opaque = {"details": self._details} if self._details else {"field": self._thoughts_field}
        return (Reasoning("".join(self._thoughts), opaque=opaque, model=self._name),)

    def usage(self) -> Usage:
        usage = self._usage
        if usage is None:
            return Usage()
        details, output = usage.prompt_tokens_details, usage.completion_tokens_details
        cached = details.cached_tokens if details else None
        return Usage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cached_tokens=cached if cached is not None else usage.prompt_cache_hit_tokens,
            reasoning_tokens=output.reasoning_tokens if output else None,
            cost_usd=usage.cost,
        )


class _OpenCall:
    __slots__ = ("arguments", "id", "name", "place")

    def __init__(self, place: int, ident: str) -> None:
        self.place = place
        self.id = ident
        self.name = ""
        self.arguments: list[str] = []

    def is_followed_by(self, ident: str, function: _Function) -> bool:
        """Whether a name that comes under this call's number is that of another one."""
        if ident:
            return self.id not in ("", ident)
        if self.name and function.name != self.name:
            return not self.arguments or self.is_whole()
        return bool(function.arguments) and self.is_whole() and not self.is_blank()

    def is_blank(self) -> bool:
        return len(self.arguments) <= 2 and "".join(self.arguments).strip() == "{}"

    def is_whole(self) -> bool:
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except msgspec.DecodeError:
            return False


def _decode_loosely(data: bytes) -> _Event | None:
    """An event with figures in another format; without its usage if that cannot be read.

    An answer must not be lost because of how it was counted.
    """
    try:
        value = msgspec.json.decode(data)
        if isinstance(value, dict):
            try:
                return msgspec.convert(value, _Event, strict=False)
            except msgspec.ValidationError:
                return msgspec.convert({**value, "usage": None}, _Event, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None


def _typed_content(parts: list[Json]) -> tuple[str, str]:
    """Text and reasoning of a content that came as a list of typed parts (Mistral's form)."""
    said, thought = "", ""
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text":
            said += str(part.get("text") or "")
        elif part.get("type") == "thinking":
            inner = part.get("thinking")
            thought += inner if isinstance(inner, str) else _typed_content(inner or [])[0]
    return said, thought


def _merge_details(known: list[JsonObject], new: list[JsonObject]) -> None:
    """Merge streamed reasoning details: texts are appended, other values replaced."""
    for detail in new:
        last = known[-1] if known else None
        if last is None or (last.get("index"), last.get("type")) != (detail.get("index"), detail.get("type")):
            known.append(dict(detail))
            continue
        for field, value in detail.items():
            if field in ("text", "summary", "data") and isinstance(last.get(field), str):
                last[field] += value or ""
            elif value is not None:
                last[field] = value
