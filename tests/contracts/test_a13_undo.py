"""A13: undo and retry read, change and write as one step; what was undone can be restored."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain.probe import Moment
from everturn.domain.store_values import Request
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, answered, claim, new_session, say, words
from tests.conftest import OpenAnother
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio


async def test_a13_a_message_that_arrives_during_an_undo_follows_what_is_left(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    other = await open_another()
    session = await new_session(store)
    for text in ("a", "b"):
        await answered(store, session.id, text, text.upper())
    probe.hold(Moment.MOVE_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(store.transcript.undo, ME, session.id, Request())
            await probe.reached(Moment.MOVE_WRITTEN)
            assert await words(other, session.id) == ["a", "A", "b", "B"]
            await held_up.start(group, other, say, other, session.id, "c")
            probe.release(Moment.MOVE_WRITTEN)
    await claim(store)
    assert await words(store, session.id) == ["a", "A", "c"]
    assert (await store.sessions.get(ME, session.id)).redo_to is None


async def test_a13_one_undo_sent_by_two_processes_undoes_one_turn(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    session = await new_session(store)
    for text in ("a", "b", "c"):
        await answered(store, session.id, text, text.upper())
    async with anyio.create_task_group() as group:
        for through in (store, other, store, other):
            group.start_soon(through.transcript.undo, ME, session.id, Request(key="once"))
    assert await words(store, session.id) == ["a", "A", "b", "B"]


async def test_a13_what_was_undone_is_restored_whole_and_both_siblings_stay(store: Store) -> None:
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    first = await answered(store, session.id, "b", "B")
    await store.transcript.undo(ME, session.id, Request())
    await answered(store, session.id, "c", "C")
    assert await words(store, session.id) == ["a", "A", "c", "C"]
    await store.transcript.select(ME, session.id, first.turn.id, Request())
    assert await words(store, session.id) == ["a", "A", "b", "B"]
