"""Sessions that talk through the balancer, and a model whose words say when they were spoken."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import anyio
import httpx2
import msgspec

from everturn.domain.json_types import JsonObject
from everturn.lab.service.people import Lost, Reader, Server, Tally
from everturn.lab.service.talker import EFFECTS, Talker
from everturn.testing.web_server import StreamFrame, frames_of
from everturn.testing.wires import (
    WireAnswer,
    WireRequest,
    openai_answer,
    openai_call,
    openai_delta,
    sse,
)

_TURNS_PER_SESSION = 12
_PATIENCE_S = 180.0  # a turn that takes longer than that, a failover included, is stuck
_AGAIN_S = 0.1
_REFUSED = (429, 502, 503, 504)  # the balancer's and the worker's ways to say: later, or elsewhere
_STAMP = re.compile(r"t(\d+)\b")


class Sample(msgspec.Struct, frozen=True):
    at_s: float  # on the monotonic clock
    seconds: float


class Seen:
    """What all sessions saw, in figures."""

    def __init__(self) -> None:
        self.delays: list[Sample] = []  # from the model's word to the reader
        self.silences: list[Sample] = []  # between two events of a turn, by when it ended
        self.accepts: list[Sample] = []
        self.turns = 0
        self.events = 0
        self.resumed = 0
        self.in_doubt = 0
        self.effects = 0
        self.connections = 0


class StampedWords(Sequence[bytes]):
    """Pieces of an answer that carry the time at which they are taken, and the key at the end."""

    def __init__(self, words: int, key: str) -> None:
        self._words = words
        self._last = openai_answer([key])

    def __len__(self) -> int:
        return self._words + len(self._last)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        if index >= self._words:
            return self._last[index - self._words]
        return sse(openai_delta(content=f"t{time.monotonic_ns() // 1000} "))[0]


class FleetTalker(Talker):
    """``say 40 KEY`` as stamped words; ``run KEY`` as a command whose every run leaves a line of its own."""

    pause_s = 0.05

    def answer(self, request: WireRequest) -> WireAnswer:
        if request.path.endswith("/chat/completions"):
            messages = request.json["messages"]
            wish = _wish_of(messages)
            if said := re.fullmatch(r"say (\d+) (\S+)", wish):
                self.requests.clear()
                return WireAnswer(StampedWords(int(said[1]), said[2]), pause_s=self.pause_s)
            run = re.fullmatch(r"run (\S+)", wish)
            if run and messages[-1]["role"] != "tool":
                arguments = json.dumps({"command": f"date +{run[1]}_%s%N >> {EFFECTS}"})
                call = openai_call(0, arguments, ident="call_1", name="terminal")
                return WireAnswer(sse(call, openai_delta("tool_calls"), b"[DONE]"))
        return super().answer(request)


def _wish_of(messages: list[JsonObject]) -> str:
    content = next((one["content"] for one in reversed(messages) if one["role"] == "user"), "")
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return text.rpartition("\n")[2]


class FleetServer(Server):
    """The balancer's address. What is refused for now is asked again, with the same key."""

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        while True:
            try:
                answer = await self.http.request(method, path, **more)
            except httpx2.TransportError:
                await anyio.sleep(_AGAIN_S)
                continue
            if answer.status_code not in _REFUSED:
                return answer
            await anyio.sleep(_AGAIN_S)


class FleetReader(Reader):
    """Follows a turn to its end over any number of connections and workers, and takes the time."""

    def __init__(
        self, server: FleetServer, session: str, cursor: int, choice: random.Random, seen: Seen
    ) -> None:
        super().__init__(server, session, cursor, choice, Tally())
        server.up.set()
        self._seen = seen
        self._last = time.monotonic()

    async def _connection(self, turn: str) -> None:
        self._seen.connections += 1
        before = len(self._frames)
        await super()._connection(turn)
        if len(self._frames) == before:
            await anyio.sleep(_AGAIN_S)  # refused for now

    def _take(self, frame: StreamFrame) -> None:
        super()._take(frame)
        now = time.monotonic()
        self._seen.silences.append(Sample(now, now - self._last))
        self._last = now
        self._seen.events += 1
        if frame.event == "text.delta":
            stamps = _STAMP.findall(frame.data)
            self._seen.delays += [Sample(now, now - int(stamp) / 1e6) for stamp in stamps]


class SaidTurn(msgspec.Struct, frozen=True):
    """A turn that was acknowledged, and what became of it as its reader saw."""

    id: str
    key: str
    is_run: bool
    was_in_doubt: bool


class Talk:
    """One session after the other, turn after turn; everything that was acknowledged is remembered."""

    def __init__(self, number: int, server: FleetServer, seen: Seen, seed: int, rest_s: float) -> None:
        self._name = f"s{number}"
        self._server = server
        self._seen = seen
        self._choice = random.Random(f"{seed}-{number}")
        self._rest_s = rest_s
        self._keys = 0
        self._turns: dict[str, list[SaidTurn]] = {}
        self._events: dict[str, dict[str, tuple[str, str]]] = {}  # by session and position

    async def live(self, is_over: Callable[[], bool]) -> None:
        await anyio.sleep(self._choice.random() * self._rest_s)
        while not is_over():
            with anyio.fail_after(_PATIENCE_S):
                session = (await self._server.post("/api/sessions", {}, self._key(), 201))["id"]
            self._turns[session], self._events[session] = [], {}
            for _ in range(_TURNS_PER_SESSION):
                if is_over():
                    return
                await self._turn(session)
                await anyio.sleep(self._choice.random() * 2 * self._rest_s)

    def _key(self) -> str:
        self._keys += 1
        return f"{self._name}-{self._keys}"

    async def _turn(self, session: str) -> None:
        key = self._key()
        is_run = self._choice.random() < 0.1
        wish = f"run {key}" if is_run else f"say {self._choice.randrange(10, 60)} {key}"
        begin = time.monotonic()
        try:
            with anyio.fail_after(_PATIENCE_S):
                accepted = await self._server.post(f"/api/sessions/{session}/turns", {"text": wish}, key, 202)
                now = time.monotonic()
                self._seen.accepts.append(Sample(now, now - begin))
                reader = FleetReader(self._server, session, accepted["cursor"], self._choice, self._seen)
                frames = await reader.read(accepted["turn"]["id"])
        except TimeoutError as error:
            raise Lost(
                f"{session}: {wish!r} was neither answered nor refused in {_PATIENCE_S:g} s"
            ) from error
        if frames[-1].event != "turn.completed":
            raise Lost(f"{session}: {wish!r} ended with {frames[-1]}")
        kinds = {frame.event for frame in frames}
        turn = SaidTurn(accepted["turn"]["id"], key, is_run, "question.asked" in kinds)
        self._turns[session].append(turn)
        self._events[session] |= {frame.id: (frame.event, frame.data) for frame in frames}
        self._seen.turns += 1
        self._seen.resumed += "turn.resumed" in kinds
        self._seen.in_doubt += turn.was_in_doubt

    async def check(self, homes: Sequence[Path]) -> None:
        """Everything that was acknowledged or seen is there, once. Raises Lost."""
        for session, turns in self._turns.items():
            await self._check_messages(session, turns)
            await self._check_events(session)
            lines = set().union(*(_effects_in(home, session) for home in homes))
            for turn in turns:
                self._check_effects(session, turn, lines)

    async def _check_messages(self, session: str, turns: Sequence[SaidTurn]) -> None:
        page = await self._server.get(f"/api/sessions/{session}/messages?limit=200")
        for turn in turns:
            mine = [one for one in page["messages"] if one["turn_id"] == turn.id]
            asked = [one for one in mine if one["role"] == "user"]
            said = "".join(
                part["text"]
                for one in mine
                for part in one["parts"]
                if one["role"] == "assistant" and part["type"] == "text" and not part.get("is_abandoned")
            )
            if len(asked) != 1 or not said.endswith(turn.key) or said.count(turn.key) != 1:
                raise Lost(f"{session}, {turn}: asked {len(asked)} times, answered {said[-200:]!r}")
        known = {turn.id for turn in turns}
        if more := [one for one in page["messages"] if one["turn_id"] not in known]:
            raise Lost(f"{session}: nobody sent {more[:3]}")

    async def _check_events(self, session: str) -> None:
        answer = await self._server.ask("GET", f"/api/sessions/{session}/events?follow=0&after=0")

        async def pieces() -> AsyncIterator[bytes]:
            yield answer.content

        stored = {frame.id: (frame.event, frame.data) async for frame in frames_of(pieces())}
        for position, event in self._events[session].items():
            if stored.get(position) != event:
                raise Lost(f"{session} at {position}: seen {event}, stored {stored.get(position)}")

    def _check_effects(self, session: str, turn: SaidTurn, lines: set[str]) -> None:
        if not turn.is_run:
            return
        count = sum(line.startswith(f"{turn.key}_") for line in lines)
        if count > 1 or (count == 0 and not turn.was_in_doubt):
            raise Lost(f"{session}: the command of {turn.key} took effect {count} times")
        self._seen.effects += count


def _effects_in(home: Path, session: str) -> set[str]:
    return set(_lines(home / "workspaces" / session / EFFECTS))


def _lines(path: Path) -> Iterator[str]:
    if path.exists():
        yield from path.read_text().split()
