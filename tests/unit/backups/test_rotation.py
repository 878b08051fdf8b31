"""When a backup is due, and which ones may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.backups.rotation import RETRY_MS, choose_superfluous, due_at, made_at, name_of
from everturn.backups.settings import BackupSettings
from everturn.domain.backups import BackupEntry, BackupState
from everturn.domain.errors import Invalid

UTC_ZONE, VIENNA = ZoneInfo("UTC"), ZoneInfo("Europe/Vienna")
HOUR_MS = 3_600_000
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def entry(moment: datetime, problem: str = "") -> BackupEntry:
    return BackupEntry(name=name_of(ms(moment)), made_at=ms(moment), problem=problem)


def left(entries: list[BackupEntry], settings: BackupSettings) -> list[str]:
    gone = {one.name for one in choose_superfluous(entries, settings, UTC_ZONE)}
    return [one.name for one in entries if one.name not in gone]


def test_a_name_says_when_its_backup_was_made() -> None:
    assert name_of(ms(NOON)) == "auto-2026-11-18-120000"
    assert made_at("auto-2026-11-18-120000") == ms(NOON)
    for other in ("2026-11-18-120000", "auto-2026-02-31-120000", "auto-2026-11-18-120000.unfinished", "mine"):
        assert made_at(other) is None


def test_nothing_is_due_without_a_schedule_and_the_first_one_is_due_at_once() -> None:
    assert due_at(BackupSettings(), UTC_ZONE, BackupState(), ms(NOON)) is None
    for settings in (BackupSettings(every_h=6), BackupSettings(at="03:30")):
        due = due_at(settings, UTC_ZONE, BackupState(), ms(NOON))
        assert due is not None
        assert due <= ms(NOON)


def test_a_backup_is_due_at_its_time_of_day_there() -> None:
    state = BackupState(last_at=ms(NOON))
    due = due_at(BackupSettings(at="03:30"), VIENNA, state, ms(NOON))
    assert due == ms(datetime(2026, 11, 19, 2, 30, tzinfo=UTC))
    assert due_at(BackupSettings(every_h=6), VIENNA, state, ms(NOON)) == ms(NOON) + 6 * HOUR_MS


def test_a_time_that_daylight_saving_skips_or_repeats_comes_once() -> None:
    for before, after in (
        (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ):
        settings = BackupSettings(at="02:30")
        due = due_at(settings, VIENNA, BackupState(last_at=ms(before)), ms(before))
        assert due == ms(after)
        following = due_at(settings, VIENNA, BackupState(last_at=due), due)
        assert following is not None
        assert following - due > 20 * HOUR_MS


def test_what_failed_is_tried_again_after_a_while_and_a_clock_that_was_set_back_puts_nothing_off() -> None:
    now = ms(NOON)
    failed = BackupState(last_at=now - 48 * HOUR_MS, failed_at=now, problem="full")
    assert due_at(BackupSettings(every_h=24), UTC_ZONE, failed, now) == now + RETRY_MS
    future = BackupState(last_at=now + 1000 * HOUR_MS)
    assert due_at(BackupSettings(every_h=24), UTC_ZONE, future, now) == now + 24 * HOUR_MS


def test_the_last_of_each_day_and_week_is_kept() -> None:
    entries = [entry(NOON - timedelta(hours=12 * number)) for number in range(80)]
    kept = left(entries, BackupSettings(keep_daily=3, keep_weekly=3))
    assert kept == [
        "auto-2026-11-18-120000",
        "auto-2026-11-17-120000",
        "auto-2026-11-16-120000",
        "auto-2026-11-15-120000",
        "auto-2026-11-08-120000",
    ]


def test_a_damaged_backup_takes_no_place_and_stays_until_there_is_a_newer_sound_one() -> None:
    sound, damaged = entry(NOON - timedelta(days=1)), entry(NOON, problem="damaged")
    few = BackupSettings(keep_daily=1, keep_weekly=0)
    assert left([damaged, sound], few) == [damaged.name, sound.name]
    assert left([damaged], few) == [damaged.name]
    newer = entry(NOON + timedelta(days=1))
    assert left([newer, damaged, sound], few) == [newer.name]


@given(
    st.lists(st.tuples(st.integers(0, 2_000), st.booleans()), unique_by=lambda each: each[0]),
    st.integers(1, 5),
    st.integers(0, 5),
)
def test_the_newest_sound_backup_is_never_removed(
    made: list[tuple[int, bool]], daily: int, weekly: int
) -> None:
    entries = [entry(NOON + timedelta(hours=hours), "damaged" if is_bad else "") for hours, is_bad in made]
    kept = left(entries, BackupSettings(keep_daily=daily, keep_weekly=weekly))
    sound = sorted(one.name for one in entries if not one.problem)
    assert sound[-1:] == [name for name in sound if name in kept][-1:]
    assert len([name for name in kept if name in sound]) <= daily + weekly + 1


@pytest.mark.parametrize("wrong", [{"at": "3:30"}, {"at": "24:00"}, {"at": "noon"}, {"folder": "backups"}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        BackupSettings(**wrong)  # type: ignore[arg-type]  # each is a text


def test_a_time_and_an_interval_together_are_refused() -> None:
    with pytest.raises(Invalid, match="every_h is set"):
        BackupSettings(at="03:30", every_h=6)
