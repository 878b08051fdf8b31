"""everturn models"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.table import Column, Table

from everturn.cli.frame import console, home_option, registry_of, run
from everturn.config import read_config
from everturn.models.registry import ModelRegistry, ModelState

T = TypeVar("T")

_STATES = {
    "ready": "[green]ready[/green]",
    "needs_key": "needs a key",
    "not_fetched": "can be fetched",
    "fetching": "being fetched",
    "no_runtime": "needs the extra 'local'",
}


@click.group(invoke_without_command=True)
@click.pass_context
@home_option
def models(context: click.Context, home: Path | None) -> None:
    """List the models; with a command, test or fetch one."""
    if context.invoked_subcommand is None:
        _with_registry(home, _list)


@models.command("list")
@home_option
def list_(home: Path | None) -> None:
    """The models that can be used, or could be."""
    _with_registry(home, _list)


@models.command()
@click.argument("name", required=False)
@home_option
def test(name: str | None, home: Path | None) -> None:
    """Say a few words to a model and see what comes back."""

    async def work(registry: ModelRegistry) -> bool:
        with console().status(f"Asking {name or registry.default}"):
            result = await registry.test(name)
        if result.is_ok:
            console().print(f"[green]Works[/green]: {result.text!r} after {result.first_token_ms} ms")
        else:
            console().print(f"[red]{result.problem}[/red]\n[dim]{result.hint}[/dim]")
        return result.is_ok

    if not _with_registry(home, work):
        raise SystemExit(1)


@models.command()
@click.argument("name", type=click.Choice(["pocket", "coder"]))
@home_option
def pull(name: str, home: Path | None) -> None:
    """Fetch the weights of a local model; its hash is checked."""

    async def work(registry: ModelRegistry) -> None:
        columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console(stderr=True)) as bar:
            task = bar.add_task(name, total=None)
            async for chunk in registry.pull(name):
                bar.update(task, description=chunk.label, completed=chunk.done, total=chunk.total)
        console().print(f"{name} is here and its hash is right.")

    _with_registry(home, work)


def _with_registry(home: Path | None, work: Callable[[ModelRegistry], Awaitable[T]]) -> T:
    async def inside() -> T:
        async with _registry(home) as registry:
            return await work(registry)

    return run(inside())


@asynccontextmanager
async def _registry(home: Path | None) -> AsyncIterator[ModelRegistry]:
    async with registry_of(read_config(home)) as registry:
        yield registry


async def _list(registry: ModelRegistry) -> None:
    with console().status("Asking the providers"):
        found = await registry.list()
    # Names are copied: they break into lines where there is no room, they are not cut.
    table = Table(
        Column("Model", overflow="fold"), "State", "Context", "Tools", "Images", "$ in / out per M", box=None
    )
    for state in found:
        table.add_row(*_row(state))
    console().print(table)


def _row(state: ModelState) -> tuple[str, ...]:
    known = state.abilities
    name = f"[bold]{state.name}[/bold] (default)" if state.is_default else state.name
    context = f"{known.context_tokens:,}" if known and known.context_tokens else "unknown"
    tools = "unknown" if known is None else "yes" if known.tools else "no"
    images = "unknown" if known is None else "yes" if known.images else "no"
    prices = state.prices
    price = "unknown"
    if prices.input_usd is not None and prices.output_usd is not None:
        price = f"{prices.input_usd:g} / {prices.output_usd:g}"
    return name, _STATES.get(state.state, state.state), context, tools, images, price
