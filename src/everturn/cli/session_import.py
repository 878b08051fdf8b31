"""everturn import"""

from __future__ import annotations

from contextlib import aclosing, closing
from pathlib import Path

import click
import msgspec
from rich.progress import Progress, track

from everturn.cli.common import OWNER, console, home_option, printable, with_store
from everturn.config import Config
from everturn.domain.errors import BadImport
from everturn.domain.media import describe_file
from everturn.domain.sessions import Session
from everturn.importers import SOURCES, Imported, ImportOutcome, import_history, open_history
from everturn.store import Store
from everturn.store.sessions import documents
from everturn.workspace import import_archive, open_archive


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="[SOURCE] FILE...")
@home_option
def import_(files: tuple[str, ...], home: Path | None) -> None:
    """Import sessions that were exported as JSON or as archives. Each is imported whole or not at all.

    With a SOURCE, import the history of another system: hermes (its data folder), chatgpt, claude, openwebui
    or librechat (the file that it exported). What was imported before is left as it is.
    """
    source = files[0] if files[0] in SOURCES and not Path(files[0]).exists() else ""
    paths = [_existing(name) for name in (files[1:] if source else files)]
    if source:
        if not paths:
            raise click.UsageError(f"Name the {'folder' if source == 'hermes' else 'file'} to import.")
        refused = with_store(home, lambda store, _: _import_histories(store, source, paths), makes_one=True)
        raise SystemExit(1 if refused else 0)
    for session in with_store(home, lambda store, config: _import_all(store, config, paths), makes_one=True):
        title = printable(session.title or session.first_words or "Untitled session")
        click.echo(f"{session.id}  {title}  ({session.messages} messages)")


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        known = ", ".join(SOURCES)
        raise click.BadParameter(f"{printable(name)!r} does not exist. Other systems are: {known}.")
    return path


# --- other systems ----------------------------------------------------------------------------------------

_WORDS = {
    ImportOutcome.IMPORTED: "imported",
    ImportOutcome.PRESENT: "already here",
    ImportOutcome.DELETED: "deleted here",
    ImportOutcome.REFUSED: "not imported",
}


async def _import_histories(store: Store, source: str, paths: list[Path]) -> int:
    """Returns how many conversations could not be imported."""
    counts = dict.fromkeys(ImportOutcome, 0)
    out = console(stderr=True)
    for path in paths:
        # Where nothing can be drawn over, drawing leaves an empty line.
        with (
            closing(open_history(source, path)) as history,
            Progress(console=out, transient=True, disable=not out.is_terminal) as progress,
        ):
            task = progress.add_task("Importing", total=history.total)
            async with aclosing(import_history(store, OWNER, history, describe_file)) as results:
                async for one in results:
                    counts[one.outcome] += 1
                    progress.advance(task)
                    _report(one)
    click.echo(", ".join(f"{count} {_WORDS[outcome]}" for outcome, count in counts.items() if count))
    return counts[ImportOutcome.REFUSED]


def _report(one: Imported) -> None:
    title = printable(one.title or "Untitled session")
    if one.outcome is ImportOutcome.IMPORTED:
        files = f", {one.files} files" if one.files else ""
        click.echo(f"{one.session_id}  {title}  ({one.turns} turns, {one.messages} messages{files})")
    elif one.outcome is ImportOutcome.REFUSED:
        click.echo(f"not imported  {title}  ({printable(one.foreign_id) or 'without an id'})")
    else:
        click.echo(f"{one.session_id}  {title}  ({_WORDS[one.outcome]})")
    for note in one.notes if one.outcome in (ImportOutcome.IMPORTED, ImportOutcome.REFUSED) else ():
        click.echo(f"    {printable(note)}")


# --- sessions of Everturn ---------------------------------------------------------------------------------


async def _import_all(store: Store, config: Config, files: list[Path]) -> list[Session]:
    imported = []
    out = console(stderr=True)
    for path in track(files, "Importing", transient=True, console=out, disable=not out.is_terminal):
        imported.append(await _import(store, path))
    return imported


async def _import(store: Store, path: Path) -> Session:
    if not _is_archive(path):
        return await documents.import_document(store, OWNER, _read(path), describe_file)
    archive = open_archive(path)
    try:
        return await import_archive(store, OWNER, archive, archive.document, describe_file)
    finally:
        archive.close()


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _read(path: Path) -> documents.Document:
    try:
        return msgspec.json.decode(path.read_bytes(), type=documents.Document)
    except msgspec.DecodeError as error:
        raise BadImport(
            f"{path.name} is not a session that Everturn exported: {error}. Nothing of it was imported.",
            hint=f"For another system, name it first: everturn import SOURCE {path.name}, with one of "
            f"{', '.join(SOURCES)}.",
        ) from error
