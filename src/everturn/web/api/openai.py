"""The OpenAI-compatible API: the model ``everturn`` is the agent, ``provider:name`` a bare model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing

import anyio
import msgspec

from everturn.domain import errors as e
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.runtime import Runtime
from everturn.web.access.identity import Scope
from everturn.web.http import problems
from everturn.web.http.idempotency import FirstAnswers, digest_of
from everturn.web.http.problems import BadRequest
from everturn.web.http.routing import Answer, AnyEndpoint, ApiCall, ClientGone, Endpoint, Nothing, key_from
from everturn.web.openai import chat_wire as wire
from everturn.web.openai.bare_models import BareModels, ModelNotFound
from everturn.web.openai.completions import Completions, TurnLost, is_agent
from everturn.web.openai.pieces import AnswerEnd, Answering, Piece
from everturn.web.streams.streams import EventStream, Streams

SESSION_HEADER = "x-everturn-session"
_SESSION_CHARS_MAX = 150
_DONE = b"data: [DONE]\n\n"
_encoder = msgspec.json.Encoder()


class ModelOut(msgspec.Struct, frozen=True):
    id: str
    object: str
    created: int
    owned_by: str


class ModelList(msgspec.Struct, frozen=True):
    object: str
    data: tuple[ModelOut, ...]


_TROUBLE = (ModelTrouble, e.NotFound, e.Gone, e.KeyReused, e.TextEmpty, e.TextTooLong, e.Busy, TurnLost)


class OpenAiApi:
    def __init__(
        self,
        completions: Completions,
        models: BareModels,
        answers: FirstAnswers,
        streams: Streams,
        runtime: Runtime,
        *,
        timeout_s: float,
    ) -> None:
        self._completions = completions
        self._answers = answers
        self._streams = streams
        self._models = models
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._timeout_s = timeout_s

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/v1/chat/completions",
                run=self.complete,
                summary="An answer of the agent or of a model, streamed or whole.",
                tag="openai",
                scope=Scope.CHAT,
                body=wire.ChatRequest,
                answer=wire.Completion,
                streams=wire.CompletionChunk,
                errors=(*_TROUBLE, ModelNotFound, BadRequest, e.StoreAway),
                headers=("X-Everturn-Session", "Idempotency-Key"),
                is_openai=True,
            ),
            Endpoint(
                method="GET",
                path="/v1/models",
                run=self.models,
                summary="The agent and the models.",
                tag="openai",
                answer=ModelList,
                is_openai=True,
            ),
        ]

    async def models(self, call: ApiCall[Nothing, Nothing]) -> ModelList:
        names = [wire.AGENT, *(name for name in await self._models.names() if name != wire.AGENT)]
        return ModelList("list", tuple(ModelOut(name, "model", 0, "everturn") for name in names))

    async def complete(self, call: ApiCall[Nothing, wire.ChatRequest]) -> object:
        request, named, key = call.body, call.headers.get(SESSION_HEADER), key_from(call.headers)
        _check(request, named)
        if named is not None:
            session = await self._completions.session_named(call.owner, named)
            header = ((SESSION_HEADER.encode(), session.id.encode()),)
            pieces = self._completions.in_session(call.owner, session, request, key)
            return await _Reply(self, call, header).run(pieces)
        if key is None:
            return await _Reply(self, call).run(self._pieces(call.owner, request))
        stack = AsyncExitStack()
        await stack.enter_async_context(self._answers.only_one(call.owner, key))
        try:
            return await self._once(call, key, stack)
        except BaseException:
            await stack.aclose()
            raise

    async def _once(
        self, call: ApiCall[Nothing, wire.ChatRequest], key: str, stack: AsyncExitStack
    ) -> object:
        """Answer this key for the first time, or repeat its first answer."""
        plainly = msgspec.structs.replace(call.body, stream=False, stream_options=None)
        digest = digest_of(plainly)
        known = await self._answers.get(call.owner, key, digest)
        if known is not None:
            await stack.aclose()
            completion = msgspec.convert(known, wire.Completion)
            return await _Reply(self, call).repeat(completion)

        async def keep(completion: wire.Completion) -> None:
            await self._answers.put(call.owner, key, digest, msgspec.to_builtins(completion))

        reply = _Reply(self, call, keep=keep, done=stack.aclose)
        return await reply.run(self._pieces(call.owner, call.body))

    def _pieces(self, owner: str, request: wire.ChatRequest) -> Answering:
        if is_agent(request.model):
            return self._completions.alone(owner, request)
        return self._models.answer(request)


class _Reply:
    """One answer, assembled whole or sent piece by piece."""

    def __init__(
        self,
        api: OpenAiApi,
        call: ApiCall[Nothing, wire.ChatRequest],
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        keep: Callable[[wire.Completion], Awaitable[None]] | None = None,
        done: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._api = api
        self._call = call
        self._headers = headers
        self._keep = keep
        self._done = done
        self._request = call.body
        self._id = api._ids.make("chatcmpl")
        self._created = api._clock.now_ms() // 1000
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._end = AnswerEnd()
        self._is_gone = False

    async def run(self, pieces: Answering) -> object:
        if not self._request.stream:
            await self._take_all(pieces)
            return Answer(await self._finish(), headers=self._headers)
        # The first piece is awaited before the head goes out, so that a refusal is an ordinary answer.
        first = await anext(pieces, AnswerEnd())
        self._take_name(first)
        try:
            self._api._streams.check_room(self._call.owner)
        except e.Overloaded:
            await pieces.aclose()
            raise

        async def source(stream: EventStream) -> str:
            await stream.write(self._chunk(wire.Delta(role="assistant", content="")))
            try:
                await self._stream(stream, first, pieces)
            finally:
                with anyio.CancelScope(shield=True):
                    await pieces.aclose()
                    await self._release()
            return "done"

        return self._stream_of(source)

    async def _take_all(self, pieces: Answering) -> None:
        """Raises ClientGone: a client that gave up, and perhaps asks again, is not answered twice at once.
        With a key the answer is made all the same, for when it is asked for again; a turn of a durable
        session goes on, seen out by ``Completions``."""
        trouble: e.EverturnError | None = None
        async with anyio.create_task_group() as group:
            if self._keep is None:
                group.start_soon(self._watch, group.cancel_scope, name="completion watch")
            try:
                await self._take_in_time(pieces)
            except e.EverturnError as error:
                trouble = error  # as it is, not in a group
            group.cancel_scope.cancel()
        if trouble is not None:
            raise trouble
        if self._is_gone:
            raise ClientGone

    async def _take_in_time(self, pieces: Answering) -> None:
        timeout_s = self._api._timeout_s
        try:
            with anyio.fail_after(timeout_s):
                async with aclosing(pieces) as closing:
                    async for piece in closing:
                        self._take(piece)
        except TimeoutError as error:
            raise TurnLost(
                f"There was no whole answer in {timeout_s:g} seconds.", hint="Ask for a stream instead."
            ) from error

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        scope.cancel()

    async def repeat(self, completion: wire.Completion) -> object:
        """The first answer again, streamed or whole as this request asks."""
        if not self._request.stream:
            return completion
        message = completion.choices[0].message
        self._id, self._created = completion.id, completion.created

        async def source(stream: EventStream) -> str:
            calls = message.tool_calls
            await stream.write(
                self._chunk(wire.Delta("assistant", message.content, message.reasoning_content, calls))
            )
            await stream.write(self._last(completion.choices[0].finish_reason, completion.usage))
            return "done"

        return self._stream_of(source)

    def _stream_of(self, source: Callable[[EventStream], Awaitable[str]]) -> EventStream:
        return EventStream(
            self._api._streams,
            self._call.caller,
            source,
            opening=b"",
            closing=lambda reason: b"" if reason == "done" else _error_frame(f"The stream ended: {reason}."),
            headers=self._headers,
        )

    async def _stream(self, stream: EventStream, first: Piece | AnswerEnd, pieces: Answering) -> None:
        try:
            await self._send(stream, first)
            async for piece in pieces:
                await self._send(stream, piece)
        except e.EverturnError as error:
            await stream.write(_error(error))
            return
        await self._finish()
        await stream.write(self._last(self._end.finish, wire.usage_out(self._end.usage)))

    async def _send(self, stream: EventStream, piece: Piece | AnswerEnd) -> None:
        self._take(piece)
        if isinstance(piece, AnswerEnd):
            calls = wire.calls_out(piece.calls)
            if calls:
                await stream.write(self._chunk(wire.Delta(tool_calls=calls)))
        elif piece.text:
            await stream.write(self._chunk(wire.Delta(content=piece.text)))
        elif piece.reasoning:
            await stream.write(self._chunk(wire.Delta(reasoning_content=piece.reasoning)))

    def _take_name(self, piece: Piece | AnswerEnd) -> None:
        """The answer's id comes from its turn, so that a repeated request gets the same one."""
        if isinstance(piece, Piece) and piece.turn is not None:
            self._id = f"chatcmpl_{piece.turn.id.removeprefix('trn_')}"
            self._created = piece.turn.created_at // 1000

    def _take(self, piece: Piece | AnswerEnd) -> None:
        self._take_name(piece)
        if isinstance(piece, AnswerEnd):
            self._end = piece
        else:
            self._text.append(piece.text)
            self._reasoning.append(piece.reasoning)

    async def _finish(self) -> wire.Completion:
        message = wire.MessageOut(
            role="assistant",
            content="".join(self._text) or (None if self._end.calls else ""),
            reasoning_content="".join(self._reasoning) or None,
            tool_calls=wire.calls_out(self._end.calls),
        )
        completion = wire.Completion(
            id=self._id,
            object="chat.completion",
            created=self._created,
            model=self._request.model,
            choices=(wire.ChatChoice(0, message, self._end.finish),),
            usage=wire.usage_out(self._end.usage),
        )
        if self._keep is not None:
            await self._keep(completion)
        if not self._request.stream:
            await self._release()
        return completion

    async def _release(self) -> None:
        if self._done is not None:
            done, self._done = self._done, None
            await done()

    def _chunk(self, delta: wire.Delta, finish: str | None = None) -> bytes:
        choices = (wire.ChunkChoice(0, delta, finish),)
        chunk = wire.CompletionChunk(
            self._id, "chat.completion.chunk", self._created, self._request.model, choices
        )
        return b"data: %b\n\n" % _encoder.encode(chunk)

    def _last(self, finish: str, usage: wire.UsageOut) -> bytes:
        frames = self._chunk(wire.Delta(), finish)
        if self._request.wants_usage:
            chunk = wire.CompletionChunk(
                self._id, "chat.completion.chunk", self._created, self._request.model, (), usage
            )
            frames += b"data: %b\n\n" % _encoder.encode(chunk)
        return frames + _DONE


def _check(request: wire.ChatRequest, named: str | None) -> None:
    if named is not None and not (named.strip() and len(named) <= _SESSION_CHARS_MAX and named.isprintable()):
        raise BadRequest(
            f"The header {SESSION_HEADER} names no session.",
            hint=f"An id (ses_…), or a name of your own of at most {_SESSION_CHARS_MAX} characters.",
        )
    if is_agent(request.model):
        if request.tools:
            raise BadRequest(
                "The agent uses its own tools; a client's tools cannot be added.",
                hint="Switch tools off for this model in the client (Open WebUI: its capability 'Builtin "
                "Tools'), or name a bare model (provider:name), which takes them.",
            )
        return
    if named is not None:
        raise BadRequest(
            "A durable session belongs to the agent, not to a bare model.",
            hint=f"Use the model {wire.AGENT!r}, or leave the header {SESSION_HEADER} away.",
        )


def _error(error: e.EverturnError) -> bytes:
    members = problems.for_openai(problems.document(error))
    return b"data: %b\n\n" % _encoder.encode({"error": members["error"]})


def _error_frame(message: str) -> bytes:
    error = {"message": message, "type": "server_error", "param": None, "code": "stream_ended"}
    return b"data: %b\n\n" % _encoder.encode({"error": error})
