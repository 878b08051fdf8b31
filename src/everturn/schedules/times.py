"""When a rule is due. Pure: no clock, no store.

A cron rule and a single time name times of the wall clock. Each becomes one instant: a time that the clocks
skip becomes the first instant after the gap, and one that they repeat becomes the first of the two
(decision 084).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.schedules import CronRule, IntervalRule, OnceRule, Rule, Timing
from everturn.domain.timezones import find_zone

EVERY_S_MIN = 60
EVERY_S_MAX = 366 * 24 * 3600
EXPRESSION_CHARS_MAX = 200
_CRON_FIELDS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = range(1970, 2200)  # outside it is a typing error, and dates near year 9999 cannot be computed with
_SECOND = timedelta(seconds=1)
# More than any zone has ever set its clocks back at once.
_OVERLAP_MAX = timedelta(days=1)


def check_timing(timing: Timing, now_ms: int) -> Timing:
    """The timing with its start filled in. Raises Invalid if it cannot be read or is never due after now."""
    rule = timing.rule
    if isinstance(rule, IntervalRule):
        if not EVERY_S_MIN <= rule.every_s <= EVERY_S_MAX:
            raise Invalid(
                f"An interval of {rule.every_s} seconds is not possible.",
                hint=f"Use {EVERY_S_MIN} seconds to {EVERY_S_MAX // 86400} days.",
            )
        start_at = now_ms if rule.start_at is None else rule.start_at
        if not 0 <= start_at < _ms(datetime(_YEARS[-1], 1, 1, tzinfo=UTC)):
            raise Invalid("The interval's start is not a usable date.", hint="Leave it out to start now.")
        timing = msgspec.structs.replace(timing, rule=msgspec.structs.replace(rule, start_at=start_at))
    if next_time(timing, now_ms) is None:
        raise Invalid(*_never(rule))
    return timing


def next_time(timing: Timing, after_ms: int) -> int | None:
    """The first time after this instant; None if there is none."""
    return next(iter(next_times(timing, after_ms, 1)), None)


def next_times(timing: Timing, after_ms: int, count: int) -> list[int]:
    """Up to ``count`` times after this instant, in order. Raises Invalid for a rule that cannot be read."""
    zone = find_zone(timing.timezone)
    return list(islice(_forward(timing.rule, zone, after_ms), count))


def latest_times(timing: Timing, since_ms: int, until_ms: int, count: int) -> list[int]:
    """The last ``count`` times from ``since_ms`` to ``until_ms``, both included, in order."""
    found: list[int] = []
    for time in _backward(timing.rule, find_zone(timing.timezone), until_ms):
        if time < since_ms or len(found) == count:
            break
        found.append(time)
    return found[::-1]


def clock_changes(timing: Timing, times: list[int]) -> list[int]:
    """Those of the times before which the zone's clocks were changed since the one before them."""
    zone = find_zone(timing.timezone)
    offsets = [(time, _local(time, zone).utcoffset()) for time in times]
    return [time for (_, before), (time, after) in pairwise(offsets) if before != after]


def _forward(rule: Rule, zone: ZoneInfo, after_ms: int) -> Iterator[int]:
    if isinstance(rule, IntervalRule):
        start, step = rule.start_at or 0, rule.every_s * 1000
        time = start + max(1, (after_ms - start) // step + 1) * step
        while True:
            yield time
            time += step
    local = _local(after_ms, zone).replace(tzinfo=None)
    # A time that the clocks skipped just before this instant is due in this instant at the latest, and one of
    # the first pass through a repeated hour is before it: neither is due again.
    last = after_ms
    for wall_time in _wall_times(rule, local):
        time = _instant(wall_time, zone)
        if time > last:
            last = time
            yield time


def _backward(rule: Rule, zone: ZoneInfo, until_ms: int) -> Iterator[int]:
    if isinstance(rule, IntervalRule):
        start, step = rule.start_at or 0, rule.every_s * 1000
        for number in range((until_ms - start) // step, 0, -1):
            yield start + number * step
        return
    # In the second pass through a repeated hour, later times of the wall clock are in the past.
    local = _local(until_ms, zone).replace(tzinfo=None) + _OVERLAP_MAX
    last = until_ms + 1
    for wall_time in _wall_times(rule, local, is_reverse=True):
        time = _instant(wall_time, zone)
        if time < last:
            last = time
            yield time


def _wall_times(
    rule: CronRule | OnceRule, start: datetime, *, is_reverse: bool = False
) -> Iterator[datetime]:
    """Times of the wall clock after ``start``, or before it and in reverse."""
    if isinstance(rule, OnceRule):
        yield _read_once(rule)
        return
    yield from _cron(rule.expression, start, is_reverse=is_reverse)


def _cron(expression: str, start: datetime, *, is_reverse: bool) -> Iterator[datetime]:
    # Imported here: a server without schedules does not need it.
    from cronsim import CronSim, CronSimError

    parts = expression.split()
    if len(parts) != _CRON_FIELDS or len(expression) > EXPRESSION_CHARS_MAX:
        hint = "A rule has five fields: minute, hour, day of month, month, day of week; e.g. 0 8 * * 1-5."
        raise Invalid(f"The rule {expression[:60]!r} cannot be read.", hint=hint)
    try:
        # Without a zone: what the clocks do is decided here, alike for every rule.
        times = CronSim(expression, start, reverse=is_reverse)
    except (CronSimError, AssertionError, ValueError, IndexError) as error:
        if str(error) == "Bad day-of-month" and _has_day_of_month(parts):
            raise Invalid(*_never(CronRule(expression))) from None
        hint = "Use numbers, names such as MON or JAN, lists (1,15), ranges (1-5) and steps (*/10)."
        raise Invalid(f"The rule {expression[:60]!r} cannot be read: {error}.", hint=hint) from None
    for time in times:
        if time.year not in _YEARS:
            return
        yield time


def _has_day_of_month(parts: list[str]) -> bool:
    """True if some month has this day, so that only the given month lacks it."""
    return parts[2].isascii() and parts[2].isdigit() and 1 <= int(parts[2]) <= 31


def _read_once(rule: OnceRule) -> datetime:
    hint = "Write it like 2026-11-20T08:00, without a zone: the schedule has one."
    try:
        time = datetime.fromisoformat(rule.at)
    except ValueError:
        raise Invalid(f"The time {rule.at[:40]!r} cannot be read.", hint=hint) from None
    if time.tzinfo is not None or time.year not in _YEARS:
        raise Invalid(f"The time {rule.at[:40]!r} cannot be used.", hint=hint)
    return time.replace(microsecond=0)


def _never(rule: Rule) -> tuple[str, str]:
    if isinstance(rule, OnceRule):
        return f"{rule.at} has passed.", "Choose a time in the future."
    if isinstance(rule, CronRule):
        return (
            f"The rule {rule.expression!r} never fires: there is no such day.",
            "Choose another day or month.",
        )
    return "This interval never fires.", "Choose an earlier start."


def _instant(wall_time: datetime, zone: ZoneInfo) -> int:
    """The instant of a time of the wall clock."""
    # With fold 0 a repeated time is its first pass, and a skipped one is read with the offset before the gap.
    instant = wall_time.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall_time:
        return _ms(instant)
    return _ms(_end_of_gap(wall_time, zone))


def _end_of_gap(wall_time: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks jumped over this time."""
    before = wall_time.replace(tzinfo=zone, fold=1).astimezone(UTC)
    after = wall_time.replace(tzinfo=zone, fold=0).astimezone(UTC)
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + timedelta(seconds=(after - before) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after


def _local(ms: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)
