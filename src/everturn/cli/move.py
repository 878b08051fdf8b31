"""everturn move"""

from __future__ import annotations

import click

from everturn.cli.common import console, printable, progress, run
from everturn.domain.extras import report_missing


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
    with report_missing("PostgreSQL", "postgresql"):
        from everturn.move import move_store
    out = console()
    with progress("Moving") as report:
        moved = run(move_store(source, target, report))
    carried = moved.carried
    out.print("It was moved before; verified again." if moved.was_there else "Moved and verified.")
    out.print(
        f"{carried.rows:,} rows, {carried.blobs:,} files and versions ({carried.bytes / 1e6:.1f} MB), "
        f"{carried.pages:,} pages of notes.",
        soft_wrap=True,
    )
    click.echo("Not carried:")
    for line in carried.not_carried:
        click.echo(f"  {printable(line)}")
