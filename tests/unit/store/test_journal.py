"""The journal: who may append, what a repeated batch adds, what a follower sees."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Fenced, Gone, NotFound, WrongState
from everturn.store import Store
from everturn.testing.acting import ME, WORKER, answer, append, claim, complete, new_session, positions, start
from tests.conftest import OpenAnother
from tests.waiting import reader_waits

pytestmark = pytest.mark.anyio


async def test_a_batch_that_is_sent_again_adds_nothing(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    batch = [ev.TextDelta(1, "a"), ev.TextDelta(1, "b")]
    first = await store.journal.append(held.turn.id, held.epoch, 2, batch)
    again = await store.journal.append(held.turn.id, held.epoch, 2, batch)
    assert again == first
    await store.journal.append(held.turn.id, held.epoch, 3, [ev.TextDelta(1, "b"), ev.TextDelta(1, "c")])
    texts = [e.payload.text for e in await store.journal.of_turn(ME, held.turn.id) if e.kind == "text.delta"]
    assert texts == ["a", "b", "c"]


async def test_a_gap_in_the_numbers_is_refused(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    with pytest.raises(WrongState):
        await store.journal.append(held.turn.id, held.epoch, 4, [ev.TextDelta(1, "too far")])
    assert len(await store.journal.of_turn(ME, held.turn.id)) == 2


async def test_in_one_batch_a_refused_append_fails_alone(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    outcomes: list[object] = []

    async def one(epoch: int, first: int, text: str) -> None:
        try:
            outcomes.append(await store.journal.append(held.turn.id, epoch, first, [ev.TextDelta(1, text)]))
        except (Fenced, WrongState) as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        group.start_soon(one, held.epoch, 2, "a")
        group.start_soon(one, held.epoch + 1, 2, "from the future")
        group.start_soon(one, held.epoch, 9, "too far")
        group.start_soon(one, held.epoch, 3, "b")
    assert sorted(map(str, outcomes)) == ["3", "4", "fenced", "wrong_state"]
    assert [e.number for e in await store.journal.of_turn(ME, held.turn.id)] == [0, 1, 2, 3]


async def test_a_worker_that_handed_its_turn_over_can_append_no_more(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.hand_over(held.turn.id, held.epoch)
    with pytest.raises(Fenced):
        await append(store, held, answer("after the hand-over"))
    assert await store.turns.find_lost([(held.turn.id, held.epoch)]) == [held.turn.id]


async def test_a_worker_whose_turn_was_taken_over_can_append_no_more_before_the_next_claim(
    store: Store, open_another: OpenAnother
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    # Released as a take-over does it, and not claimed yet: the journal must be closed already.
    await store.workers.register(WORKER)
    await store.workers.unregister(WORKER)
    with pytest.raises(Fenced):
        await append(store, held, answer("from the dead"))
    resumed = await claim(store, "wrk_two")
    assert [e.kind for e in resumed.journal] == ["turn.accepted", "turn.started", "turn.resumed"]


async def test_a_follower_that_lags_sees_what_another_process_wrote_in_between(
    store: Store, open_another: OpenAnother
) -> None:
    """Own commit, another process's commit, own commit: a merged backlog has a hole in the middle."""
    other: Store = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    seen: list[int] = []
    stream = store.journal.follow(ME, session.id, 0)
    number = held.number

    async def read() -> None:
        seen.extend(event.position for event in await anext(stream))

    await read()
    for text in ("a", "b"):  # the reader waits for the next commit: it is past the replay
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await reader_waits()
            number = await append(store, held, [ev.TextDelta(1, text)], number)
    # Now it is busy with what it got while three commits happen.
    number = await append(store, held, [ev.TextDelta(1, "c")], number)
    number = await append(other, held, [ev.TextDelta(1, "d")], number)
    number = await append(store, held, [ev.TextDelta(1, "e")], number)
    with anyio.fail_after(60):
        while len(seen) < 7:
            await read()
    await stream.aclose()
    assert seen == [1, 2, 3, 4, 5, 6, 7] == await positions(store, session.id)


async def test_a_follower_of_a_deleted_session_learns_of_the_deletion(store: Store) -> None:
    session = await new_session(store)
    await start(store, session.id, "hello")
    stream = store.journal.follow(ME, session.id, 0)
    await anext(stream)

    ends: list[str] = []

    async def read_on() -> None:
        try:
            await anext(stream)
        except Gone as error:
            ends.append(error.code)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(read_on)
            await reader_waits()
            await store.sessions.delete(ME, session.id)
    assert ends == ["deleted"]


async def test_an_append_to_a_deleted_session_is_refused(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, [ev.TextDelta(1, "a")])
    await store.sessions.delete(ME, session.id)
    with pytest.raises(NotFound):
        await append(store, held, [ev.TextDelta(1, "b")], 2)


async def test_completion_refuses_a_count_that_is_not_the_journal_s(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, answer("hi"))
    with pytest.raises(WrongState):
        await complete(store, held, number - 1)
    assert (await store.turns.get(ME, held.turn.id)).state == "running"
    assert (await complete(store, held, number)).state == "completed"
