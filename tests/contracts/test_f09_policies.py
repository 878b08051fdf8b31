"""F09: what becomes of missed and overlapping times is chosen per schedule; a run that asks waits."""

from __future__ import annotations

import pytest

from everturn.domain.asks import AskTopic
from everturn.domain.delivery import NewPart
from everturn.domain.schedules import Fate, IntervalRule, RunsIn, WhenMissed, WhenOverlapping
from everturn.domain.turns import TurnState
from everturn.schedules import plan_due
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answer, append, ask, claim, complete
from tests.delivering import ACCOUNT, AGE_MAX_MS, lease_of, receive
from tests.scheduling import HOUR_MS, at, fates, make, settle

pytestmark = pytest.mark.anyio
HOURLY = IntervalRule(3600, at(16, 7))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at(16, 7))


async def finish(store: Store) -> None:
    held = await claim(store)
    await complete(store, held, await append(store, held, answer("done")))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (WhenMissed.LAST, ["missed"] * 29 + ["caught_up"]),
        (WhenMissed.ALL, ["missed"] * 6 + ["caught_up"] * 24),
        (WhenMissed.SKIP, ["missed"] * 30),
    ],
)
async def test_f09_missed_times_are_caught_up_as_chosen(
    store: Store, clock: FakeClock, policy: WhenMissed, expected: list[str]
) -> None:
    schedule = await make(store, clock, HOURLY, when_missed=policy)
    await clock.advance(30 * 3600 + 1800)
    await settle(store, clock)
    found = await store.schedules.occurrences(ME, schedule.id, limit=100)
    assert [one.fate for one in found][::-1] == expected
    assert all(one.reason for one in found)
    ran = [one for one in found if one.turn_id]
    assert len(ran) == expected.count("caught_up")
    assert (await store.schedules.get(ME, schedule.id)).due_at == at(16, 7) + 31 * HOUR_MS


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (WhenMissed.LAST, ["missed", "missed", "ran"]),
        (WhenMissed.ALL, ["caught_up", "caught_up", "ran"]),
        (WhenMissed.SKIP, ["missed", "missed", "ran"]),
    ],
)
async def test_f09_a_time_that_has_just_come_runs_beside_those_that_were_missed(
    store: Store, clock: FakeClock, policy: WhenMissed, expected: list[str]
) -> None:
    schedule = await make(store, clock, HOURLY, when_missed=policy)
    await clock.advance(3 * 3600 + 60)
    await settle(store, clock)
    assert [fate for _, fate in await fates(store, schedule)] == expected


async def test_f09_a_year_without_a_server_is_a_few_rows_and_one_run(store: Store, clock: FakeClock) -> None:
    schedule = await make(store, clock, IntervalRule(60, at(16, 7)))
    await clock.advance(365 * 24 * 3600 + 30)
    await settle(store, clock)
    found = await store.schedules.occurrences(ME, schedule.id, limit=1000)
    assert len(found) < 250
    assert (found[0].fate, found[-1].fate) == (Fate.RAN, Fate.MISSED)
    assert "many others" in found[-1].reason


async def test_f09_an_overlapping_time_is_skipped_with_its_reason(store: Store, clock: FakeClock) -> None:
    schedule = await make(store, clock, HOURLY)
    for _ in range(3):
        await clock.advance(3600)
        await settle(store, clock)
    found = await store.schedules.occurrences(ME, schedule.id)
    assert [one.fate for one in found] == ["skipped", "skipped", "ran"]
    assert found[0].reason == "The previous run was still going."
    await finish(store)
    await clock.advance(3600)
    await settle(store, clock)
    assert (await fates(store, schedule))[-1][1] == "ran"


@pytest.mark.parametrize("runs_in", RunsIn)
async def test_f09_one_overlapping_time_waits_and_runs_after_the_run_before(
    store: Store, clock: FakeClock, runs_in: RunsIn
) -> None:
    schedule = await make(store, clock, HOURLY, when_overlapping=WhenOverlapping.QUEUE, runs_in=runs_in)
    await clock.advance(3600)
    await settle(store, clock)
    for _ in range(3):
        await clock.advance(3600)
        await settle(store, clock)
    assert len(await fates(store, schedule)) == 1
    assert (await store.schedules.get(ME, schedule.id)).is_waiting
    await finish(store)
    await clock.advance(10)
    await settle(store, clock)
    assert [fate for _, fate in await fates(store, schedule)] == ["ran", "skipped", "skipped", "ran"]
    found = await store.schedules.get(ME, schedule.id)
    assert (found.is_waiting, found.due_at) == (False, at(16, 7) + 5 * HOUR_MS)
    await finish(store)


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("runs_in", RunsIn)
async def test_f09_an_overlapping_time_replaces_the_run_before(
    store: Store, clock: FakeClock, runs_in: RunsIn, is_running: bool
) -> None:
    schedule = await make(store, clock, HOURLY, when_overlapping=WhenOverlapping.REPLACE, runs_in=runs_in)
    await clock.advance(3600)
    ((first),) = await settle(store, clock)
    if is_running:
        await claim(store)
    await clock.advance(3600)
    ((second),) = await settle(store, clock)
    assert second.replaced == (first.occurrences[0].turn_id,)
    turn = await store.turns.get(ME, second.replaced[0])
    assert turn.state is TurnState.CANCELLED
    assert [fate for _, fate in await fates(store, schedule)] == ["ran", "ran"]
    await finish(store)


async def test_f09_a_run_that_waits_for_an_answer_lives_and_later_ones_say_why_they_were_skipped(
    store: Store, clock: FakeClock
) -> None:
    schedule = await make(store, clock, HOURLY)
    await clock.advance(3600)
    await settle(store, clock)
    held = await claim(store)
    waits = ask("ask_1", held.turn.id, held.session.id, AskTopic.APPROVAL)
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [waits], [])
    await clock.advance(48 * 3600)
    await settle(store, clock)
    found = await store.schedules.occurrences(ME, schedule.id, limit=100)
    assert found[-1].turn_state is TurnState.WAITING
    assert found[0].reason == "The previous run was waiting for an answer."


async def test_f09_the_plan_of_a_schedule_that_is_not_due_is_empty(store: Store, clock: FakeClock) -> None:
    schedule = await make(store, clock)
    assert plan_due(schedule, clock.now_ms()).times == ()
    assert plan_due(schedule, clock.now_ms()).next_due_at == schedule.due_at


async def test_f09_a_run_that_needs_an_approval_asks_in_the_chat_that_gets_its_reports(
    store: Store, clock: FakeClock
) -> None:
    await lease_of(store)
    chat = (await receive(store, "u1")).chat
    schedule = await make(store, clock, HOURLY, report_to=chat.id, runs_in=RunsIn.NEW)
    await clock.advance(3600)
    await settle(store, clock)
    held = await claim(store)
    assert held.session.id != chat.session_id
    waits = ask("ask_" + "1" * 26, held.turn.id, held.session.id, AskTopic.APPROVAL)
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [waits], [])
    (due,) = await store.delivery.outbox.asks_due(ACCOUNT, limit=10)
    assert (due.chat.id, due.ask.id) == (chat.id, waits.id)
    assert await store.delivery.outbox.record_question(due, [NewPart("Shall I?")], age_max_ms=AGE_MAX_MS)
    assert await store.delivery.outbox.asks_due(ACCOUNT, limit=10) == []
    await store.asks.answer(ME, waits.id, "once", by="ada")
    again = await claim(store)
    await complete(store, again, await append(store, again, answer("done")))
    (reply,) = await store.delivery.outbox.replies_due(ACCOUNT, limit=10)
    assert (reply.chat.id, reply.answer) == (chat.id, "done")
    (found,) = await store.schedules.occurrences(ME, schedule.id)
    assert found.turn_state is TurnState.COMPLETED
