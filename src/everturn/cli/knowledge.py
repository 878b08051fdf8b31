"""everturn knowledge"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import msgspec
from rich.markup import escape
from rich.table import Column, Table

from everturn.cli.common import OWNER, console, home_option, printable, with_store
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.ids import Ids
from everturn.store import Store
from everturn.tools import Sandbox
from everturn.tools.documents.converter import Converter
from everturn.tools.documents.passages import FoundPassage
from everturn.tools.knowledge.book import Knowledge, KnowledgeBook
from everturn.tools.knowledge.library import KnowledgeLibrary
from everturn.tools.workspaces import Workspaces

_profile = click.option(
    "--profile", "profiles", multiple=True, help="A profile that may search it. Repeatable."
)
_session = click.option(
    "--session", "sessions", multiple=True, help="Id of a session that may search it. Repeatable."
)


@click.group()
def knowledge() -> None:
    """List, make and search knowledge: folders and uploads. A running server keeps it in step."""


def _book(store: Store) -> KnowledgeBook:
    return KnowledgeBook(store.records, store.blobs, store.machine)


@knowledge.command("list")
@home_option
def list_(home: Path | None) -> None:
    """List knowledge: id, name, what it is, who may search it."""
    found = with_store(home, lambda store, config: _book(store).of_owner(OWNER))
    table = Table(
        Column("Id", no_wrap=True, min_width=30), "Name", "What", "For", box=None, header_style="bold"
    )
    for one in found:
        users = ["all sessions"] if one.is_for_all else [*one.profiles, *one.sessions]
        what = one.folder or "uploads"
        table.add_row(
            one.id, escape(printable(one.name)), escape(printable(what)), escape(", ".join(users) or "none")
        )
    console().print(table if found else "There is no knowledge. 'everturn knowledge add' makes some.")


@knowledge.command()
@click.argument("name")
@click.option("--folder", help="The folder. Without one it holds uploads ('everturn knowledge put').")
@click.option(
    "--own",
    is_flag=True,
    help="Trust its content like your own words: it does not count as text from outside.",
)
@click.option("--all", "is_for_all", is_flag=True, help="Every session may search it.")
@_profile
@_session
@home_option
def add(
    name: str,
    folder: str | None,
    own: bool,
    is_for_all: bool,
    profiles: tuple[str, ...],
    sessions: tuple[str, ...],
    home: Path | None,
) -> None:
    """Add a folder, or a place for uploads, as knowledge."""

    async def work(store: Store, config: Config) -> None:
        places = Workspaces(config.home, config.files.root_folders())
        real = None if folder is None else str(places.real_project(folder))
        now = SystemClock().now_ms()
        given = Knowledge("", OWNER, name.strip(), now, real, None, own, is_for_all, profiles, sessions)
        made = await _book(store).add(Ids(SystemClock()), given)
        click.echo(f"{made.id}  A running server reads it within a minute.")
        if not (is_for_all or profiles or sessions):
            click.echo(f"No session may search it yet. Next: everturn knowledge use {made.id} --all")

    with_store(home, work, makes_one=True)


@knowledge.command()
@click.argument("knowledge_id", metavar="NAME")
@click.option("--all/--not-all", "is_for_all", default=None, help="Whether every session may search it.")
@click.option(
    "--own/--not-own", "own", default=None, help="Whether its content is trusted like your own words."
)
@click.option("--nobody", is_flag=True, help="Remove all profiles and sessions that are not named here.")
@_profile
@_session
@home_option
def use(
    knowledge_id: str,
    is_for_all: bool | None,
    own: bool | None,
    nobody: bool,
    profiles: tuple[str, ...],
    sessions: tuple[str, ...],
    home: Path | None,
) -> None:
    """Set who may search it. What is given replaces the profiles or sessions before; the rest stays."""

    async def work(book: KnowledgeBook, known: Knowledge) -> None:
        given: dict[str, object] = {
            "is_for_all": is_for_all,
            "is_own": own,
            "profiles": profiles or None,
            "sessions": sessions or None,
        }
        if nobody:
            given |= {"is_for_all": bool(is_for_all), "profiles": profiles, "sessions": sessions}
        kept = {name: value for name, value in given.items() if value is not None}
        await book.change(msgspec.structs.replace(known, **kept))
        click.echo("Changed.")

    _with_one(home, knowledge_id, work)


@knowledge.command()
@click.argument("knowledge_id", metavar="NAME")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@home_option
def put(knowledge_id: str, files: tuple[Path, ...], home: Path | None) -> None:
    """Add files. A file of the same name is replaced."""

    async def work(book: KnowledgeBook, known: Knowledge) -> None:
        for path in files:
            file = await book.put_file(known, path.name, path, SystemClock().now_ms())
            click.echo(f"{file.name}  {file.size:,} bytes")

    _with_one(home, knowledge_id, work)


@knowledge.command()
@click.argument("knowledge_id", metavar="NAME")
@click.argument("query")
@home_option
def search(knowledge_id: str, query: str, home: Path | None) -> None:
    """Search it, after indexing what has changed."""

    async def work(store: Store, config: Config) -> tuple[list[FoundPassage], str]:
        sandbox = Sandbox(config.home)
        await sandbox.open()
        try:
            places, clock = Workspaces(config.home, config.files.root_folders()), SystemClock()
            book = _book(store)
            library = KnowledgeLibrary(book, store.blobs, Converter(sandbox, clock), clock, places)
            return await library.find(await _find(book, knowledge_id), query, 10)
        finally:
            sandbox.close()

    found, note = with_store(home, work)
    for one in found:
        click.echo(printable(f"{one.name}, {one.place}\n  {one.excerpt}\n"))
    if note or not found:
        click.echo(printable(note or "Nothing found."))


@knowledge.command()
@click.argument("knowledge_id", metavar="NAME")
@home_option
def delete(knowledge_id: str, home: Path | None) -> None:
    """Delete it with its uploads. A folder stays as it is."""

    async def work(book: KnowledgeBook, known: Knowledge) -> None:
        await book.delete(OWNER, known.id)
        click.echo(f"Deleted {known.name}.")

    _with_one(home, knowledge_id, work)


def _with_one(
    home: Path | None, knowledge_id: str, work: Callable[[KnowledgeBook, Knowledge], Awaitable[None]]
) -> None:
    async def inside(store: Store, config: Config) -> None:
        book = _book(store)
        await work(book, await _find(book, knowledge_id))

    with_store(home, inside)


async def _find(book: KnowledgeBook, name: str) -> Knowledge:
    """By id, or by a name that only one has."""
    found = [one for one in await book.of_owner(OWNER) if name in (one.id, one.name)]
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise Invalid(f"There is more than one {name!r}: {ids}.", hint="Give the id.")
    if not found:
        raise Invalid(f"There is no knowledge {name!r}.", hint="'everturn knowledge list' lists it.")
    return found[0]
