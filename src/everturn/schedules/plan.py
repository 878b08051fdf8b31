"""Decides what happens to a schedule's due times. Pure: the store carries it out in one transaction."""

from __future__ import annotations

import msgspec

from everturn.domain.schedules import (
    CAUGHT_UP_MAX,
    DuePlan,
    Fate,
    PlannedTime,
    Schedule,
    WhenMissed,
)
from everturn.schedules.times import latest_times, next_time

# The newest due time counts as on time until this age: a restart or a busy machine causes no miss.
LATE_AFTER_MS = 5 * 60_000
# More due times than this are one row with the first of them, not a row each.
ROWS_MAX = 200
_DOWN = "No server was running at that time."
_SINCE_RUN = "No server was running; a later time was run instead."
_TOO_MANY = f"No server was running; only the last {CAUGHT_UP_MAX} times are caught up."
_MORE = "No server was running, at this time and at many others after it."
_WAITED = "It waited for the previous run."
_ONE_WAITS = "A later time was waiting already."


def plan_due(schedule: Schedule, now_ms: int) -> DuePlan:
    """The fates of all times up to now, and the next time."""
    timing = schedule.settings.timing
    next_due_at = next_time(timing, now_ms)
    first = schedule.due_at
    if first is None or first > now_ms:
        return DuePlan(schedule, (), next_due_at)
    # At least the time that was stored: the rules of its zone may have changed since.
    times = latest_times(timing, first, now_ms, ROWS_MAX) or [first]
    planned = _plan_waiting(times) if schedule.is_waiting else _plan(schedule, times, now_ms)
    if times[0] > first:  # guard: f09
        planned.insert(0, PlannedTime(first, Fate.MISSED, _MORE))
    return DuePlan(schedule, tuple(planned), next_due_at)


def _plan_waiting(times: list[int]) -> list[PlannedTime]:
    """Of the times that came during the last run, the newest runs now."""
    earlier = [PlannedTime(time, Fate.SKIPPED, _ONE_WAITS) for time in times[:-1]]
    return [*earlier, PlannedTime(times[-1], Fate.RAN, _WAITED)]


def _plan(schedule: Schedule, times: list[int], now_ms: int) -> list[PlannedTime]:
    """Only the newest time can be on time; all before it are late."""
    is_on_time = now_ms - times[-1] <= LATE_AFTER_MS
    late = times[:-1] if is_on_time else times
    on_time = [PlannedTime(times[-1], Fate.RAN)] if is_on_time else []
    return [*_plan_late(schedule.settings.when_missed, late, is_followed=is_on_time), *on_time]


def _plan_late(policy: WhenMissed, late: list[int], *, is_followed: bool) -> list[PlannedTime]:
    match policy:
        case WhenMissed.SKIP:
            count, reason = 0, _DOWN
        case WhenMissed.LAST:
            count, reason = 0 if is_followed else 1, _SINCE_RUN
        case WhenMissed.ALL:
            count, reason = CAUGHT_UP_MAX, _TOO_MANY
    kept = len(late) - count
    missed = [PlannedTime(time, Fate.MISSED, reason) for time in late[: max(0, kept)]]
    return [*missed, *(PlannedTime(time, Fate.CAUGHT_UP, _DOWN) for time in late[max(0, kept) :])]


def replan(schedule: Schedule, now_ms: int) -> Schedule:
    """The schedule with its next time after now. Used when the clock was set back, or when its owner
    continues it."""
    return msgspec.structs.replace(schedule, due_at=next_time(schedule.settings.timing, now_ms))
