"""everturn rollback"""

from __future__ import annotations

import time
from pathlib import Path

import click

from everturn.backups.rollback import (
    FormerCopy,
    Since,
    choose,
    compare,
    find_copies,
    keep_newer,
    put_copy_in_place,
)
from everturn.backups.unfinished import refuse_leftover
from everturn.cli.common import console, home_option, open_config_store, run
from everturn.config import Config, read_config
from everturn.domain.errors import Invalid
from everturn.store import has_store, is_postgres
from everturn.store.files.server_lock import hold_server_lock


@click.command()
@click.option("--to", "schema", type=int, help="The schema to go back to. Default: the newest copy.")
@click.option("--yes", "is_accepted", is_flag=True, help="Do not ask.")
@home_option
def rollback(schema: int | None, is_accepted: bool, home: Path | None) -> None:
    """Go back to the copy of the database that was made before a schema change, for an earlier version.

    Run it with the newer version, while no server runs. It shows what came after the copy, keeps that in a
    folder rolled-back-<time> in the data folder (a backup of everything, and an archive of each session that
    is new or changed), and then puts the copy in place. Install the earlier version after that, and start it.

    Only SQLite has such copies. With PostgreSQL, restore a backup that the earlier version made into an empty
    database.
    """
    config = read_config(home)
    database = _database(config)
    refuse_leftover(config.home)
    copy = choose(find_copies(database), schema)
    with hold_server_lock(database.parent, "Nothing was changed."):
        since = compare(database, copy)
        _show(copy, since)
        if not is_accepted and not click.confirm(
            "Keep all of that in a folder, and go back to the copy?", err=True
        ):
            raise Invalid("Nothing was changed.", hint="Answer y, or add --yes.")
        kept = run(_keep(config, since))
        click.echo(
            f"Kept in {kept}: newer/ is a backup, sessions/ has {len(since.changed):,} archive(s).", err=True
        )
        put_copy_in_place(database, copy)
    _say_done(copy, kept, since)


def _database(config: Config) -> Path:
    address = config.database_url or ""
    if is_postgres(address):
        raise Invalid(
            "PostgreSQL keeps no copy from before a schema change. Nothing was changed.",
            hint="Stop every server, export what is new ('everturn export'), and restore the last backup "
            "that the earlier version made into an empty database, with that version. See docs/upgrading.md.",
        )
    if not has_store(address, config.home):
        raise Invalid(f"There is no Everturn data in {config.home}.", hint="Name its folder with --home.")
    return Path(address.removeprefix("sqlite://")) if address else config.home / "everturn.db"


def _show(copy: FormerCopy, since: Since) -> None:
    age = time.time() - copy.made_at
    ago = f"{age / 86_400:.0f} days" if age > 2 * 86_400 else f"{age / 3600:.1f} hours"
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(copy.made_at))
    click.echo(f"{copy.path.name}: schema {copy.schema}, made {made} ({ago} ago).", err=True)
    click.echo(
        f"After it came {since.turns:,} turn(s) and {since.messages:,} message(s); {len(since.changed):,} "
        "session(s) are new or changed.",
        err=True,
    )
    if since.returning:
        click.echo(f"{since.returning:,} session(s) that were deleted since come back.", err=True)
    if since.unfinished:
        click.echo(
            f"{since.unfinished:,} turn(s) were not finished then. The earlier version goes on with them, "
            "although they may have ended since: cancel those that must not run twice.",
            err=True,
        )
    click.echo(
        "Settings, tokens and schedules are as they were then. Files of workspaces stay as they are.",
        err=True,
    )


async def _keep(config: Config, since: Since) -> Path:
    async with open_config_store(config) as store:
        await store.workers.take_over("")
        with console(stderr=True).status("Keeping what is newer") as status:
            return await keep_newer(store, config.home, since, status.update)


def _say_done(copy: FormerCopy, kept: Path, since: Since) -> None:
    click.echo(f"The database has schema {copy.schema} again.")
    click.echo("Now install the version that you used before, and start it: this one would migrate it again.")
    if since.changed:
        click.echo(f"To have the newer sessions there as well: everturn import {kept / 'sessions'}/*.zip")
