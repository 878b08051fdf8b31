"""The options that ``everturn schedules add`` and ``change`` share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import click
import msgspec

from everturn.cli.common import OWNER
from everturn.config import Config
from everturn.domain.budgets import BudgetLimit, BudgetScope, Unit, make_key, make_limit
from everturn.domain.errors import Invalid, NotFound
from everturn.domain.json_types import JsonObject
from everturn.domain.schedules import (
    CronRule,
    IntervalRule,
    OnceRule,
    Rule,
    RunsIn,
    Schedule,
    Timing,
    WhenMissed,
    WhenOverlapping,
)
from everturn.schedules import ScheduleBook
from everturn.store import Store

ONE_RULE: Final = "Give one of --when, --cron, --every and --at."
_SECONDS = {"m": 60, "h": 3600, "d": 86400}
_Command = Callable[..., None]


def rule_options(command: _Command) -> _Command:
    for option in reversed(_RULE):
        command = option(command)
    return command


def run_options(command: _Command) -> _Command:
    for option in reversed(_RUN):
        command = option(command)
    return command


_RULE = (
    click.option(
        "--when", "words", help="The rule in words, such as 'every weekday at 8' or 'tomorrow at 9'."
    ),
    click.option("--cron", help="Five fields: minute, hour, day, month, weekday. E.g. '0 8 * * 1-5'."),
    click.option("--every", help="An interval, such as 30m, 6h or 1d."),
    click.option("--at", "once", help="One time, such as 2026-11-20T08:00."),
    click.option("--timezone", help="Such as Europe/Vienna. A new one has [budget] timezone."),
)
_RUN = (
    click.option(
        "--missed",
        type=click.Choice([word.value for word in WhenMissed]),
        help="For times at which no server was running: run the last, up to 24, or none. A new one: last.",
    ),
    click.option(
        "--overlap",
        type=click.Choice([word.value for word in WhenOverlapping]),
        help="For a time at which the previous run has not ended. A new one: skip.",
    ),
    click.option("--new-sessions/--one-session", default=None, help="A new session for each run, or one."),
    click.option("--session", help="Id of the session for all runs. A new one has one of its own."),
    click.option("--model", help="Model of the runs."),
    click.option("--profile", help="Profile of the runs."),
    click.option("--report-to", help="Id of the chat that gets the answers."),
    click.option("--budget", help="US dollars that each run may cost, such as 0.50."),
)


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was given; None: not given."""

    words: str | None
    cron: str | None
    every: str | None
    once: str | None
    timezone: str | None
    missed: WhenMissed | None
    overlap: WhenOverlapping | None
    new_sessions: bool | None
    session: str | None
    model: str | None
    profile: str | None
    report_to: str | None
    budget: str | None

    @classmethod
    def read(cls, options: Mapping[str, str | bool | None]) -> ScheduleOptions:
        return msgspec.convert(options, cls)

    def read_timing(self, book: ScheduleBook) -> Timing | None:
        """The rule, in the book's time zone; None if none was given."""
        given = [value for value in (self.words, self.cron, self.every, self.once) if value is not None]
        if not given:
            return None
        if len(given) > 1:
            raise Invalid(ONE_RULE, hint="See 'everturn schedules add --help'.")
        if self.words is not None:
            return book.read_when(self.words)
        return Timing(self._rule(), book.timezone)

    def _rule(self) -> Rule:
        if self.cron is not None:
            return CronRule(self.cron)
        return OnceRule(self.once) if self.once is not None else IntervalRule(_seconds(self.every or ""))

    def changes(self) -> JsonObject:
        """The settings that were given, by their names."""
        given: JsonObject = {
            "when_missed": self.missed,
            "when_overlapping": self.overlap,
            "runs_in": None if self.new_sessions is None else RunsIn.NEW if self.new_sessions else RunsIn.ONE,
            "model": self.model,
            "profile": self.profile,
            "report_to": self.report_to,
        }
        return {name: value or None for name, value in given.items() if value is not None}


def check_budget(given: ScheduleOptions) -> None:
    """Raises Invalid before anything is stored."""
    if given.budget:
        _amount(given.budget)


async def put_budget(store: Store, config: Config, schedule: Schedule, given: ScheduleOptions) -> None:
    """Set the budget of the schedule's runs, or remove it."""
    if given.budget is None:
        return
    key = make_key(BudgetScope.SCHEDULE, Unit.USD, schedule.id)
    if given.budget:
        limit: BudgetLimit = make_limit(key, _amount(given.budget), config.budget.timezone)
        await store.budgets.put(OWNER, limit)
        return
    try:
        await store.budgets.remove(OWNER, key)
    except NotFound:
        return  # it had none


def _amount(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        raise Invalid(f"The budget {text[:40]!r} is not an amount.", hint="Write dollars, such as 0.50.")
    return float(text)


def _seconds(every: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([mhd])", every)
    if found is None:
        raise Invalid(f"The interval {every[:40]!r} cannot be read.", hint="Write 30m, 6h or 1d.")
    return int(found[1]) * _SECONDS[found[2]]
