"""everturn bench speed, everturn bench compare"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everturn.cli.common import console

if TYPE_CHECKING:
    from rich.table import Table

    from everturn.speed import FigureChange

_STYLES = {"better": "green", "worse": "red", "same": "", "added": "dim", "gone": "dim"}


@click.command("speed")
@click.option("--quick", is_flag=True, help="A short run: it shows that everything works, not how fast.")
@click.option(
    "--only", multiple=True, help="Run this suite only, also one that does not run by default. Repeatable."
)
@click.option("--list", "lists", is_flag=True, help="List the suites and exit.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("everturn-speed"),
    show_default=True,
    help="Folder for speed.json, speed.html and speed.svg.",
)
def speed(quick: bool, only: tuple[str, ...], lists: bool, report: Path) -> None:
    """Measure how fast Everturn is on this machine, beside raw SQLite, PostgreSQL, git and a raw client.

    Your own data is not touched. All suites together take half an hour, on a machine that does nothing else.
    Exits with 1 if a suite could not be completed; a missed target is only reported.
    """
    from everturn.speed import SUITES, choose_suites, run_suites, write_report
    from everturn.speed.report import verdict
    from everturn.speed.result import make_result

    if lists:
        for suite in SUITES:
            click.echo(f"{suite.name:<10} {suite.about}{' (only if named)' if suite.is_extra else ''}")
        return
    chosen = choose_suites(only)
    busy = os.getloadavg()[0]
    if busy > 0.5 and not quick:
        click.echo(f"The load average is {busy:.1f}: other programs slow these figures down.", err=True)
    measured = []
    try:
        for one in run_suites(chosen, is_quick=quick):
            measured.append(one)
            if one.failure:
                click.echo(f"\n{one.suite}: {one.failure}", err=True)
    except (KeyboardInterrupt, subprocess.SubprocessError):
        click.echo("\nStopped. The report has the suites that were completed.", err=True)
    result = make_result(tuple(measured), is_quick=quick)
    paths = write_report(result, report)
    click.echo(f"\n{verdict(result)}")
    for path in paths:
        click.echo(f"Report: {path}")
    if len(measured) < len(chosen) or any(one.failure for one in measured):
        raise SystemExit(1)


@click.command("compare")
@click.argument("before", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("after", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--all", "shows_all", is_flag=True, help="Also show the figures that are the same.")
def compare(before: Path, after: Path, shows_all: bool) -> None:
    """Compare two results (speed.json) of 'everturn bench speed'.

    A figure that differs by less than a quarter counts as the same: runs on one machine differ by as much.
    """
    from everturn.speed import compare as compare_results
    from everturn.speed import read_result

    older, newer = read_result(before), read_result(after)
    if (older.machine, older.processors) != (newer.machine, newer.processors):
        click.echo(
            "The two results are from different machines, which explains part of the differences.", err=True
        )
    if older.is_quick or newer.is_quick:
        click.echo("A result of --quick shows little about speed.", err=True)
    changes = compare_results(older, newer)
    console().print(_table([one for one in changes if shows_all or one.verdict != "same"]))
    counts = [f"{sum(one.verdict == word for one in changes)} {word}" for word in _STYLES]
    click.echo(", ".join(counts))


def _table(changes: list[FigureChange]) -> Table:
    from rich.table import Table

    from everturn.speed.figures import number

    table = Table("Figure")
    for name in ("Before", "After", "Ratio", ""):
        table.add_column(name, justify="right")
    for change in changes:
        cells = [
            "" if one is None else f"{number(one.value)} {one.unit}" for one in (change.before, change.after)
        ]
        ratio = "" if change.ratio is None else f"{change.ratio:.2f}"
        table.add_row(change.name, *cells, ratio, change.verdict, style=_STYLES[change.verdict])
    return table
