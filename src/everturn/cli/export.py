"""everturn export"""

from __future__ import annotations

import sys
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from everturn.cli.common import OWNER, console, hint_at_sessions, home_option, with_store
from everturn.config import Config
from everturn.store import Store
from everturn.store.files.disk import Disk, atomic_file, write_atomically
from everturn.store.sessions import documents
from everturn.store.sessions.export_html import html
from everturn.store.sessions.export_text import markdown
from everturn.workspace import SessionArchive


@click.command()
@click.argument("session_id")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["json", "md", "html", "archive"]),
    default="json",
    show_default=True,
    help="An archive also has the files of the session's workspace, at every kept step.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file (written atomically). Default: standard output.",
)
@home_option
def export(session_id: str, kind: str, output: Path | None, home: Path | None) -> None:
    """Export a session as one document. JSON and archives can be imported again.

    'everturn sessions' lists the sessions with their ids.
    """
    target = None if output is None else output.resolve()
    if kind == "archive":
        with hint_at_sessions():
            size = with_store(home, lambda store, config: _write_archive(store, session_id, target))
        if output is not None:
            console(stderr=True).print(f"Wrote {output} ({size:,} bytes).", markup=False, soft_wrap=True)
        return
    with hint_at_sessions():
        body = with_store(home, lambda store, config: _document(store, config, session_id, kind))
    if target is None:
        sys.stdout.buffer.write(body)
        return
    write_atomically(Disk(), target, body)
    console(stderr=True).print(f"Wrote {output} ({len(body):,} bytes).", markup=False, soft_wrap=True)


async def _write_archive(store: Store, session_id: str, output: Path | None) -> int:
    """Write it piece by piece; return its size."""
    size = 0
    with ExitStack() as stack:
        file: BinaryIO = sys.stdout.buffer
        async with aclosing(SessionArchive(store).pieces(OWNER, session_id)) as pieces:
            first = await anext(pieces)  # before a file is made: the session may not exist
            if output is not None:
                file = stack.enter_context(atomic_file(Disk(), output))
            size += file.write(first)
            async for piece in pieces:
                size += file.write(piece)
    return size


async def _document(store: Store, config: Config, session_id: str, kind: str) -> bytes:
    if kind == "json":
        return msgspec.json.encode(await documents.export_document(store, OWNER, session_id)) + b"\n"
    session, turns, messages = await store.transcript.export(OWNER, session_id)
    shown = documents.path_to_head(session, turns, messages)
    text = markdown(session, shown) if kind == "md" else html(session, shown)
    return text.encode()
