"""A12: cancel ends the turn in one step; what was produced stays; nothing brings it back to life."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Fenced
from everturn.domain.probe import Moment
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, answer, append, ask, complete, new_session, say, start, wish, words
from tests.conftest import OpenAnother
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio


async def test_a12_a_reader_sees_the_turn_before_the_cancel_or_after_it_and_nothing_between(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "half")])
    await say(store, session.id, "and this?", when_busy="steer")
    probe.hold(Moment.END_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(store.turns.cancel, ME, held.turn.id)
        await probe.reached(Moment.END_WRITTEN)
        during, turns, _ = await other.transcript.export(ME, session.id)
        assert (during.active_turn, during.queued, during.messages) == (held.turn.id, 0, 1)
        assert turns[0].ended_at is None
        assert await words(other, session.id) == ["hello"]
        probe.release(Moment.END_WRITTEN)
    after, turns, _ = await other.transcript.export(ME, session.id)
    assert (after.active_turn, after.queued, after.last_state) == (None, 1, "cancelled")
    assert turns[0].ended_at is not None
    assert await words(other, session.id) == ["hello", "half"]
    assert [turn.text for turn in await other.turns.queue(ME, session.id)] == ["and this?"]


async def test_a12_a_progress_write_under_way_cannot_revive_the_turn(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    """The batch is written and not committed when another process cancels: the cancel waits, then wins."""
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, [ev.StepStarted(1, "m")])
    probe.hold(Moment.BATCH_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(append, store, held, [ev.TextDelta(1, "on its way")], number)
            await probe.reached(Moment.BATCH_WRITTEN)
            await held_up.start(group, other, other.turns.cancel, ME, held.turn.id)
            probe.release(Moment.BATCH_WRITTEN)
    with pytest.raises(Fenced):
        await append(store, held, [ev.TextDelta(1, "once more")], number + 1)
    with pytest.raises(Fenced):
        await complete(store, held, number + 1)
    with pytest.raises(Fenced):
        await store.turns.hand_over(held.turn.id, held.epoch)
    assert (await store.turns.get(ME, held.turn.id)).state == "cancelled"
    assert await words(store, session.id) == ["hello", "on its way"]
    assert await store.turns.find_lost([(held.turn.id, held.epoch)]) == [held.turn.id]


async def test_a12_a_waiting_turn_is_cancelled_with_its_questions(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish(is_started=False))
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [ask("ask_1", held.turn.id, session.id)], [])
    await store.turns.cancel(ME, held.turn.id)
    now = await store.sessions.get(ME, session.id)
    assert (now.active_turn, now.asks, now.last_state) == (None, 0, "cancelled")
    assert await store.asks.open(ME, session.id) == []


async def test_a12_cancelling_twice_or_after_the_end_changes_nothing(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await complete(store, held, await append(store, held, answer("done")))
    before = await store.sessions.get(ME, session.id)
    assert (await store.turns.cancel(ME, held.turn.id)).state == "completed"
    queued = await say(store, session.id, "never mind")
    first = await store.turns.cancel(ME, queued.turn.id)
    again = await store.turns.cancel(ME, queued.turn.id)
    assert (first.state, again.state, again.ended_at) == ("cancelled", "cancelled", first.ended_at)
    now = await store.sessions.get(ME, session.id)
    assert (now.head, now.queued) == (queued.turn.id, 0), "it was about to run: its message stays"
    assert now.version == before.version + 2, "accepted, and cancelled once"
