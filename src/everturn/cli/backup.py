"""everturn backup"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Self

import click
import msgspec
from rich.markup import escape

from everturn.backups import BackupRunner, BackupServices, BackupSettings, unfinished
from everturn.backups.backup import BackupOptions, BackupSummary, make_backup, reason_of, refuse_place
from everturn.backups.encryption import make_lock
from everturn.backups.watch import BackupWatch, size_of
from everturn.cli.common import console, home_option, open_config_secrets, printable, with_store
from everturn.config import FILE, Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import EverturnError, Refused, Stopped
from everturn.domain.ids import Ids
from everturn.domain.secrets import Secrets
from everturn.domain.timezones import find_zone
from everturn.store import Store, find_storage_keys

LISTED_MAX = 20


@click.command()
@click.argument("target", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option("--now", "is_scheduled", is_flag=True, help="Make it as the server would: see [backup].")
@click.option("--recipient", "recipients", multiple=True, help="Encrypt it for this public key of age.")
@click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Encrypt it with the first line of this file.",
)
@click.option("--plain", "is_plain", is_flag=True, help="Do not encrypt it, whatever [backup] says.")
@home_option
def backup(
    target: Path | None,
    is_scheduled: bool,
    recipients: tuple[str, ...],
    passphrase_file: Path | None,
    is_plain: bool,
    home: Path | None,
) -> None:
    """Back up your data; the server can keep running. The copy is opened and checked.

    Included: sessions, attachments, memory, the sessions' workspaces (links are copied as links),
    config.toml. Not included: keys (secrets.toml), model weights, your own folders in which a session works.
    With PostgreSQL, stored secrets are included as they are there: encrypted, and without the secret key.
    config.toml is copied as it is, with a password or database_url in it: protect the backup accordingly.

    TARGET is a folder that does not exist yet; default: backups/<time> in the data folder. Only you can read
    it (0700). Until it is complete it is called TARGET.unfinished, which cannot be restored; the next backup
    removes what an interrupted one left.

    It is encrypted as [backup] says, or with --recipient or --passphrase-file. With --now it goes where
    [backup] says, old ones are removed, and the newest is restored on trial if that is due.
    """
    asked = _Asked(target, recipients, passphrase_file, is_plain)
    if is_scheduled:
        if asked != _Asked():
            raise click.UsageError("--now takes everything from [backup] in config.toml.")
        with_store(home, _backup_now)
        return
    made, summary, is_encrypted = with_store(home, lambda store, config: _backup(store, config, asked))
    _say_made(made, is_encrypted=is_encrypted)
    say_left_out(summary.left_out)


class _Asked(msgspec.Struct, frozen=True):
    """What the command line says of a backup by hand."""

    target: Path | None = None
    recipients: tuple[str, ...] = ()
    passphrase_file: Path | None = None
    is_plain: bool = False

    def encryption(self, configured: BackupSettings) -> BackupSettings:
        """Raises Invalid, UsageError."""
        named = BackupSettings(
            recipients=self.recipients,
            passphrase_file=str(self.passphrase_file.resolve()) if self.passphrase_file else None,
        )
        if self.is_plain and named.is_encrypted:
            raise click.UsageError("--plain and a key contradict each other.")
        return named if named.is_encrypted or self.is_plain else configured


def _say_made(made: Path, *, is_encrypted: bool) -> None:
    out = console()
    how = "encrypted, read back and verified" if is_encrypted else "verified"
    out.print(
        f"Backed up to [bold]{escape(str(made))}[/bold] ({size_of(made) / 1e6:.1f} MB), {how}.",
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


async def _backup_now(store: Store, config: Config) -> None:
    """Do what a server does when a backup is due. Raises Stopped if it was not made."""
    worker = Ids(SystemClock()).make("wrk")
    async with open_config_secrets(store, config) as secrets:
        await store.workers.register(worker)
        try:
            runner = BackupRunner(_services_of(store, config, worker, secrets), config.backup)
            await runner.ask()
            with console().status("Making the backup"):
                await runner.look()
            status = await runner.status()
        finally:
            await store.workers.unregister(worker)
    if status.is_running:
        click.echo("A server is making a backup. Another one follows it.")
        return
    if problem := await runner.find_problem():
        raise Stopped(problem, hint=status.state.hint or (status.drill.hint if status.drill else ""))
    newest = status.backups[-1]
    out = console()
    out.print(f"Backed up to [bold]{escape(f'{status.folder}: {newest.name}')}[/bold]", soft_wrap=True)
    out.print(f"({newest.bytes / 1e6:.1f} MB), verified. {len(status.backups)} backup(s) are kept.")
    if status.drill is not None:
        out.print(f"Last restored on trial: {status.drill.name}, whole.")
    say_left_out(list(status.state.left_out))


def _services_of(store: Store, config: Config, worker: str, secrets: Secrets) -> BackupServices:
    return BackupServices(
        store,
        SystemClock(),
        config.home,
        worker,
        find_zone(config.budget.timezone),
        config.database_direct_url or config.database_url or "",
        lambda: find_storage_keys(secrets, os.environ),
    )


async def _backup(store: Store, config: Config, asked: _Asked) -> tuple[Path, BackupSummary, bool]:
    folder = asked.target or config.home / "backups" / time.strftime("%Y-%m-%d-%H%M%S")
    refuse_place(config.home, folder)
    lock = await asyncio.to_thread(make_lock, asked.encryption(config.backup))
    if asked.target is None:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        cleared, left = unfinished.clear_all(folder.parent)
        for leftover in cleared:
            click.echo(f"Cleared {leftover.name}: an unfinished backup.", err=True)
        for leftover, error in left:
            click.echo(f"Left {leftover} as it is: {error.strerror or error}.", err=True)
    try:
        with console().status("Copying"), _Signals() as signals:
            options = BackupOptions(BackupWatch(signals.check), lock)
            return folder, await make_backup(store, config.home, folder, options), lock is not None
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


def say_left_out(left_out: list[str]) -> None:
    if not left_out:
        return
    click.echo(f"{len(left_out)} left out:", err=True)
    for line in left_out[:LISTED_MAX]:
        click.echo(f"  {printable(line)}", err=True)  # names that an agent gave its files
    if len(left_out) > LISTED_MAX:
        click.echo(f"  and {len(left_out) - LISTED_MAX:,} more", err=True)
