"""A simulated user: talks, runs commands, cancels, loses the connection, deletes, and checks every result."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2

from everturn.domain.asks import DoubtAnswer
from everturn.domain.json_types import Json
from everturn.lab.service.talker import EFFECTS
from everturn.testing.web_server import StreamFrame, frames_of

_ENDS = {"turn.completed", "turn.cancelled", "turn.failed"}
_TURNS_PER_SESSION = 12
_PATIENCE_S = 120.0  # a turn that takes longer than that, a restart included, is stuck


class Lost(AssertionError):
    """Something that was acknowledged or seen is missing, there twice, or different."""


class Tally:
    """What all of them did and saw."""

    def __init__(self) -> None:
        self.turns = 0
        self.cancelled = 0
        self.resumed = 0
        self.in_doubt = 0
        self.effects = 0
        self.events = 0
        self.deleted = 0
        self.reconnections = 0
        self.accept_ms: list[float] = []


class Server:
    """Requests that survive the server's absence: repeated with the same key until there is an answer."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.up = anyio.Event()

    # ``Any``: options of ``httpx2.AsyncClient.request``.
    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        while True:
            await self.up.wait()
            try:
                answer = await self.http.request(method, path, **options)
            except httpx2.TransportError:
                await anyio.sleep(0.05)
                continue
            if answer.status_code not in (429, 503):  # it is stopping; the next one will answer
                return answer
            await anyio.sleep(0.05)

    async def get(self, path: str) -> Json:
        return _good(await self.ask("GET", path), 200)

    async def post(self, path: str, body: Json, key: str = "", status: int = 200) -> Json:
        headers = {"idempotency-key": key} if key else {}
        return _good(await self.ask("POST", path, json=body, headers=headers), status)


def _good(answer: httpx2.Response, status: int) -> Json:
    if answer.status_code != status:
        raise Lost(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:300]}")
    return answer.json()


class Person:
    def __init__(self, name: str, server: Server, workspaces: Path, tally: Tally, seed: int) -> None:
        self._name = name
        self._server = server
        self._workspaces = workspaces
        self._tally = tally
        self._choice = random.Random(seed)
        self._keys = 0

    async def live(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            key = self._key()
            session = (await self._server.post("/api/sessions", {}, key, 201))["id"]
            for _ in range(_TURNS_PER_SESSION):
                if is_over():
                    return
                with anyio.fail_after(_PATIENCE_S):
                    await self._turn(session)
            await self._look_around(session)
            answer = await self._server.ask("DELETE", f"/api/sessions/{session}")
            # A repeat after a lost answer finds it deleted already.
            if answer.status_code not in (200, 202, 204, 404, 410):
                raise Lost(f"deleting {session}: {answer.status_code} {answer.text[:300]}")
            self._tally.deleted += 1

    def _key(self) -> str:
        self._keys += 1
        return f"{self._name}-{self._keys}"

    async def _turn(self, session: str) -> None:
        key = self._key()
        is_run = self._choice.random() < 0.12
        wish = f"run {key}" if is_run else f"say {self._choice.randrange(1, 80)} {key}"
        begin = time.perf_counter()
        accepted = await self._server.post(f"/api/sessions/{session}/turns", {"text": wish}, key, 202)
        self._tally.accept_ms.append((time.perf_counter() - begin) * 1000)
        cancel_at = self._choice.randrange(3, 30) if self._choice.random() < 0.1 else 0
        reader = Reader(self._server, session, accepted["cursor"], self._choice, self._tally)
        reader.cancel_at = cancel_at
        frames = await reader.read(accepted["turn"]["id"])
        await self._check(session, accepted["turn"]["id"], key, frames)
        if is_run:
            await self._count_effects(session, key, frames)
        self._tally.turns += 1

    async def _check(self, session: str, turn: str, key: str, frames: list[StreamFrame]) -> None:
        """What was seen is the journal, and the answer is there, whole, once."""
        state = frames[-1].event
        if state == "turn.failed":
            raise Lost(f"{turn} failed: {frames[-1].data}")
        journal = await self._journal(session, int(frames[0].id) - 1)
        for frame in frames:
            kept = journal.get(frame.id)
            if kept is not None and kept != frame:
                raise Lost(f"{session} at {frame.id}: seen {frame}, stored {kept}")
        page = await self._server.get(f"/api/sessions/{session}/messages?limit=20")
        mine = [one for one in page["messages"] if one["turn_id"] == turn]
        asked = [one for one in mine if one["role"] == "user"]
        if len(asked) != 1:
            raise Lost(f"{turn}: its message is there {len(asked)} times")
        said = [part for one in mine if one["role"] == "assistant" for part in one["parts"]]
        answer = "".join(
            part["text"] for part in said if part["type"] == "text" and not part.get("is_abandoned")
        )
        if state == "turn.completed" and not (answer.endswith(key) and answer.count(key) == 1):
            raise Lost(f"{turn}: its answer does not end with {key}: {said}")
        self._tally.cancelled += state == "turn.cancelled"
        self._tally.resumed += any(frame.event == "turn.resumed" for frame in frames)

    async def _journal(self, session: str, after: int) -> dict[str, StreamFrame]:
        """By position; where it was pruned, there is less."""
        answer = await self._server.ask("GET", f"/api/sessions/{session}/events?follow=0&after={after}")

        async def pieces() -> AsyncIterator[bytes]:
            yield answer.content

        return {frame.id: frame async for frame in frames_of(pieces()) if frame.event != "snapshot"}

    async def _count_effects(self, session: str, key: str, frames: list[StreamFrame]) -> None:
        path = self._workspaces / session / EFFECTS
        text = await anyio.to_thread.run_sync(lambda: path.read_text() if path.exists() else "")
        count = text.split().count(key)
        was_in_doubt = any(frame.event == "question.asked" for frame in frames)
        is_cut = was_in_doubt or frames[-1].event == "turn.cancelled"
        if count > 1 or (count == 0 and not is_cut):
            raise Lost(f"{session}: the command {key} took effect {count} times")
        self._tally.effects += count
        self._tally.in_doubt += was_in_doubt

    async def _look_around(self, session: str) -> None:
        listed = await self._server.get("/api/sessions?limit=50")
        if not listed:
            raise Lost("the list is empty")
        await self._server.get("/api/search?q=word7")
        turns = (await self._server.get(f"/api/sessions/{session}/messages?limit=100"))["turns"]
        if len(turns) != _TURNS_PER_SESSION:
            raise Lost(f"{session} has {len(turns)} turns of {_TURNS_PER_SESSION}")


class Reader:
    """Follows one turn to its end over any number of connections."""

    def __init__(
        self, server: Server, session: str, cursor: int, choice: random.Random, tally: Tally
    ) -> None:
        self._server = server
        self._session = session
        self._position = cursor
        self._choice = choice
        self._tally = tally
        self._frames: list[StreamFrame] = []
        self.cancel_at = 0  # events; 0 is never

    async def read(self, turn: str) -> list[StreamFrame]:
        while not self._frames or self._frames[-1].event not in _ENDS:
            await self._server.up.wait()
            try:
                await self._connection(turn)
            except httpx2.TransportError:
                await anyio.sleep(0.05)
            self._tally.reconnections += 1
        self._tally.reconnections -= 1
        return self._frames

    async def _connection(self, turn: str) -> None:
        """Until the turn ends, the server does, or this reader loses it on purpose."""
        leave_after = self._choice.randrange(1, 200)
        headers = {"last-event-id": str(self._position)}
        path = f"/api/sessions/{self._session}/events"
        async with self._server.http.stream("GET", path, headers=headers) as answer:
            if answer.status_code != 200:
                return
            async for frame in frames_of(answer.aiter_bytes()):
                if frame.event == "stream.end":
                    return
                self._take(frame)
                await self._act(turn, frame)
                leave_after -= 1
                if frame.event in _ENDS or not leave_after:
                    return

    def _take(self, frame: StreamFrame) -> None:
        if int(frame.id) != self._position + 1:
            raise Lost(f"{self._session}: after {self._position} came {frame.id} ({frame.event})")
        self._position += 1
        self._frames.append(frame)
        self._tally.events += 1

    async def _act(self, turn: str, frame: StreamFrame) -> None:
        acts: list[Awaitable[object]] = []
        if frame.event == "question.asked":
            ask = frame.json["event"]["ask_id"]
            acts.append(
                self._server.ask("POST", f"/api/questions/{ask}", json={"answer": DoubtAnswer.TAKE_AS_DONE})
            )
        if len(self._frames) == self.cancel_at:
            acts.append(self._server.ask("POST", f"/api/turns/{turn}/cancel", json={}))
        for act in acts:
            await act
