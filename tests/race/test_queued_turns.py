"""A turn that has not begun is not part of the tree: no move makes it the end of the transcript."""

import pytest

from everturn.domain.errors import Busy, WrongState
from everturn.domain.store_values import ImportedSession, Request, RetriedTurn
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing.acting import ME, answered, claim, new_session, say, words

pytestmark = pytest.mark.anyio


async def test_a13_a_queued_turn_cannot_be_selected(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "one", "first")
    queued = await say(store, session.id, "two")
    with pytest.raises(Busy):
        await store.transcript.select(ME, session.id, queued.turn.id, Request(key="s"))
    assert await words(store, session.id) == ["one", "first"]
    held = await claim(store)
    assert held.turn.parent_id != held.turn.id, "a turn is not its own parent"
    assert await words(store, session.id) == ["one", "first", "two"]


async def test_a13_selecting_its_parent_does_not_reach_a_retry_that_was_removed(store: Store) -> None:
    session = await new_session(store)
    first = await answered(store, session.id, "one", "first")
    second = await answered(store, session.id, "two", "second")
    retried = await store.transcript.retry(ME, session.id, RetriedTurn(second.turn.id), Request(key="r"))
    await store.turns.remove_queued(ME, retried.turn.id)
    moved = await store.transcript.select(ME, session.id, first.turn.id, Request(key="s"))
    assert moved.head == second.turn.id, "the newest answer that there is"
    assert (await store.turns.get(ME, second.turn.id)).siblings == 1, "what never began is no sibling"


@pytest.mark.parametrize("move", ["select", "branch"])
async def test_a13_the_head_cannot_move_to_a_turn_that_was_removed_from_the_queue(
    store: Store, move: str
) -> None:
    session = await new_session(store)
    await answered(store, session.id, "one", "first")
    queued = await say(store, session.id, "two")
    await store.turns.remove_queued(ME, queued.turn.id)
    with pytest.raises(WrongState):
        await getattr(store.transcript, move)(ME, session.id, queued.turn.id, Request(key="s"))
    assert await words(store, session.id) == ["one", "first"]


async def test_a15_a_turn_that_was_removed_from_the_queue_is_no_sibling_after_the_import(
    store: Store,
) -> None:
    session = await new_session(store)
    first = await answered(store, session.id, "one", "first")
    queued = await say(store, session.id, "two")
    await store.turns.remove_queued(ME, queued.turn.id)
    assert (await store.turns.get(ME, first.turn.id)).siblings == 1
    copy = await store.transcript.import_session(
        ME, ImportedSession(*(await store.transcript.export(ME, session.id)))
    )
    before = await store.transcript.export(ME, session.id)
    after = await store.transcript.export(ME, copy.id)
    assert [turn.state for turn in after[1]] == [turn.state for turn in before[1]]
    assert after[1][1].state is TurnState.CANCELLED
    assert (await store.turns.get(ME, after[1][0].id)).siblings == 1
