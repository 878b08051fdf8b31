"""Folds a turn's journal before the transaction that needs the result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from everturn.domain.events import Event
from everturn.domain.fold import Fold, Folded, fold_journal
from everturn.store.scripts.common import events_in, find_turn, get_session_by_no, journal_of
from everturn.store.scripts.queries.events import EVENTS_OF_TURN_FROM
from everturn.store.scripts.rows import SessionRow, TurnRow
from everturn.store.scripts.script import Database, Script, Tx

READ_AHEAD_EVENTS = 2_000  # in one read: on PostgreSQL the event loop does nothing else meanwhile
_ALL = 1 << 30


class JournalFold:
    """Folds a turn's journal in several reads.

    A turn is ended inside a write transaction, and other writes wait for that. So the journal is read and
    folded before (``read_ahead``), and the transaction adds only the events that came since. Where it is
    rolled back and run again (PostgreSQL), nothing is fed twice: what it read was committed, never changes,
    and is passed over by its position.
    """

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self._fold = Fold(turn_id)
        self._position = 0  # up to here the journal was read
        self._last = (0, -1)  # (epoch, number) of the newest event in the fold
        self._has_late = False

    def catch_up(self, session: SessionRow, turn: TurnRow, limit: int = _ALL) -> Script[bool]:
        """Fold the events that are new, at most so many; True if there may be more.

        Damaged events are left out: the turn still gets its end.
        """
        start = max(self._position + 1, turn.first_position)
        rows = yield from EVENTS_OF_TURN_FROM.all(session.no, start, turn.no, limit)
        if not rows:
            return False
        events = events_in(rows, session, turn, skips_damage=True)
        if self._continues(events):
            for event in events:
                self._fold.feed(event)
        else:
            # Late events belong between others, so the whole is folded again. They are rare.
            events = yield from journal_of(session, turn, skips_damage=True)
            self._fold = fold_journal(turn.id, events)
            self._has_late = True
        if events:
            self._last = max((event.epoch, event.number) for event in events)
        last_position = rows[-1][0]  # also of an event that was damaged, and left out
        self._position = max([last_position, *(event.position for event in events)])
        return len(rows) == limit

    @property
    def has_unknown(self) -> bool:
        """Whether the journal holds what only a newer version can fold."""
        return self._fold.has_unknown

    def result(self, *, is_recovered: bool) -> Folded:
        """The turn as ended, as far as its journal was read."""
        return self._fold.result(is_ended=True, is_recovered=is_recovered)

    def _continues(self, events: Sequence[Event]) -> bool:
        """Whether these follow what is folded, each after the one before."""
        places = [self._last, *((event.epoch, event.number) for event in events)]
        is_ordered = all(before < after for before, after in pairwise(places))
        return is_ordered and not self._has_late and not any(event.is_late for event in events)


async def read_ahead(db: Database, turn_id: str) -> JournalFold:
    """The fold of a turn's journal as it is now; an empty one if there is no such turn."""
    ahead = JournalFold(turn_id)
    while await db.read(_catch_up, ahead):
        pass
    return ahead


def _catch_up(tx: Tx, ahead: JournalFold) -> Script[bool]:
    turn = yield from find_turn(ahead.turn_id)
    if turn is None:
        return False
    session = yield from get_session_by_no(turn.session_no)
    return (yield from ahead.catch_up(session, turn, READ_AHEAD_EVENTS))
