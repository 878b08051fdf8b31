"""Schedules as values: when something is due, and what became of each time that it was."""

from __future__ import annotations

import msgspec


class CronRule(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    """Times of the wall clock: minute, hour, day of month, month, day of week."""

    expression: str


class IntervalRule(msgspec.Struct, frozen=True, tag="interval", tag_field="kind"):
    """Every so many seconds from ``start_at`` on, whatever the clocks of the zone do. The first time is one
    interval after ``start_at``; None: when the schedule is made."""

    every_s: int
    start_at: int | None = None


class OnceRule(msgspec.Struct, frozen=True, tag="once", tag_field="kind"):
    """One time of the wall clock, such as ``2026-11-20T08:00``."""

    at: str


Rule = CronRule | IntervalRule | OnceRule


class Timing(msgspec.Struct, frozen=True):
    """A rule and the time zone whose clocks it means, e.g. ``Europe/Vienna``."""

    rule: Rule
    timezone: str
