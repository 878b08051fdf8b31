"""What changed in the session list, in one word and with the row as it is now."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from everturn.domain.sessions import Session
from everturn.domain.store_values import Trouble

_SEEN_MAX = 5_000


class SessionNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind``: session.created | deleted | busy | done | renamed | unread | changed."""

    kind: str
    session_id: str
    session: Session | None = None


class Counts(msgspec.Struct, frozen=True):
    sessions: int
    archived: int
    asks: int


class StoreNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind``: store.trouble (nothing can be stored, for this reason) | store.mended."""

    kind: str
    trouble: Trouble | None = None


class NeedsNews(msgspec.Struct, frozen=True):
    """What ``/api/needs`` or ``/api/schedules`` answers may have changed, besides what sessions show of it.
    ``kind``: needs.changed."""

    kind: str = "needs.changed"


class JobsNews(msgspec.Struct, frozen=True):
    """A job of the owner was started, was asked to stop, or is over. ``kind``: jobs.changed."""

    kind: str = "jobs.changed"


class ListSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first event of the shared stream: the first page of the list, as it is now, and why nothing can
    be stored, if so."""

    sessions: tuple[Session, ...]
    counts: Counts
    cursor: str | None = None
    trouble: Trouble | None = None


class Newsroom:
    """Remembers what one reader knows of each session and says what is new for it."""

    def __init__(self, started_at: int) -> None:
        self._started_at = started_at
        self._seen: OrderedDict[str, Session] = OrderedDict()

    def remember(self, sessions: tuple[Session, ...]) -> None:
        for session in sessions:
            self._remember(session)

    def about(self, session_id: str, session: Session | None) -> SessionNews | None:
        """None if nothing happened that the list shows."""
        before = self._seen.get(session_id)
        if session is None:
            # Reported once, when the session is hidden; its row goes later.
            self._seen.pop(session_id, None)
            return SessionNews("session.deleted", session_id) if before is not None else None
        self._remember(session)
        kind = self._kind(before, session)
        return None if kind is None else SessionNews(kind, session_id, session)

    def _remember(self, session: Session) -> None:
        self._seen[session.id] = session
        self._seen.move_to_end(session.id)
        if len(self._seen) > _SEEN_MAX:
            self._seen.popitem(last=False)

    def _kind(self, before: Session | None, now: Session) -> str | None:
        if before is None:
            return "session.created" if now.created_at >= self._started_at else "session.changed"
        if (before.active_turn, before.active_state) != (now.active_turn, now.active_state):
            return "session.busy" if now.active_turn is not None else "session.done"
        if before.title != now.title:
            return "session.renamed"
        if now.is_unread and not before.is_unread:
            return "session.unread"
        # Progress alone moves the position and the time; the session's own stream reports that.
        same = msgspec.structs.replace(before, position=now.position, updated_at=now.updated_at)
        return None if same == now else "session.changed"
