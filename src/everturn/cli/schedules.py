"""everturn schedules"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Column, Table

from everturn.cli.common import OWNER, console, home_option, printable, with_store
from everturn.cli.schedule_options import (
    ONE_RULE,
    ScheduleOptions,
    check_budget,
    put_budget,
    rule_options,
    run_options,
)
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.json_types import JsonObject
from everturn.domain.schedules import IntervalRule, Occurrence, Schedule, ScheduleSettings, Timing
from everturn.domain.timezones import find_zone
from everturn.schedules import ScheduleBook, describe
from everturn.store import Store

_PAGE = 200
_MORE = ("Next", "Name", "Rule")
_ID_CHARS = 30


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
@rule_options
@run_options
@home_option
def add(name: str, text: str, home: Path | None, **options: str | bool | None) -> None:
    """Make a schedule that sends TEXT to the agent."""
    given = ScheduleOptions.read(options)

    async def work(store: Store, config: Config) -> None:
        book = ScheduleBook(store.schedules, SystemClock(), given.timezone or config.budget.timezone)
        timing = given.read_timing(book)
        if timing is None:
            raise Invalid(ONE_RULE, hint="See 'everturn schedules add --help'.")
        check_budget(given)
        settings = ScheduleSettings(name, text, timing, **given.changes())
        made = await book.add(OWNER, settings, given.session)
        await put_budget(store, config, made, given)
        _show(made, book)

    with_store(home, work, makes_one=True)


@schedules.command()
@click.argument("schedule_id", metavar="ID")
@click.option("--name", help="Another name.")
@click.option("--text", help="Another text. It counts as yours from then on.")
@rule_options
@run_options
@home_option
def change(
    schedule_id: str, name: str | None, text: str | None, home: Path | None, **options: str | bool | None
) -> None:
    """Change a schedule. What is not named stays; '' removes a model, profile, session, chat or budget."""
    given = ScheduleOptions.read(options)

    async def work(store: Store, config: Config) -> None:
        before = await store.schedules.get(OWNER, schedule_id)
        zone = given.timezone or before.settings.timing.timezone
        book = ScheduleBook(store.schedules, SystemClock(), zone)
        changes: JsonObject = given.changes()
        timing = given.read_timing(book)
        if timing is not None or given.timezone is not None:
            changes["timing"] = timing or Timing(before.settings.timing.rule, zone)
        if name is not None:
            changes["name"] = name
        if text is not None:
            changes |= {"text": text, "is_trusted": True}
        if given.session is not None:
            changes["session_id"] = given.session or None
        if not changes and given.budget is None:
            raise Invalid("There is nothing to change.", hint="See 'everturn schedules change --help'.")
        check_budget(given)
        changed = await book.change(OWNER, schedule_id, **changes) if changes else before
        await put_budget(store, config, changed, given)
        _show(changed, book)

    with_store(home, work)


def _show(schedule: Schedule, book: ScheduleBook) -> None:
    preview = book.preview(schedule.settings.timing)
    click.echo(f"{schedule.id}  {preview.words}")
    for at_ms in preview.times:
        click.echo(f"  {_clock(at_ms, schedule.settings.timing)}")


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
