"""B04-B06, B10-B12, B15-B17 with the interleaving held the other way round: what happens between a question
to the ledger and its answer, behind the bound of one look, and beside another process."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from everturn.domain.clock import Clock
from everturn.domain.errors import StoreAway
from everturn.domain.memory import NextCommit
from everturn.domain.probe import Moment
from everturn.domain.store_values import Request
from everturn.memory import CommitOutcome, DrainResult, Memory
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe, acting, within
from everturn.testing.acting import ME
from everturn.testing.memory import RecordingProvider
from tests.contracts.memory_acting import memory_over, owes, said
from tests.waiting import task_waits_in, until

pytestmark = pytest.mark.anyio


class Held:
    """The store's ledger, but the first call of one kind, or its answer, waits until it is released."""

    def __init__(self, store: Store, question: str, *, is_asked_late: bool = False) -> None:
        self._ledger = store.ledger
        self._question = question
        self._is_asked_late = is_asked_late
        self.waits = anyio.Event()
        self.may_go_on = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._ledger, name)
        if name != self._question or self.waits.is_set():
            return act

        async def late(*args: Any, **more: Any) -> Any:
            answer = None if self._is_asked_late else await act(*args, **more)
            self.waits.set()
            await self.may_go_on.wait()
            return await act(*args, **more) if self._is_asked_late else answer

        return late


async def marked(store: Store, memory: Memory, session_id: str, text: str, handle: RecordingProvider) -> None:
    """A completed turn that is marked as a plug-in author does, with the handle that saw it."""
    held = await acting.answered(store, session_id, text, "I see.")
    assert await memory.mark_completed(ME, session_id, held.turn.id, handle)


# --- B04, B05, B06: who owes is found again ----------------------------------------------------------------


async def test_b04_a_turn_marked_with_its_handle_during_that_handles_commit_is_taken_by_the_next(
    store: Store, clock: Clock
) -> None:
    memory, handle = memory_over(store, clock), RecordingProvider()
    session = await acting.new_session(store)
    await marked(store, memory, session.id, "before", handle)
    async with anyio.create_task_group() as group:
        with handle.held():
            group.start_soon(memory.commit, ME, session.id)
            await handle.entered()
            await marked(store, memory, session.id, "during", handle)
    assert (await memory.commit(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert handle.words == ["before", "during"]
    assert (await memory.commit(ME, session.id)).outcome is CommitOutcome.NOTHING
    assert memory.tracked == 0, "it was given for those turns, not for the session"


async def test_b04_a_turn_that_completes_between_the_end_of_a_settling_and_its_return_is_not_passed_over(
    store: Store, clock: Clock, probe: HoldingProbe
) -> None:
    memory, handle = memory_over(store, clock, probe), RecordingProvider()
    session = await acting.new_session(store)
    memory.register(session.id, handle)
    await said(store, memory, session.id, "before")
    probe.hold(Moment.MEMORY_SETTLED)
    async with anyio.create_task_group() as group:
        group.start_soon(memory.commit_session, ME, session.id)
        await probe.reached(Moment.MEMORY_SETTLED)
        await said(store, memory, session.id, "just after")
        probe.release(Moment.MEMORY_SETTLED)
    await memory.commit(ME, session.id)
    assert handle.words == ["before", "just after"]


@pytest.mark.parametrize("is_registered", [True, False])
async def test_b05_a_turn_marked_while_the_ledger_answers_that_nothing_is_owed_keeps_its_handle(
    store: Store, clock: Clock, is_registered: bool
) -> None:
    memory, handle = memory_over(store, clock), RecordingProvider()
    session = await acting.new_session(store)
    if is_registered:
        memory.register(session.id, handle)
    ledger = memory.ledger = Held(store, "next")
    async with anyio.create_task_group() as group:
        group.start_soon(memory.commit_session, ME, session.id)
        with within("the ledger has said that nothing is owed"):
            await ledger.waits.wait()
        await marked(store, memory, session.id, "one", handle)
        ledger.may_go_on.set()
    assert (await memory.commit(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert handle.words == ["one"]


@pytest.mark.parametrize("is_heard_first", [True, False])
async def test_b05_a_turn_that_is_being_marked_when_the_ledger_says_that_nothing_is_owed_keeps_its_handle(
    store: Store, clock: Clock, is_heard_first: bool
) -> None:
    memory, handle = memory_over(store, clock), RecordingProvider()
    session = await acting.new_session(store)
    held = await acting.answered(store, session.id, "one", "I see.")
    marking = Held(store, "owe", is_asked_late=True)
    looking = Held(store, "next")
    async with asyncio.TaskGroup() as group:
        memory.ledger = marking
        mark = group.create_task(memory.mark_completed(ME, session.id, held.turn.id, handle))
        with within("the turn is about to be marked"):
            await marking.waits.wait()
        memory.ledger = looking
        settle = group.create_task(memory.commit_session(ME, session.id))
        with within("the ledger has said that nothing is owed"):
            await looking.waits.wait()
        steps = [(looking, settle), (marking, mark)]
        for ledger, task in steps if is_heard_first else reversed(steps):
            ledger.may_go_on.set()
            with within("the task that was held ends"):
                await task
    assert (await memory.commit(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert handle.words == ["one"]


async def test_b06_turns_that_two_handles_saw_in_turns_are_each_committed_by_the_one_that_saw_them(
    store: Store, clock: Clock
) -> None:
    memory, ada, eve = memory_over(store, clock), RecordingProvider(), RecordingProvider()
    session = await acting.new_session(store)
    for text, handle in (("one", ada), ("two", eve), ("three", ada), ("four", eve)):
        await marked(store, memory, session.id, text, handle)
    outcomes = [(await memory.commit(ME, session.id)).outcome for _ in range(5)]
    assert outcomes == [CommitOutcome.COMMITTED] * 4 + [CommitOutcome.NOTHING]
    assert (ada.words, eve.words) == (["one", "three"], ["two", "four"])
    assert memory.tracked == 0


# --- B10, B12: a handle that is being released --------------------------------------------------------------


@pytest.mark.parametrize("is_undone", [False, True])
async def test_b12_a_commit_that_has_picked_the_handle_and_not_begun_is_waited_for(
    store: Store, clock: FakeClock, is_undone: bool
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    session = await acting.new_session(store)
    # Not seen by this memory: the handle owes nothing until the commit that it is given for has begun.
    await said(store, memory, session.id, "one")
    await memory.open()
    ledger = memory.ledger = Held(store, "begin")
    async with anyio.create_task_group() as group:
        group.start_soon(memory.commit, ME, session.id, handle)
        with within("the commit is begun, and the process has not heard it"):
            await ledger.waits.wait()
        if is_undone:
            await store.transcript.undo(ME, session.id, Request())
        group.start_soon(memory.release, handle)
        # If it is undone nothing is left to settle, and the release itself waits.
        await (task_waits_in(memory.release) if is_undone else task_waits_in(memory.commit, tasks=2))
        assert handle.closed == 0
        ledger.may_go_on.set()
    assert (handle.words, handle.closed) == (["one"], 1)


async def test_b12_a_handle_that_more_sessions_owe_than_one_look_takes_commits_them_all(
    store: Store, clock: Clock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle], owing_max=2)
    await memory.open()
    for number in range(5):
        session = await acting.new_session(store)
        memory.register(session.id, handle)
        await said(store, memory, session.id, f"turn {number}")
    await memory.release(handle)
    assert (sorted(handle.words), handle.closed) == ([f"turn {number}" for number in range(5)], 1)


async def test_b12_releasing_a_handle_leaves_the_newer_segment_of_another_to_its_own_commit(
    store: Store, clock: Clock
) -> None:
    memory, old, new = memory_over(store, clock), RecordingProvider(), RecordingProvider()
    session = await acting.new_session(store)
    memory.register(session.id, old)
    await said(store, memory, session.id, "seen by old")
    memory.register(session.id, new)
    await said(store, memory, session.id, "seen by new")
    await memory.release(old)
    assert (old.words, old.closed, new.calls) == (["seen by old"], 1, [])
    assert await owes(memory, session.id)


async def test_b12_a_failing_provider_is_tried_once_per_session_by_a_release(
    store: Store, clock: Clock
) -> None:
    memory, handle = memory_over(store, clock, owing_max=1), RecordingProvider(failures=1)
    for text in ("one", "two"):
        session = await acting.new_session(store)
        memory.register(session.id, handle)
        await said(store, memory, session.id, text)
    with within("the release ends, although one commit fails"):
        await memory.release(handle)
    assert (len(handle.calls), handle.words, handle.closed) == (2, ["two"], 1)


async def test_b16_a_commit_that_is_given_up_while_it_begins_is_not_held_against_the_next_process(
    store: Store, clock: Clock
) -> None:
    ours, theirs = memory_over(store, clock), memory_over(store, clock)
    handle, other = RecordingProvider(), RecordingProvider()
    session = await acting.new_session(store)
    ours.register(session.id, handle)
    await said(store, ours, session.id, "one")
    ledger = ours.ledger = Held(store, "begin")
    async with anyio.create_task_group() as group:
        group.start_soon(ours.commit, ME, session.id)
        with within("the commit is begun, and the process has not heard it"):
            await ledger.waits.wait()
        group.cancel_scope.cancel()
        ledger.may_go_on.set()
    assert (await theirs.commit(ME, session.id, other)).outcome is CommitOutcome.COMMITTED
    assert other.words == ["one"]
    assert len({segment.key for segment in [*handle.calls, *other.calls]}) == 1


# --- B11: everything owed ---------------------------------------------------------------------------------


async def test_b11_what_cannot_be_committed_does_not_take_the_room_of_what_can(
    store: Store, clock: Clock
) -> None:
    memory = memory_over(store, clock, owing_max=1)
    failing, healthy = RecordingProvider(failures=99), RecordingProvider()
    for text, handle in (("stuck", failing), ("fine", healthy)):
        session = await acting.new_session(store)
        memory.register(session.id, handle)
        await said(store, memory, session.id, text)
    drained = await memory.drain(60)
    assert (drained.committed, drained.left, drained.is_complete) == (1, 1, False)
    assert (len(failing.calls), healthy.words) == (1, ["fine"])


@pytest.mark.parametrize("act", ["drain", "look"])
async def test_b11_what_another_living_process_saw_does_not_take_the_room_of_what_is_ours(
    store: Store, clock: FakeClock, act: str
) -> None:
    await store.workers.register(acting.WORKER)
    theirs = memory_over(store, clock, worker=acting.WORKER)
    ours = memory_over(store, clock, worker="wrk_two", idle_s=10, owing_max=1)
    seen_there, seen_here = RecordingProvider(), RecordingProvider()
    for text, memory, handle in (("there", theirs, seen_there), ("here", ours, seen_here)):
        session = await acting.new_session(store)
        await marked(store, memory, session.id, text, handle)
    await clock.advance(60)
    if act == "drain":
        assert await ours.drain(60) == DrainResult(1, 0, True)
    else:
        assert await ours.commit_due() == 1
    assert (seen_there.calls, seen_here.words) == ([], ["here"])


async def test_b11_a_turn_that_comes_to_a_session_that_was_settled_in_this_drain_is_taken_too(
    store: Store, clock: Clock
) -> None:
    memory, quick, slow = memory_over(store, clock), RecordingProvider(), RecordingProvider()
    first, second = await acting.new_session(store), await acting.new_session(store)
    memory.register(first.id, quick)
    await said(store, memory, first.id, "one")
    memory.register(second.id, slow)
    await said(store, memory, second.id, "slow")
    results: list[DrainResult] = []

    async def drain() -> None:
        results.append(await memory.drain(60))

    async with anyio.create_task_group() as group:
        with slow.held():
            group.start_soon(drain)
            await slow.entered()
            await quick.until("the first session is settled", lambda: quick.words)

            async def first_owes_nothing() -> bool:
                return not await owes(memory, first.id)

            await until("nothing of the first session is owed", first_owes_nothing)
            await marked(store, memory, first.id, "two", quick)
            assert results == []
    assert results == [DrainResult(3, 0, True)]
    assert quick.words == ["one", "two"]


async def test_b11_a_drain_whose_store_is_away_says_that_it_is_not_complete(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, handle = memory_over(store, clock), RecordingProvider()
    session = await acting.new_session(store)
    memory.register(session.id, handle)
    await said(store, memory, session.id, "one")

    async def away(*args: Any, **more: Any) -> NextCommit:
        raise StoreAway("The database cannot be reached.")

    with monkeypatch.context() as patch:
        patch.setattr(store.ledger, "list_owing", away)
        with within("a drain ends, although the store is away"):
            assert not (await memory.drain(60)).is_complete
        assert memory.trouble == "The database cannot be reached."
    assert (await memory.drain(60)).is_complete
    assert (handle.words, memory.trouble) == (["one"], "")
