"""everturn memory"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from rich.markup import escape
from rich.table import Column, Table

from everturn.cli.common import OWNER, console, home_option, make_registry, open_config_secrets, with_store
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import EverturnError, Invalid, NotFound
from everturn.domain.ids import Ids
from everturn.domain.memory import Owing
from everturn.domain.runtime import Runtime
from everturn.memory import BuiltMemory, build_memory, import_notes
from everturn.memory.notebook import FileNotebooks
from everturn.memory.notes import Note, one_line
from everturn.memory.pages import is_page
from everturn.store import Store

T = TypeVar("T")
_ID_CHARS = 30
_LISTED_MAX = 200


@click.group()
def memory() -> None:
    """View, edit and delete memory notes.

    The notes are Markdown files that you can also edit directly; `everturn memory where` prints their folder.
    With PostgreSQL they are in the database: export writes them to files, import brings changed files back.
    """


@memory.command("list")
@click.argument("words", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="List every note, one per line.")
@home_option
def list_(words: tuple[str, ...], is_all: bool, home: Path | None) -> None:
    """List the newest notes, or search them."""

    async def work(built: BuiltMemory, store: Store) -> tuple[list[Note], list[str]]:
        troubles = await built.notebooks.problems(OWNER)
        if words:
            return await built.notebooks.find(OWNER, " ".join(words), _LISTED_MAX), troubles
        return await built.notebooks.notes(OWNER), troubles

    notes, troubles = _with_memory(home, work)
    for trouble in troubles:
        console(stderr=True).print(escape(trouble), style="yellow", soft_wrap=True)
    if is_all:
        for note in notes:
            click.echo(f"{note.id}  {note.day or '-'}  {_source(note)}  {one_line(note.text)}")
        return
    table = Table(_whole("Id"), "Since", "From", "Fact", box=None, header_style="bold")
    for note in notes[-_LISTED_MAX:]:
        table.add_row(note.id, note.day, escape(_source(note)), escape(one_line(note.text)))
    console().print(table if notes else "There are no notes yet." if not words else "No notes match.")
    if len(notes) > _LISTED_MAX:
        console().print(f"{len(notes) - _LISTED_MAX:,} older notes: everturn memory list --all")


@memory.command()
@click.argument("text", nargs=-1, required=True)
@home_option
def add(text: tuple[str, ...], home: Path | None) -> None:
    """Add a note."""

    async def work(built: BuiltMemory, store: Store) -> Note:
        return await built.notebooks.remember(OWNER, " ".join(text), SystemClock().now_ms())

    console().print(f"Noted as {_with_memory(home, work, makes_one=True).id}.")


@memory.command()
@click.argument("ident", metavar="NOTE|PAGE")
@click.argument("text", nargs=-1)
@home_option
def edit(ident: str, text: tuple[str, ...], home: Path | None) -> None:
    """Edit a note (with TEXT, or in your editor) or a whole page, such as 2026-01.md."""
    if is_page(ident):
        _edit_page(home, ident)
        return

    async def read(built: BuiltMemory, store: Store) -> str:
        return (await built.notebooks.get(OWNER, ident)).text

    new: str | None = " ".join(text)
    if not new:
        new = click.edit(_with_memory(home, read))
    if new is None:
        console().print("Nothing was changed.")
        return

    async def work(built: BuiltMemory, store: Store) -> Note:
        note = await built.notebooks.edit(OWNER, ident, new)
        await store.ledger.drop_recalled(OWNER)
        return note

    console().print(f"Changed: {escape(one_line(_with_memory(home, work).text))}")


def _edit_page(home: Path | None, page: str) -> None:
    async def read(built: BuiltMemory, store: Store) -> bytes:
        contents = await built.notebooks.contents(OWNER)
        if page not in contents:
            raise NotFound("page", page)
        return contents[page]

    before = _with_memory(home, read)
    new = click.edit(before.decode("utf-8", "surrogateescape"), extension=".md")
    if new is None:
        console().print("Nothing was changed.")
        return

    async def work(built: BuiltMemory, store: Store) -> None:
        changed = {page: new.encode("utf-8", "surrogateescape")}
        try:
            await built.notebooks.replace(OWNER, changed, {page: before})
        except EverturnError as error:
            error.hint = f"Your text is in {_keep(page, changed[page])}."
            raise
        await store.ledger.drop_recalled(OWNER)

    _with_memory(home, work)
    console().print(f"Changed: {page}")


def _keep(page: str, content: bytes) -> Path:
    """Write a page that could not be saved to a file in the current folder."""
    kept = Path(f"{page}.not-saved").absolute()
    kept.write_bytes(content)
    return kept


@memory.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@home_option
def export(folder: Path, home: Path | None) -> None:
    """Write the pages of notes to FOLDER as Markdown files."""

    async def work(built: BuiltMemory, store: Store) -> dict[str, bytes]:
        return await built.notebooks.contents(OWNER)

    if folder.is_dir() and any(folder.iterdir()):
        raise Invalid(f"{folder} is not empty. Nothing was written.", hint="Name a new folder.")
    contents = _with_memory(home, work)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for page, content in contents.items():
        descriptor = os.open(folder / page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    pages_are = "1 page is" if len(contents) == 1 else f"{len(contents)} pages are"
    console().print(f"{pages_are} in {escape(str(folder))}.", soft_wrap=True)


@memory.command("import")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@home_option
def import_(folder: Path, home: Path | None) -> None:
    """Replace pages of notes by the Markdown files of FOLDER. Pages without a file stay as they are."""
    files = [path for path in sorted(folder.iterdir()) if is_page(path.name) and path.is_file()]
    contents = {path.name: path.read_bytes() for path in files}
    if not contents:
        raise Invalid(f"There are no Markdown files in {folder}. Nothing was changed.")

    async def work(built: BuiltMemory, store: Store) -> None:
        await built.notebooks.replace(OWNER, contents)
        await store.ledger.drop_recalled(OWNER)

    _with_memory(home, work, makes_one=True)
    console().print(f"Imported: {', '.join(contents)}")


@memory.command()
@click.argument("idents", nargs=-1, required=True)
@home_option
def forget(idents: tuple[str, ...], home: Path | None) -> None:
    """Delete notes. They are not recalled again."""

    async def work(built: BuiltMemory, store: Store) -> list[Note]:
        try:
            return [await built.notebooks.forget(OWNER, ident) for ident in idents]
        finally:
            await store.ledger.drop_recalled(OWNER)

    for note in _with_memory(home, work):
        console().print(f"Deleted: {escape(one_line(note.text))}")


@memory.command()
@home_option
def pending(home: Path | None) -> None:
    """List sessions with answers that are not in memory yet."""

    async def work(built: BuiltMemory, store: Store) -> tuple[list[Owing], str, str]:
        # A killed server could not release its commit, and no other server may have done so since.
        await store.workers.take_over("")
        owing, settled = await store.ledger.read_status(OWNER)
        last = _time(settled["at"]) if settled else "never"
        notice = await store.records.get(OWNER, "memory", "notice")
        return [await _with_name(store, each) for each in owing], last, str(notice or "")

    found, last, notice = _with_memory(home, work)
    table = Table(_whole("Session"), "Title", "Turns", "Since", "State", box=None, header_style="bold")
    for owing in found:
        table.add_row(
            owing.session_id, escape(owing.title), str(owing.turns), _time(owing.since), escape(_state(owing))
        )
    out = console()
    out.print(table if found else "Every finished answer is in memory.")
    out.print(f"Last saved to memory: {last}.")
    if notice:
        out.print(escape(notice))


async def _with_name(store: Store, owing: Owing) -> Owing:
    """With a name for a session that has no title yet, as lists of sessions call it."""
    if owing.title:
        return owing
    session = await store.sessions.get(OWNER, owing.session_id)
    return msgspec.structs.replace(owing, title=session.first_words or "Untitled session")


# The command's name in releases before this one.
memory.add_command(click.Command("owed", hidden=True, callback=pending.callback, params=pending.params))


@memory.command()
@click.argument("session_id", required=False)
@home_option
def commit(session_id: str | None, home: Path | None) -> None:
    """Save finished answers to memory now: of one session, or of all."""

    async def work(built: BuiltMemory, store: Store) -> tuple[int, list[str]]:
        turns, errors = 0, []
        await store.workers.take_over("")  # else the commit of a killed server still counts as running
        if session_id is not None:
            await store.sessions.get(OWNER, session_id)  # raises NotFound if there is none
        owing = await store.ledger.list_owing(OWNER) if session_id is None else []
        for each in [session_id] if session_id is not None else [known.session_id for known in owing]:
            done = await built.memory.commit_session(OWNER, each)
            turns += done.turns
            if done.outcome not in ("settled", "nothing"):
                errors.append(f"{each}: {done.error or done.outcome}")
        await built.memory.close()
        return turns, errors

    turns, errors = _with_memory(home, work)
    if turns:
        said = "1 turn is" if turns == 1 else f"{turns} turns are"
        console().print(f"{said} saved to memory. To see the notes: everturn memory list")
    elif not errors:
        console().print("Nothing was pending.")
    for error in errors:
        console(stderr=True).print(escape(error), style="red", soft_wrap=True)
    if errors:
        raise SystemExit(1)


@memory.command()
@home_option
def where(home: Path | None) -> None:
    """Print the notes folder."""

    async def work(built: BuiltMemory, store: Store) -> Path | None:
        books = built.notebooks
        return books.folder_of(OWNER) if isinstance(books, FileNotebooks) else None

    folder = _with_memory(home, work)
    click.echo(
        folder or "The notes are in the database. 'everturn memory export FOLDER' writes them to files."
    )


def _with_memory(
    home: Path | None, work: Callable[[BuiltMemory, Store], Awaitable[T]], *, makes_one: bool = False
) -> T:
    """Open the store, the models and memory; start no background work."""

    async def inside(store: Store, config: Config) -> T:
        clock = SystemClock()
        async with open_config_secrets(store, config) as secrets, make_registry(config, secrets) as models:
            built = build_memory(
                store, models, config.home, Runtime(clock, Ids(clock)), settings=config.memory
            )
            await import_notes(built, config.home, Ids(clock))
            return await work(built, store)

    return with_store(home, inside, makes_one=makes_one)


def _whole(name: str) -> Column:
    """A column of ids, which are never shortened because users copy them."""
    return Column(name, no_wrap=True, min_width=_ID_CHARS)


def _source(note: Note) -> str:
    return f"session {note.session_id}" if note.session_id else note.source


def _state(owing: Owing) -> str:
    if owing.is_under_way:
        return "under way"
    if owing.error:
        again = f", next try at {_time(owing.retry_at)}" if owing.retry_at else ""
        return f"failed {owing.attempts} times{again}: {owing.error}"
    return "waits for the session to end"


def _time(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at / 1000))
