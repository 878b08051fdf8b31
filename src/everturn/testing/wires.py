"""A local server that speaks both model protocols and fails on demand.

Each request takes the next answer of the script. An answer is bytes in pieces, so a test decides exactly
where a character, an argument or a line ending is split, and how the connection ends.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.abc
import anyio.streams.buffered

from everturn.domain.json_types import Json, JsonObject
from everturn.testing.waiting import within

_RAW = anyio.abc.SocketAttribute.raw_socket
_PORT = anyio.abc.SocketAttribute.local_port


@dataclass
class WireAnswer:
    """``ending``: whole | cut (the body is complete, but the stream in it is not) | drop (the connection
    closes inside the body) | reset | hang (nothing more is sent until the client disconnects)."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    ending: str = "whole"
    is_silent: bool = False  # accepts the request and never answers
    pause_s: float = 0.0  # between two pieces


@dataclass
class WireRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)


class WireServer:
    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[WireRequest] = []
        self.connections = 0
        self._came = anyio.Event()  # one more request
        self._script: deque[WireAnswer] = deque()
        self._routes: dict[str, WireAnswer] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def asked(self, words: str) -> WireRequest:
        """Wait for the first request whose body contains these words; return it."""
        with within(f"a request contains {words!r}"):
            while True:
                for request in self.requests:
                    if words.encode() in request.body:
                        return request
                await self._came.wait()

    def play(self, *answers: WireAnswer) -> None:
        self._script.extend(answers)

    def route(self, path: str, value: Json, status: int = 200) -> None:
        """Answer every request for this path with the same JSON."""
        self._routes[path] = refuse(status, value)

    def answer(self, request: WireRequest) -> WireAnswer:
        """What this request gets: its path's answer, else the next one of the script."""
        routed = self._routes.get(request.path)
        return routed or (self._script.popleft() if self._script else refuse(599, "no script"))

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        reader = anyio.streams.buffered.BufferedByteReceiveStream(stream)
        try:
            async with stream:
                while await self._one(reader, stream):
                    continue
        except (
            anyio.BrokenResourceError,
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.ClosedResourceError,
        ):
            return  # the client disconnected, as in many tests

    async def _one(
        self, reader: anyio.streams.buffered.BufferedByteReceiveStream, stream: anyio.abc.SocketStream
    ) -> bool:
        head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode().split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        length = int(headers.get("content-length", "0"))
        body = await reader.receive_exactly(length) if length else b""
        self.requests.append(WireRequest(method, path, headers, body))
        self._came.set()
        self._came = anyio.Event()
        answer = self.answer(self.requests[-1])
        if answer.is_silent:
            await anyio.sleep_forever()
        await self._send(answer, stream)
        return answer.ending in ("whole", "cut")

    async def _send(self, answer: WireAnswer, stream: anyio.abc.SocketStream) -> None:
        lines = [f"HTTP/1.1 {answer.status} Scripted", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        await stream.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        for piece in answer.pieces:
            await stream.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            await anyio.sleep(answer.pause_s)  # let the other side read, so that the pieces arrive separately
        if answer.ending in ("whole", "cut"):
            await stream.send(b"0\r\n\r\n")
        elif answer.ending == "hang":
            await anyio.sleep_forever()
        elif answer.ending == "reset":
            raw: socket.socket = stream.extra(_RAW)  # noqa: S610 - anyio's, not Django's
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Kind = TypeVar("Kind", bound=WireServer)


@asynccontextmanager
async def wire_server() -> AsyncIterator[WireServer]:
    async with served(WireServer) as server:
        yield server


@asynccontextmanager
async def served(kind: type[Kind]) -> AsyncIterator[Kind]:
    """Run a server of this kind on a loopback port until the context ends."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        server = kind(listener.extra(_PORT))  # noqa: S610 - anyio's, not Django's
        tasks.start_soon(listener.serve, server.serve, name="wire server")
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


# --- what to say -----------------------------------------------------------------------------------


def refuse(status: int, value: Json, **headers: str) -> WireAnswer:
    head = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return WireAnswer([json.dumps(value).encode()], status, head)


def sse(*events: Json, end: bytes = b"\n\n") -> list[bytes]:
    """One piece per event; dictionaries become JSON, Anthropic's get their ``event:`` line."""
    pieces = []
    for event in events:
        data = event if isinstance(event, bytes) else json.dumps(event, ensure_ascii=False).encode()
        line_end = end[: len(end) // 2]
        kind = event.get("type") if isinstance(event, dict) else None
        name = b"event: " + kind.encode() + line_end if kind else b""
        pieces.append(name + b"data: " + data + end)
    return pieces


def openai_delta(finish: str | None = None, **delta: Json) -> JsonObject:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def openai_call(index: int | None, arguments: str, ident: str | None = None, name: str | None = None) -> Json:
    call: JsonObject = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if ident:
        call |= {"id": ident, "type": "function"}
    if name:
        call["function"]["name"] = name
    return openai_delta(tool_calls=[call])


def openai_usage(**usage: Json) -> JsonObject:
    return {"id": "chatcmpl-1", "choices": [], "usage": usage}


def openai_answer(texts: Iterable[str], finish: str = "stop", **usage: Json) -> list[bytes]:
    tail: list[Json] = [openai_usage(**usage)] if usage else []
    return sse(*(openai_delta(content=text) for text in texts), openai_delta(finish), *tail, b"[DONE]")


def anthropic_start(**usage: Json) -> JsonObject:
    message = {"id": "msg_1", "role": "assistant", "content": [], "usage": usage or {"input_tokens": 3}}
    return {"type": "message_start", "message": message}


def anthropic_block(index: int, block: JsonObject, *deltas: JsonObject) -> list[JsonObject]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_text(index: int, *texts: str) -> list[JsonObject]:
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return anthropic_block(index, {"type": "text", "text": ""}, *deltas)


def anthropic_end(reason: str = "end_turn", **usage: Json) -> list[JsonObject]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def anthropic_answer(texts: Sequence[str], reason: str = "end_turn") -> list[bytes]:
    return sse(anthropic_start(), *anthropic_text(0, *texts), *anthropic_end(reason))


def responses_event(kind: str, **more: Json) -> JsonObject:
    return {"type": f"response.{kind}", **more}


def responses_text(*texts: str, index: int = 0) -> list[JsonObject]:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    deltas = [responses_event("output_text.delta", output_index=index, delta=text) for text in texts]
    return [
        responses_event("output_item.added", output_index=index, item=item),
        *deltas,
        responses_event("output_item.done", output_index=index, item=item),
    ]


def responses_call(index: int, ident: str, name: str, *pieces: str) -> list[JsonObject]:
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": ident, "name": name, "arguments": ""}
    kind = "function_call_arguments.delta"
    return [
        responses_event("output_item.added", output_index=index, item=item),
        *(responses_event(kind, output_index=index, delta=piece) for piece in pieces),
        responses_event("output_item.done", output_index=index, item={**item, "arguments": "".join(pieces)}),
    ]


def responses_end(reason: str = "", **usage: Json) -> JsonObject:
    response: JsonObject = {"status": "completed", "usage": usage or {"input_tokens": 3, "output_tokens": 5}}
    if reason:
        response |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return responses_event("incomplete" if reason else "completed", response=response)


def responses_answer(texts: Sequence[str], reason: str = "") -> list[bytes]:
    created = responses_event("created", response={"status": "in_progress", "error": None, "usage": None})
    return sse(created, *responses_text(*texts), responses_end(reason))


def gemini_event(*parts: JsonObject, finish: str | None = None, **usage: Json) -> JsonObject:
    """Not with ``type``: this protocol's events have none."""
    candidate: JsonObject = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    counted = usage or {"promptTokenCount": 3}
    return {"candidates": [candidate], "usageMetadata": counted, "modelVersion": "gemini-test"}


def gemini_answer(texts: Sequence[str], finish: str = "STOP", **usage: Json) -> list[bytes]:
    return sse(*(gemini_event({"text": text}) for text in texts), gemini_event(finish=finish, **usage))
