"""The front door for programs: an agent in a few lines, with everything durable behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.app import App, open_app
from everturn.config import read_config
from everturn.domain.events import Event
from everturn.domain.messages import Message
from everturn.domain.sessions import Page, Session
from everturn.domain.store import Accepted, Ask, Submission
from everturn.domain.turns import Turn

_ENDS = frozenset({"turn.completed", "turn.cancelled", "turn.failed", "turn.interrupted"})


class Agent:
    """One owner's view of a running Everturn. Everything that returns has been made durable."""

    def __init__(self, app: App, owner: str) -> None:
        self._app = app
        self.owner = owner

    @property
    def app(self) -> App:
        """The rooms themselves, for what this door does not offer."""
        return self._app

    async def create_session(self, **settings: Any) -> Session:
        return await self._app.engine.create_session(self.owner, **settings)

    async def sessions(self, *, limit: int = 50, cursor: str | None = None) -> Page[Session]:
        return await self._app.store.sessions.list(self.owner, limit=limit, cursor=cursor)

    async def messages(self, session_id: str, *, before: str | None = None, limit: int = 50) -> Page[Message]:
        return await self._app.engine.messages(self.owner, session_id, before=before, limit=limit)

    async def submit(
        self, session_id: str, text: str, *, key: str | None = None, **submission: Any
    ) -> Accepted:
        """Accept a message. On return it survives power loss; the same key never makes a second turn."""
        asked = Submission(text=text, key=key, **submission)
        return await self._app.engine.submit(self.owner, session_id, asked)

    async def ask(self, session_id: str, text: str, **submission: Any) -> AsyncIterator[Event]:
        """Submit, then follow the turn's events to its end; also past approvals, which others answer."""
        accepted = await self.submit(session_id, text, **submission)
        async for batch in self.follow(session_id, accepted.cursor):
            for event in batch:
                if event.turn_id == accepted.turn.id:
                    yield event
                    if event.kind in _ENDS:
                        return

    def follow(self, session_id: str, after: int = 0) -> AsyncIterator[Sequence[Event]]:
        """A session's events after a position: replayed, then live, without end."""
        return self._app.engine.follow(self.owner, session_id, after)

    async def asks(self, session_id: str | None = None) -> list[Ask]:
        """Open approvals and questions."""
        return await self._app.store.asks.open(self.owner, session_id)

    async def answer(self, ask_id: str, answer: str) -> Ask:
        return await self._app.engine.answer(self.owner, ask_id, answer, by="program")

    async def cancel(self, turn_id: str) -> Turn:
        return await self._app.engine.cancel(self.owner, turn_id, by="program")


@asynccontextmanager
async def open_agent(
    home: str | Path | None = None,
    *,
    owner: str = "local",
    model: str | None = None,
    database_url: str | None = None,
    database_direct_url: str | None = None,
) -> AsyncIterator[Agent]:
    """Open the data folder (default ``EVERTURN_HOME``) and run turns until left.

    ``model``, ``database_url`` and ``database_direct_url`` win over those of ``config.toml`` and of the
    environment. Another process may have the same folder open, such as the server.
    """
    config = read_config(
        _folder(home),
        model=model,
        database_url=database_url,
        database_direct_url=database_direct_url,
    )
    async with open_app(config) as app:
        yield Agent(app, owner)


def _folder(home: str | Path | None) -> Path | None:
    return None if home is None else Path(home).expanduser()
