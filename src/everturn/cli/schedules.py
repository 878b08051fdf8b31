"""everturn schedules"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Column, Table

from everturn.cli.common import OWNER, console, home_option, printable, with_store
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.schedules import (
    CronRule,
    IntervalRule,
    Occurrence,
    OnceRule,
    Rule,
    RunsIn,
    Schedule,
    ScheduleSettings,
    Timing,
    WhenMissed,
    WhenOverlapping,
)
from everturn.domain.timezones import find_zone
from everturn.schedules import ScheduleBook, describe
from everturn.store import Store

_PAGE = 200
_MORE = ("Next", "Name", "Rule")
_ID_CHARS = 30
_SECONDS = {"m": 60, "h": 3600, "d": 86400}


@click.group()
def schedules() -> None:
    """List, make and run schedules. A running server runs them."""


@schedules.command("list")
@home_option
def list_(home: Path | None) -> None:
    """List schedules: id, next time, name, rule."""
    found = with_store(home, _all)
    # Ids are never shortened, because users copy them.
    table = Table(Column("Id", no_wrap=True, min_width=_ID_CHARS), *_MORE, box=None, header_style="bold")
    for one in found:
        words = describe(one.settings.timing)
        table.add_row(one.id, _next(one), escape(printable(one.settings.name)), escape(words))
    console().print(table if found else "There are no schedules. 'everturn schedules add' makes one.")


async def _all(store: Store, config: Config) -> list[Schedule]:
    found: list[Schedule] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await store.schedules.list(OWNER, limit=_PAGE, after=cursor)
        found += page.items
        cursor = page.cursor
    return found


def _next(schedule: Schedule) -> str:
    if schedule.paused_at is not None:
        return "paused"
    return "over" if schedule.due_at is None else _clock(schedule.due_at, schedule.settings.timing)


def _clock(at_ms: int, timing: Timing) -> str:
    """By the clocks that the rule means, which its words name; of an interval, by this machine's."""
    zone = None if isinstance(timing.rule, IntervalRule) else find_zone(timing.timezone)
    return f"{datetime.fromtimestamp(at_ms / 1000, zone):%Y-%m-%d %H:%M}"


@schedules.command()
@click.argument("name")
@click.argument("text")
@click.option("--when", "words", help="The rule in words, such as 'every weekday at 8' or 'tomorrow at 9'.")
@click.option("--cron", help="Five fields: minute, hour, day, month, weekday. E.g. '0 8 * * 1-5'.")
@click.option("--every", help="An interval, such as 30m, 6h or 1d.")
@click.option("--at", "once", help="One time, such as 2026-11-20T08:00.")
@click.option("--timezone", help="Such as Europe/Vienna. Default: [budget] timezone.")
@click.option(
    "--missed",
    type=click.Choice([word.value for word in WhenMissed]),
    default="last",
    show_default=True,
    help="For times at which no server was running: run the last one, up to 24, or none.",
)
@click.option(
    "--overlap",
    type=click.Choice([word.value for word in WhenOverlapping]),
    default="skip",
    show_default=True,
    help="For a time at which the previous run has not ended.",
)
@click.option("--new-sessions", is_flag=True, help="A new session for each run.")
@click.option("--session", help="Id of the session for all runs. Default: one of its own.")
@click.option("--model", help="Model of the runs.")
@click.option("--profile", help="Profile of the runs.")
@click.option("--report-to", help="Id of the chat that gets the answers.")
@home_option
def add(
    name: str,
    text: str,
    words: str | None,
    cron: str | None,
    every: str | None,
    once: str | None,
    timezone: str | None,
    missed: str,
    overlap: str,
    new_sessions: bool,
    session: str | None,
    model: str | None,
    profile: str | None,
    report_to: str | None,
    home: Path | None,
) -> None:
    """Make a schedule that sends TEXT to the agent."""

    async def work(store: Store, config: Config) -> None:
        book = ScheduleBook(store.schedules, SystemClock(), timezone or config.budget.timezone)
        settings = ScheduleSettings(
            name=name,
            text=text,
            timing=_read_timing(book, words, cron, every, once),
            when_missed=WhenMissed(missed),
            when_overlapping=WhenOverlapping(overlap),
            runs_in=RunsIn.NEW if new_sessions else RunsIn.ONE,
            model=model,
            profile=profile,
            report_to=report_to,
        )
        made = await book.add(OWNER, settings, session)
        preview = book.preview(made.settings.timing)
        click.echo(f"{made.id}  {preview.words}")
        for at_ms in preview.times:
            click.echo(f"  {_clock(at_ms, made.settings.timing)}")

    with_store(home, work, makes_one=True)


def _read_timing(
    book: ScheduleBook, words: str | None, cron: str | None, every: str | None, once: str | None
) -> Timing:
    if sum(value is not None for value in (words, cron, every, once)) != 1:
        hint = "See 'everturn schedules add --help'."
        raise Invalid("Give one of --when, --cron, --every and --at.", hint=hint)
    if words is not None:
        return book.read_when(words)
    rule: Rule
    if cron is not None:
        rule = CronRule(cron)
    else:
        rule = OnceRule(once) if once is not None else IntervalRule(_seconds(every or ""))
    return Timing(rule, book.timezone)


def _seconds(every: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([mhd])", every)
    if found is None:
        raise Invalid(f"The interval {every[:40]!r} cannot be read.", hint="Write 30m, 6h or 1d.")
    return int(found[1]) * _SECONDS[found[2]]


def _book(store: Store) -> ScheduleBook:
    return ScheduleBook(store.schedules, SystemClock())


@schedules.command()
@click.argument("schedule_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number.")
@home_option
def history(schedule_id: str, limit: int, home: Path | None) -> None:
    """Show what became of the times of a schedule, newest first."""

    async def read(store: Store, config: Config) -> tuple[Schedule, Sequence[Occurrence]]:
        schedule = await store.schedules.get(OWNER, schedule_id)
        return schedule, await store.schedules.occurrences(OWNER, schedule_id, limit=limit)

    schedule, found = with_store(home, read)
    for one in found:
        state = one.turn_state or ""
        at = _clock(one.due_at, schedule.settings.timing)
        click.echo(f"{at}  {one.fate:<9}  {state:<11}  {one.reason}".rstrip())
    if not found:
        click.echo("It has not been due yet.")


@schedules.command()
@click.argument("schedule_id", metavar="ID")
@home_option
def run(schedule_id: str, home: Path | None) -> None:
    """Run a schedule once now, in addition to its times."""
    made = with_store(home, lambda store, config: store.schedules.run_now(OWNER, schedule_id))
    click.echo(f"Started in session {made.session_id}. A running server answers it.")


@schedules.command()
@click.argument("schedule_id", metavar="ID")
@home_option
def pause(schedule_id: str, home: Path | None) -> None:
    """Pause a schedule."""
    with_store(home, lambda store, config: _book(store).change(OWNER, schedule_id, is_paused=True))
    click.echo("Paused.")


@schedules.command("continue")
@click.argument("schedule_id", metavar="ID")
@home_option
def continue_(schedule_id: str, home: Path | None) -> None:
    """Continue a paused schedule with its next time."""
    found = with_store(home, lambda store, config: _book(store).change(OWNER, schedule_id, is_paused=False))
    click.echo(f"Next: {_next(found)}")


@schedules.command()
@click.argument("schedule_id", metavar="ID")
@home_option
def delete(schedule_id: str, home: Path | None) -> None:
    """Delete a schedule and its history. Its sessions stay."""
    with_store(home, lambda store, config: store.schedules.delete(OWNER, schedule_id))
    click.echo("Deleted.")
