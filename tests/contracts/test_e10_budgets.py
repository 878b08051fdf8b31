"""E10: a budget bounds what is spent: an amount is reserved before a model call and settled after it."""

from __future__ import annotations

import anyio
import pytest
from msgspec.structs import replace

from everturn.domain import events as ev
from everturn.domain.budgets import (
    NO_PERIOD,
    BudgetScope,
    CallEstimate,
    ModelCall,
    OverBudget,
    Settled,
    Spent,
    Unit,
)
from everturn.domain.errors import Fenced, Gone, InvalidId, NotFound, WrongState
from everturn.domain.turns import Usage, WriterPosition
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, claim, new_session, say, start
from tests.budgeting import call_of, limit, only, tokens
from tests.conftest import OpenAnother
from tests.scheduling import at, make, settle

pytestmark = pytest.mark.anyio
DAY, MONTH, SESSION, SCHEDULE = BudgetScope.DAY, BudgetScope.MONTH, BudgetScope.SESSION, BudgetScope.SCHEDULE


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at(16, 7))


async def to(clock: FakeClock, moment: int) -> None:
    await clock.advance((moment - clock.now_ms()) / 1000)


async def test_e10_what_is_reserved_counts_until_the_usage_replaces_it(store: Store) -> None:
    await store.budgets.put(ME, limit(1000))
    held = await start(store, (await new_session(store)).id, "hello")
    call = call_of(held)
    assert await store.budgets.reserve(call, CallEstimate(300, 500, 100)) == 500
    now = await only(store)
    assert (now.spent, now.reserved, now.room) == (0, 800, 200)

    await store.budgets.settle(Settled(call, Spent(350)))
    await store.budgets.settle(Settled(call, Spent(350)))  # said twice, counted once
    now = await only(store)
    assert (now.spent, now.reserved, now.estimated) == (350, 0, 0)


async def test_e10_a_call_that_does_not_fit_is_refused_and_says_which_budget(store: Store) -> None:
    await store.budgets.put(ME, limit(10_000, MONTH))
    await store.budgets.put(ME, limit(100))
    held = await start(store, (await new_session(store)).id, "hello")
    with pytest.raises(OverBudget) as refused:
        await store.budgets.reserve(call_of(held), tokens(101))
    assert (
        refused.value.message
        == "Today's budget of 100 tokens does not cover the next model call: 100 tokens left."
    )
    assert refused.value.needed == 101
    assert refused.value.until == at(17, 1)
    assert [budget.reserved for budget in await store.budgets.list(ME)] == [0, 0]
    assert await store.budgets.reserve(call_of(held), tokens(100)) == 1


async def test_e10_the_output_limit_is_lowered_to_what_is_left(store: Store) -> None:
    await store.budgets.put(ME, limit(1000))
    await store.budgets.put(ME, limit(2_000_000, unit=Unit.USD))
    held = await start(store, (await new_session(store)).id, "hello")
    # 100 tokens of output cost a dollar, the input another half.
    estimate = CallEstimate(500, 400, 100, cost=4_500_000, cost_min=1_500_000)
    assert await store.budgets.reserve(call_of(held), estimate) == 150
    assert [budget.reserved for budget in await store.budgets.list(ME)] == [650, 2_000_000]


async def test_e10_a_budget_of_zero_refuses_what_costs_something(store: Store) -> None:
    await store.budgets.put(ME, limit(0, unit=Unit.USD))
    held = await start(store, (await new_session(store)).id, "hello")
    with pytest.raises(OverBudget, match=r"Today's budget of 0\.00 USD is used up"):
        await store.budgets.reserve(call_of(held), CallEstimate(10, 10, 10, cost=1, cost_min=1))
    # A model without a known price is not bounded by money; its tokens are counted.
    await store.budgets.reserve(call_of(held), CallEstimate(10, 10, 10))
    await store.budgets.settle(Settled(call_of(held), Spent(15)))
    assert (await only(store)).unpriced_tokens == 15
    await store.budgets.put(ME, limit(0))
    with pytest.raises(OverBudget, match="of 0 tokens"):
        await store.budgets.reserve(call_of(held), CallEstimate(10, 10, 10))


async def test_e10_two_turns_at_once_cannot_reserve_the_same_amount(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    await store.budgets.put(ME, limit(1000))
    claims = [await start(store, (await new_session(store)).id, "hello") for _ in range(8)]
    results: list[str] = []

    async def reserve(used: Store, call: ModelCall) -> None:
        try:
            await used.budgets.reserve(call, tokens(300))
            results.append("reserved")
        except OverBudget:
            results.append("refused")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number, held in enumerate(claims):
                group.start_soon(reserve, (store, other)[number % 2], call_of(held))
    assert sorted(results) == ["refused"] * 5 + ["reserved"] * 3
    assert (await only(store)).reserved == 900


async def test_e10_after_a_crash_without_usage_the_reservation_is_spent_as_an_estimate(store: Store) -> None:
    await store.budgets.put(ME, limit(1000))
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.budgets.reserve(call_of(held), tokens(400))
    await store.turns.hand_over(held.turn.id, held.epoch)  # as another worker finds it after a crash
    now = await only(store)
    assert (now.spent, now.estimated, now.reserved) == (400, 400, 0)

    again = await claim(store)
    with pytest.raises(Fenced):
        await store.budgets.reserve(call_of(held), tokens(10))
    await store.budgets.reserve(call_of(again), tokens(500))
    now = await only(store)
    assert (now.spent, now.estimated, now.reserved) == (400, 400, 500)
    with pytest.raises(OverBudget):
        await store.budgets.reserve(call_of(again, step=2), tokens(101))


async def test_e10_the_usage_and_its_event_are_one_commit(store: Store) -> None:
    await store.budgets.put(ME, limit(1000))
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.budgets.reserve(call_of(held), tokens(400))
    usage = ev.StepUsage(1, "scripted:model", Usage(100, 20))
    settled = [Settled(call_of(held), Spent(120))]
    last = WriterPosition(held.turn.id, held.epoch, held.number)
    with pytest.raises(WrongState):
        await store.budgets.append_settled(replace(last, number=held.number + 1), settled, [usage])
    assert (await only(store)).reserved == 400
    for _ in range(2):  # sent again after its answer was lost
        await store.budgets.append_settled(last, settled, [usage])
    assert ((await only(store)).spent, (await only(store)).reserved) == (120, 0)
    kinds = [event.kind for event in await store.journal.after(ME, session.id, 0, limit=100)]
    assert kinds.count("usage") == 1


async def test_e10_days_and_months_turn_over_in_their_time_zone(store: Store, clock: FakeClock) -> None:
    await store.budgets.put(ME, limit(100, timezone="Asia/Tokyo"))
    await store.budgets.put(ME, limit(150, MONTH, timezone="Asia/Tokyo"))
    held = await start(store, (await new_session(store)).id, "hello")
    first = call_of(held, 1)
    await store.budgets.reserve(first, tokens(80))
    with pytest.raises(OverBudget) as refused:
        await store.budgets.reserve(call_of(held, 2), tokens(30))
    assert refused.value.until == at(16, 16)  # midnight in Tokyo

    await to(clock, at(16, 16))
    second = call_of(held, 2)
    await store.budgets.reserve(second, tokens(30))
    await store.budgets.settle(Settled(first, Spent(60)))  # belongs to the day before
    day, month = await store.budgets.list(ME)
    assert (day.spent, day.reserved, month.spent, month.reserved) == (0, 30, 60, 30)
    with pytest.raises(OverBudget, match="This month's budget"):
        await store.budgets.reserve(call_of(held, 3), tokens(65))


async def test_e10_a_clock_that_is_set_back_gives_no_second_day(store: Store, clock: FakeClock) -> None:
    await store.budgets.put(ME, limit(100))
    held = await start(store, (await new_session(store)).id, "hello")
    await store.budgets.reserve(call_of(held), tokens(80))
    clock.set_wall(-86_400)
    with pytest.raises(OverBudget):
        await store.budgets.reserve(call_of(held, 2), tokens(80))


async def test_e10_a_session_has_its_own_amount(store: Store) -> None:
    mine, other = await new_session(store), await new_session(store)
    await store.budgets.put(ME, limit(100, SESSION, subject=mine.id))
    held = await start(store, mine.id, "hello")
    elsewhere = await start(store, other.id, "hello")
    await store.budgets.reserve(call_of(elsewhere), tokens(1000))
    await store.budgets.reserve(call_of(held), tokens(100))
    with pytest.raises(OverBudget, match="The session's budget"):
        await store.budgets.reserve(call_of(held, 2), tokens(1))
    assert (await only(store)).period_start == NO_PERIOD


async def test_e10_each_run_of_a_schedule_has_the_whole_amount(store: Store, clock: FakeClock) -> None:
    schedule = await make(store, clock)
    await store.budgets.put(ME, limit(100, SCHEDULE, subject=schedule.id))
    for day in (16, 17):
        await to(clock, at(day, 8))
        await settle(store, clock)
        held = await claim(store)
        await store.budgets.reserve(call_of(held), tokens(100))
        with pytest.raises(OverBudget, match="this scheduled run"):
            await store.budgets.reserve(call_of(held, 2), tokens(1))
        await store.turns.cancel(ME, held.turn.id, by="test")
    held = await start(store, held.session.id, "not a run")
    await store.budgets.reserve(call_of(held), tokens(1000))
    await store.schedules.delete(ME, schedule.id)
    assert await store.budgets.list(ME) == []


async def test_e10_another_amount_keeps_what_was_spent(store: Store, clock: FakeClock) -> None:
    await store.budgets.put(ME, limit(100))
    held = await start(store, (await new_session(store)).id, "hello")
    await store.budgets.reserve(call_of(held), tokens(80))
    changed = await store.budgets.put(ME, limit(200, timezone="America/New_York"))
    assert (changed.reserved, changed.room) == (80, 120)
    await store.budgets.settle(Settled(call_of(held), Spent(50)))
    assert ((await only(store)).spent, (await only(store)).reserved) == (50, 0)
    await store.budgets.remove(ME, changed.limit.key)
    assert await store.budgets.list(ME) == []
    with pytest.raises(NotFound):
        await store.budgets.remove(ME, changed.limit.key)


async def test_e10_a_budget_is_about_something_of_its_owner(store: Store, clock: FakeClock) -> None:
    session, schedule = await new_session(store), await make(store, clock)
    for scope, subject in ((SESSION, session.id), (SCHEDULE, schedule.id)):
        with pytest.raises(NotFound):
            await store.budgets.put("eve", limit(100, scope, subject=subject))
        with pytest.raises((NotFound, InvalidId)):
            await store.budgets.put(ME, limit(100, scope, subject="nothing"))
    await store.budgets.put(ME, limit(100, SESSION, subject=session.id))
    await store.sessions.delete(ME, session.id)
    assert await store.budgets.list(ME) == []
    with pytest.raises(Gone):
        await store.budgets.put(ME, limit(200, SESSION, subject=session.id))


async def test_e10_a_default_follows_the_settings_until_the_owner_has_one(store: Store) -> None:
    held = await start(store, (await new_session(store)).id, "hello")
    with pytest.raises(OverBudget):
        await store.budgets.reserve(call_of(held), tokens(60), defaults=[limit(50)])
    assert (await only(store)).is_default
    assert await store.budgets.owners() == {ME}
    await store.budgets.reserve(call_of(held), tokens(60), defaults=[limit(70)])
    assert (await only(store)).limit.amount == 70
    await store.budgets.put(ME, limit(500))
    await store.budgets.reserve(call_of(held, 2), tokens(400), defaults=[limit(70)])
    assert ((await only(store)).limit.amount, (await only(store)).is_default) == (500, False)


async def test_e10_a_call_beside_the_turn_counts_too(store: Store) -> None:
    await store.budgets.put(ME, limit(100))
    session = await new_session(store)
    accepted = await say(store, session.id, "hello")
    await store.turns.cancel(ME, accepted.turn.id, by="test")
    call = ModelCall(accepted.turn.id, 1, 0, "title")
    await store.budgets.reserve_aside(call, tokens(60))
    await store.budgets.settle(Settled(call, Spent(20)))
    assert (await only(store)).spent == 20
