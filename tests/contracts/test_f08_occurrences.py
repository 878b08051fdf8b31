"""F08: each time of a schedule is a row with a fate, made together with its turn, once."""

from __future__ import annotations

import anyio
import pytest
from msgspec.structs import replace

from everturn.domain.errors import Gone, Invalid, NotFound, Stale, StoreAway, TextEmpty, WrongState
from everturn.domain.probe import Moment
from everturn.domain.schedules import (
    CronRule,
    DuePlan,
    Fate,
    IntervalRule,
    OnceRule,
    Rule,
    RunsIn,
    Schedule,
    ScheduleSettings,
    Settlement,
    Timing,
    WhenMissed,
)
from everturn.domain.sessions import SessionPatch
from everturn.domain.store_values import Submission
from everturn.schedules import ScheduleRunner, plan_due, replan
from everturn.schedules.runner import LOOK_S_MAX
from everturn.store import Store, schedules
from everturn.testing import FakeClock, HoldingProbe, Say
from everturn.testing.acting import ME, answer, append, claim, complete, new_session
from everturn.testing.harness import open_harness
from tests.conftest import OpenAnother
from tests.scheduling import DAY_MS, MINUTE_MS, at, fates, make, settings, settle

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at(16, 7))


async def finish(store: Store) -> None:
    """Run the one turn that waits to its end."""
    held = await claim(store)
    await complete(store, held, await append(store, held, answer("done")))


async def to(clock: FakeClock, moment: int) -> None:
    await clock.advance((moment - clock.now_ms()) / 1000)


async def test_f08_a_due_time_is_a_row_and_a_turn_and_the_next_time_follows(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    schedule = await make(store, clock, model="scripted:one", profile="careful")
    assert await settle(store, clock) == []
    await to(clock, at(16, 8))
    ((settlement),) = await settle(store, clock)
    (occurrence,) = settlement.occurrences
    assert (occurrence.due_at, occurrence.fate, occurrence.is_manual) == (at(16, 8), Fate.RAN, False)
    other = await open_another()
    turn = await other.turns.get(ME, occurrence.turn_id or "")
    assert (turn.model, turn.profile, turn.state) == ("scripted:one", "careful", "queued")
    session = await other.sessions.get(ME, turn.session_id)
    assert session.title == "Morning"
    await claim(other)
    (message,) = (await other.transcript.messages(ME, session.id)).items
    source = message.parts[0].source
    assert (source.platform, source.sender, source.sent_at, source.is_trusted) == (
        "schedule",
        "Morning",
        at(16, 8),
        True,
    )
    found = await other.schedules.get(ME, schedule.id)
    assert (found.due_at, found.session_id) == (at(17, 8), session.id)
    assert await settle(store, clock) == []


@pytest.mark.parametrize("runs_in", RunsIn)
async def test_f08_runs_share_a_session_or_have_one_each(
    store: Store, clock: FakeClock, runs_in: RunsIn
) -> None:
    schedule = await make(store, clock, runs_in=runs_in)
    for day in (16, 17, 18):
        await to(clock, at(day, 8))
        await settle(store, clock)
        await finish(store)
    found = await store.schedules.occurrences(ME, schedule.id)
    assert len({one.session_id for one in found}) == (1 if runs_in is RunsIn.ONE else 3)
    assert {one.turn_state for one in found} == {"completed"}


async def test_f08_two_workers_settle_a_time_once(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    schedule = await make(store, clock)
    other = await open_another()
    await to(clock, at(16, 8))
    seen = await store.schedules.get(ME, schedule.id)
    made = []

    async def settle_through(through: Store) -> None:
        settlement = await through.schedules.settle(plan_due(seen, clock.now_ms()))
        made.extend(settlement.occurrences)

    async with anyio.create_task_group() as group:
        for through in (store, other, store, other):
            group.start_soon(settle_through, through)
    assert len(made) == 1
    assert await fates(store, schedule) == [(at(16, 8), "ran")]
    assert len(await store.turns.queue(ME, made[0].session_id)) == 1


async def test_f08_a_worker_that_held_still_settles_nothing_after_another_did(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    """It read the schedule, was stopped for a day, and goes on with what it knew."""
    schedule = await make(store, clock)
    await to(clock, at(16, 8))
    late = plan_due(await store.schedules.get(ME, schedule.id), clock.now_ms())
    other = await open_another()
    await settle(other, clock)
    await finish(other)
    await to(clock, at(17, 8))
    await settle(other, clock)
    assert (await store.schedules.settle(late)).occurrences == ()
    assert await fates(store, schedule) == [(at(16, 8), "ran"), (at(17, 8), "ran")]


async def test_f08_a_schedule_that_changes_while_it_is_settled_runs_as_it_is_now(
    store: Store, clock: FakeClock
) -> None:
    schedule = await make(store, clock)
    await to(clock, at(16, 8))
    planned = plan_due(schedule, clock.now_ms())
    changed = replan(with_settings(schedule, OnceRule("2026-11-20T09:00")), clock.now_ms())
    await store.schedules.change(changed)
    assert (await store.schedules.settle(planned)).occurrences == ()
    with pytest.raises(Stale, match="Schedule"):
        await store.schedules.change(changed)
    await to(clock, at(20, 9))
    await settle(store, clock)
    assert await fates(store, schedule) == [(at(20, 9), "ran")]
    assert (await store.schedules.get(ME, schedule.id)).due_at is None, "it was due once"
    assert await store.schedules.next_look() is None


def with_settings(schedule: Schedule, rule: Rule) -> Schedule:
    return replace(schedule, settings=settings(rule))


async def test_f08_a_skipped_hour_runs_after_it_and_a_repeated_one_once(
    open_another: OpenAnother,
) -> None:
    clock = FakeClock(at(28, 12, month=3))
    store = await open_another(clock=clock)
    schedule = await make(store, clock, CronRule("30 2 * * *"), runs_in=RunsIn.NEW)
    await clock.advance(3 * 24 * 3600)
    # Every quarter of an hour, as servers look.
    clock.set_wall(-3 * 24 * 3600)
    for _ in range(3 * 96):
        await clock.advance(900)
        if await settle(store, clock):
            await finish(store)
    assert [due for due, _ in await fates(store, schedule)] == [
        at(29, 3, 0, month=3),
        at(30, 2, 30, month=3),
        at(31, 2, 30, month=3),
    ]
    clock.set_wall((at(24, 12, month=10) - clock.now_ms()) / 1000)
    changed = replan(await store.schedules.get(ME, schedule.id), clock.now_ms())
    await store.schedules.change(changed)
    for _ in range(2 * 96):
        await clock.advance(900)
        if await settle(store, clock):
            await finish(store)
    assert [due for due, _ in await fates(store, schedule)][3:] == [
        at(25, 2, 30, month=10),
        at(26, 2, 30, month=10),
    ]


async def test_f08_a_clock_that_was_set_back_repeats_no_time_and_stops_none(
    store: Store, clock: FakeClock
) -> None:
    schedule = await make(store, clock, IntervalRule(3600, at(16, 7)), when_missed=WhenMissed.SKIP)
    runner = ScheduleRunner(store.schedules, StoreEngine(store), clock)
    await to(clock, at(16, 8))
    await runner.look()
    await finish(store)
    clock.set_wall(365 * 24 * 3600)  # the battery of its clock is empty
    await runner.look()
    await finish(store)
    assert (await store.schedules.get(ME, schedule.id)).due_at > at(16, 8) + 364 * DAY_MS
    clock.set_wall(-365 * 24 * 3600 - 1800)  # half an hour before the last true time
    await runner.look()
    assert (await store.schedules.get(ME, schedule.id)).due_at == at(16, 8)
    await to(clock, at(16, 8))
    await runner.look()
    await to(clock, at(16, 9))
    await runner.look()
    true = [one for one in await fates(store, schedule) if one[0] < at(17, 0)]
    assert true == [(at(16, 8), "ran"), (at(16, 9), "ran")]


class StoreEngine:
    """Settles without an engine that runs the turns."""

    def __init__(self, store: Store) -> None:
        self.settle_schedule = store.schedules.settle


async def test_f08_a_run_now_is_a_row_of_its_own_and_does_not_move_the_next_time(
    store: Store, clock: FakeClock
) -> None:
    schedule = await make(store, clock)
    occurrence = await store.schedules.run_now(ME, schedule.id)
    assert (occurrence.due_at, occurrence.fate, occurrence.is_manual) == (clock.now_ms(), Fate.RAN, True)
    with pytest.raises(WrongState, match="still going"):
        await store.schedules.run_now(ME, schedule.id)
    await finish(store)
    await to(clock, at(16, 8))
    await settle(store, clock)
    assert [fate for _, fate in await fates(store, schedule)] == ["ran", "ran"]
    found = await store.schedules.occurrences(ME, schedule.id)
    assert found[0].session_id == found[1].session_id


async def test_f08_a_paused_schedule_does_not_run_and_goes_on_with_its_next_time(
    store: Store, clock: FakeClock
) -> None:
    schedule = await make(store, clock)
    paused = await store.schedules.change(replace(schedule, paused_at=clock.now_ms()))
    await to(clock, at(18, 12))
    assert await settle(store, clock) == []
    continued = replace(replan(paused, clock.now_ms()), paused_at=None)
    await store.schedules.change(continued)
    assert await settle(store, clock) == []
    await to(clock, at(19, 8))
    await settle(store, clock)
    assert await fates(store, schedule) == [(at(19, 8), "ran")]


@pytest.mark.parametrize("is_purged", [False, True])
async def test_f08_a_schedule_whose_session_was_deleted_says_so_and_pauses(
    store: Store, clock: FakeClock, is_purged: bool
) -> None:
    session = await new_session(store)
    schedule = await make(store, clock, session_id=session.id)
    if is_purged:
        await store.sessions.delete(ME, session.id)
    else:
        await store.sessions.mark_deleted(ME, session.id, due_at=clock.now_ms() + DAY_MS)
    await to(clock, at(16, 8))
    await settle(store, clock)
    (occurrence,) = await store.schedules.occurrences(ME, schedule.id)
    assert (occurrence.fate, occurrence.reason) == (Fate.SKIPPED, "Its session was deleted.")
    found = await store.schedules.get(ME, schedule.id)
    assert (found.paused_at, found.pause_reason) == (clock.now_ms(), "Its session was deleted.")
    with pytest.raises(Gone):
        await store.schedules.run_now(ME, schedule.id)
    assert await store.schedules.next_look() is None


async def test_f08_the_history_survives_the_purge_of_a_session(store: Store, clock: FakeClock) -> None:
    schedule = await make(store, clock, runs_in=RunsIn.NEW)
    occurrence = await store.schedules.run_now(ME, schedule.id)
    await finish(store)
    await store.sessions.delete(ME, occurrence.session_id or "")
    (found,) = await store.schedules.occurrences(ME, schedule.id)
    assert (found.fate, found.turn_id, found.session_id) == (Fate.RAN, None, None)


async def test_f08_what_is_refused_leaves_nothing(store: Store, clock: FakeClock) -> None:
    with pytest.raises(NotFound):
        await make(store, clock, report_to="cht_00000000000000000000000000")
    with pytest.raises(NotFound):
        await make(store, clock, session_id="ses_00000000000000000000000000")
    with pytest.raises(TextEmpty):
        await make(store, clock, text="  ")
    with pytest.raises(Invalid):
        await make(store, clock, text="half \ud800")
    schedule = await make(store, clock)
    for act in (
        store.schedules.get,
        store.schedules.delete,
        store.schedules.run_now,
        store.schedules.occurrences,
    ):
        with pytest.raises(NotFound):
            await act("another owner", schedule.id)
    assert (await store.schedules.list("another owner")).items == ()
    await store.schedules.run_now(ME, schedule.id)
    await store.schedules.delete(ME, schedule.id)
    assert (await store.schedules.list(ME)).items == ()
    assert await claim(store), "a run that was under way goes on"


async def test_f08_the_list_is_paged(store: Store, clock: FakeClock) -> None:
    made = [(await make(store, clock, name=f"number {number}")).id for number in range(5)]
    first = await store.schedules.list(ME, limit=3)
    second = await store.schedules.list(ME, limit=3, after=first.cursor or "")
    assert [one.id for page in (first, second) for one in page.items] == made
    assert second.cursor is None


async def test_f08_a_crash_before_the_commit_leaves_neither_row_nor_turn(
    store: Store, clock: FakeClock, probe: HoldingProbe, open_another: OpenAnother
) -> None:
    schedule = await make(store, clock)
    await to(clock, at(16, 8))
    probe.hold(Moment.OCCURRENCE_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(settle, store, clock)
        await probe.reached(Moment.OCCURRENCE_WRITTEN)
        assert await fates(store, schedule) == []
        assert (await store.sessions.list(ME)).items == ()
        probe.release(Moment.OCCURRENCE_WRITTEN)
    assert await fates(store, schedule) == [(at(16, 8), "ran")]


async def test_f08_the_runner_starts_what_is_due_and_the_engine_answers(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, Say("Three mails."), clock=clock) as harness:
        due_at = at(16, 8)
        schedule = await store.schedules.create("ada", settings(text="Summarise my inbox"), due_at=due_at)
        runner = ScheduleRunner(store.schedules, harness.engine, clock)
        assert 0 < await runner.look() <= 5
        await to(clock, due_at)
        await runner.look()
        (occurrence,) = await store.schedules.occurrences("ada", schedule.id)
        await harness.settled(occurrence.turn_id or "")
        session = await store.sessions.get("ada", occurrence.session_id or "")
        assert await harness.texts(session) == ["user: Summarise my inbox", "assistant: Three mails."]


async def test_f08_a_schedule_that_cannot_be_read_here_is_paused_and_the_others_run(
    store: Store, clock: FakeClock
) -> None:
    odd = ScheduleSettings("Odd", "Do it.", Timing(CronRule("0 8 * * *"), "Mars/Olympus"))
    broken = await store.schedules.create(ME, odd, due_at=at(16, 8))
    schedule = await make(store, clock)
    await to(clock, at(16, 8))
    await ScheduleRunner(store.schedules, StoreEngine(store), clock).look()
    assert "Mars/Olympus" in (await store.schedules.get(ME, broken.id)).pause_reason
    assert await fates(store, schedule) == [(at(16, 8), "ran")]


async def test_f08_the_runner_goes_on_after_the_store_was_away(store: Store, clock: FakeClock) -> None:
    tries = 0

    class AwayOnce:
        async def settle_schedule(self, plan: DuePlan) -> Settlement:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise StoreAway("The database cannot be reached.")
            return await store.schedules.settle(plan)

    schedule = await make(store, clock)
    await to(clock, at(16, 8))
    async with anyio.create_task_group() as group:
        group.start_soon(ScheduleRunner(store.schedules, AwayOnce(), clock).run)
        await clock.someone_sleeps(LOOK_S_MAX)
        assert await fates(store, schedule) == []
        await clock.advance(LOOK_S_MAX)
        await clock.someone_sleeps(LOOK_S_MAX)
        group.cancel_scope.cancel()
    assert await fates(store, schedule) == [(at(16, 8), "ran")]


async def test_f08_only_the_newest_rows_of_the_history_are_kept(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "OCCURRENCES_KEPT", 5)
    schedule = await make(store, clock, IntervalRule(60, at(16, 7)))
    await clock.advance(60)
    await settle(store, clock)  # runs, and is never finished: it must stay
    for _ in range(9):
        await clock.advance(60)
        await settle(store, clock)
    found = await fates(store, schedule)
    assert found[0] == (at(16, 7) + MINUTE_MS, "ran")
    assert len(found) <= 7


async def test_f08_a_session_can_be_used_by_its_owner_beside_the_schedule(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    await store.sessions.change(ME, session.id, SessionPatch(title="Mine"))
    await make(store, clock, session_id=session.id)
    await store.turns.accept(ME, session.id, Submission(text="my own words"))
    await to(clock, at(16, 8))
    await settle(store, clock)
    assert [turn.text for turn in await store.turns.queue(ME, session.id)] == ["my own words", "Summarise."]
    assert (await store.sessions.get(ME, session.id)).title == "Mine"
