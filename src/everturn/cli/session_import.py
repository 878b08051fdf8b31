"""everturn import"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.progress import track

from everturn.cli.common import OWNER, console, home_option, printable, with_store
from everturn.config import Config
from everturn.domain.errors import BadImport
from everturn.domain.media import describe_file
from everturn.domain.sessions import Session
from everturn.store import Store
from everturn.store.sessions import documents
from everturn.workspace import import_archive, open_archive


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True)
)
@home_option
def import_(files: tuple[Path, ...], home: Path | None) -> None:
    """Import sessions that were exported as JSON or as archives. Each is imported whole or not at all."""
    for session in with_store(home, lambda store, config: _import_all(store, config, files), makes_one=True):
        title = printable(session.title or session.first_words or "Untitled session")
        click.echo(f"{session.id}  {title}  ({session.messages} messages)")


async def _import_all(store: Store, config: Config, files: tuple[Path, ...]) -> list[Session]:
    imported = []
    out = console(stderr=True)
    # Where nothing can be drawn over, drawing leaves an empty line.
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
            f"{path.name} is not an exported session: {error}. Nothing of it was imported.",
            hint="Export it with 'everturn export' or from the page, as JSON.",
        ) from error
