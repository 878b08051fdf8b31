"""everturn secrets"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
from rich.table import Table

from everturn.cli.common import console, home_option, open_config_secrets, printable, with_store
from everturn.config import Config
from everturn.domain.errors import Invalid
from everturn.domain.secrets import Secrets
from everturn.store import SecretsTable, Store, read_key_ring
from everturn.store.secrets.key_ring import FILE_VARIABLE, VARIABLE, new_key
from everturn.store.secrets.storage_keys import KIND, NAMES

T = TypeVar("T")


@click.group()
def secrets() -> None:
    """Show where secrets are kept; change the key that encrypts them (PostgreSQL)."""


@secrets.command()
@home_option
def status(home: Path | None) -> None:
    """Show where secrets are kept, with which key, and which servers have it."""

    async def work(found: Secrets, config: Config) -> None:
        facts = Table.grid(padding=(0, 2))
        facts.add_row("Secrets", ", ".join(found.names()) or "none")
        if isinstance(found, SecretsTable):
            await _add_table_facts(facts, found, config)
        else:
            facts.add_row("Kept in", "secrets.toml in the data folder")
        out = console()
        out.print(facts)
        if found.state.notice:
            out.print(printable(found.state.notice), markup=False, style="yellow", soft_wrap=True)

    _with_secrets(home, work)


async def _add_table_facts(facts: Table, found: SecretsTable, config: Config) -> None:
    ring = read_key_ring(os.environ, config.secret_key_file)
    stored = await found.status()
    facts.add_row("Kept in", "the database, encrypted")
    facts.add_row("Key in use", stored.current or "none yet")
    facts.add_row("Keys given here", ", ".join(ring.ids) if ring else "none")
    for holder in stored.holders:
        facts.add_row(f"Server on {printable(holder.machine)}", f"has {', '.join(holder.key_ids)}")
    if stored.unreadable:
        facts.add_row("Cannot be read", ", ".join(stored.unreadable))


@secrets.command()
@click.argument("name", type=click.Choice(NAMES))
@home_option
def put(name: str, home: Path | None) -> None:
    """Store a key of the object storage.

    It is read from the terminal without being shown, or from standard input.
    """
    text: str = click.prompt(name, hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    value = text.strip()
    if not value or not value.isascii() or not value.isprintable():
        raise click.UsageError(f"{name} is empty or has characters that no key has. Nothing was stored.")

    async def work(found: Secrets, config: Config) -> None:
        await found.change({f"{KIND}/{name}": value})
        console().print(f"Stored {name}. Running servers use it within a second.")

    _with_secrets(home, work)


@secrets.command()
@click.argument("name", type=click.Choice(NAMES))
@home_option
def delete(name: str, home: Path | None) -> None:
    """Delete a stored key of the object storage."""

    async def work(found: Secrets, config: Config) -> None:
        is_there = f"{KIND}/{name}" in found.names()
        if is_there:
            await found.change({f"{KIND}/{name}": None})
        console().print(f"Deleted {name}." if is_there else f"{name} was not stored.")

    _with_secrets(home, work)


@secrets.command()
@home_option
def rotate(home: Path | None) -> None:
    """Encrypt all secrets with a new key.

    First restart each server with both keys in EVERTURN_SECRET_KEY, the new one first, separated by a comma.
    Then rotate. Then restart each server with the new key alone.
    """

    async def work(found: Secrets, config: Config) -> None:
        done = await _require_table(found).rotate()
        out = console()
        count = len(done.names)
        secrets_are = "1 secret is" if count == 1 else f"{count} secrets are"
        out.print(f"{secrets_are} encrypted with the key {done.key_id} now.")
        if done.left:
            out.print(f"Damaged, left as they are: {', '.join(done.left)}. Save them again.", style="yellow")
        out.print("Older keys are no longer needed: start the servers with the new key alone.")

    _with_secrets(home, work)


@secrets.command("new-key")
def new_key_() -> None:
    """Print a new secret key. Nothing is stored: keep it where your servers get their environment from."""
    click.echo(new_key())


@secrets.command()
@home_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(home: Path | None, yes: bool) -> None:
    """Delete all secrets in the database, if their key is lost. Then save them again in the settings."""

    async def work(found: Secrets, config: Config) -> None:
        gone = await _require_table(found).reset()
        console().print(f"Deleted: {', '.join(gone) or 'nothing was stored'}.")

    if not yes:
        click.confirm("Delete all secrets that the database holds?", abort=True)
    _with_secrets(home, work)


def _require_table(found: Secrets) -> SecretsTable:
    if not isinstance(found, SecretsTable):
        raise Invalid(
            "Secrets are in secrets.toml in the data folder, which no key encrypts. Nothing was changed.",
            hint=f"With PostgreSQL, set {VARIABLE} or {FILE_VARIABLE} to keep them in the database.",
        )
    return found


def _with_secrets(home: Path | None, work: Callable[[Secrets, Config], Awaitable[T]]) -> T:
    async def inside(store: Store, config: Config) -> T:
        async with open_config_secrets(store, config) as found:
            return await work(found, config)

    return with_store(home, inside)
