"""An engine with scripted models around a given store, with shortcuts for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from everturn.domain import events as ev
from everturn.domain.asks import Ask
from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Message
from everturn.domain.model import Models
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.domain.sessions import NewSession, Session
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, Submission
from everturn.domain.tool import Tool
from everturn.domain.turn_traces import TurnTraces
from everturn.domain.turns import ENDED, Turn, TurnState
from everturn.engine import Engine, EngineParts, EngineSettings
from everturn.store import Store as OpenStore
from everturn.testing.clock import FakeClock
from everturn.testing.models import Answer, ScriptedModel, ScriptedModels
from everturn.testing.tools import FakeToolbox
from everturn.testing.waiting import within

OWNER = "ada"


class Crash(BaseException):
    """Raised inside ``open_harness`` to end the engine as a crash would: at once, with nothing written."""


class Harness:
    """The engine, its parts, and the waits that tests need."""

    def __init__(
        self, engine: Engine, store: Store, model: ScriptedModel, toolbox: FakeToolbox, clock: Clock
    ) -> None:
        self.engine = engine
        self.store = store
        self.model = model
        self.toolbox = toolbox
        self.clock = clock

    # ``Any``, here and below: ``more`` are fields of the value that is made of them.
    async def new_session(self, *, leaving: str | None = None, **more: Any) -> Session:
        return await self.engine.create_session(OWNER, NewSession(**more), leaving=leaving)

    async def send(self, session: Session, text: str = "hello", **more: Any) -> Accepted:
        return await self.engine.submit(OWNER, session.id, Submission(text=text, **more))

    async def run(self, session: Session, text: str = "hello", **more: Any) -> Turn:
        """Send a message and wait until its turn has ended or waits for the user."""
        accepted = await self.send(session, text, **more)
        return await self.settled(accepted.turn.id)

    async def settled(self, turn_id: str) -> Turn:
        """Wait until the turn has ended or waits for an answer; return it."""
        turn = await self.turn(turn_id)
        with within(f"turn {turn_id} ends or waits for the user"):
            async for batch in self.engine.follow(OWNER, turn.session_id, 0):
                if any(event.turn_id == turn_id for event in batch):
                    turn = await self.turn(turn_id)
                    if turn.state in ENDED or (turn.state is TurnState.WAITING and not turn.is_ready):
                        return turn
        raise AssertionError("the stream of a session has no end")

    async def seen(self, session: Session, kind: str, count: int = 1, after: int = 0) -> ev.Event:
        """The ``count``-th durable event of this kind, waiting for it if need be."""
        with within(f"{count} events {kind!r} are in {session.id}"):
            async for batch in self.engine.follow(OWNER, session.id, after):
                for event in batch:
                    count -= event.kind == kind
                    if event.kind == kind and count == 0:
                        return event
        raise AssertionError("the stream of a session has no end")

    async def turn(self, turn_id: str) -> Turn:
        return await self.store.turns.get(OWNER, turn_id)

    async def messages(self, session: Session) -> Sequence[Message]:
        return (await self.engine.messages(OWNER, session.id, limit=500)).items

    async def texts(self, session: Session) -> list[str]:
        """Role and text of each message of the transcript."""
        return [f"{message.role}: {message.text}" for message in await self.messages(session)]

    async def events(self, session: Session) -> list[ev.Event]:
        return await self.store.journal.after(OWNER, session.id, 0, limit=2000)

    async def kinds(self, session: Session) -> list[str]:
        return [event.kind for event in await self.events(session)]

    async def ask(self, session: Session) -> Ask:
        """The one open ask of the session."""
        (ask,) = await self.store.asks.open(OWNER, session.id)
        return ask

    async def answer(self, session: Session, answer: str, by: str = OWNER) -> Turn:
        """Answer the one open ask and wait until the turn has ended or waits again."""
        ask = await self.engine.answer(OWNER, (await self.ask(session)).id, answer, by=by)
        return await self.settled(ask.turn_id)


def quiet_settings(**changes: Any) -> EngineSettings:
    """Settings without background work that a test did not ask for."""
    return msgspec.structs.replace(EngineSettings(makes_titles=False, stop_grace_s=0.0), **changes)


@asynccontextmanager
async def crashing_harness(store: OpenStore, *script: Answer, **more: Any) -> AsyncIterator[Harness]:
    """Like ``open_harness``, but at its end the engine crashes: nothing is handed over, the worker dies."""
    try:
        async with open_harness(store, *script, **more) as harness:
            yield harness
            raise Crash
    except Crash:
        store.workers.close()


@asynccontextmanager
async def open_harness(
    store: Store,
    *script: Answer,
    tools: Sequence[Tool] = (),
    rules: JsonObject | None = None,
    settings: EngineSettings | None = None,
    clock: Clock | None = None,
    probe: Probe | None = None,
    traces: TurnTraces | None = None,
    model: ScriptedModel | None = None,
    models: Models | None = None,
    toolbox: FakeToolbox | None = None,
    **more: Any,
) -> AsyncIterator[Harness]:
    """An engine over the store whose model plays the script."""
    used_clock = FakeClock() if clock is None else clock
    used_model = ScriptedModel(*script, clock=used_clock) if model is None else model
    used_toolbox = FakeToolbox(*tools, rules=rules) if toolbox is None else toolbox
    used_models = ScriptedModels(used_model) if models is None else models
    engine = Engine(
        EngineParts(store, used_models, used_toolbox, **more),
        Runtime(used_clock, Ids(used_clock), probe or Probe(), traces or TurnTraces()),
        quiet_settings() if settings is None else settings,
    )
    async with engine:
        yield Harness(engine, store, used_model, used_toolbox, used_clock)
