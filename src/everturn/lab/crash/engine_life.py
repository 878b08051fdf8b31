"""A short life with the engine: scripted models, tools whose effects are counted in a file, memory.

It passes every moment that belongs to the engine and to memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from everturn.domain.asks import DoubtAnswer
from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.memory import Segment
from everturn.domain.messages import Message
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.domain.store_values import Request, Submission
from everturn.domain.tool import Emit, ToolCall, ToolResult, Verdict
from everturn.domain.turns import ENDED, TurnState
from everturn.engine import Engine, EngineParts, EngineSettings
from everturn.lab.crash.notes import Notes
from everturn.memory import Memory, MemorySettings, Providers
from everturn.store import Store
from everturn.testing import (
    CallTool,
    CountingTool,
    FakeTool,
    FakeToolbox,
    Say,
    ScriptedModel,
    ScriptedModels,
    Think,
    count_effects,
)
from everturn.testing.acting import ME, answer, append, claim, complete, say
from everturn.testing.models import Answer, Wait
from everturn.workspace import FilesSettings, Recorder

PROVIDER = "filed"
COUNTED = ("charge", "book", "sign")  # the tools whose effects are counted
PICTURE = "picture.txt"
_PATIENCE_S = 120.0
SETTINGS = EngineSettings(
    title_model="scripted:titles", poll_s=0.05, keep_messages_min=1, keep_recent=0.0001, stop_grace_s=0.0
)


class FiledProvider:
    """A memory provider whose extractions can be counted from outside."""

    name = PROVIDER

    def __init__(self, path: Path) -> None:
        self._path = path

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        return ""

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        return None

    async def commit(self, segment: Segment) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"key": segment.key, "turns": list(segment.turns)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    async def close(self) -> None:
        return None


def memory_of(store: Store, folder: Path, probe: Probe, worker: str = "") -> Memory:
    clock = SystemClock()
    providers = Providers({PROVIDER: lambda: FiledProvider(folder / "memories")}, {})
    settings = MemorySettings(provider=PROVIDER, retry_first_s=0.0)
    return Memory(
        store.ledger, providers, Runtime(clock, Ids(clock), probe), settings=settings, worker=worker
    )


@asynccontextmanager
async def engine_on(store: Store, folder: Path, probe: Probe, *script: Answer) -> AsyncIterator[Engine]:
    clock = SystemClock()
    model = ScriptedModel(*script, then="The survivor ends this.")
    titles = ScriptedModel(name="scripted:titles", then="A made title")
    effects = folder / "effects"
    tools = FakeToolbox(
        *(CountingTool(name, effects, takes_key=name == "book") for name in COUNTED),
        FakeTool("draw", _draw),
        rules={"sign": Verdict.ASK},
        workspaces=workspaces_of(folder),
    )
    models = ScriptedModels(model, titles)
    recorder = Recorder(store, folder / "indexes", FilesSettings())
    parts = EngineParts(store, models, tools, recorder=recorder)
    async with Engine(parts, Runtime(clock, Ids(clock), probe), SETTINGS) as e:
        yield e


async def _draw(call: ToolCall, emit: Emit) -> ToolResult:
    (call.workspace / PICTURE).write_text("a picture")
    return ToolResult("drawn")


def workspaces_of(folder: Path) -> Path:
    return (folder / "workspaces").resolve()


class Life:
    def __init__(self, engine: Engine, note: Notes) -> None:
        self.engine = engine
        self.note = note
        self._key = 0

    async def send(self, session_id: str, text: str) -> str:
        self._key += 1
        key = f"engine-{self._key}"
        accepted = await self.engine.submit(ME, session_id, Submission(text=text, key=key))
        self.note("accepted", session=session_id, turn=accepted.turn.id, text=text, key=key, files=[])
        return accepted.turn.id

    async def until_settled(self, session_id: str, turn_id: str, *, until: str = "") -> None:
        """Read along until the turn has ended, waits, or has shown an event of this kind."""
        with anyio.fail_after(_PATIENCE_S):
            async for events in self.engine.follow(ME, session_id, 0):
                for event in events:
                    sha = hashlib.sha256(event.data).hexdigest()
                    self.note("seen", session=session_id, position=event.position, kind=event.kind, sha=sha)
                turn = await self.engine.store.turns.get(ME, turn_id)
                if turn.state in ENDED or (turn.state is TurnState.WAITING and not turn.is_ready):
                    break
                if until and any(event.kind == until and event.turn_id == turn_id for event in events):
                    return
        turn = await self.engine.store.turns.get(ME, turn_id)
        if turn.state is TurnState.COMPLETED:
            text = (await self.engine.messages(ME, session_id, limit=1)).items[0].text
            self.note("completed", session=session_id, turn=turn_id, text=text)

    async def live(self) -> None:
        session = await self.engine.create_session(ME)
        self.note("session", session=session.id, title="")
        turn = await self.send(session.id, "good morning")
        await self.until_settled(session.id, turn)
        turn = await self.send(session.id, "charge and book")
        await self.until_settled(session.id, turn)
        turn = await self.send(session.id, "sign it")
        await self.until_settled(session.id, turn)
        (question,) = await self.engine.store.asks.open(ME, session.id)
        await self.engine.answer(ME, question.id, "once", by="me")
        self.note("answered", session=session.id, ask=question.id, answer="once")
        await self.until_settled(session.id, turn)
        turn = await self.send(session.id, "never ends")
        await self.until_settled(session.id, turn, until="text.delta")
        await self.engine.cancel(ME, turn)
        self.note("cancelled", session=session.id, turn=turn)
        compaction = await self.engine.compact(ME, session.id)
        await self.until_settled(session.id, compaction.turn.id)
        await self._until_titled(session.id)

    async def draw_and_undo(self) -> None:
        """A turn makes a file, and undoing the turn removes it."""
        session = await self.engine.create_session(ME)
        self.note("session", session=session.id, title="")
        turn = await self.send(session.id, "draw a picture")
        await self.until_settled(session.id, turn)
        self.note("drawn", session=session.id)
        await self.engine.undo(ME, session.id, Request(key="undo"))
        self.note("undone", session=session.id)

    async def _until_titled(self, session_id: str) -> None:
        with anyio.fail_after(_PATIENCE_S):
            async for events in self.engine.follow(ME, session_id, 0):
                if any(event.kind == "session.changed" and b'"title"' in event.data for event in events):
                    return


def script() -> list[Answer]:
    return [
        [Think("a greeting "), Say("Good morning to you", 4)],
        [Say("Both at once. "), CallTool("charge", {"n": 1}), CallTool("book", {"n": 2})],
        "Charged and booked.",
        [Say("I need your word. "), CallTool("sign", {"n": 3})],
        "Signed.",
        [Say("and on and on "), Wait(asyncio.Event())],
        "A summary of all that.",
    ]


async def live(store: Store, folder: Path, note: Notes, probe: Probe) -> None:
    async with engine_on(store, folder, probe, *script()) as engine:
        await Life(engine, note).live()
    await remember(store, folder, note, probe)
    async with engine_on(store, folder, probe, [CallTool("draw")], "Drawn.") as engine:
        await Life(engine, note).draw_and_undo()


async def remember(store: Store, folder: Path, note: Notes, probe: Probe) -> None:
    """A turn that memory is owed, and the commit that settles it."""
    session = await store.sessions.create(ME)
    note("session", session=session.id, title="")
    accepted = await say(store, session.id, "remember this")
    note("accepted", session=session.id, turn=accepted.turn.id, text="remember this", key=None, files=[])
    await store.workers.register("wrk_memory")
    held = await claim(store, "wrk_memory", session.id)
    await complete(store, held, await append(store, held, answer("I shall")), provider=PROVIDER)
    note("completed", session=session.id, turn=held.turn.id, text="I shall")
    note("owed", session=session.id, turn=held.turn.id)
    memory = memory_of(store, folder, probe, "wrk_memory")
    memory.register(session.id, await memory.open())
    await memory.commit_session(ME, session.id)
    note("remembered", session=session.id, turn=held.turn.id)


# --- afterwards --------------------------------------------------------------------------------------------


async def survive(store: Store, folder: Path) -> None:
    """The next process: an engine that resumes what was running, and answers what was asked."""
    async with engine_on(store, folder, Probe()) as engine:
        with anyio.fail_after(_PATIENCE_S):
            while await _is_busy(engine):
                await anyio.sleep(0.02)
    memory = memory_of(store, folder, Probe())
    await memory.drain()


async def _is_busy(engine: Engine) -> bool:
    for question in await engine.store.asks.open(ME):
        reply = DoubtAnswer.TAKE_AS_DONE if question.topic == "doubt" else "once"
        await engine.answer(ME, question.id, reply, by="survivor")
    page = await engine.store.sessions.list(ME, limit=200)
    sessions = [await engine.session(ME, session.id) for session in page.items]
    is_restoring = bool(await engine.store.working_copies.find_unsettled())
    return is_restoring or any(session.active_turn or session.queued for session in sessions)


def effects_of(folder: Path) -> dict[str, int]:
    return count_effects(folder / "effects")


def memories_of(folder: Path) -> list[tuple[str, list[str]]]:
    path = folder / "memories"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(entry["key"], entry["turns"]) for entry in map(json.loads, lines)]
