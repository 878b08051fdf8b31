"""A05: progress moves ``updated_at``; maintenance leaves it as it was."""

from __future__ import annotations

import pytest

from everturn.domain import events as ev
from everturn.domain.sessions import SessionPatch
from everturn.domain.store_values import Request
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import CRASHED, ME, answered, append, late, new_session, say, start

pytestmark = pytest.mark.anyio


async def test_a05_a_long_turn_stays_at_the_top_of_the_list(store: Store, clock: FakeClock) -> None:
    busy, idle = await new_session(store, "busy"), await new_session(store, "idle")
    held = await start(store, busy.id, "work")
    number = held.number
    for _ in range(3):
        await clock.advance(60)
        await say(store, idle.id, "hello")
        await clock.advance(60)
        number = await append(store, held, [ev.TextDelta(1, "still here ")], number)
        listed = (await store.sessions.list(ME)).items
        assert [session.title for session in listed] == ["busy", "idle"]
        assert listed[0].updated_at == clock.now_ms()


async def test_a05_maintenance_leaves_the_time_as_it_was(store: Store, clock: FakeClock) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    held = await start(store, session.id, "b")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    before = (await store.sessions.get(ME, session.id)).updated_at
    await clock.advance(3600)
    await store.sessions.set_title(ME, session.id, "generated")
    await store.sessions.change(ME, session.id, SessionPatch(title="given", pinned=True))
    await store.journal.deliver_late(held.turn.id, held.epoch, late(held, 2, [ev.TextDelta(1, "late")]))
    await store.journal.recover(ME, session.id)
    await store.upkeep.prune(older_than_ms=0)
    await store.upkeep.repair()
    await store.transcript.undo(ME, session.id, Request())
    assert (await store.sessions.get(ME, session.id)).updated_at == before


async def test_a05_what_is_new_sorts_first_although_the_clock_was_set_back(
    store: Store, clock: FakeClock
) -> None:
    await new_session(store, "old")
    talked, left = await new_session(store, "talked"), await new_session(store, "left")
    clock.set_back(3600)
    await new_session(store, "new")
    assert await titles(store) == ["new", "left", "talked", "old"]
    held = await start(store, talked.id, "hello")
    await append(store, held, [ev.TextDelta(1, "hi")])
    assert await titles(store) == ["talked", "new", "left", "old"]
    await clock.advance(3700)
    await say(store, left.id, "and I?")
    assert (await store.sessions.get(ME, left.id)).updated_at == clock.now_ms()
    assert (await titles(store))[0] == "left"


async def test_a05_a_time_far_ahead_does_not_date_what_comes_after_it(store: Store, clock: FakeClock) -> None:
    ahead = await new_session(store, "ahead")
    clock.set_back(10 * 24 * 3600)
    later = await new_session(store, "later")
    assert later.updated_at == clock.now_ms()
    await say(store, ahead.id, "hello")
    assert (await store.sessions.get(ME, ahead.id)).updated_at == clock.now_ms()


async def test_a05_progress_is_dated_now_although_its_session_was_dated_far_ahead(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    clock.set_back(10 * 24 * 3600)
    await append(store, held, [ev.TextDelta(1, "hi")])
    assert (await store.sessions.get(ME, session.id)).updated_at == clock.now_ms()


async def titles(store: Store) -> list[str]:
    return [session.title for session in (await store.sessions.list(ME)).items]
