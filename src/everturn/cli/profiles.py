"""everturn profiles"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TextIO

import anyio.to_thread
import click
from rich.markup import escape
from rich.table import Table

from everturn.cli.audit_note import note_change
from everturn.cli.common import OWNER, console, home_option, printable, shown_exactly, with_store
from everturn.config import Config
from everturn.domain.errors import Invalid, WrongState
from everturn.store import Store
from everturn.tools import Profile
from everturn.tools.knowledge.book import KnowledgeBook
from everturn.tools.mcp.server_book import ServerBook
from everturn.tools.names import BUILT_IN_NAMES
from everturn.tools.own.own_names import FOLDER, find_own_names
from everturn.tools.profile_book import ProfileBook, check_names
from everturn.tools.profile_file import describe_grant, list_grants, read_profile, write_profile
from everturn.web import LOCAL_OWNER
from everturn.web.preferences import PreferencesOf

Work = Callable[[ProfileBook, Store, Config], Awaitable[None]]
_name = click.argument("name")


@click.group()
def profiles() -> None:
    """Show, share and remove profiles. They are made in config.toml, on the page, or from a file."""


def _with_book(home: Path | None, work: Work, *, makes_one: bool = False) -> None:
    async def inside(store: Store, config: Config) -> None:
        await work(ProfileBook(config.profiles, store.records), store, config)

    with_store(home, inside, makes_one=makes_one)


@profiles.command("list")
@home_option
def list_profiles(home: Path | None) -> None:
    """Show the profiles, and where they come from."""

    async def work(book: ProfileBook, store: Store, config: Config) -> None:
        table = Table("Profile", "From", "Model", "Tools", "Allows", box=None, header_style="bold")
        for name, profile in sorted((await book.refresh()).profiles.items()):
            grants = (grant.what for grant in list_grants(profile) if grant.what in _NOTABLE)
            table.add_row(
                name,
                _ORIGINS[book.origin_of(name)],
                escape(printable(profile.model or "default")),
                "all" if profile.tools is None else str(len(profile.tools)),
                ", ".join(_NOTABLE[what] for what in grants),
            )
        console().print(table)

    _with_book(home, work)


_ORIGINS = {"built_in": "built in", "config": "config.toml", "page": "page or file"}
_NOTABLE = {"no_sandbox": "no sandbox", "network": "network", "hosts": "hosts", "mcp": "MCP"}


@profiles.command()
@_name
@home_option
def show(name: str, home: Path | None) -> None:
    """Print a profile, what it allows, and who uses it."""

    async def work(book: ProfileBook, store: Store, config: Config) -> None:
        profile = await book.get(name)
        _print(profile)
        count = await store.sessions.count_with_profile(name)
        click.echo(f"\nSessions that name it: {count}")

    _with_book(home, work)


def _print(profile: Profile, before: Profile | None = None) -> None:
    click.echo(shown_exactly(write_profile(profile).rstrip("\n")))
    grants = list_grants(profile) if before is None else list_grants(profile, before)
    click.echo("\nIt allows:" if before is None else f"\nMore than {before.name} allows now:")
    for grant in grants:
        click.echo(f"- {shown_exactly(describe_grant(grant))}")
    if not grants:
        click.echo("- nothing")


@profiles.command()
@_name
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write. Default: print it.")
@home_option
def export(name: str, output: Path | None, home: Path | None) -> None:
    """Write a profile as a file that others can import. It holds no keys."""

    async def work(book: ProfileBook, store: Store, config: Config) -> None:
        text = write_profile(await book.get(name))
        if output is None:
            click.echo(text, nl=False)
            return
        try:
            with output.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError as error:
            raise Invalid(f"{output} is there already. Nothing was written.", hint="Name another.") from error
        click.echo(f"Wrote {output}.")

    _with_book(home, work)


@profiles.command("import")
@click.argument("source", type=click.File(encoding="utf-8"))
@click.option("--as", "name", default="", metavar="NAME", help="Import it under another name.")
@click.option("--replace", "is_replacing", is_flag=True, help="Replace the profile that has the name.")
@click.option("--yes", is_flag=True, help="Import what is printed without asking.")
@home_option
def import_(source: TextIO, name: str, is_replacing: bool, yes: bool, home: Path | None) -> None:
    """Import a profile from a file (- reads standard input). Shows all of it and what it would allow."""
    text = source.read()

    async def work(book: ProfileBook, store: Store, config: Config) -> None:
        profile = read_profile(text, name)
        await _check_names(profile, store, config)
        if is_replacing:
            before = await book.find_kept(profile.name)
            _print(profile, before.profile)
        else:
            await book.check_new(profile)
            before = None
            _print(profile)
        waiting = await store.sessions.count_with_profile(profile.name)
        if waiting:
            click.echo(f"\n{waiting} sessions name a profile {profile.name} and would use this one.")
        if not yes:
            click.confirm(f"\nImport the profile {profile.name}?", abort=True)
        if before is None:
            await book.add(profile)
        else:
            await book.change(profile, before.revision)
        await note_change(config, "profile.changed" if before else "profile.added", profile.name)
        click.echo(f"{profile.name} was imported. It can be chosen at once.")

    _with_book(home, work, makes_one=True)


async def _check_names(profile: Profile, store: Store, config: Config) -> None:
    """Raises Invalid for tools and MCP servers that are not here."""
    servers = await ServerBook(config.profiles.servers, store.records).refresh()
    own = await anyio.to_thread.run_sync(find_own_names, config.home / FOLDER)
    check_names(profile, BUILT_IN_NAMES | own, servers)


@profiles.command()
@_name
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
def remove(name: str, yes: bool, home: Path | None) -> None:
    """Remove a profile. Its sessions are kept; they answer again once they have another profile."""

    async def work(book: ProfileBook, store: Store, config: Config) -> None:
        if (await PreferencesOf(store.records).get(OWNER)).profile == name:
            raise WrongState(
                f"New sessions use the profile {name}. Nothing was changed.",
                hint="Choose another one on the page first: Settings, Models.",
            )
        kept = await book.find_kept(name)
        count = await store.sessions.count_with_profile(name)
        if count:
            click.echo(f"{count} sessions name it. They do not answer until they have another profile.")
        if not yes:
            click.confirm(f"Remove the profile {name}?", abort=True)
        await book.remove(name, kept.revision)
        await ServerBook(config.profiles.servers, store.records).forget_profile(name)
        await KnowledgeBook(store.records, store.blobs, store.machine).use_in(LOCAL_OWNER, name, ())
        await note_change(config, "profile.removed", name)
        click.echo(f"Removed {name}.")

    _with_book(home, work)
