"""Sessions with a past, put into the store before the server starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids, message_id
from everturn.domain.job_states import JobState
from everturn.domain.jobs import JobEnding
from everturn.domain.messages import Call, Message, Result, Role, Text
from everturn.domain.schedules import CronRule, IntervalRule, OnceRule, WhenMissed
from everturn.domain.sessions import NewSession, Session, SessionPatch
from everturn.domain.store_values import Claim, ImportedSession
from everturn.domain.turns import Failure, Turn, TurnState
from everturn.schedules import plan_due
from everturn.store import Store, open_store
from everturn.testing import FakeClock
from everturn.testing.acting import WORKER, answer, append, complete, new_job
from tests.scheduling import DAY_MS, make

START_MS = 1_700_000_000_000


async def long_session(data_dir: Path, count: int, title: str = "A long session") -> str:
    """A session of so many turns, four messages each: question, call, result, answer."""
    ids = Ids(SystemClock())
    turns, messages = [], []
    session = Session(ids.session(), "local", 1, 0, START_MS, START_MS + count, title=title)
    parent = None
    for number in range(count):
        turn_id, at = ids.turn(), START_MS + number * 1000
        turns.append(
            Turn(
                turn_id,
                session.id,
                "local",
                TurnState.COMPLETED,
                1,
                at,
                parent_id=parent,
                started_at=at,
                ended_at=at + 900,
            )
        )
        messages += _messages(turn_id, number, at)
        parent = turn_id
    session = msgspec.structs.replace(session, head=parent)
    async with open_store(None, data_dir=data_dir) as store:
        return (await store.transcript.import_session("local", ImportedSession(session, turns, messages))).id


def _messages(turn_id: str, number: int, at: int) -> list[Message]:
    call = Call(f"call_{number}", "terminal", '{"command": "ls"}')
    said = f"Part **{number}** is done.\n\n- read\n- checked against `notes-{number}.txt`\n\nThe next one follows."
    parts: list[tuple[Role, tuple[Any, ...]]] = [
        (Role.USER, (Text(f"Question {number}: what about part {number}?"),)),
        (Role.ASSISTANT, (call,)),
        (Role.TOOL, (Result(call.id, "terminal", "a\nb\nc"),)),
        (Role.ASSISTANT, (Text(said),)),
    ]
    return [
        Message(message_id(turn_id, ordinal), turn_id, role, content, at + ordinal, ordinal)
        for ordinal, (role, content) in enumerate(parts)
    ]


async def many_sessions(data_dir: Path, count: int, pinned: tuple[int, ...] = ()) -> list[str]:
    """So many empty sessions, newest first; those at the given places are pinned."""
    async with open_store(None, data_dir=data_dir) as store:
        made = [
            (await store.sessions.create("local", NewSession(title=f"Session {number}"))).id
            for number in range(count)
        ]
        made.reverse()
        for place in pinned:
            await store.sessions.change("local", made[place], SessionPatch(pinned=True))
    return made


async def schedules_with_a_past(data_dir: Path, end_ms: int) -> dict[str, str]:
    """Schedules with eight days behind them until ``end_ms``, one of which has failed last, and a lost job.
    Returns the ids by name."""
    clock = FakeClock(end_ms - 8 * DAY_MS)
    async with open_store(None, data_dir=data_dir, clock=clock) as store:
        made = {
            "Morning inbox": await make(store, clock, CronRule("0 8 * * 1-5"), name="Morning inbox"),
            "Check the backups": await make(
                store,
                clock,
                CronRule("30 6 * * *"),
                name="Check the backups",
                text="Are last night's backups there?",
            ),
            "Watch the release page": await make(
                store,
                clock,
                IntervalRule(6 * 3600),
                name="Watch the release page",
                when_missed=WhenMissed.SKIP,
                text="Is there a new release?",
            ),
            "Greenhouse sowing list": await make(
                store,
                clock,
                OnceRule("2031-03-21T10:00"),
                name="Greenhouse sowing list",
                text="List what to sow.",
            ),
        }
        while (due_at := await store.schedules.next_look()) is not None and due_at < end_ms:
            await clock.advance((due_at - clock.now_ms()) / 1000)
            for schedule in await store.schedules.due(limit=100):
                await store.schedules.settle(plan_due(schedule, clock.now_ms()))
            is_last = end_ms - clock.now_ms() < 6 * 3_600_000
            for held in await store.turns.claim(WORKER, limit=10):
                await clock.advance(42)
                await _end(store, held, fails=is_last and "release" in str(held.message))
        session = await store.sessions.create("local", NewSession(title="Map of the hills"))
        command = "tippecanoe -o hills.mbtiles -zg --drop-densest-as-needed contours.geojson"
        lost = await store.jobs.add("local", session.id, new_job(command=command), running_max=2)
        detail = "The machine was restarted."
        await store.jobs.end(lost.id, JobEnding(JobState.LOST, detail=detail, output_bytes=14_200_000))
    return {name: schedule.id for name, schedule in made.items()} | {"job": lost.id}


async def _end(store: Store, held: Claim, *, fails: bool) -> None:
    if fails:
        cause = Failure("model_timeout", "The page did not answer in 30 s.")
        await store.turns.fail(held.turn.id, held.epoch, cause)
    else:
        await complete(store, held, await append(store, held, answer("Nothing new.")))
