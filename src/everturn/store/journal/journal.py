"""The journal: append, read, follow, late delivery and recovery."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from everturn.domain.errors import JournalCorrupt, NotFound, WrongState
from everturn.domain.events import Event, Payload, Snapshot, encode
from everturn.domain.sessions import Session
from everturn.domain.turns import Recovery, TurnState
from everturn.store.journal.fold import JournalFold, read_ahead
from everturn.store.journal.hub import Hub
from everturn.store.scripts.common import (
    add_change_event,
    add_messages,
    bump,
    delete_answers,
    find_turn,
    get_session,
    get_session_by_no,
    journal_of,
    lock_turn,
    refresh,
    shown_session,
)
from everturn.store.scripts.queries.events import EVENTS_AFTER, EVENTS_NEWER, LATE_NUMBERS, EventColumns
from everturn.store.scripts.queries.sessions import TAIL_POSITION
from everturn.store.scripts.queries.turns import TURN_IDS, TURNS_PENDING, WRITER
from everturn.store.scripts.rows import (
    SessionRow,
    TurnRow,
    crc_of,
    event_of,
    known_kinds,
    timeline_json,
    to_json,
    turn_of,
)
from everturn.store.scripts.script import Database, Query, Script, StoredEvents, Tx, append_of, q

READ_EVENTS_MAX = 2_000


class Journal:
    def __init__(
        self, db: Database, hub: Hub, *, recovery_attempts_max: int, recovery_age_max_ms: int
    ) -> None:
        self._db = db
        self._hub = hub
        self._attempts_max = recovery_attempts_max
        self._age_max_ms = recovery_age_max_ms
        self._recovering: set[str] = set()

    async def append(self, turn_id: str, epoch: int, first_number: int, payloads: Sequence[Payload]) -> int:
        return await self._db.append(append_of(turn_id, epoch, first_number, payloads))

    async def after(self, owner: str, session_id: str, position: int, *, limit: int = 500) -> list[Event]:
        return await self._db.read(_after, owner, session_id, position, min(limit, READ_EVENTS_MAX))

    async def of_turn(self, owner: str, turn_id: str) -> list[Event]:
        return await self._db.read(_of_turn, owner, turn_id)

    async def follow(self, owner: str, session_id: str, after: int) -> AsyncGenerator[Sequence[Event], None]:
        # Subscribing before the first read: what commits in between is in the backlog, and its position
        # says whether the read has seen it.
        follower = self._hub.follow(session_id)
        position = after
        try:
            while True:
                while batch := await self.after(owner, session_id, position):
                    yield batch
                    position = batch[-1].position
                while (live := await follower.next()) is not None:
                    if live[0].position > position + 1 or not _is_unbroken(live):  # guard: c10
                        break  # another process wrote in between, or two commits were published out of order
                    # Followers share a batch: as it is, what a stream makes of it can be shared, too.
                    is_fresh = live[0].position > position
                    fresh = live if is_fresh else [event for event in live if event.position > position]
                    if fresh:
                        yield fresh
                        position = fresh[-1].position
        finally:
            self._hub.unfollow(session_id, follower)

    async def of_newer_kinds(self, owner: str, session_id: str) -> list[Event]:
        return await self._db.read(of_newer_kinds, owner, session_id)

    async def deliver_late(self, turn_id: str, epoch: int, events: Sequence[Event]) -> int:
        return await self._db.write(deliver_late, turn_id, epoch, tuple(events))

    async def wait_delivered(self, turn_id: str, epoch: int) -> None:
        await self._db.wait_delivered(turn_id, epoch)

    async def seal(self, turn_id: str, epoch: int) -> None:
        await self._db.write(_seal, turn_id, epoch)

    async def read_pending(self, owner: str, session_id: str) -> tuple[Session, bool]:
        return await self._db.read(_read_pending, owner, session_id)

    async def recover(self, owner: str, session_id: str) -> bool:
        """One reader recovers the session; the others get it as it is, without waiting (C07)."""
        if session_id in self._recovering:
            return False
        _, is_pending = await self.read_pending(owner, session_id)
        if not is_pending:  # guard: a03
            return False
        if session_id in self._recovering:
            return False
        self._recovering.add(session_id)  # guard: c07
        try:
            late = await self._db.read(_late_turns, owner, session_id)
            ahead = {turn_id: await read_ahead(self._db, turn_id) for turn_id in late}
            bounds = (self._attempts_max, self._age_max_ms)
            return await self._db.write(_recover, owner, session_id, *bounds, ahead)
        finally:
            self._recovering.discard(session_id)


# --- reading ------------------------------------------------------------------------------------------


def _after(tx: Tx, owner: str, session_id: str, position: int, limit: int) -> Script[list[Event]]:
    session = yield from get_session(tx, owner, session_id)
    if position < session.pruned_through:  # guard: c10
        return [_snapshot(tx, session, session.pruned_through)]
    if position > session.session.position:  # guard: c10
        # A cursor from before a backup was restored. The reader starts again from here; otherwise it would
        # skip everything up to its old position.
        return [_snapshot(tx, session, session.session.position)]
    rows = yield from EVENTS_AFTER.all(session.no, position, limit)
    turn_ids = yield from _turn_ids(session, rows)
    events: list[Event] = []
    for row in rows:
        try:
            events.append(event_of(row, session_id, turn_ids))
        except JournalCorrupt:
            if not events:
                raise
            break  # the events before it are returned first; the next read raises
    return events


def of_newer_kinds(tx: Tx, owner: str, session_id: str) -> Script[list[Event]]:
    session = yield from get_session(tx, owner, session_id)
    rows = yield from EVENTS_NEWER.all(session.no, known_kinds(tx.dialect))
    turn_ids = yield from _turn_ids(session, rows)
    return [event_of(row, session_id, turn_ids) for row in rows]


def _snapshot(tx: Tx, session: SessionRow, position: int) -> Event:
    """The event that stands for everything up to this position; what follows is in the journal."""
    payload = Snapshot(position=position, version=session.session.version)
    return Event(session.id, position, None, "snapshot", tx.now, encode(payload))


def _turn_ids(session: SessionRow, rows: Sequence[EventColumns]) -> Script[dict[int, str]]:
    numbers = [turn_no for _, turn_no, *_ in rows if turn_no is not None]
    if not numbers:
        return {}
    found = yield from TURN_IDS.all(session.no, min(numbers), max(numbers))
    return {turn.turn_no: turn.id for turn in found}


def _of_turn(tx: Tx, owner: str, turn_id: str) -> Script[list[Event]]:
    turn = yield from find_turn(turn_id)
    if turn is None or turn.turn.owner != owner:
        raise NotFound("turn", turn_id)
    session = yield from get_session_by_no(turn.session_no)
    return (yield from journal_of(session, turn))


def _is_unbroken(events: Sequence[Event]) -> bool:
    if len(events) == 1:
        return True
    first = events[0].position
    return all(event.position == first + index for index, event in enumerate(events))


# --- late delivery and recovery -----------------------------------------------------------------------


def deliver_late(tx: Tx, turn_id: str, epoch: int, events: tuple[Event, ...]) -> Script[int]:
    session, turn = yield from lock_turn(tx, turn_id)
    if turn.is_pruned:
        return 0  # the transcript is final and the journal is gone: there is nothing to merge these into
    writer = yield from WRITER.first(turn.no, epoch)
    if writer is None:
        raise WrongState(f"Turn {turn_id} never had an epoch {epoch}.", hint="The spool is not this store's.")
    if writer.is_sealed:
        return 0  # sealed: its worker had nothing more to write, so these are repeats
    known = set((yield from LATE_NUMBERS.all(session.no, turn.first_position, turn.no, epoch)))
    fresh = sorted((e for e in events if e.number not in known), key=lambda event: event.number)
    if not fresh:
        return 0
    yield from _insert_late(tx, session, turn, epoch, fresh)
    yield q("writer_number", turn.no, epoch, max(fresh[-1].number, writer.number))
    yield q("turn_late", turn.no)
    tx.touch(session.owner, session.id)
    return len(fresh)


def _insert_late(
    tx: Tx, session: SessionRow, turn: TurnRow, epoch: int, events: Sequence[Event]
) -> Script[None]:
    first = (yield from TAIL_POSITION.only(session.no, len(events))) - len(events) + 1
    many = []
    for index, event in enumerate(events):
        place = first + index
        crc = crc_of(event.data)
        many.append(
            (session.no, place, turn.no, epoch, event.number, session.owner, 1, event.at, crc, event.data)
        )
        tx.events.append(
            StoredEvents(session.id, place, turn.id, epoch, event.number, event.at, [event.data], True)
        )
    yield Query("event_insert", many=many)


def _seal(tx: Tx, turn_id: str, epoch: int) -> Script[None]:
    _, turn = yield from lock_turn(tx, turn_id)
    yield q("writer_seal", turn.no, epoch)


def _read_pending(tx: Tx, owner: str, session_id: str) -> Script[tuple[Session, bool]]:
    session = yield from shown_session(tx, owner, session_id)
    return session.session, bool((yield q("turns_pending", session.no)))


def _late_turns(tx: Tx, owner: str, session_id: str) -> Script[list[str]]:
    """Turns whose journal must be folded again."""
    session = yield from get_session(tx, owner, session_id)
    return [turn.id for row in (yield from TURNS_PENDING.all(session.no)) if (turn := turn_of(row)).is_late]


def _recover(
    tx: Tx,
    owner: str,
    session_id: str,
    attempts_max: int,
    age_max_ms: int,
    ahead: Mapping[str, JournalFold],
) -> Script[bool]:
    if tx.dialect == "postgresql" and not (yield q("session_try_lock", session_id, owner)):
        return False  # another worker is recovering it
    session = yield from get_session(tx, owner, session_id)
    changed = False
    for row in (yield from TURNS_PENDING.all(session.no)):
        turn = turn_of(row)
        folds = ahead.get(turn.id) or JournalFold(turn.id)
        changed = (yield from _recover_turn(tx, session, turn, attempts_max, age_max_ms, folds)) or changed
    return changed


def _recover_turn(
    tx: Tx, session: SessionRow, turn: TurnRow, attempts_max: int, age_max_ms: int, ahead: JournalFold
) -> Script[bool]:
    if turn.is_late:
        yield from ahead.catch_up(session, turn)
        if ahead.has_unknown:  # guard: g04
            return False  # left for a newer version, whose fold loses nothing (G04)
    if turn.is_late and turn.state is not TurnState.INTERRUPTED:  # guard: c09
        # Another worker has resumed and ended the turn: this is an attempt that was abandoned (C09).
        yield from _thread_late(tx, session, turn, ahead, is_recovered=False)
        return (yield from _set_recovery(tx, session, turn, turn.turn.recovery, turn.recovery_attempts))
    if turn.is_late:
        yield from _thread_late(tx, session, turn, ahead, is_recovered=True)
        return (yield from _set_recovery(tx, session, turn, Recovery.RECOVERED, 0))
    if tx.now - (turn.turn.ended_at or tx.now) > age_max_ms:  # guard: c06
        return (yield from _set_recovery(tx, session, turn, Recovery.FINAL, turn.recovery_attempts))
    if (yield q("writers_unsealed", turn.no)):  # guard: c06
        return False  # still arriving: costs no attempt, however often the session is read (C06)
    attempts = turn.recovery_attempts + 1
    recovery = Recovery.FINAL if attempts >= attempts_max else Recovery.PENDING
    return (yield from _set_recovery(tx, session, turn, recovery, attempts))


def _thread_late(
    tx: Tx, session: SessionRow, turn: TurnRow, ahead: JournalFold, *, is_recovered: bool
) -> Script[None]:
    """Write the whole fold again: late events take their place by (epoch, number)."""
    folded = ahead.result(is_recovered=is_recovered)
    yield from delete_answers(tx, session, turn.no)  # guard: c05
    yield from add_messages(tx, session, turn.no, folded.messages)  # guard: c05
    yield q("turn_outcome", turn.no, to_json(folded.usage), timeline_json(folded.timeline))


def _set_recovery(
    tx: Tx, session: SessionRow, turn: TurnRow, recovery: Recovery, attempts: int
) -> Script[bool]:
    recovered_at = tx.now if recovery is Recovery.RECOVERED else turn.turn.recovered_at
    yield q("turn_recovery", turn.no, recovery.value, attempts, recovered_at)
    if recovery is Recovery.PENDING:
        return True
    version = yield from bump(tx, session)
    yield from refresh(tx, session)
    yield from add_change_event(tx, session, "recovered", version, session.session.head)
    return True
