"""Ending a long turn: its journal is folded before the write transaction, which reads only what came since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from everturn.domain import events as ev
from everturn.domain.store_values import Claim, Submission, WhenBusy
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.store.journal.journal import Journal
from everturn.store.scripts.script import Database, Script
from everturn.store.turns.turns import Turns
from everturn.testing.acting import CRASHED, ME, append, late, new_session, start, words

pytestmark = pytest.mark.anyio
T = TypeVar("T")
LONG = 5_000


class Watched:
    """The database, counting the events that write transactions read. ``before_write`` is called once, after
    everything that is read ahead."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.events_read = 0
        self.before_write: Callable[[], Awaitable[Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, script: Callable[..., Script[T]], *args: Any) -> T:
        if self.before_write is not None:
            act, self.before_write = self.before_write, None
            await act()
        return await self._database.write(self._counted, script, *args)

    def _counted(self, tx: Any, script: Callable[..., Script[T]], *args: Any) -> Script[T]:
        running = script(tx, *args)
        query = next(running)
        while True:
            rows = yield query
            if query.name.startswith("events_of_turn"):
                self.events_read += len(rows)
            try:
                query = running.send(rows)
            except StopIteration as done:
                return done.value


@pytest.fixture
def watched(store: Store) -> Watched:
    return Watched(store.database)


@pytest.fixture
def turns(watched: Watched, store: Store) -> Turns:
    return Turns(watched, store.machine, text_bytes_max=1_000_000)  # type: ignore[arg-type]  # it counts reads


async def long_turn(store: Store) -> tuple[Claim, int]:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, [ev.StepStarted(1, "m"), *[ev.TextDelta(1, "word ")] * LONG])
    return held, number


async def test_cancelling_a_long_turn_reads_none_of_its_journal_in_the_write(
    store: Store, turns: Turns, watched: Watched
) -> None:
    held, _ = await long_turn(store)
    assert (await turns.cancel(ME, held.turn.id)).state is TurnState.CANCELLED
    assert watched.events_read == 0
    assert await words(store, held.session.id) == ["hello", "word " * LONG]


async def test_what_comes_between_the_read_and_the_write_is_folded_too(
    store: Store, turns: Turns, watched: Watched
) -> None:
    held, number = await long_turn(store)

    async def meanwhile() -> None:
        await append(store, held, [ev.TextDelta(1, "and"), ev.TextDelta(1, " more")], number)

    watched.before_write = meanwhile
    await turns.interrupt(held.turn.id, held.epoch, CRASHED)
    assert watched.events_read == 2
    assert await words(store, held.session.id) == ["hello", "word " * LONG + "and more"]


async def test_late_events_that_come_between_take_their_own_place(
    store: Store, turns: Turns, watched: Watched
) -> None:
    """The first worker's words are delivered late, while the second one's turn is about to be ended."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await store.turns.resume(ME, held.turn.id)
    (again,) = await store.turns.claim("wrk_two")
    await append(store, again, [ev.StepStarted(1, "m", 2), ev.TextDelta(1, "second")])

    async def meanwhile() -> None:
        spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "first")])
        await store.journal.deliver_late(held.turn.id, held.epoch, spooled)

    watched.before_write = meanwhile
    await turns.fail(held.turn.id, again.epoch, CRASHED)
    _, _, messages = await store.transcript.export(ME, session.id)
    assert [part.text for part in messages[-1].parts] == ["first", "second"]
    assert messages[-1].text == "second", "the first attempt is shown as abandoned"


async def test_a_message_that_interrupts_a_long_turn_reads_none_of_its_journal_in_the_write(
    store: Store, turns: Turns, watched: Watched
) -> None:
    held, _ = await long_turn(store)
    await turns.accept(ME, held.session.id, Submission(text="stop", when_busy=WhenBusy.INTERRUPT))
    assert watched.events_read == 0
    assert (await store.turns.get(ME, held.turn.id)).state is TurnState.CANCELLED
    assert await words(store, held.session.id) == ["hello", "word " * LONG]


async def test_recovering_a_long_turn_reads_none_of_its_journal_in_the_write(
    store: Store, watched: Watched
) -> None:
    held, number = await long_turn(store)
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await store.journal.deliver_late(
        held.turn.id, held.epoch, late(held, number + 1, [ev.TextDelta(1, "late")])
    )
    journal = Journal(watched, store.hub, recovery_attempts_max=3, recovery_age_max_ms=1_000_000_000)  # type: ignore[arg-type]  # a stand-in that counts reads
    assert await journal.recover(ME, held.session.id)
    assert watched.events_read == 0
    assert await words(store, held.session.id) == ["hello", "word " * LONG + "late"]
