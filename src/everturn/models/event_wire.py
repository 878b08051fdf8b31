"""What the protocols of Anthropic, OpenAI Responses and Gemini share: events, with an end marker.

Each wire sends the request and assembles the events; the stream itself is handled here. The end marker is
what makes an answer: a stream that merely stops was cut off.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

import anyio
import httpx2

from everturn.domain.messages import Call, Reasoning
from everturn.domain.model import Chunk, Finish, ModelRequest, ProgressChunk, ReasoningChunk, TextChunk
from everturn.domain.model_errors import ModelRefused
from everturn.domain.turns import FinishReason, Usage
from everturn.models import failures
from everturn.models.history import unique_calls
from everturn.models.refusals import Sent, left_out_notes
from everturn.models.wire import digest
from everturn.models.wire_model import AnswerReader, WireModel

_CLOSE_TIMEOUT_S = 0.25


class EventReading(AnswerReader):
    """One answer, assembled from its events. ``finish`` is set by the end marker only."""

    is_done = False  # nothing that follows belongs to the answer

    def check(self) -> None:
        """Raise the stored error, after the text before it was yielded."""
        if self._trouble is not None:
            raise self._trouble

    def rest(self) -> list[bytes]:
        data = self._sse.rest()
        return [] if data is None else [data]

    @abstractmethod
    def take(self, events: list[bytes]) -> list[Chunk]:
        """The chunks of these events; adjacent chunks of one kind are merged."""

    @abstractmethod
    def calls(self) -> list[Call]: ...

    @abstractmethod
    def reasoning(self) -> tuple[Reasoning, ...]:
        """The reasoning, with what this provider wants back in the next call."""

    @abstractmethod
    def usage(self) -> Usage: ...

    @property
    def written_tokens(self) -> int:
        """Tokens that were written to the prompt cache, where they are charged for."""
        return 0


class Merged:
    """Chunks in the order in which they came, adjacent ones of one kind as one."""

    __slots__ = ("_chunks", "_text", "_thought")

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._text = ""
        self._thought = ""

    def say(self, text: str) -> None:
        if self._thought:
            self.close()
        self._text += text

    def think(self, text: str) -> None:
        if self._text:
            self.close()
        self._thought += text

    def close(self) -> list[Chunk]:
        if self._text:
            self._chunks.append(TextChunk(self._text))
        elif self._thought:
            self._chunks.append(ReasoningChunk(self._thought))
        self._text = self._thought = ""
        return self._chunks


class EventWire(WireModel):
    """One model whose answers are events. Subclasses know the protocol."""

    _address_hint = "Check the address (base_url)."

    @abstractmethod
    def body(self, request: ModelRequest) -> bytes:
        """The exact bytes of the request; equal requests give equal bytes."""

    @abstractmethod
    async def _send(self, stack: AsyncExitStack, request: ModelRequest) -> Sent:
        """Send it; the connection is the stack's. Raises ModelTrouble."""

    @abstractmethod
    def _new_reading(self, request: ModelRequest) -> EventReading: ...

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        async with AsyncExitStack() as stack:
            sent = await self._send(stack, request)
            yield await stack.enter_async_context(aclosing(self._chunks(sent, request)))

    async def _chunks(self, sent: Sent, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        answer = sent.answer
        for note in left_out_notes(self.name, sent.left_out):
            yield ProgressChunk(note)
        if answer.media_type not in ("text/event-stream", ""):
            raise ModelRefused(
                f"{self.name} answered with {answer.media_type}, not with a stream.", hint=self._address_hint
            )
        reading = self._new_reading(request)
        async with aclosing(answer.pieces()) as pieces:
            with answer.translate_failures():
                async for piece in pieces:
                    for chunk in reading.take(reading.feed(piece)):
                        yield chunk
                    reading.check()
                    if reading.is_done:
                        break
            if reading.is_done:
                await _drain(pieces)
            else:
                for chunk in reading.take(reading.rest()):
                    yield chunk
                reading.check()
        if reading.finish is None:
            raise failures.cut(self.name, "the stream ended without its end marker")
        yield await self._finish(reading, reading.finish, request, sent.body)

    async def _finish(
        self, reading: EventReading, finish: FinishReason, request: ModelRequest, body: bytes
    ) -> Finish:
        calls = unique_calls(reading.calls(), request, partial(digest, body))
        usage = await self._price_usage(reading.usage(), reading.written_tokens)
        reason = FinishReason.CALLS if calls and finish == FinishReason.STOP else finish
        return Finish(reason, calls, reading.reasoning(), usage)


async def _drain(pieces: AsyncGenerator[bytes, None]) -> None:
    """Read to the end of the body, so that the connection serves the next step; never wait for it."""
    with anyio.move_on_after(_CLOSE_TIMEOUT_S):
        try:
            async for _ in pieces:
                continue
        except httpx2.HTTPError:
            return  # the answer is complete: a connection that fails now does no harm
