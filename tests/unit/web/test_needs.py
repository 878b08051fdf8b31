"""What needs a person, gathered from asks, messages, jobs and schedules. On both stores: the queries are theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from everturn.domain.asks import AskTopic
from everturn.domain.delivery import WhenUnknown
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import JobEnding
from everturn.domain.schedules import Schedule
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import (
    CRASHED,
    ME,
    answer,
    append,
    ask,
    claim,
    complete,
    new_job,
    new_session,
    start,
    wish,
)
from everturn.testing.web_server import run_web
from tests.delivering import arrive, claim_parts, due, lease_of, record, reply
from tests.scheduling import DAY_MS, at, make, settle

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at(16, 7))


async def needs(store: Store, home: Path, clock: FakeClock, *dismissed: str) -> dict[str, Any]:
    """What a server says after these were dismissed. It stops then: its engine would run the tests' turns."""
    async with run_web(store, home, clock=clock) as web:
        for need_id in dismissed:
            answered = await web.http.post("/api/needs/dismiss", json={"id": need_id})
            assert answered.status_code == 204, answered.text
        answered = await web.http.get("/api/needs")
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    assert found["total"] == sum(len(found[kind]) for kind in ("asks", "sends", "jobs", "schedules"))
    return found


async def lose_a_job(store: Store, number: int = 1) -> str:
    session = await new_session(store, "Map tiles")
    job = await store.jobs.add(ME, session.id, new_job(number, when_ended=WhenEnded.RECORD), running_max=2)
    await store.jobs.end(job.id, JobEnding(JobState.LOST, detail="The machine was restarted."))
    return job.id


async def run(store: Store, clock: FakeClock, schedule: Schedule, *, fails: bool) -> None:
    """Let the schedule's next time come, and its run end."""
    schedule = await store.schedules.get(ME, schedule.id)
    assert schedule.due_at is not None
    await clock.advance((schedule.due_at - clock.now_ms()) / 1000)
    await settle(store, clock)
    held = await claim(store)
    if fails:
        await store.turns.fail(held.turn.id, held.epoch, CRASHED)
    else:
        await complete(store, held, await append(store, held, answer("done")))


async def test_without_anything_nothing_needs_a_person(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    assert (await needs(store, data_dir, clock))["total"] == 0


async def test_open_asks_unknown_sends_and_lost_jobs_are_listed(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    held = await start(store, (await new_session(store, "Photos")).id, "move them")
    number = await append(store, held, wish(is_started=False))
    asked = ask("ask_" + "1" * 26, held.turn.id, held.session.id, AskTopic.QUESTION, choices=("yes", "no"))
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [asked], [])
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "Good morning.")
    (owed,) = await due(store)
    assert await record(store, owed, "Good morning.")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.mark_unknown(lease, part.id, "The connection broke.")
    await store.delivery.outbox.settle_unknown(lease, WhenUnknown.HOLD)
    job_id = await lose_a_job(store)
    found = await needs(store, data_dir, clock)
    assert [(one["id"], one["title"]) for one in found["asks"]] == [(asked.id, "Photos")]
    assert [(one["id"], one["excerpt"]) for one in found["sends"]] == [(part.id, "Good morning.")]
    assert [(one["id"], one["detail"]) for one in found["jobs"]] == [(job_id, "The machine was restarted.")]


async def test_a_failed_run_is_listed_until_a_later_one_is_good(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    schedule = await make(store, clock, name="Watch the page")
    await run(store, clock, schedule, fails=True)
    (found,) = (await needs(store, data_dir, clock))["schedules"]
    assert (found["schedule_id"], found["name"]) == (schedule.id, "Watch the page")
    assert (found["reason"], found["due_at"]) == (CRASHED.message, at(17, 8))
    assert found["turn_id"] is not None
    await run(store, clock, schedule, fails=False)
    assert (await needs(store, data_dir, clock))["schedules"] == []


async def test_what_was_dismissed_stays_away_until_it_happens_again(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    job_id = await lose_a_job(store)
    schedule = await make(store, clock)
    await run(store, clock, schedule, fails=True)
    first = (await needs(store, data_dir, clock))["schedules"][0]["id"]
    assert (await needs(store, data_dir, clock, job_id, first, job_id))["total"] == 0
    await run(store, clock, schedule, fails=True)
    other = await lose_a_job(store, 2)
    found = await needs(store, data_dir, clock)
    assert [one["id"] for one in found["jobs"]] == [other]
    (failed,) = found["schedules"]
    await needs(store, data_dir, clock, failed["id"])
    kept = await store.records.list(ME, "dismissed")
    assert set(kept) == {job_id, failed["id"]}, "the run before is no longer listed"


async def test_a_schedule_that_was_paused_for_a_reason_is_listed(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    schedule = await make(store, clock)
    other = await make(store, clock)
    paused = replace(
        schedule, paused_at=clock.now_ms(), look_at=None, pause_reason="Its session was deleted."
    )
    await store.schedules.change(paused)
    await store.schedules.change(replace(other, paused_at=clock.now_ms(), look_at=None))
    (found,) = (await needs(store, data_dir, clock))["schedules"]
    assert (found["id"], found["reason"]) == (schedule.id, "Its session was deleted.")
    assert (found["turn_id"], found["due_at"]) == (None, None)


async def test_old_losses_and_those_of_deleted_sessions_are_not_listed(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    await lose_a_job(store)
    await clock.advance(31 * DAY_MS / 1000)
    job = await store.jobs.get(ME, await lose_a_job(store, 2))
    await store.sessions.delete(ME, job.session_id)
    assert (await needs(store, data_dir, clock))["jobs"] == []


async def test_what_is_not_worth_a_look_cannot_be_dismissed(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    async with run_web(store, data_dir, clock=clock) as web:
        answered = await web.http.post("/api/needs/dismiss", json={"id": "job_" + "0" * 26})
        assert (answered.status_code, answered.json()["code"]) == (404, "not_found")
        answered = await web.http.post("/api/needs/dismiss", json={"id": "ask_" + "0" * 26})
        assert answered.status_code == 404, "no ask about a budget"
        answered = await web.http.post("/api/needs/dismiss", json={"id": "ses_" + "0" * 26})
        assert answered.status_code == 422


async def waiting(store: Store, number: int, topic: AskTopic, *choices: str) -> str:
    """A turn of its own session waits for an answer. Returns the ask's id."""
    held = await start(store, (await new_session(store, f"Session {number}")).id, "go on")
    asked = ask("ask_" + str(number) * 26, held.turn.id, held.session.id, topic, choices=choices)
    await store.turns.wait(held.turn.id, held.epoch, 2, [asked], [])
    return asked.id


async def test_of_the_asks_only_one_about_a_budget_can_be_dismissed(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    question = await waiting(store, 1, AskTopic.QUESTION, "yes", "no")
    budget = await waiting(store, 2, AskTopic.BUDGET, "raise", "stop")
    assert {one["id"] for one in (await needs(store, data_dir, clock))["asks"]} == {question, budget}
    assert [one["id"] for one in (await needs(store, data_dir, clock, budget))["asks"]] == [question]
    async with run_web(store, data_dir, clock=clock) as web:
        refused = await web.http.post("/api/needs/dismiss", json={"id": question})
    assert refused.status_code == 404
    assert (await store.asks.get(ME, budget)).answer is None, "its turn still waits"


async def test_what_was_answered_is_listed_the_latest_first(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    early = await waiting(store, 1, AskTopic.QUESTION, "yes", "no")
    late = await waiting(store, 2, AskTopic.APPROVAL, "once", "deny")
    await waiting(store, 3, AskTopic.QUESTION, "left", "right")
    before = clock.now_ms()
    await store.asks.answer(ME, early, "yes", by="chat:telegram")
    await clock.advance(60)
    await store.asks.answer(ME, late, "deny", by=ME)
    async with run_web(store, data_dir, clock=clock) as web:
        everything = (await web.http.get(f"/api/needs/answered?since={before}")).json()["items"]
        latest = (await web.http.get(f"/api/needs/answered?since={before + 1}")).json()["items"]
    assert [(one["id"], one["answer"], one["by"]) for one in everything] == [
        (late, "deny", ME),
        (early, "yes", "chat:telegram"),
    ]
    assert [one["id"] for one in latest] == [late]


async def test_watchers_hear_of_schedules_and_jobs(store: Store, clock: FakeClock) -> None:
    session = await new_session(store, "Map tiles")
    job = await store.jobs.add(ME, session.id, new_job(1, when_ended=WhenEnded.RECORD), running_max=2)
    changes = store.changes(ME)
    heard: set[str] = set()
    watched = anyio.Event()

    async def watch() -> None:
        watched.set()
        async for batch in changes:
            heard.update(changed for changed, _ in batch or ())
            if {schedule.id, job.id} <= heard:
                return

    async with anyio.create_task_group() as group:
        group.start_soon(watch, name="watch")
        await watched.wait()
        schedule = await make(store, clock)
        await store.jobs.end(job.id, JobEnding(JobState.LOST, detail="The machine was restarted."))
    assert session.id in heard
    await changes.aclose()
