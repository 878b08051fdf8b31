"""everturn move"""

from __future__ import annotations

import sys

import click

from everturn.cli.common import console, printable, run
from everturn.move import move_store


@click.command()
@click.argument("source")
@click.argument("target")
def move(source: str, target: str) -> None:
    """Move everything from a data folder to PostgreSQL, or back.

    SOURCE and TARGET: one is a data folder, the other the address of a database (postgresql://…). Stop every
    server first. Everything is copied, then read again on both sides: every row, every file by its hash. The
    source stays as it is, apart from turns of servers that did not stop cleanly, which become claimable.

    The target must be empty. If the command is interrupted, run it again.
    """
    out = console()
    is_terminal = sys.stderr.isatty()
    with console(stderr=True).status("Moving") as status:

        def report(line: str) -> None:
            if is_terminal:
                status.update(printable(line))
            else:
                click.echo(printable(line), err=True)

        moved = run(move_store(source, target, report))
    carried = moved.carried
    out.print("It was moved before; verified again." if moved.was_there else "MoveResult and verified.")
    out.print(
        f"{carried.rows:,} rows, {carried.blobs:,} files and versions ({carried.bytes / 1e6:.1f} MB), "
        f"{carried.pages:,} pages of notes.",
        soft_wrap=True,
    )
    click.echo("Not carried:")
    for line in carried.not_carried:
        click.echo(f"  {printable(line)}")
