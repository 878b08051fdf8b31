"""everturn token"""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Column, Table

from everturn.cli.common import OWNER, console, home_option, with_store
from everturn.web import Scope, open_accounts

_MORE = ("Label", "Scopes", "Created", "Last used")
_ID_CHARS = 30


@click.group()
def token() -> None:
    """Create, list and revoke API tokens."""


@token.command()
@click.argument("label")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    default=("chat",),
    show_default=True,
    help="What the token may do. Repeatable.",
)
@click.option("--days", type=click.IntRange(1, 3650), help="Days until it expires. Default: never.")
@home_option
def create(label: str, scopes: tuple[str, ...], days: int | None, home: Path | None) -> None:
    """Create a token. It is shown once and stored only as a hash."""
    chosen = tuple(Scope(scope) for scope in scopes)
    info, text = with_store(
        home,
        lambda store, config: open_accounts(store).create_token(OWNER, label, chosen, days=days),
        makes_one=True,
    )
    out = console(stderr=True)
    out.print(f"Token [bold]{info.id}[/bold] ({', '.join(info.scopes)}). Copy it now; it is not shown again:")
    click.echo(text)


@token.command("list")
@home_option
def list_(home: Path | None) -> None:
    """List tokens."""
    found = with_store(home, lambda store, config: open_accounts(store).tokens(OWNER))
    # Users copy the id, so the other columns shrink instead.
    table = Table(Column("Id", no_wrap=True, min_width=_ID_CHARS), *_MORE, box=None, header_style="bold")
    for info in found:
        table.add_row(
            info.id, escape(info.label), ", ".join(info.scopes), _date(info.created_at), _date(info.used_at)
        )
    console().print(table if found else "There are no tokens.")


@token.command()
@click.argument("ident")
@home_option
def revoke(ident: str, home: Path | None) -> None:
    """Revoke a token. It stops working at once."""
    with_store(home, lambda store, config: open_accounts(store).revoke_token(OWNER, ident))
    console().print(f"Revoked {ident}.")


def _date(at: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at / 1000)) if at else "never"
