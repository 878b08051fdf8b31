"""everturn backup, everturn restore"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Self

import click
from rich.markup import escape

from everturn.backups import unfinished
from everturn.backups.making import make_backup, reason_of, refuse_place, size_of
from everturn.cli import in_force
from everturn.cli.common import console, home_option, open_config_store, printable, run, with_store
from everturn.config import FILE, Config, home_of, read_config
from everturn.domain.errors import EverturnError, Invalid, Refused, Stopped
from everturn.store import (
    Store,
    check_backup,
    copy_tree,
    is_postgres,
    read_contents,
    restore_database,
)
from everturn.store.files.copy_tree import DEPTH_MAX
from everturn.store.files.disk import Disk, sync_tree
from everturn.store.files.machine import FILE as MACHINE

DATABASE = "everturn.db"  # where no address says otherwise
_LISTED_MAX = 20


@click.command()
@click.argument("target", type=click.Path(path_type=Path, file_okay=False), required=False)
@home_option
def backup(target: Path | None, home: Path | None) -> None:
    """Back up your data; the server can keep running. The copy is opened and checked.

    Included: sessions, attachments, memory, the sessions' workspaces (links are copied as links),
    config.toml. Not included: keys (secrets.toml), model weights, your own folders in which a session works.
    With PostgreSQL, stored secrets are included as they are there: encrypted, and without the secret key.
    config.toml is copied as it is, with a password or database_url in it: protect the backup accordingly.

    TARGET is a folder that does not exist yet; default: backups/<time> in the data folder. Only you can read
    it (0700). Until it is complete it is called TARGET.unfinished, which cannot be restored; the next backup
    removes what an interrupted one left.
    """
    made, left_out = with_store(home, lambda store, config: _backup(store, config, target))
    out = console()
    out.print(
        f"Backed up to [bold]{escape(str(made))}[/bold] ({size_of(made) / 1e6:.1f} MB), verified.",
        soft_wrap=True,
    )
    out.print(
        "In it: sessions, attachments, memory, workspaces, config.toml. Not in it: keys, weights of models.",
        soft_wrap=True,
    )
    if (made / FILE).exists():
        out.print(
            f"{FILE} is copied as it is, with a password or database_url if it has one.", soft_wrap=True
        )
    _say_left_out(left_out)


async def _backup(store: Store, config: Config, target: Path | None) -> tuple[Path, list[str]]:
    folder = target or config.home / "backups" / time.strftime("%Y-%m-%d-%H%M%S")
    refuse_place(config.home, folder)
    if target is None:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        cleared, left = unfinished.clear_all(folder.parent)
        for leftover in cleared:
            click.echo(f"Cleared {leftover.name}: an unfinished backup.", err=True)
        for leftover, error in left:
            click.echo(f"Left {leftover} as it is: {error.strerror or error}.", err=True)
    try:
        with console().status("Copying"), _Signals() as signals:
            return folder, await make_backup(store, config.home, folder, signals.check)
    except Refused:
        raise  # the place was taken, which its own words say
    except (EverturnError, OSError) as error:
        raise Stopped(
            f"The backup was not made, and nothing of it is left: {reason_of(error)}",
            hint=error.hint if isinstance(error, _Signalled) else "Free space, or name a folder elsewhere.",
        ) from error


class _Signalled(Stopped):
    """A signal asked the command to end."""


class _Signals:
    """Ctrl-C and SIGTERM end a backup between two parts, so that it can clean up. A second signal ends it at
    once; the leftover is recognisable as unfinished."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._is_ended = False

    def __enter__(self) -> Self:
        for number in self._NUMBERS:
            asyncio.get_running_loop().add_signal_handler(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._NUMBERS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _end(self) -> None:
        self._is_ended = True
        for number in self._NUMBERS:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        click.echo("Stopping after this part. Press Ctrl-C again to stop at once.", err=True)

    def check(self) -> None:
        if self._is_ended:
            raise _Signalled("it was ended by a signal.", hint="Make it again when there is time.")


def _say_left_out(left_out: list[str]) -> None:
    if not left_out:
        return
    click.echo(f"{len(left_out)} left out:", err=True)
    for line in left_out[:_LISTED_MAX]:
        click.echo(f"  {printable(line)}", err=True)  # names that an agent gave its files
    if len(left_out) > _LISTED_MAX:
        click.echo(f"  and {len(left_out) - _LISTED_MAX:,} more", err=True)


@click.command()
@click.argument("source", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--yes", "is_accepted", is_flag=True, help="Do not ask about what comes into force.")
@home_option
def restore(source: Path, is_accepted: bool, home: Path | None) -> None:
    """Restore a backup into an empty data folder (and an empty PostgreSQL database), and check it.

    A backup can hold more than data: API tokens, a password, calls that are always allowed, MCP servers and
    other settings. All of that is shown, and you are asked before anything is restored.

    A backup contains no keys: set them again in the environment, or store them in the settings. Secrets that
    were encrypted in PostgreSQL need the secret key that they had. Only you can read the data folder (0700).
    """
    target = home_of(os.environ) if home is None else home
    if unfinished.is_unfinished(source):
        raise Invalid(
            f"{source} is a backup that was not finished; nothing was restored.",
            hint="Name another one. 'everturn backup' makes a new one.",
        )
    with unfinished.Restoration(target, source, DATABASE) as restoration:
        # Read after the folder was cleared: an interrupted restore may have left the backup's settings in it.
        config = read_config(target)
        if not restoration.has_database:
            _refuse_links(source, config)
            check_backup(config.database_url, source)
            in_force.ask_about(source, read_contents(source, _database_name(config)), is_accepted=is_accepted)
        left_out = run(_restore(source, config, restoration))
        restoration.finish()
    found = run(_findings(config))
    console().print(f"Restored into [bold]{escape(str(target))}[/bold]; {found} finding(s).", soft_wrap=True)
    if is_postgres(config.database_url or ""):
        console().print("Stored secrets are encrypted: start the servers with the secret key that they had.")
    else:
        console().print("A backup holds no API keys. Set them again.")
    _say_address(config)
    _say_left_out(left_out)


def _say_address(config: Config) -> None:
    """Warn if the restored settings name the original database and not this one."""
    try:
        named = read_config(config.home, {}).database_url
    except Invalid:
        return  # the next command reports what is wrong with them
    if named is not None and named != config.database_url:
        click.echo(
            f"{config.home / FILE} names another database (database_url) than the one that was restored: "
            "correct it before you start the server.",
            err=True,
        )


def _refuse_links(source: Path, config: Config) -> None:
    for name in (DATABASE, _database_name(config), "postgresql"):
        if (source / name).is_symlink():
            raise Invalid(
                f"{source / name} is a link, which no backup holds. Nothing was restored.",
                hint="Name the folder that 'everturn backup' made.",
            )


async def _restore(source: Path, config: Config, restoration: unfinished.Restoration) -> list[str]:
    # The database first: if backup and address do not match, nothing has been changed yet.
    if not restoration.has_database:
        await restore_database(config.database_url, source)
        if config.database_url:
            restoration.mark_database_filled()
    if not config.database_url and not (source / DATABASE).is_file():
        raise Invalid(
            f"{source.name} is a backup of a database with an address of its own. Nothing was restored.",
            hint="Say where it is to be with EVERTURN_DATABASE_URL.",
        )
    try:
        return await asyncio.to_thread(_put_back, source, config)
    except OSError as error:
        raise Stopped(
            f"The backup was not restored whole: {reason_of(error)}",
            hint=f"Free space, then restore it again: that clears what is in {config.home}.",
        ) from error


async def _findings(config: Config) -> int:
    async with open_config_store(config) as store:
        return len(await store.upkeep.check())


# From which depth links are restored: commands may have made them in a workspace. A link in place of a
# workspace would lead the sandbox elsewhere; notes and attachments have none.
_LINKS_BELOW = {"workspaces": 1, **dict.fromkeys(("blobs", "files", "memory"), DEPTH_MAX + 1)}


def _put_part_back(part: Path, target: Path) -> list[str]:
    """Copy one part of a backup; return what was left out.

    A backup can come from anywhere, so everything that 'everturn backup' does not make is left out: keys,
    links, other folders.
    """
    if part.name in (FILE, MACHINE) and part.is_file() and not part.is_symlink():
        shutil.copy2(part, target)
        return []
    if part.name in _LINKS_BELOW and part.is_dir() and not part.is_symlink():
        left_out = copy_tree(part, target, links_below=_LINKS_BELOW[part.name])
        return [f"{part.name}/{line}" for line in left_out]
    return [f"{part.name}: not part of a backup"]


def _database_name(config: Config) -> str:
    # A database with an address is not in the data folder.
    return Path(config.database_url or DATABASE).name


def _put_back(source: Path, config: Config) -> list[str]:
    """Copy the backup into the data folder, durably, the database last.

    An interrupted restoration leaves a folder without a database, which is never taken for a complete one.
    """
    home = config.home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)  # it may have been there before
    left_out = []
    for part in sorted(source.iterdir()):
        if part.name not in (DATABASE, _database_name(config), "postgresql"):
            left_out += _put_part_back(part, home / part.name)
    sync_tree(Disk(), home)
    if not config.database_url:
        coming = home / f".{DATABASE}.incoming"
        shutil.copy2(source / DATABASE, coming)
        with coming.open("rb") as file:
            Disk().sync_file(file.fileno())
        coming.rename(home / DATABASE)
        Disk().sync_folder(home)
    return left_out
