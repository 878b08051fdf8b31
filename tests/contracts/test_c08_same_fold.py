"""C08: recovering twice changes nothing, and every end gives the transcript the same fold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from everturn.domain import events as ev
from everturn.domain.fold import fold
from everturn.domain.store_values import Claim
from everturn.store import Store
from everturn.store.turns.workers import release
from everturn.testing.acting import (
    CRASHED,
    ME,
    answer,
    append,
    claim,
    complete,
    finished,
    late,
    new_session,
    start,
    transcript,
    wish,
    words,
)

pytestmark = pytest.mark.anyio
JOURNAL: list[ev.Payload] = [*wish(), finished(), *answer("So it is.", step=2)]


async def told(store: Store, held: Claim) -> list[tuple[object, ...]]:
    messages = await transcript(store, held.session.id)
    return [(m.role, m.ordinal, [replace(p) for p in m.parts]) for m in messages[1:]]


async def begun(store: Store, payloads: Sequence[ev.Payload]) -> tuple[Claim, int]:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    return held, await append(store, held, payloads)


async def test_c08_completed_cancelled_interrupted_and_late_say_the_same(store: Store) -> None:
    completed, number = await begun(store, JOURNAL)
    await complete(store, completed, number)
    cancelled, _ = await begun(store, JOURNAL)
    await store.turns.cancel(ME, cancelled.turn.id)
    interrupted, _ = await begun(store, JOURNAL)
    await store.turns.interrupt(interrupted.turn.id, interrupted.epoch, CRASHED)
    spooled, number = await begun(store, JOURNAL[:3])
    await store.turns.interrupt(spooled.turn.id, None, CRASHED)
    await store.journal.deliver_late(spooled.turn.id, 1, late(spooled, number + 1, JOURNAL[3:]))
    await store.journal.recover(ME, spooled.session.id)
    resumed, number = await begun(store, JOURNAL[:5])
    await store.database.write(release, "wrk_one", "crash", False)
    again = await claim(store, "wrk_two", resumed.session.id)
    await complete(store, again, await append(store, again, JOURNAL[5:]))
    expected = await told(store, completed)
    assert len(expected) == 3
    for held in (cancelled, interrupted, spooled, resumed):
        found = await told(store, held)
        assert [entry[:2] for entry in found] == [entry[:2] for entry in expected]
        assert str([entry[2] for entry in found]) == str([entry[2] for entry in expected])


async def test_c08_recovering_twice_changes_nothing(store: Store) -> None:
    held, number = await begun(store, JOURNAL[:3])
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    events = late(held, number + 1, JOURNAL[3:])
    for count in (len(events), 0, 0):
        assert await store.journal.deliver_late(held.turn.id, held.epoch, events) == count
        await store.journal.recover(ME, held.session.id)
        after = (await store.sessions.get(ME, held.session.id)).version
        await store.journal.recover(ME, held.session.id)
        assert (await store.sessions.get(ME, held.session.id)).version == after
    journal = await store.journal.of_turn(ME, held.turn.id)
    assert (
        list(fold(held.turn.id, journal, is_ended=True, is_recovered=True).messages)
        == (await transcript(store, held.session.id))[1:]
    )


async def test_c08_interrupting_twice_changes_nothing(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "half")])
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    before = await store.transcript.export(ME, session.id)
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    assert await store.transcript.export(ME, session.id) == before


async def test_c08_an_interrupted_turn_that_is_resumed_is_folded_again(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "half")])
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    await store.turns.resume(ME, held.turn.id)
    again = await claim(store, "wrk_two")
    assert await words(store, session.id) == ["hello"], "its text is live again, not yet in the transcript"
    number = await append(store, again, [ev.StepAbandoned(1, "crash"), *answer("whole", step=1)])
    await complete(store, again, number)
    assert await words(store, session.id) == ["hello", "whole"]
