"""What tests of schedules share."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from everturn.domain.schedules import CronRule, DuePlan, Rule, Schedule, ScheduleSettings, Settlement, Timing
from everturn.schedules import next_time, plan_due
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME

DAILY = CronRule("0 8 * * *")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ZONE = "Europe/Vienna"


def at(day: int, hour: int, minute: int = 0, month: int = 11) -> int:
    return round(datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo(ZONE)).timestamp() * 1000)


def settings(rule: Rule = DAILY, **more: Any) -> ScheduleSettings:
    return ScheduleSettings(
        more.pop("name", "Morning"), more.pop("text", "Summarise."), Timing(rule, ZONE), **more
    )


async def make(store: Store, clock: FakeClock, rule: Rule = DAILY, **more: Any) -> Schedule:
    session_id = more.pop("session_id", None)
    chosen = settings(rule, **more)
    due_at = next_time(chosen.timing, clock.now_ms())
    return await store.schedules.create(ME, chosen, due_at=due_at, session_id=session_id)


async def settle(store: Store, clock: FakeClock) -> list[Settlement]:
    """Settle everything that is due now, as a runner does."""
    due = await store.schedules.due(limit=100)
    return [await store.schedules.settle(plan_due(schedule, clock.now_ms())) for schedule in due]


def plan(schedule: Schedule, now: int) -> DuePlan:
    return plan_due(schedule, now)


async def fates(store: Store, schedule: Schedule) -> list[tuple[int, str]]:
    """Due times and fates, oldest first."""
    found = await store.schedules.occurrences(ME, schedule.id, limit=1000)
    return [(one.due_at, one.fate.value) for one in found][::-1]
