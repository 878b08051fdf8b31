"""everturn models"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.table import Column, Table

from everturn.cli.common import (
    OWNER,
    console,
    home_option,
    make_registry,
    open_config_secrets,
    open_config_store,
    print_error,
    printable,
    run,
)
from everturn.config import Config, read_config
from everturn.domain.errors import EverturnError
from everturn.domain.preferences import preferred_model
from everturn.domain.secrets import Secrets
from everturn.models.catalog import ModelState
from everturn.models.providers import DISCOVERED
from everturn.models.registry import ModelRegistry
from everturn.store import SecretsFile, has_store

T = TypeVar("T")

_STATES = {
    "ready": "[green]ready[/green]",
    "needs_key": "needs a key",
    "not_fetched": "not downloaded",
    "fetching": "downloading",
    "no_runtime": "local runtime not installed",
}
_TITLES = ("Model", "State", "Context", "Tools", "Images", "$ in / out per M")
_WIDE = 1_000  # characters: wider than any line of the list
_OWN = frozenset({"pocket", "coder", *DISCOVERED})  # they run on this machine


@click.group(invoke_without_command=True)
@click.pass_context
@home_option
def models(context: click.Context, home: Path | None) -> None:
    """List models; or test or download one."""
    if context.invoked_subcommand is None:
        _with_registry(home, _list)


@models.command("list")
@home_option
def list_(home: Path | None) -> None:
    """List available models."""
    _with_registry(home, _list)


@models.command()
@click.argument("name", required=False)
@home_option
def test(name: str | None, home: Path | None) -> None:
    """Send a short test message to a model."""

    async def work(registry: ModelRegistry, preferred: str | None) -> bool:
        asked = name or preferred or registry.default
        with console().status(f"Asking {asked}"):
            result = await registry.test(asked)
        if result.is_ok:
            said = escape(repr(result.text))
            console().print(f"[green]Works[/green]: {said} after {result.first_token_ms} ms")
        else:
            problem, hint = escape(printable(result.problem)), escape(result.hint)
            console().print(f"[red]{problem}[/red]\n[dim]{hint}[/dim]")
        return result.is_ok

    if not _with_registry(home, work):
        raise SystemExit(1)


@models.command()
@click.argument("name", type=click.Choice(["pocket", "coder"]))
@home_option
def pull(name: str, home: Path | None) -> None:
    """Download a local model and verify it."""

    async def work(registry: ModelRegistry, _: str | None) -> None:
        columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console(stderr=True)) as bar:
            task = bar.add_task(name, total=None)
            async for chunk in registry.pull(name):
                bar.update(task, description=chunk.label, completed=chunk.done, total=chunk.total)
        console().print(f"{name} is downloaded and verified.")

    _with_registry(home, work)


def _with_registry(home: Path | None, work: Callable[[ModelRegistry, str | None], Awaitable[T]]) -> T:
    """Run ``work`` with the registry and the model that was chosen in the settings, if any."""

    async def inside() -> T:
        config = read_config(home)
        async with AsyncExitStack() as stack:
            preferred, secrets = await _open_choices(config, stack)
            async with make_registry(config, secrets) as registry:
                return await work(registry, preferred)

    return run(inside())


async def _open_choices(config: Config, stack: AsyncExitStack) -> tuple[str | None, Secrets]:
    """The chosen model and the stored keys. The list of models works without the database."""
    if has_store(config.database_url, config.home):
        try:
            store = await stack.enter_async_context(open_config_store(config))
            preferred = await preferred_model(store.records, OWNER)
            return preferred, await stack.enter_async_context(open_config_secrets(store, config))
        except EverturnError as error:
            print_error(error)
    return None, SecretsFile(config.home)


async def _list(registry: ModelRegistry, preferred: str | None) -> None:
    with console().status("Asking the providers"):
        found = await registry.list()
    if preferred is not None:
        found = tuple(msgspec.structs.replace(state, is_default=state.name == preferred) for state in found)
    out = console()
    rows = [_row(state) for state in found]
    table = Table(*(Column(title, no_wrap=True) for title in _TITLES), box=None)
    for row in rows:
        table.add_row(*row)
    if Measurement.get(out, out.options.update(max_width=_WIDE), table).maximum <= out.width:
        out.print(table)
        return
    for row in rows:  # no room for a table: names get their own lines, so that they can be copied
        out.print(row[0], soft_wrap=True)
        out.print(f"  {_in_words(row)}", soft_wrap=True)


def _in_words(row: tuple[str, ...]) -> str:
    """The known facts of a row as text, for a list without column titles."""
    _, state, context, tools, images, price = row
    facts = {
        f"context {context}": context,
        f"tools {tools}": tools,
        f"images {images}": images,
        price if price == "free" else f"${price} in / out per M": price,
    }
    return " · ".join([state, *(words for words, fact in facts.items() if fact != "unknown")])


def _row(state: ModelState) -> tuple[str, ...]:
    known = state.abilities
    # A server's own words. One that lists no models can still be used, by the name of a model.
    name = escape(printable(f"{state.name}NAME" if state.name.endswith(":") else state.name))
    name = f"[bold]{name}[/bold] (default)" if state.is_default else name
    context = f"{known.context_tokens:,}" if known and known.context_tokens else "unknown"
    tools = "unknown" if known is None else "yes" if known.tools else "no"
    images = "unknown" if known is None else "yes" if known.images else "no"
    prices = state.prices
    price = "free" if state.provider in _OWN else "unknown"
    if prices.input_usd is not None and prices.output_usd is not None:
        price = f"{prices.input_usd:g} / {prices.output_usd:g}"
    return name, _STATES.get(state.state, state.state), context, tools, images, price
