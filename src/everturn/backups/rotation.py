"""Decides when a backup is due and which backups may be removed."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from everturn.backups.settings import BackupSettings, minute_of_day
from everturn.domain.backups import BackupDrill, BackupEntry, BackupState

RETRY_MS = 15 * 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
# Rotation considers only these names: a backup made or named by hand is never removed.
_NAME = re.compile(r"auto-\d{4}-\d\d-\d\d-\d{6}")


def name_of(now_ms: int) -> str:
    """Return the name of a scheduled backup, with the time in UTC."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("auto-%Y-%m-%d-%H%M%S")


def made_at(name: str) -> int | None:
    """Return when a scheduled backup was made according to its name; None for other names."""
    if not _NAME.fullmatch(name):
        return None
    try:
        made = datetime.strptime(name, "auto-%Y-%m-%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None  # the 31st of February
    return round(made.timestamp() * 1000)


def due_at(settings: BackupSettings, zone: ZoneInfo, state: BackupState, now_ms: int) -> int | None:
    """Return when the next backup is due; None if none is scheduled.

    A missed backup is due at once. A failed one is retried after a while.
    """
    if not settings.is_scheduled:
        return None
    # Times in the future mean that the clock was set back. They must not delay backups.
    last = min(state.last_at or 0, now_ms)
    failed = min(state.failed_at or 0, now_ms)
    due = _next_time(settings, zone, last) if last else 0
    return max(due, failed + RETRY_MS) if failed > last else due


def drill_due_at(settings: BackupSettings, drill: BackupDrill | None, now_ms: int) -> int | None:
    """Return when the next trial restore is due; None for never. A failed attempt is repeated after a day."""
    if not settings.drill_days:
        return None
    if drill is None:
        return 0
    days = 1 if drill.problem else settings.drill_days
    return min(drill.at, now_ms) + days * _DAY_MS


def _next_time(settings: BackupSettings, zone: ZoneInfo, last_ms: int) -> int:
    if settings.at is None:
        return last_ms + settings.every_h * _HOUR_MS
    last = datetime.fromtimestamp(last_ms / 1000, zone)
    hour, minute = divmod(minute_of_day(settings.at), 60)
    due = last.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if due <= last:
        due = (due + timedelta(days=1)).replace(fold=0)
    return round(due.timestamp() * 1000)


def choose_superfluous(
    entries: Iterable[BackupEntry], settings: BackupSettings, zone: ZoneInfo
) -> list[BackupEntry]:
    """Return the backups that may be removed.

    The newest sound backup always stays, and a damaged one stays until there is a newer sound one.
    """
    newest_first = sorted(entries, key=lambda entry: entry.made_at, reverse=True)
    sound = [entry for entry in newest_first if not entry.problem]
    if not sound:
        return []
    days = [_day(entry, zone).date() for entry in sound]
    weeks = [_day(entry, zone).isocalendar()[:2] for entry in sound]
    kept = {sound[index].name for index in _first_of_each(days, settings.keep_daily)}
    kept |= {sound[index].name for index in _first_of_each(weeks, settings.keep_weekly)}
    kept |= {sound[0].name} | {entry.name for entry in newest_first if entry.made_at > sound[0].made_at}
    return [entry for entry in newest_first if entry.name not in kept]


def _day(entry: BackupEntry, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(entry.made_at / 1000, zone)


def _first_of_each(groups: Sequence[Hashable], groups_max: int) -> list[int]:
    """Return the index of the first member of each of the first groups."""
    found = {group: index for index, group in reversed(list(enumerate(groups)))}
    return sorted(found.values())[:groups_max]
