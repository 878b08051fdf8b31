"""everturn gateway"""

from __future__ import annotations

import os
import secrets as random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import click
import msgspec
from rich.markup import escape
from rich.table import Table

from everturn.cli.audit_note import note_change
from everturn.cli.common import OWNER, console, home_option, open_config_secrets, printable, with_store
from everturn.config import Config
from everturn.delivery.parts import render_parts
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import Chat, SenderRole
from everturn.domain.errors import EverturnError, Invalid, NotFound
from everturn.domain.gateway import AccountHealth, AccountState
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.store_values import Finding
from everturn.gateway import AccountBook, BookServices
from everturn.gateway.book import WantedAccount
from everturn.gateway.settings import read_setup
from everturn.store import Store

T = TypeVar("T")
_COLUMNS = ("Account", "Platform", "State", "Received today", "Waiting", "Undecided", "Last error")


@click.group()
def gateway() -> None:
    """Set up and check accounts on messaging platforms."""


@gateway.command()
@home_option
def status(home: Path | None) -> None:
    """Show the accounts and their health."""
    _with_book(home, lambda book, store, config: _print_status(book))


async def _print_status(book: AccountBook) -> None:
    accounts = await book.all()
    table = Table(*_COLUMNS, box=None, header_style="bold")
    for name, wanted in sorted(accounts.items()):
        figures, health = await book.figures(name), await book.read_health(name)
        error = await _setup_error(book, name, wanted) if health is None else health.error
        table.add_row(
            name,
            wanted.setup.platform,
            _state(wanted, health),
            str(figures.received),
            str(figures.waiting),
            str(figures.undecided),
            escape(printable(error)),
        )
    console().print(table if accounts else "There are no accounts. 'everturn gateway add' makes one.")


def _state(wanted: WantedAccount, health: AccountHealth | None) -> str:
    if not wanted.setup.enabled:
        return AccountState.OFF
    if health is None:
        return "not served yet"
    if health.is_stale and health.seen_at is not None:
        return time.strftime("not served, last seen %m-%d %H:%M", _local(health.seen_at))
    since = "" if health.since is None else time.strftime(" since %m-%d %H:%M", _local(health.since))
    return f"{health.state}{since}"


def _local(at_ms: int) -> time.struct_time:
    return time.localtime(at_ms / 1000)


@gateway.command()
@click.argument("name")
@click.option("--platform", required=True, help="telegram, slack, discord, mail, webhook, or a plug-in.")
@click.option("--allow", multiple=True, help="Id of a sender who is you. Repeatable.")
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE", help="Another setting. Repeatable.")
@home_option
def add(
    name: str, platform: str, allow: tuple[str, ...], options: tuple[str, ...], home: Path | None
) -> None:
    """Add an account. Its secrets are asked for, or read from standard input, one per line."""

    async def work(book: AccountBook, store: Store, config: Config) -> None:
        kind = await book.find_platform(platform)
        table: JsonObject = {"platform": platform, "allow": list(allow)} | _read_options(options)
        given = await anyio.to_thread.run_sync(_ask_secrets, kind.secrets)
        try:
            setup = read_setup(table)
        except msgspec.ValidationError as error:
            raise Invalid(f"A setting is wrong: {error}. Nothing was stored.", hint="Correct it.") from error
        identity = await book.add(name, setup, given)
        await note_change(config, "gateway.added", f"{name} ({platform})")
        console().print(
            f"Added {name}: {escape(printable(identity.name))}. A running server applies it within seconds."
        )
        console().print(f"Next: everturn gateway pair {name}")

    _with_book(home, work, makes_one=True)


@gateway.command()
@click.argument("name")
@home_option
def remove(name: str, home: Path | None) -> None:
    """Remove an account with its secrets. Its sessions stay."""

    async def work(book: AccountBook, store: Store, config: Config) -> None:
        await book.remove(name)
        await note_change(config, "gateway.removed", name)
        console().print(f"Removed {name}.")

    _with_book(home, work)


@gateway.command()
@click.argument("name")
@click.argument("secret")
@home_option
def secret(name: str, secret: str, home: Path | None) -> None:
    """Set a secret of an account, such as its token."""

    async def work(book: AccountBook, store: Store, config: Config) -> None:
        given = await anyio.to_thread.run_sync(_ask_secrets, (secret,))
        await book.change(name, {}, given)
        await note_change(config, "gateway.changed", f"{name}: secret {secret}")
        console().print(f"The {secret} of {name} is set. A running server applies it within seconds.")

    _with_book(home, work, makes_one=True)


@gateway.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["owner", "member"]), default="owner", show_default=True)
@home_option
def pair(name: str, role: str, home: Path | None) -> None:
    """Make a pairing code. The first sender of the code gets the role, within ten minutes."""

    async def work(book: AccountBook, store: Store, config: Config) -> None:
        code = await book.pair(name, SenderRole(role))
        await note_change(config, "gateway.code", f"{name}: {role}")
        console(stderr=True).print("Send this to the account in a private chat within ten minutes:")
        click.echo(code.code)

    _with_book(home, work)


@gateway.command()
@click.argument("name")
@home_option
def test(name: str, home: Path | None) -> None:
    """Ask the platform who an account is."""

    async def work(book: AccountBook, store: Store, config: Config) -> None:
        identity = await book.test(name)
        console().print(escape(printable(f"{name} is {identity.name} {identity.link}".strip())))

    _with_book(home, work)


@gateway.command()
@click.argument("name")
@click.argument("chat")
@click.argument("text")
@home_option
def send(name: str, chat: str, text: str, home: Path | None) -> None:
    """Send a message to a chat that the account knows. CHAT: its title, or the platform's name of it."""

    async def work(book: AccountBook, store: Store, config: Config) -> None:
        found = _find_chat(await store.delivery.chats.list(OWNER), name, chat)
        _, platform = await book.make_platform(name, await book.get(name))
        try:
            parts = render_parts(platform, text)
        finally:
            await platform.close()
        age_max_ms = round(config.delivery.age_max_s * 1000)
        key = f"sent:{random.token_hex(8)}"
        await store.delivery.outbox.put(OWNER, found.id, key, parts, age_max_ms=age_max_ms)
        console().print("Stored. A running server sends it.")

    _with_book(home, work)


def _find_chat(chats: Sequence[Chat], account: str, wanted: str) -> Chat:
    own = [chat for chat in chats if chat.place.account == account]
    found = [chat for chat in own if wanted in (chat.place.chat, chat.title, chat.id)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound("chat", wanted)
    raise Invalid(
        f"{account} has {len(found)} chats named {wanted!r}. Nothing was sent.",
        hint="Name it by its id: " + ", ".join(chat.id for chat in found),
    )


async def find_account_troubles(store: Store, config: Config) -> list[Finding]:
    """What is wrong with accounts, for the doctor. The platforms themselves are not asked."""
    found = []
    async with open_config_secrets(store, config) as stored:
        services = BookServices(store, stored, os.environ, SystemClock(), OWNER)
        book = AccountBook(config.gateway, services)
        for name, wanted in sorted((await book.all()).items()):
            trouble = await _trouble_of(book, name, wanted) if wanted.setup.enabled else ""
            if trouble:
                found.append(Finding("account", f"{name}: {trouble}"))
    return found


async def _trouble_of(book: AccountBook, name: str, wanted: WantedAccount) -> str:
    health = await book.read_health(name)
    is_served = health is not None and health.state is AccountState.CONNECTED
    # The server's environment may hold secrets that this command does not see.
    if not (is_served and await _lacks_secrets(book, wanted)) and (
        error := await _setup_error(book, name, wanted)
    ):
        return error
    return health.error if health is not None and health.state is AccountState.FAILING else ""


async def _lacks_secrets(book: AccountBook, wanted: WantedAccount) -> bool:
    try:
        kind = await book.find_platform(wanted.setup.platform)
    except EverturnError:
        return False
    return any(not wanted.secrets.get(name) for name in kind.secrets)


async def _setup_error(book: AccountBook, name: str, wanted: WantedAccount) -> str:
    """Why no server can serve the account, such as a missing secret; empty if one can, or if it is off."""
    if not wanted.setup.enabled:
        return ""
    try:
        _, platform = await book.make_platform(name, wanted)
        await platform.close()
    except EverturnError as error:
        return f"{error.message} {error.hint}".strip()
    return ""


def _with_book(
    home: Path | None,
    work: Callable[[AccountBook, Store, Config], Awaitable[T]],
    *,
    makes_one: bool = False,
) -> T:
    async def inside(store: Store, config: Config) -> T:
        async with open_config_secrets(store, config) as stored:
            services = BookServices(store, stored, os.environ, SystemClock(), OWNER)
            return await work(AccountBook(config.gateway, services), store, config)

    return with_store(home, inside, makes_one=makes_one)


def _read_options(given: Sequence[str]) -> JsonObject:
    """Settings as NAME=VALUE; a value is JSON where it can be read as such, else text."""
    table: JsonObject = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise Invalid(f"{one!r} is not a setting.", hint="Write NAME=VALUE.")
        table[name] = _read_value(value)
    return table


def _read_value(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _ask_secrets(names: Sequence[str]) -> dict[str, str]:
    """Asked for without being shown, or read from standard input, one per line."""
    found = {}
    for name in names:
        text = click.prompt(name, hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
        found[name] = str(text).strip()
    return found
