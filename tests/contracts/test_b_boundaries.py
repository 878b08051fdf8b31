"""B02, B11, B12, B14, B16, B18 through the engine: the boundaries at which memory is committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from everturn.domain.model_errors import ModelOverloaded
from everturn.domain.store_values import Request
from everturn.engine.agent_cache import CacheBounds
from everturn.memory import Memory
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe, ModelFails, Say, ScriptedModel, acting, within
from everturn.testing.acting import ME
from everturn.testing.harness import OWNER, Harness, open_harness, quiet_settings
from everturn.testing.memory import RecordingProvider
from tests.contracts.memory_acting import memory_over, said
from tests.waiting import task_ended, task_waits_in, until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def engine_with(
    store: Store, clock: FakeClock, memory: Memory, bounds: CacheBounds | None = None, **more: Any
) -> AsyncIterator[Harness]:
    settings = quiet_settings(cache=bounds or CacheBounds())
    model = ScriptedModel(clock=clock, then="fine")
    async with open_harness(
        store, clock=clock, memory=memory, model=model, settings=settings, **more
    ) as harness:
        yield harness


async def test_b02_a_finished_turn_is_owed_and_observed_but_not_committed(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        await h.run(session, "one")
        await handle.until("the turn is observed", lambda: handle.observed)
        assert await memory.has_uncommitted_work(OWNER, session.id)
        assert handle.calls == []


async def test_b01_a_compaction_is_never_owed(store: Store, clock: FakeClock) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        for text in ("one", "two", "three"):
            await h.run(session, text)
        compaction = await h.settled((await h.engine.compact(OWNER, session.id)).turn.id)
        assert (compaction.kind, compaction.state) == ("compaction", "completed")
        assert not await memory.mark_completed(OWNER, session.id, compaction.id)
    assert [len(segment.turns) for segment in handle.calls] == [3]


async def test_b01_the_text_of_an_abandoned_attempt_is_not_handed_over(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    model = ScriptedModel(
        [Say("You love spam, "), ModelFails(ModelOverloaded("busy"))], "You love tea.", clock=clock
    )
    settings = quiet_settings()
    async with open_harness(store, clock=clock, memory=memory, model=model, settings=settings) as h:
        session = await h.new_session()
        accepted = await h.send(session, "what do I love?")
        await h.seen(session, "step.abandoned")
        await clock.advance(60)
        await h.settled(accepted.turn.id)
        assert "spam" in str(await h.messages(session))
    (segment,) = handle.calls
    assert "You love tea." in str(segment)
    assert "spam" not in str(segment)


async def test_b11_shutdown_settles_everything_and_closes_each_handle_once(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        first, second = await h.new_session(), await h.new_session()
        await h.run(first, "one")
        await h.run(second, "two")
        await h.run(first, "three")
    assert sorted(handle.words) == ["one", "three", "two"]
    assert [len(segment.turns) for segment in handle.calls if segment.session_id == first.id] == [2]
    assert handle.closed == 1
    assert await store.ledger.list_owing() == []
    assert memory.tracked == 0


async def test_b11_shutdown_is_not_held_up_by_a_hanging_provider_and_all_stays_owed(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle], drain_s=7)
    with within("shutdown ends, although the provider hangs"), handle.held():
        async with anyio.create_task_group() as group, engine_with(store, clock, memory) as h:
            session = await h.new_session()
            await h.run(session, "one")
            group.start_soon(clock_passes, clock, handle, 7.0)
    (owing,) = await store.ledger.list_owing()
    assert (owing.session_id, owing.turns) == (session.id, 1)
    assert handle.calls == []


async def test_b11_a_commit_of_a_left_session_that_hangs_is_given_up_before_its_handle_is_closed(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle], drain_s=7)
    with within("shutdown ends in the time of the drain, although the commit hangs"), handle.held():
        async with anyio.create_task_group() as group, engine_with(store, clock, memory) as h:
            session = await h.new_session()
            await h.run(session, "one")
            await h.new_session(leaving=session.id)
            await handle.entered()
            group.start_soon(passes_when_asked, clock, 7.0)
    assert (handle.closed, handle.was_closed_at_work, handle.calls) == (1, False, [])
    (owing,) = await store.ledger.list_owing()
    assert (owing.turns, owing.is_under_way) == (1, False)


async def passes_when_asked(clock: FakeClock, seconds: float) -> None:
    """Advance the clock by ``seconds`` once a task sleeps for exactly that long."""
    await clock.someone_sleeps(seconds)
    await clock.advance(seconds)


async def clock_passes(clock: FakeClock, handle: RecordingProvider, seconds: float) -> None:
    await handle.entered()
    await clock.advance(seconds)


async def test_b12_eviction_commits_every_session_served_then_closes_once(
    store: Store, clock: FakeClock
) -> None:
    old, new = RecordingProvider(), RecordingProvider()
    anew = RecordingProvider()
    memory = memory_over(store, clock, opened=[old, new, anew])
    async with engine_with(store, clock, memory, CacheBounds(agents_max=1)) as h:
        a1 = await h.new_session(key="agent:main:telegram:dm:a")
        a2 = await h.new_session(key="agent:main:telegram:dm:a")
        b = await h.new_session(key="agent:main:telegram:dm:b")
        await h.run(a1, "first of a")
        await h.run(a2, "second of a")
        with old.held():
            await h.run(b, "of b")  # pushes the agent of a out
            await old.entered()
            # Its provider is at work. Nothing waits for it: neither the other key nor the same key.
            assert old.closed == 0
            assert (await h.run(b, "b again")).state == "completed"
            assert (await h.run(a1, "a again")).state == "completed"
        await old.until("the evicted handle is closed", lambda: old.closed)
        assert sorted(old.words) == ["first of a", "second of a"]
        assert old.closed == 1
    assert old.closed == 1
    assert new.words == ["of b", "b again"]
    assert anew.words == ["a again"]


@pytest.mark.parametrize("is_undone", [False, True])
async def test_b12_eviction_waits_for_the_commit_under_way(
    store: Store, clock: FakeClock, is_undone: bool
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    session = await acting.new_session(store)
    memory.register(session.id, await memory.open())
    await said(store, memory, session.id, "one")
    released = anyio.Event()

    async def release() -> None:
        await memory.release(handle)
        released.set()

    async with anyio.create_task_group() as group:
        with handle.held():
            group.start_soon(memory.commit, ME, session.id)
            await handle.entered()
            if is_undone:
                # Now it is not owed any more; the commit that has it still runs.
                await store.transcript.undo(ME, session.id, Request())
            group.start_soon(release)
            await (task_waits_in(memory.release) if is_undone else task_waits_in(memory.commit, tasks=2))
            assert not released.is_set()
        with within("the handle is released when the commit under way has ended"):
            await released.wait()
    assert (len(handle.calls), handle.closed, handle.was_closed_at_work) == (1, 1, False)


async def test_b14_clearing_returns_and_the_session_takes_turns_while_its_agent_is_evicted(
    store: Store, clock: FakeClock
) -> None:
    handle, fresh = RecordingProvider(), RecordingProvider()
    memory = memory_over(store, clock, opened=[handle, fresh])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session(key="agent:main:telegram:dm:a")
        sibling = await h.new_session(key="agent:main:telegram:dm:a")
        await h.run(session, "one")
        await h.run(sibling, "other")
        with handle.held():
            with within("clear returns, although the eviction's commit hangs"):
                await h.engine.clear(OWNER, session.id, Request())
            await handle.entered()
            # The eviction hangs in its provider. The session's write path is free.
            turn = await h.run(session, "anew")
            assert turn.state == "completed"
            assert handle.closed == 0
        await handle.until("the evicted handle is closed", lambda: handle.closed)
    assert sorted(handle.words) == ["one", "other"]
    assert fresh.words == ["anew"]


async def test_b01_clearing_commits_what_a_session_without_a_warm_agent_owes(
    store: Store, clock: FakeClock
) -> None:
    fresh = RecordingProvider()
    session = await acting.new_session(store)
    # Completed in another process, which lives and has the handle: no other process commits it on its own.
    await store.workers.register(acting.WORKER)
    theirs = memory_over(store, clock, worker=acting.WORKER)
    theirs.register(session.id, RecordingProvider())
    await said(store, theirs, session.id, "one")
    async with engine_with(store, clock, memory_over(store, clock, opened=[fresh])) as h:
        await h.engine.clear(ME, session.id, Request())
        await fresh.until("the cleared session is committed", lambda: fresh.words)
    assert fresh.words == ["one"]


async def test_b18_starting_a_session_commits_the_one_that_is_left_without_waiting(
    store: Store, clock: FakeClock
) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        await h.run(session, "one")
        with handle.held():
            with within("the new session is there, although the commit of the left one hangs"):
                fresh = await h.new_session(leaving=session.id)
            await handle.entered()
            turn = await h.run(fresh, "two")
            assert turn.state == "completed"
            assert handle.calls == []
        await handle.until("the left session is committed", lambda: handle.words)
        assert handle.words == ["one"]


async def test_b18_leaving_a_session_of_another_owner_commits_nothing(store: Store, clock: FakeClock) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        await h.run(session, "one")
        await h.engine.create_session("eve", leaving=session.id)
        await task_ended(f"leave {session.id}")
        assert handle.calls == []


async def test_b03_compaction_is_a_boundary(store: Store, clock: FakeClock) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        for text in ("one", "two", "three"):
            await h.run(session, text)
        accepted = await h.engine.compact(OWNER, session.id)
        turn = await h.settled(accepted.turn.id)
        assert turn.state == "completed"
        await handle.until("the compacted session is committed", lambda: handle.words)
    assert handle.words == ["one", "two", "three"]
    assert len(handle.calls) == 1, "what is settled is not handed over again, also not at the end"


async def test_b03_an_idle_session_is_committed_after_its_time(store: Store, clock: FakeClock) -> None:
    handle = RecordingProvider()
    memory = memory_over(store, clock, opened=[handle], idle_s=60, look_s=23)
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        await h.run(session, "one")
        for _ in range(2):
            await clock.someone_sleeps(23)
            await clock.advance(23)
        await clock.someone_sleeps(23)
        assert handle.calls == [], "46 seconds are not a minute"
        await clock.advance(23)
        await handle.until("the idle session is committed", lambda: handle.words)


async def test_b16_the_next_engine_commits_what_a_dead_one_left(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    dead, fresh = RecordingProvider(failures=99), RecordingProvider()
    async with engine_with(store, clock, memory_over(store, clock, opened=[dead])) as h:
        session = await h.new_session()
        await h.run(session, "one")
        await h.run(session, "two")
    async with engine_with(store, clock, memory_over(store, clock, opened=[fresh])):
        await fresh.until("the next engine commits at its start", lambda: fresh.words)
    assert fresh.words == ["one", "two"]
    assert {segment.key for segment in fresh.calls} == {segment.key for segment in dead.calls}


async def test_b17_deleting_a_session_whose_commit_failed_leaves_nothing(
    store: Store, clock: FakeClock
) -> None:
    dead, failing = RecordingProvider(failures=99), RecordingProvider(failures=99)
    with within("an engine stops, although its provider fails"):
        async with engine_with(store, clock, memory_over(store, clock, opened=[dead])) as h:
            session = await h.new_session()
            await h.run(session, "one")
    memory = memory_over(store, clock, opened=[failing])
    with within("the next engine tries and fails, the session is deleted, the engine stops"):
        async with engine_with(store, clock, memory) as h:
            # What is tracked: the handle, and the session that it owes for.
            await until("the commit has failed", lambda: memory.tracked == 2 and failing.calls)
            await h.engine.delete(OWNER, session.id)
            assert memory.tracked == 1
    assert memory.tracked == 0
    assert await store.ledger.list_owing() == []


async def test_b17_a_turn_that_is_cancelled_while_its_agent_is_built_leaves_no_handle(
    store: Store, clock: FakeClock
) -> None:
    handle, fresh = SlowToRecall(), RecordingProvider()
    memory = memory_over(store, clock, opened=[handle, fresh])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session()
        accepted = await h.send(session, "one")
        with within("the provider is asked what it has"):
            await handle.is_asked.wait()
        await h.engine.cancel(OWNER, accepted.turn.id)
        await h.settled(accepted.turn.id)
        await handle.until("the unused handle is closed", lambda: handle.closed)
        assert memory.tracked == 0
        assert (await h.run(session, "two")).state == "completed"
    assert (handle.closed, fresh.words) == (1, ["two"])


class SlowToRecall(RecordingProvider):
    def __init__(self) -> None:
        super().__init__()
        self.is_asked = anyio.Event()

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        self.is_asked.set()
        await anyio.sleep_forever()
        return ""


async def test_a_private_session_reaches_neither_recall_nor_memory(store: Store, clock: FakeClock) -> None:
    handle = RecordingProvider(recalls="You like tea.")
    memory = memory_over(store, clock, opened=[handle])
    async with engine_with(store, clock, memory) as h:
        session = await h.new_session(private=True)
        await h.run(session, "a secret")
        assert "tea" not in str(h.model.requests[0])
    assert (handle.prompts, handle.calls, handle.observed) == ([], [], [])
