"""everturn budgets"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from everturn.cli.common import OWNER, home_option, with_store
from everturn.config import Config
from everturn.domain.budgets import (
    Budget,
    BudgetScope,
    Unit,
    describe_amount,
    make_key,
    make_limit,
    period_at,
)
from everturn.store import Store

_scope = click.argument("scope", type=click.Choice([scope.value for scope in BudgetScope]))
_tokens = click.option("--tokens", "is_tokens", is_flag=True, help="Count tokens instead of US dollars.")
_about = click.option("--for", "subject", default="", help="The session or schedule that it is about.")


def _key_options(command: Callable[..., object]) -> Callable[..., object]:
    return _scope(_tokens(_about(home_option(command))))


@click.group(invoke_without_command=True)
@home_option
@click.pass_context
def budgets(ctx: click.Context, home: Path | None) -> None:
    """List budgets: what may be spent, and what was spent. Set and remove them."""
    if ctx.invoked_subcommand is not None:
        return
    found = with_store(home, _all)
    for budget in found:
        click.echo(_as_line(budget))
    if not found:
        click.echo("There are no budgets. 'everturn budgets set day 5' lets you spend 5 USD a day.")


@budgets.command("set")
@_key_options
@click.argument("amount", type=float)
@click.option("--timezone", default="", help="Whose days and months count, e.g. Europe/Vienna.")
def set_(scope: str, amount: float, is_tokens: bool, subject: str, timezone: str, home: Path | None) -> None:
    """Set or change a budget. A running server applies it within a few seconds."""
    key = make_key(BudgetScope(scope), _unit(is_tokens), subject)

    async def put(store: Store, config: Config) -> Budget:
        return await store.budgets.put(OWNER, make_limit(key, amount, timezone or config.budget.timezone))

    click.echo(_as_line(with_store(home, put, makes_one=True)))


@budgets.command()
@_key_options
def remove(scope: str, is_tokens: bool, subject: str, home: Path | None) -> None:
    """Remove a budget. Turns that wait because of it continue."""
    key = make_key(BudgetScope(scope), _unit(is_tokens), subject)
    with_store(home, lambda store, config: store.budgets.remove(OWNER, key))
    click.echo("Removed.")


def _unit(is_tokens: bool) -> Unit:
    return Unit.TOKENS if is_tokens else Unit.USD


async def _all(store: Store, config: Config) -> list[Budget]:
    return list(await store.budgets.list(OWNER))


def _as_line(budget: Budget) -> str:
    limit, unit = budget.limit, budget.limit.key.unit
    spent = describe_amount(unit, budget.spent)
    line = f"{limit.key.scope:<9} {spent} of {describe_amount(unit, limit.amount + budget.extra)}"
    notes = []
    if budget.reserved:
        notes.append(f"{describe_amount(unit, budget.reserved)} reserved")
    if budget.estimated:
        notes.append(f"{describe_amount(unit, budget.estimated)} estimated")
    if budget.unpriced_tokens:
        notes.append(f"{budget.unpriced_tokens:,} tokens at unknown prices")
    end = period_at(limit, round(time.time() * 1000)).end
    if end is not None:
        notes.append(f"until {time.strftime('%Y-%m-%d %H:%M', time.localtime(end / 1000))}")
    if limit.key.subject:
        notes.append(limit.key.subject)
    return line + (f" ({'; '.join(notes)})" if notes else "")
