"""The part of the store for transcripts: the messages up to a session's head, and what moves the head."""

from __future__ import annotations

from typing import Protocol

from everturn.domain.messages import Message
from everturn.domain.sessions import (
    Page,
    Session,
)
from everturn.domain.store_values import (
    Accepted,
    ImportedSession,
    Request,
    RetriedTurn,
    TranscriptPage,
)
from everturn.domain.turns import Turn
from everturn.domain.working_copies import MoveFiles


class Transcript(Protocol):
    """``files`` of a move: how the session's folder follows it (may raise PlanNeeded); None: it stays."""

    async def messages(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50
    ) -> Page[Message]:
        """The newest page of the path to the head, oldest first; the cursor gives the page before."""
        ...

    async def page(
        self, owner: str, session_id: str, *, before: str | None = None, limit: int = 50
    ) -> TranscriptPage:
        """The same page with its session and turns, in one read."""
        ...

    async def context(self, owner: str, session_id: str, *, upto: str | None = None) -> list[Message]:
        """The messages for the model: from the newest summary on, or the whole path, up to and including the
        turn ``upto`` (default: the head)."""
        ...

    async def undo(
        self, owner: str, session_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session: ...

    async def redo(
        self, owner: str, session_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session: ...

    async def clear(
        self, owner: str, session_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session: ...

    async def select(
        self, owner: str, session_id: str, turn_id: str, request: Request, *, files: MoveFiles | None = None
    ) -> Session:
        """Show another sibling: the head becomes the newest last turn below this turn."""
        ...

    async def retry(
        self,
        owner: str,
        session_id: str,
        retried: RetriedTurn,
        request: Request,
        *,
        files: MoveFiles | None = None,
    ) -> Accepted:
        """Start a sibling of the turn."""
        ...

    async def branch(
        self,
        owner: str,
        session_id: str,
        turn_id: str | None,
        request: Request,
        *,
        files: MoveFiles | None = None,
    ) -> Session:
        """Copy the path up to the turn into a new session, with the files of that turn. ``files``: a plan of
        which ``present`` counts, if the path ends with the head."""
        ...

    async def import_session(self, owner: str, imported: ImportedSession) -> Session:
        """Import under the same ids if they are free here, else under new ones. Raises BadImport."""
        ...

    async def export(self, owner: str, session_id: str) -> tuple[Session, list[Turn], list[Message]]:
        """All turns of the tree and their messages, read in one transaction."""
        ...
