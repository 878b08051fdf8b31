"""everturn sessions"""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from everturn.cli.common import OWNER, hint_at_sessions, home_option, printable, with_store
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.ids import check_id
from everturn.domain.sessions import Session, SessionFilter, SessionPatch
from everturn.store import Store

_PAGE = 200


@click.group(invoke_without_command=True)
@click.pass_context
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number.")
@click.option("--all", "is_all", is_flag=True, help="Include archived sessions.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one session per line.")
@home_option
def sessions(context: click.Context, limit: int, is_all: bool, is_json: bool, home: Path | None) -> None:
    """List sessions, newest first: id, last change, state, title; or change one.

    Use the id with `everturn export`, `everturn run --session` and `everturn chat --session`.
    """
    if context.invoked_subcommand is not None:
        return
    found = with_store(home, lambda store, config: _newest(store, config, limit, is_all))
    for session in found:
        click.echo(_as_json(session) if is_json else _as_line(session))
    if not found and not is_json:
        click.echo("There are no sessions yet.")


@sessions.command()
@click.argument("session_id")
@click.argument("title")
@home_option
def rename(session_id: str, title: str, home: Path | None) -> None:
    """Give a session another title."""
    _change(home, session_id, SessionPatch(title=title))
    click.echo(f"{session_id} is renamed.")


@sessions.command()
@click.argument("session_id")
@click.option("--undo", is_flag=True, help="Take it out of the archive.")
@home_option
def archive(session_id: str, undo: bool, home: Path | None) -> None:
    """Move a session to the archive, or back. It stays readable and searchable."""
    _change(home, session_id, SessionPatch(archived=not undo))
    click.echo(f"{session_id} is {'back in the list' if undo else 'archived'}.")


@sessions.command()
@click.argument("session_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
def delete(session_id: str, yes: bool, home: Path | None) -> None:
    """Delete a session with its files, and stop what it runs. This cannot be undone."""
    with hint_at_sessions():
        found = with_store(home, lambda store, _: store.sessions.get(OWNER, check_id(session_id, "ses")))
    name = printable(found.title or found.first_words or "Untitled session")
    if not yes and not click.confirm(f"Delete {name!r} ({found.messages} messages)? This cannot be undone."):
        raise click.Abort
    with_store(
        home, lambda store, _: store.sessions.mark_deleted(OWNER, session_id, due_at=SystemClock().now_ms())
    )
    click.echo("Deleted. A running server removes its data within a minute, otherwise the next start does.")


def _change(home: Path | None, session_id: str, patch: SessionPatch) -> None:
    with hint_at_sessions():
        with_store(home, lambda store, _: store.sessions.change(OWNER, check_id(session_id, "ses"), patch))


async def _newest(store: Store, config: Config, limit: int, is_all: bool) -> list[Session]:
    found: list[Session] = []
    cursor: str | None = None
    while len(found) < limit:
        wanted = min(_PAGE, limit - len(found))
        page = await store.sessions.list(
            OWNER, SessionFilter(archived=None if is_all else False), limit=wanted, cursor=cursor
        )
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _as_line(session: Session) -> str:
    """The title comes last, so that it need not be shortened to keep the columns aligned."""
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.updated_at / 1000))
    name = session.title or session.first_words or "Untitled session"
    title = "".join(char for char in name if char.isprintable())
    return f"{session.id}  {changed}  {_state(session):<11}  {title}"


def _as_json(session: Session) -> bytes:
    return msgspec.json.encode(
        {
            "id": session.id,
            "title": session.title,
            "state": _state(session),
            "created_at": session.created_at,
            "updated_at": session.updated_at,
            "messages": session.messages,
            "archived": session.archived,
        }
    )


def _state(session: Session) -> str:
    if session.asks:
        return "waiting"
    state = session.active_state or session.last_state
    return str(state.value) if state else "empty"
