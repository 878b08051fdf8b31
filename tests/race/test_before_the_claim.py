"""Between "accepted" and the claim: the next turn is about to run, and the transcript still ends with the last.

On PostgreSQL every message passes through this window, on SQLite those beyond the four that are accepted and
claimed in one step at a time. Here the engine has one place, and the turn that has it is held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everturn.domain.errors import Busy
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.store_values import ImportedSession, Request, RetriedTurn
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, answered, interrupted, new_session, say, words
from everturn.testing.harness import OWNER, Harness, open_harness, quiet_settings

pytestmark = pytest.mark.anyio
KEY = Request(key="k")


def options(clock: FakeClock, probe: HoldingProbe) -> dict[str, Any]:
    return {"clock": clock, "probe": probe, "settings": quiet_settings(server_turns_max=1)}


@asynccontextmanager
async def accepted_and_unclaimed(
    h: Harness, probe: HoldingProbe, session: Session, text: str
) -> AsyncIterator[str]:
    """The id of a turn that is accepted and cannot be claimed: another one has the only place, and is held
    before it calls its model."""
    probe.hold(Moment.MODEL_CALLED)
    await h.send(await h.new_session())
    await probe.reached(Moment.MODEL_CALLED)
    yield (await h.send(session, text)).turn.id
    probe.release(Moment.MODEL_CALLED)


async def test_every_move_is_refused_and_changes_nothing(
    store: Store, probe: HoldingProbe, clock: FakeClock
) -> None:
    async with open_harness(store, *["Yes."] * 9, **options(clock, probe)) as h:
        session = await h.new_session()
        first = await h.run(session, "first")
        await h.run(session, "second")
        await h.engine.undo(OWNER, session.id, Request(key="u"))
        async with accepted_and_unclaimed(h, probe, session, "third") as turn_id:
            before = await store.sessions.get(OWNER, session.id)
            moves = (
                h.engine.undo(OWNER, session.id, KEY),
                h.engine.redo(OWNER, session.id, KEY),
                h.engine.clear(OWNER, session.id, KEY),
                h.engine.retry(OWNER, session.id, RetriedTurn(), KEY),
                h.engine.retry(OWNER, session.id, RetriedTurn(first.id, text="edited"), KEY),
                h.engine.select(OWNER, session.id, first.id, KEY),
                h.engine.branch(OWNER, session.id, None, KEY),
            )
            for move in moves:
                with pytest.raises(Busy):
                    await move
            assert await store.sessions.get(OWNER, session.id) == before
        await h.settled(turn_id)
        assert await h.texts(session) == ["user: first", "assistant: Yes.", "user: third", "assistant: Yes."]


async def test_a_turn_that_is_cancelled_there_keeps_its_message_in_the_transcript(
    store: Store, probe: HoldingProbe, clock: FakeClock
) -> None:
    async with open_harness(store, *["Yes."] * 9, **options(clock, probe)) as h:
        session = await h.new_session()
        await h.run(session, "first")
        async with accepted_and_unclaimed(h, probe, session, "second") as turn_id:
            await h.engine.cancel(OWNER, turn_id)
        assert await h.texts(session) == ["user: first", "assistant: Yes.", "user: second"]
        page = await h.engine.page(OWNER, session.id)
        assert (page.turns[-1].id, page.turns[-1].state) == (turn_id, TurnState.CANCELLED)
        assert page.session.last_state is TurnState.CANCELLED
        await h.engine.undo(OWNER, session.id, KEY)
        assert await h.texts(session) == ["user: first", "assistant: Yes."], (
            "undo undoes it, not the one before"
        )
        await h.run(session, "third")
        assert len(await h.texts(session)) == 4


async def test_a_message_that_interrupts_takes_its_place_and_keeps_its_words(
    store: Store, probe: HoldingProbe, clock: FakeClock
) -> None:
    async with open_harness(store, *["Yes."] * 9, **options(clock, probe)) as h:
        session = await h.new_session()
        async with accepted_and_unclaimed(h, probe, session, "first") as turn_id:
            second = await h.send(session, "second", when_busy="interrupt")
        assert (await h.turn(turn_id)).state is TurnState.CANCELLED
        await h.settled(second.turn.id)
        assert await h.texts(session) == ["user: first", "user: second", "assistant: Yes."]


# --- the same at the store, without a worker -------------------------------------------------------------


async def test_what_waits_behind_another_is_removed_by_a_cancel(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "one", "first")
    following, behind = await say(store, session.id, "two"), await say(store, session.id, "three")
    await store.turns.cancel(ME, behind.turn.id)
    assert await words(store, session.id) == ["one", "first"]
    await store.turns.cancel(ME, following.turn.id)
    assert await words(store, session.id) == ["one", "first", "two"]
    assert (await store.sessions.get(ME, session.id)).queued == 0


async def test_removing_a_queue_entry_removes_it_also_if_it_is_the_next(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "one", "first")
    following = await say(store, session.id, "two")
    await store.turns.remove_queued(ME, following.turn.id)
    assert await words(store, session.id) == ["one", "first"]
    await store.transcript.undo(ME, session.id, KEY)


async def test_a_cancelled_retry_is_another_version_of_its_message(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "one", "first")
    retried = await store.transcript.retry(ME, session.id, RetriedTurn(), KEY)
    await store.turns.cancel(ME, retried.turn.id)
    turn = await store.turns.get(ME, retried.turn.id)
    assert (turn.sibling, turn.siblings) == (2, 2)
    assert await words(store, session.id) == ["one"]


async def test_an_interrupted_turn_is_not_resumed_past_a_message_that_was_accepted(store: Store) -> None:
    session = await new_session(store)
    held = await interrupted(store, session.id, "one", "half")
    await say(store, session.id, "two")
    with pytest.raises(Busy):
        await store.turns.resume(ME, held.turn.id)


async def test_a_first_message_that_was_cancelled_is_a_root_after_an_import(store: Store) -> None:
    session = await new_session(store)
    await store.turns.cancel(ME, (await say(store, session.id, "one")).turn.id)
    copy = await store.transcript.import_session(
        ME, ImportedSession(*(await store.transcript.export(ME, session.id)))
    )
    assert await words(store, copy.id) == ["one"]
    await store.transcript.retry(ME, copy.id, RetriedTurn(), KEY)
