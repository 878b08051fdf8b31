"""Times of rules: a year in four zones against an independent calculation, and what cannot be due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.domain.errors import Invalid
from everturn.domain.schedules import CronRule, IntervalRule, OnceRule, Rule, Timing
from everturn.schedules.times import check_timing, clock_changes, latest_times, next_time, next_times

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ZONES = ("Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")


def ms(*parts: int, zone: str = "UTC", fold: int = 0) -> int:
    local = datetime(*parts).replace(tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[arg-type]  # year to minute
    return round(local.timestamp() * 1000)


class Watched(NamedTuple):
    minutes: set[int]
    hours: set[int]
    days: set[int]

    def shows(self, time: datetime) -> bool:
        return time.minute in self.minutes and time.hour in self.hours and time.isoweekday() in self.days


ALL_DAYS = set(range(1, 8))
WATCHED = {
    "30 2 * * *": Watched({30}, {2}, ALL_DAYS),
    "15,45 1-3 * * *": Watched({15, 45}, {1, 2, 3}, ALL_DAYS),
    "0 8 * * 1-5": Watched({0}, {8}, {1, 2, 3, 4, 5}),
    "*/20 * * * 0": Watched({0, 20, 40}, set(range(24)), {7}),
}


def by_watching(zone: str, first: int, last: int) -> dict[str, list[int]]:
    """The times of WATCHED, found by walking through every five minutes and watching the zone's clock.

    A time is due when the clock first shows it, or jumps over it. This looks neither at rules of cron nor at
    gaps and folds: only at what the clock showed before.
    """
    found: dict[str, list[int]] = {expression: [] for expression in WATCHED}
    tz, step = ZoneInfo(zone), timedelta(minutes=5)
    # The latest that the clock has shown so far: what it shows again when it is set back is not new.
    shown = datetime.fromtimestamp((first - DAY_MS) / 1000, tz).replace(tzinfo=None)
    for instant in range(first - DAY_MS + 300_000, last, 300_000):
        now = datetime.fromtimestamp(instant / 1000, tz).replace(tzinfo=None)
        due = set()
        while shown < now:
            shown += step
            due |= {expression for expression, watched in WATCHED.items() if watched.shows(shown)}
        for expression in due if instant >= first else ():
            found[expression].append(instant)
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_f08_a_year_of_times_equals_an_independent_calculation(zone: str) -> None:
    first, last = ms(2026, 1, 1), ms(2027, 1, 1)
    for expression, expected in by_watching(zone, first, last).items():
        timing = Timing(CronRule(expression), zone)
        found = [time for time in next_times(timing, first - 1, len(expected) + 5) if time < last]
        assert found == expected, expression
        assert latest_times(timing, first, last - 1, len(expected) + 5) == expected, expression
        assert len(expected) >= 250


def test_f08_a_skipped_time_runs_at_the_first_instant_after_the_gap() -> None:
    timing = Timing(CronRule("30 2 * * *"), "Europe/Vienna")
    due = next_time(timing, ms(2026, 3, 28, 12, zone="Europe/Vienna"))
    assert due == ms(2026, 3, 29, 3, 0, zone="Europe/Vienna")
    assert next_time(timing, due) == ms(2026, 3, 30, 2, 30, zone="Europe/Vienna")


def test_f08_a_repeated_time_runs_once_the_first_time() -> None:
    timing = Timing(CronRule("30 2 * * *"), "Europe/Vienna")
    due = next_time(timing, ms(2026, 10, 24, 12, zone="Europe/Vienna"))
    assert due == ms(2026, 10, 25, 2, 30, zone="Europe/Vienna")
    assert next_time(timing, due) == ms(2026, 10, 26, 2, 30, zone="Europe/Vienna")
    # In the second pass the first one is still the latest.
    second = ms(2026, 10, 25, 2, 10, zone="Europe/Vienna", fold=1)
    assert latest_times(timing, 0, second, 1) == [due]


def test_f08_a_day_that_a_zone_skipped_is_due_when_the_next_one_begins() -> None:
    timing = Timing(OnceRule("2011-12-30T09:00"), "Pacific/Apia")
    assert next_time(timing, 0) == ms(2011, 12, 31, zone="Pacific/Apia")


def test_an_interval_counts_elapsed_time_through_a_clock_change() -> None:
    start = ms(2026, 3, 28, 12, zone="Europe/Vienna")
    timing = Timing(IntervalRule(6 * 3600, start), "Europe/Vienna")
    times = next_times(timing, start, 5)
    assert times == [start + n * 6 * HOUR_MS for n in range(1, 6)]
    assert latest_times(timing, start, times[-1], 3) == times[-3:]
    assert latest_times(timing, start, start, 3) == []


def test_the_times_at_which_clocks_have_changed_are_named() -> None:
    timing = Timing(CronRule("0 8 * * *"), "Europe/Vienna")
    times = next_times(timing, ms(2026, 3, 27), 5)
    assert clock_changes(timing, times) == [ms(2026, 3, 29, 8, zone="Europe/Vienna")]


@pytest.mark.parametrize(
    ("rule", "zone", "words"),
    [
        (CronRule("0 0 30 2 *"), "UTC", "never fires"),
        (CronRule("0 0 31 4,6 *"), "UTC", "never fires"),
        (CronRule("0 0 * 2 MON#6"), "UTC", "cannot be read"),
        (CronRule("0 8 * *"), "UTC", "cannot be read"),
        (CronRule("* * * * * *"), "UTC", "cannot be read"),  # seconds
        (CronRule("0 25 * * *"), "UTC", "cannot be read"),
        (CronRule("0 8 32 * *"), "UTC", "cannot be read"),
        (CronRule("L/2 8 * * *"), "UTC", "cannot be read"),
        (CronRule("0 8 * * 1,2," * 60), "UTC", "cannot be read"),
        (OnceRule("2020-01-01T08:00"), "UTC", "has passed"),
        (OnceRule("tomorrow"), "UTC", "cannot be read"),
        (OnceRule("2027-01-01T08:00+02:00"), "UTC", "cannot be used"),
        (OnceRule("9999-12-31T23:59"), "UTC", "cannot be used"),
        (IntervalRule(5), "UTC", "not possible"),
        (IntervalRule(10**12), "UTC", "not possible"),
        (IntervalRule(60, 10**18), "UTC", "start"),
        (CronRule("0 8 * * *"), "Europe/Atlantis", "no time zone"),
        (CronRule("0 8 * * *"), "", "no time zone"),
        (CronRule("0 8 * * *"), "Europe", "no time zone"),
        (CronRule("0 8 * * *"), "../../etc/passwd", "no time zone"),
        (CronRule("0 8 * * *"), "/etc/localtime", "no time zone"),
        (CronRule("0 8 * * *"), "Europe/Vienna\0", "no time zone"),
        (IntervalRule(60), "Nowhere", "no time zone"),
    ],
)
def test_what_is_never_due_or_cannot_be_read_is_refused_in_words(rule: Rule, zone: str, words: str) -> None:
    with pytest.raises(Invalid, match=words) as refused:
        check_timing(Timing(rule, zone), ms(2026, 11, 16))
    assert refused.value.hint


def test_an_interval_without_a_start_begins_now() -> None:
    now = ms(2026, 11, 16)
    assert next_time(check_timing(Timing(IntervalRule(3600), "UTC"), now), now) == now + HOUR_MS


def test_the_29th_of_february_fires() -> None:
    timing = Timing(CronRule("0 0 29 2 *"), "UTC")
    assert next_time(timing, ms(2026, 1, 1)) == ms(2028, 2, 29)


expressions = st.builds(
    "{} {} {} {} {}".format,
    st.sampled_from(["0", "30", "*/17", "5,50", "*"]),
    st.sampled_from(["0", "2", "1-3", "*/5", "*", "23"]),
    st.sampled_from(["*", "1", "L", "15,31"]),
    st.sampled_from(["*", "3", "10", "2-4"]),
    st.sampled_from(["*", "0", "1-5", "MON#1", "7"]),
)


@settings(max_examples=60, deadline=None)
@given(
    expressions,
    st.sampled_from([*ZONES, "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Apia"]),
    st.integers(ms(2009, 1, 1), ms(2030, 1, 1)),
)
def test_times_grow_and_going_back_finds_the_same_ones(expression: str, zone: str, start: int) -> None:
    timing = Timing(CronRule(expression), zone)
    times = next_times(timing, start, 12)
    assert times == sorted(set(times))
    assert all(time > start for time in times)
    assert latest_times(timing, start + 1, times[-1], 12) == times
    # A time is the same one, wherever the look starts.
    assert next_time(timing, times[4]) == times[5]
    assert next_time(timing, times[5] - 1) == times[5]


def test_instants_are_whole_minutes_of_utc() -> None:
    for zone in ZONES:
        for time in next_times(Timing(CronRule("*/30 * * * *"), zone), ms(2026, 3, 1), 100):
            assert datetime.fromtimestamp(time / 1000, UTC).second == 0
