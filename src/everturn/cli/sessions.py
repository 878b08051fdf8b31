"""everturn sessions"""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from everturn.cli.common import OWNER, home_option, with_store
from everturn.config import Config
from everturn.domain.sessions import Session, SessionFilter
from everturn.store import Store

_PAGE = 200


@click.command()
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number.")
@click.option("--all", "is_all", is_flag=True, help="Include archived sessions.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one session per line.")
@home_option
def sessions(limit: int, is_all: bool, is_json: bool, home: Path | None) -> None:
    """List sessions, newest first: id, last change, state, title.

    Use the id with `everturn export`, `everturn run --session` and `everturn chat --session`.
    """
    found = with_store(home, lambda store, config: _newest(store, config, limit, is_all))
    for session in found:
        click.echo(_as_json(session) if is_json else _as_line(session))
    if not found and not is_json:
        click.echo("There are no sessions yet.")


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
