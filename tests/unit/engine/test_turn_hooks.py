"""Hooks after a turn: owed before its end, called afterwards, again after a crash, with the same key."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.hooks import TurnSummary
from everturn.domain.probe import Moment
from everturn.domain.store import Store
from everturn.domain.turns import TurnState
from everturn.engine.turn_hooks import LEASE, OWED, AfterTurnHooks, OwedHooks, read_failed_hooks
from everturn.store import Store as OpenStore
from everturn.testing import HoldingProbe, Say
from everturn.testing.harness import OWNER, crashing_harness, open_harness
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgresql"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Hooks:
    def __init__(self, *names: str, problem: str = "") -> None:
        self.known = list(names)
        self.problem = problem
        self.told: list[tuple[str, TurnSummary]] = []
        self.may_return = anyio.Event()
        self.may_return.set()

    async def names(self) -> Sequence[str]:
        return self.known

    async def run(self, name: str, summary: TurnSummary) -> str:
        self.told.append((name, summary))
        await self.may_return.wait()
        return self.problem


async def owed(store: Store) -> list[OwedHooks]:
    return [msgspec.convert(one, OwedHooks) async for batch in store.records.of_kind(OWED) for one in batch]


async def until_settled(store: Store) -> None:
    async def nothing_is_owed() -> bool:
        return not await owed(store)

    await until("nothing is owed", nothing_is_owed)


async def test_each_hook_is_told_of_a_completed_turn_once(store: OpenStore) -> None:
    hooks = Hooks("a", "b")
    async with open_harness(store, Say("Hello there."), hooks=hooks) as harness:
        turn = await harness.run(await harness.new_session(title="Greetings"), "hi")
        await until("both are told", lambda: len(hooks.told) == 2)
        await until_settled(store)
        assert [name for name, _ in hooks.told] == ["a", "b"]
        summary = hooks.told[0][1]
        assert (summary.key, summary.turn_id, summary.owner) == (f"{turn.id}/a", turn.id, OWNER)
        assert (summary.title, summary.text, summary.answer) == ("Greetings", "hi", "Hello there.")
        assert (summary.model, summary.is_repeat) == (harness.model.name, False)
        assert summary.ended_at == turn.ended_at


async def test_a_failure_is_shown_until_the_hook_succeeds_and_not_repeated(store: OpenStore) -> None:
    hooks = Hooks("a", problem="ValueError: no")
    async with open_harness(store, Say("One."), Say("Two."), hooks=hooks) as harness:
        session = await harness.new_session()
        turn = await harness.run(session)
        await until_settled(store)
        failed = (await read_failed_hooks(store.records))["a"]
        assert (failed.problem, failed.turn_id) == ("ValueError: no", turn.id)
        hooks.problem = ""
        await harness.run(session)
        await until_settled(store)
        assert await read_failed_hooks(store.records) == {}
        assert len(hooks.told) == 2


@pytest.mark.parametrize("was_owed", [False, True])
async def test_a_crash_before_the_end_of_the_turn_owes_the_hook_once(
    store: OpenStore, was_owed: bool
) -> None:
    """Whether the record was written or not when the worker died."""
    probe, before = HoldingProbe(), Hooks("a")
    probe.hold(Moment.WRITER_QUIET)
    async with crashing_harness(store, Say("Hello."), hooks=before, probe=probe) as harness:
        turn = (await harness.send(await harness.new_session())).turn
        await probe.reached(Moment.WRITER_QUIET)
        if was_owed:
            await AfterTurnHooks(before, store, SystemClock(), "dead").owe(turn)
    assert before.told == []
    after = Hooks("a")
    async with open_harness(store, Say("Hello."), hooks=after) as harness:
        assert (await harness.settled(turn.id)).state is TurnState.COMPLETED
        await until_settled(store)
    assert [(summary.turn_id, summary.is_repeat) for _, summary in after.told] == [(turn.id, False)]


async def test_a_hook_that_a_crash_cut_off_is_told_again_with_the_same_key(store: OpenStore) -> None:
    first, second = Hooks("a", "b"), Hooks("a", "b")
    first.may_return = anyio.Event()
    async with crashing_harness(store, Say("Hello."), hooks=first) as harness:
        await harness.run(await harness.new_session())
        await until("the first hook is called", lambda: first.told)
    async with open_harness(store, hooks=second):
        await until_settled(store)
    assert [(name, summary.is_repeat) for name, summary in second.told] == [("a", True), ("b", False)]
    assert second.told[0][1].key == first.told[0][1].key


async def test_a_turn_that_did_not_complete_and_a_hook_that_is_gone_owe_nothing(store: OpenStore) -> None:
    hooks = Hooks("a")
    async with open_harness(store, hooks=hooks) as harness:  # a model without an answer: the turn fails
        turn = await harness.run(await harness.new_session())
        assert turn.state is TurnState.FAILED
    for gone in (turn.id, "trn_00000000000000000000000000"):
        left = OwedHooks(OWNER, turn.session_id, gone, ("a",))
        await store.records.put(OWNER, OWED, gone, msgspec.to_builtins(left))
    async with open_harness(store, hooks=hooks):
        await until_settled(store)
    assert hooks.told == []


async def test_one_worker_at_a_time_calls_the_hooks(store: OpenStore) -> None:
    hooks = Hooks("a")
    async with open_harness(store, Say("Hello.")) as harness:  # without hooks: it keeps the lease
        assert await store.delivery.leases.take(LEASE, harness.engine.worker) is not None
        other = AfterTurnHooks(hooks, store, SystemClock(), "another")
        turn = await harness.run(await harness.new_session())
        await other.owe(turn)
        await other.call_due(hooks)
        assert hooks.told == []
