"""A message whose turn can run here and now is claimed in the transaction that accepts it."""

import asyncio
from typing import Any

import anyio
import pytest

from everturn.domain.errors import TextEmpty
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, WORKER, claim, new_session, say
from everturn.testing.harness import OWNER, crashing_harness, open_harness, quiet_settings
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"  # the engine claims unseen only where the outcome of a write is always known


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_accepting_and_claiming_is_one_step(store: Store) -> None:
    await store.workers.register(WORKER)
    session = await new_session(store)
    accepted, claimed = await store.turns.accept_and_claim(
        WORKER, ME, session.id, Submission("first", key="k")
    )
    assert claimed is not None
    assert (claimed.turn.text, claimed.number, claimed.reason) == ("first", 1, "new")
    assert claimed.message is not None
    assert claimed.message.text == "first"
    assert accepted.turn == claimed.turn
    assert accepted.turn.state is TurnState.RUNNING
    kinds = [event.kind for event in await store.journal.after(ME, session.id, accepted.cursor)]
    assert kinds == ["turn.accepted", "turn.started"]
    again, nothing = await store.turns.accept_and_claim(WORKER, ME, session.id, Submission("first", key="k"))
    assert (again.turn.id, again.is_repeat, nothing) == (accepted.turn.id, True, None)
    later, nothing = await store.turns.accept_and_claim(WORKER, ME, session.id, Submission("second"))
    assert (later.turn.state, nothing) == (TurnState.QUEUED, None)


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_what_waits_already_is_claimed_first(store: Store) -> None:
    await store.workers.register(WORKER)
    session = await new_session(store)
    older = await say(store, session.id, "older")
    newer, claimed = await store.turns.accept_and_claim(WORKER, ME, session.id, Submission("newer"))
    assert claimed is not None
    assert claimed.turn.id == older.turn.id
    assert newer.turn.state is TurnState.QUEUED


async def test_a_claim_has_the_message_as_it_was_edited_in_the_queue(store: Store) -> None:
    await store.workers.register(WORKER)
    session = await new_session(store)
    waiting = await say(store, session.id, "befor")
    await store.turns.edit_queued(ME, waiting.turn.id, "before")
    claimed = await claim(store)
    assert claimed.message is not None
    assert claimed.message.text == claimed.turn.text == "before"


async def test_a01_a_turn_is_durable_and_claimed_before_its_caller_gets_an_answer(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    async with open_harness(store, "hello", clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.ACCEPT_COMMITTED)
        async with anyio.create_task_group() as group:
            group.start_soon(h.run, session)
            await probe.reached(Moment.ACCEPT_COMMITTED)
            assert await h.kinds(session) == ["turn.accepted", "turn.started"]
            assert (await store.sessions.get(OWNER, session.id)).active_state is TurnState.RUNNING
            assert not h.model.requests
            probe.release(Moment.ACCEPT_COMMITTED)
        assert await h.texts(session) == ["user: hello", "assistant: hello"]


async def test_a01_a_caller_that_is_cancelled_while_it_waits_leaves_a_turn_that_runs(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    async with open_harness(store, "said all the same", clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.ACCEPT_COMMITTED)
        caller = asyncio.create_task(h.send(session))
        await probe.reached(Moment.ACCEPT_COMMITTED)
        caller.cancel()  # as asyncio.timeout does, which no scope of anyio's would shield from
        await asyncio.gather(caller, return_exceptions=True)
        assert caller.cancelled()
        probe.release(Moment.ACCEPT_COMMITTED)
        await h.seen(session, "turn.completed")


async def test_a_message_being_accepted_while_the_engine_stops_is_handed_over_not_lost(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    async with open_harness(store, clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.ACCEPT_COMMITTED)
        sending = asyncio.create_task(h.send(session))
        await probe.reached(Moment.ACCEPT_COMMITTED)
        stopping = asyncio.create_task(h.engine.stop(0.0))
        await until("the engine stops", lambda: h.engine.status()["is_stopping"])
        probe.release(Moment.ACCEPT_COMMITTED)
        accepted = await sending
        await stopping
        turn = await h.turn(accepted.turn.id)
        assert (turn.is_ready, turn.attempts, h.model.requests) == (True, 0, [])
    async with open_harness(store, "after the restart", clock=clock) as h:
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED


async def test_c01_a_worker_that_dies_before_it_answers_leaves_a_turn_that_is_taken_over(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    async with crashing_harness(store, clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.ACCEPT_COMMITTED)
        sending = asyncio.create_task(h.send(session))
        await probe.reached(Moment.ACCEPT_COMMITTED)
    await asyncio.gather(sending, return_exceptions=True)
    async with open_harness(store, "taken up", clock=clock) as h:
        await h.seen(session, "turn.completed")
        assert await h.texts(session) == ["user: hello", "assistant: taken up"]


async def test_messages_being_accepted_count_against_the_places(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    settings = quiet_settings(server_turns_max=2)
    async with open_harness(store, *["fine"] * 4, clock=clock, probe=probe, settings=settings) as h:
        sessions = [await h.new_session() for _ in range(4)]
        probe.hold(Moment.CLAIM_COMMITTED)
        accepted = []
        async with anyio.create_task_group() as group:

            async def send(n: int) -> None:
                accepted.append(await h.send(sessions[n]))

            for n in range(4):
                group.start_soon(send, n)
        states = sorted([(await h.turn(one.turn.id)).state.value for one in accepted])
        assert states == ["queued", "queued", "running", "running"]
        probe.release(Moment.CLAIM_COMMITTED)
        for one in accepted:
            assert (await h.settled(one.turn.id)).state is TurnState.COMPLETED


async def test_a_refused_message_gives_its_place_back(store: Store, clock: FakeClock) -> None:
    settings = quiet_settings(server_turns_max=1, owner_turns_max=1)
    async with open_harness(store, "fine", clock=clock, settings=settings) as h:
        session = await h.new_session()
        for _ in range(3):
            with pytest.raises(TextEmpty):
                await h.send(session, "")
        assert (await h.run(session)).state is TurnState.COMPLETED


async def test_of_many_messages_at_once_few_begin_in_one_transaction(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns that run already would wait for hundreds that begin together; batches of claims are bounded."""
    accept_and_claim = store.turns.accept_and_claim
    under_way, most = 0, 0

    async def counted(*args: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await accept_and_claim(*args)
        finally:
            under_way -= 1

    monkeypatch.setattr(store.turns, "accept_and_claim", counted)
    async with open_harness(store, *["fine"] * 12, clock=clock) as h:
        sessions = [await h.new_session() for _ in range(12)]
        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(h.send, session)
        for session in sessions:
            await h.seen(session, "turn.completed")
    assert 1 <= most <= 4
