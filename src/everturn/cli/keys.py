"""everturn keys"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from everturn import models
from everturn.cli.common import console, home_option, open_config_secrets, open_config_store, run
from everturn.config import read_config
from everturn.domain.errors import Invalid
from everturn.models.directory import ProviderDirectory
from everturn.tools.web.settings import SEARCH_KEYS

T = TypeVar("T")


@click.group(invoke_without_command=True)
@click.pass_context
@home_option
def keys(context: click.Context, home: Path | None) -> None:
    """List providers of models and web search with the place of their keys; save or remove a key.

    Keys are never shown.
    """
    if context.invoked_subcommand is None:
        _with_keys(home, _list)


@keys.command("list")
@home_option
def list_(home: Path | None) -> None:
    """List providers and where their keys are."""
    _with_keys(home, _list)


@keys.command("set")
@click.argument("provider")
@home_option
def set_(provider: str, home: Path | None) -> None:
    """Save the key of a provider. It is asked for, or read from standard input."""
    key = click.prompt(f"Key of {provider}", hide_input=True) if sys.stdin.isatty() else sys.stdin.read()

    async def save(stored: models.Keys, directory: ProviderDirectory) -> str:
        _check_known(directory, provider)
        await stored.put(provider, key.strip())
        return stored.state.place

    click.echo(f"The key of {provider} is saved ({_with_keys(home, save)}).")


@keys.command()
@click.argument("provider")
@home_option
def remove(provider: str, home: Path | None) -> None:
    """Remove the saved key of a provider, and its address if it is a server of your own."""

    async def delete(stored: models.Keys, directory: ProviderDirectory) -> bool:
        _check_known(directory, provider)
        return await stored.delete(provider)

    if not _with_keys(home, delete):
        hint = "A key in the environment is removed by unsetting its variable."
        raise Invalid(f"No key of {provider} is saved.", hint=hint)
    click.echo(f"The key of {provider} is removed.")


def _check_known(directory: ProviderDirectory, provider: str) -> None:
    if provider not in directory.providers and provider not in SEARCH_KEYS:
        known = ", ".join([*directory.providers, *SEARCH_KEYS])
        raise Invalid(f"There is no provider {provider[:80]!r}.", hint=f"Known are {known}.")


async def _list(stored: models.Keys, directory: ProviderDirectory) -> None:
    from rich.table import Table

    table = Table("Provider", "Name", "Key", box=None, header_style="bold")
    for name, provider in directory.providers.items():
        place = stored.source(name, provider.key_variables)
        table.add_row(provider.title, name, place or ("missing" if provider.needs_key else "not needed"))
    for name, variable in SEARCH_KEYS.items():
        table.add_row(f"{name.title()} (web search)", name, stored.source(name, (variable,)) or "not needed")
    console().print(table)


def _with_keys(home: Path | None, work: Callable[[models.Keys, ProviderDirectory], Awaitable[T]]) -> T:
    async def inside() -> T:
        config = read_config(home)
        async with open_config_store(config) as store, open_config_secrets(store, config) as secrets:
            stored = models.Keys(secrets, os.environ)
            return await work(stored, ProviderDirectory(config.models, stored, os.environ))

    return run(inside())
