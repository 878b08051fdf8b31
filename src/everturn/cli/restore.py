"""everturn restore"""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.markup import escape

from everturn.backups import unfinished
from everturn.backups.backup import in_thread, reason_of
from everturn.backups.encryption import Key, read_identities, read_passphrase, unwrap
from everturn.backups.restore import DATABASE, database_name, put_back
from everturn.backups.source import SealedSource, find_source
from everturn.backups.watch import BackupWatch
from everturn.cli import in_force
from everturn.cli.backup import say_left_out
from everturn.cli.common import console, home_option, open_config_store, run
from everturn.config import FILE, Config, home_of, read_config
from everturn.domain.errors import Invalid, Stopped
from everturn.store import check_backup, is_postgres, read_contents, restore_database


@click.command()
@click.argument("source")
@click.option(
    "--yes", "is_accepted", is_flag=True, help="Do not ask about what takes effect with the backup."
)
@click.option(
    "--identity",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Identity file of age, or an ssh key, for an encrypted backup.",
)
@click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the passphrase of an encrypted backup. Left out, it is asked for.",
)
@home_option
def restore(
    source: str, is_accepted: bool, identity: Path | None, passphrase_file: Path | None, home: Path | None
) -> None:
    """Restore a backup into an empty data folder (and an empty PostgreSQL database), and check it.

    SOURCE is the folder of a backup, or s3://BUCKET/PREFIX/NAME in object storage, whose keys come from the
    environment (AWS_ACCESS_KEY_ID); without the NAME it is the newest one there.

    A backup can hold more than data: API tokens, a password, calls that are always allowed, MCP servers and
    other settings. All of that is shown, and you are asked before anything is restored.

    A backup contains no keys: set them again in the environment, or store them in the settings. Secrets that
    were encrypted in PostgreSQL need the secret key that they had. Only you can read the data folder (0700).
    """
    target = home_of(os.environ) if home is None else home
    found = run(find_source(source))
    if isinstance(found, Path) and unfinished.is_unfinished(found):
        raise Invalid(
            f"{source} is a backup that was not finished; nothing was restored.",
            hint="Name another one. 'everturn backup' makes a new one.",
        )
    key = None if isinstance(found, Path) else _ask_key(found, identity, passphrase_file)
    with unfinished.Restoration(target, _origin(found), DATABASE) as restoration:
        # Read after the folder was cleared: an interrupted restore may have left the backup's settings in it.
        config = read_config(target)
        folder = _unpack(found, key, restoration)
        if not restoration.has_database:
            _refuse_links(folder, config)
            check_backup(config.database_url, folder)
            contents = read_contents(folder, database_name(config.database_url))
            in_force.ask_about(folder, contents, is_accepted=is_accepted)
        left_out = run(_restore(folder, config, restoration))
        restoration.finish()
    _say_restored(config, target, run(_findings(config)))
    say_left_out(left_out)


def _ask_key(found: SealedSource, identity: Path | None, passphrase_file: Path | None) -> Key | None:
    """What opens an encrypted backup. Raises Invalid."""
    if not found.sealed.is_encrypted:
        return None
    if identity is not None:
        return read_identities(identity)
    if not found.sealed.has_key_file:
        raise Invalid(
            f"{found.label} is encrypted. Nothing was restored.",
            hint="Name the file of your identity: --identity FILE.",
        )
    if passphrase_file is not None:
        return unwrap(found.key_file, read_passphrase(passphrase_file))
    return unwrap(found.key_file, click.prompt("Passphrase of the backup", hide_input=True, err=True))


def _origin(found: Path | SealedSource) -> Path | str:
    if isinstance(found, Path):
        return found
    return found.folder or found.label


def _unpack(found: Path | SealedSource, key: Key | None, restoration: unfinished.Restoration) -> Path:
    if isinstance(found, Path):
        return found
    with console().status("Unpacking"):
        try:
            run(found.unpack(restoration.unpacked, key, BackupWatch()))
        except OSError as error:
            raise Stopped(
                f"The backup could not be unpacked: {reason_of(error)}",
                hint="It needs twice its size here until it is restored.",
            ) from error
    return restoration.unpacked


def _say_restored(config: Config, target: Path, findings: int) -> None:
    console().print(
        f"Restored into [bold]{escape(str(target))}[/bold]; {findings} finding(s).", soft_wrap=True
    )
    if is_postgres(config.database_url or ""):
        console().print("Stored secrets are encrypted: start the servers with the secret key that they had.")
    else:
        console().print("A backup holds no API keys. Set them again.")
    _say_address(config)


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
    for name in (DATABASE, database_name(config.database_url), "postgresql"):
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
            hint="Set EVERTURN_DATABASE_URL to the database to restore into.",
        )
    try:
        watch = BackupWatch()
        return await in_thread(watch, put_back, source, config.home, config.database_url, watch)
    except OSError as error:
        raise Stopped(
            f"The backup was not restored whole: {reason_of(error)}",
            hint=f"Free space, then restore it again: that clears what is in {config.home}.",
        ) from error


async def _findings(config: Config) -> int:
    async with open_config_store(config) as store:
        return len(await store.upkeep.check())
