"""everturn import"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
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
from everturn.importers import SOURCES, Imported, ImportOutcome, import_history, open_history, recognize
from everturn.store import Store
from everturn.store.sessions import documents
from everturn.workspace import import_archive, open_archive


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="[SOURCE] FILE...")
@home_option
def import_(files: tuple[str, ...], home: Path | None) -> None:
    """Import sessions that were exported as JSON or as archives. Each is imported whole or not at all.

    Or import the history of another system: the data folder of hermes, or the file that chatgpt, claude,
    openwebui or librechat exported. The system is recognized, or named as SOURCE. What was imported before is
    left as it is.
    """
    source = files[0] if files[0] in SOURCES and not Path(files[0]).exists() else ""
    paths = [_require_file(name) for name in (files[1:] if source else files)]
    if not paths:
        raise click.UsageError(f"Name the {'folder' if source == 'hermes' else 'file'} to import.")
    sources = {path: _source_of(path, source) for path in paths}
    foreign = {path: found for path, found in sources.items() if found}
    own = [path for path in paths if path not in foreign]
    if own:
        for session in with_store(
            home, lambda store, config: _import_all(store, config, own), makes_one=True
        ):
            title = printable(session.title or session.first_words or "Untitled session")
            click.echo(f"{session.id}  {title}  ({session.messages} messages)")
    if foreign:
        refused = with_store(home, lambda store, _: _import_histories(store, foreign), makes_one=True)
        if refused:
            raise SystemExit(1)


def _source_of(path: Path, named: str) -> str:
    """The system that a file or folder comes from; empty for a session of ours, or if none is recognized."""
    if named == "hermes" or (path.is_dir() and not named):
        return "hermes"
    if path.is_dir():
        raise BadImport(f"{path} is a folder.", hint="Name the file that was exported, as a .zip or .json.")
    try:
        found = recognize(path)
    except BadImport:
        return named  # reading it says what is wrong with it
    if named and found != named:
        raise BadImport(
            f"{path.name} is an export of {found}, not of {named}. Nothing of it was imported.",
            hint=f"Run: everturn import {found} {shlex.quote(str(path))}",
        )
    return found


def _require_file(name: str) -> Path:
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


async def _import_histories(store: Store, sources: Mapping[Path, str]) -> int:
    """Returns how many conversations could not be imported."""
    counts = dict.fromkeys(ImportOutcome, 0)
    out = console(stderr=True)
    for path, source in sources.items():
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
