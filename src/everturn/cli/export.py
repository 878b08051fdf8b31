"""everturn export"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from everturn.cli.common import OWNER, console, hint_at_sessions, home_option, with_store
from everturn.config import Config
from everturn.store import Store
from everturn.store.files.disk import Disk, write_atomically
from everturn.store.sessions import documents


@click.command()
@click.argument("session_id")
@click.option(
    "--format", "kind", type=click.Choice(["json", "md", "html"]), default="json", show_default=True
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file (written atomically). Default: standard output.",
)
@home_option
def export(session_id: str, kind: str, output: Path | None, home: Path | None) -> None:
    """Export a session as one document. JSON can be imported again.

    'everturn sessions' lists the sessions with their ids.
    """
    with hint_at_sessions():
        body = with_store(home, lambda store, config: _document(store, config, session_id, kind))
    if output is None:
        sys.stdout.buffer.write(body)
        return
    write_atomically(Disk(), output.resolve(), body)
    console(stderr=True).print(f"Wrote {output} ({len(body):,} bytes).", markup=False)


async def _document(store: Store, config: Config, session_id: str, kind: str) -> bytes:
    if kind == "json":
        return msgspec.json.encode(await documents.export_document(store, OWNER, session_id)) + b"\n"
    session, turns, messages = await store.transcript.export(OWNER, session_id)
    shown = documents.path_to_head(session, turns, messages)
    text = documents.markdown(session, shown) if kind == "md" else documents.html(session, shown)
    return text.encode()
