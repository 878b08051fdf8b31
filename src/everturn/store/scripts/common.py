"""Steps that several scripts share: lock a session, add events, move the head."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from everturn.domain.errors import (
    Busy,
    Gone,
    Invalid,
    JournalCorrupt,
    KeyReused,
    NotFound,
    Stale,
    TextTooLong,
)
from everturn.domain.events import Event, Payload, SessionChanged, encode
from everturn.domain.ids import check_id
from everturn.domain.messages import Message, Role
from everturn.domain.sessions import Session, SessionKind
from everturn.domain.store_values import Request
from everturn.domain.turns import TurnState
from everturn.store.scripts.queries.delegates import DELEGATE_RIGHTS
from everturn.store.scripts.queries.events import EVENTS_OF_TURN, EventColumns
from everturn.store.scripts.queries.messages import MESSAGES_OF_TURN_AFTER_FIRST, IndexedText
from everturn.store.scripts.queries.sessions import (
    META_GET,
    REQUEST_GET,
    SESSION,
    SESSION_BY_NO,
    SESSION_OF_TURN,
    TAIL_MOVE,
    TAIL_POSITION,
)
from everturn.store.scripts.queries.turns import (
    ANY_MACHINE,
    CLAIMABLE_IN_SESSION,
    TURN,
    TURN_BY_NO,
    TURN_PARENT,
)
from everturn.store.scripts.rows import (
    SessionRow,
    TurnRow,
    crc_of,
    event_of,
    message_columns,
    session_of,
    turn_of,
)
from everturn.store.scripts.script import IndexBroken, Query, Script, StoredEvents, Tx, q

PREVIEW_CHARS = 160
# Values of turns.is_off_path. Memory is owed a turn on the shown path and one that clear took off it, but not
# one that undo, retry, edit or select took out.
ON_PATH, TAKEN_OUT, CLEARED = 0, 1, 2
_SURROGATE = re.compile("[\ud800-\udfff]")


def get_session(tx: Tx, owner: str, session_id: str) -> Script[SessionRow]:
    """The session without its lock, for reading."""
    row = yield from SESSION.first(session_id, owner)
    if row is None:
        raise (yield from _not_found(owner, session_id))
    return session_of(row)


def shown_session(tx: Tx, owner: str, session_id: str) -> Script[SessionRow]:
    """Like ``session_row``, for a user's request: a deleted session is refused (Gone). Its turns go on, so
    that undoing the deletion brings everything back."""
    return _refuse_deleted((yield from get_session(tx, owner, session_id)))


def locked_shown_session(tx: Tx, owner: str, session_id: str) -> Script[SessionRow]:
    return _refuse_deleted((yield from lock_session(tx, owner, session_id)))


def _refuse_deleted(session: SessionRow) -> SessionRow:
    if session.is_deleted:
        raise Gone("session", session.id)
    return session


def _not_found(owner: str, session_id: str) -> Script[Gone | NotFound]:
    """The error that says why there is no such session."""
    check_id(session_id, "ses")
    is_deleted = bool((yield q("tombstone", session_id, owner)))
    return Gone("session", session_id) if is_deleted else NotFound("session", session_id)


def get_session_by_no(session_no: int) -> Script[SessionRow]:
    return session_of((yield from SESSION_BY_NO.only(session_no)))


def lock_session(tx: Tx, owner: str, session_id: str) -> Script[SessionRow]:
    """Take the session's lock, then read it as it is under the lock."""
    if tx.dialect == "postgresql":
        # Two statements: a locking SELECT would return columns of joined rows as they were before it
        # waited for the lock.
        yield q("session_lock", session_id, owner)  # guard: a07 postgresql
    return (yield from get_session(tx, owner, session_id))


def lock_turn(tx: Tx, turn_id: str, owner: str | None = None) -> Script[tuple[SessionRow, TurnRow]]:
    """Take the lock of the turn's session, then read both. ``owner`` None: the engine asks."""
    found = yield from SESSION_OF_TURN.first(turn_id)
    if found is None or (owner is not None and found.owner != owner):
        check_id(turn_id, "trn")
        raise NotFound("turn", turn_id)
    session = yield from lock_session(tx, found.owner, found.id)
    turn = yield from find_turn(turn_id)
    if turn is None:
        raise NotFound("turn", turn_id)
    return session, turn


def get_turn(turn_no: int) -> Script[TurnRow]:
    return turn_of((yield from TURN_BY_NO.only(turn_no)))


def find_turn(turn_id: str) -> Script[TurnRow | None]:
    row = yield from TURN.first(turn_id)
    return None if row is None else turn_of(row)


class EventPlace(msgspec.Struct, frozen=True):
    """Where events belong: a turn, an epoch of it, and the number of the first."""

    turn: TurnRow | None
    epoch: int
    number: int


OF_SESSION = EventPlace(None, 0, 0)  # of events that belong to no turn


def add_events(
    tx: Tx,
    session: SessionRow,
    place: EventPlace,
    payloads: Sequence[Payload],
    *,
    is_activity: bool = True,
) -> Script[int]:
    """Append events under the session's lock; return the last position.

    ``is_activity`` False leaves ``updated_at`` as it was (A05).
    """
    count = len(payloads)
    if is_activity:
        last = yield from TAIL_MOVE.only(session.no, count, tx.now)
    else:
        last = yield from TAIL_POSITION.only(session.no, count)
    first = last - count + 1
    epoch, number = place.epoch, place.number
    turn_no = place.turn.no if place.turn else None
    turn_id = place.turn.id if place.turn else None
    data = [encode(payload) for payload in payloads]
    many = [
        (session.no, first + i, turn_no, epoch, number + i, session.owner, 0, tx.now, crc_of(item), item)
        for i, item in enumerate(data)
    ]
    tx.events.append(StoredEvents(session.id, first, turn_id, epoch, number, tx.now, data))
    yield Query("event_insert", many=many)
    return last


def journal_of(session: SessionRow, turn: TurnRow, *, skips_damage: bool = False) -> Script[list[Event]]:
    """The turn's events in (epoch, number) order, checked. ``skips_damage``: only the good ones, for a turn
    that has to get its end whatever the disk has done to it. Raises JournalCorrupt otherwise."""
    rows = yield from EVENTS_OF_TURN.all(session.no, turn.first_position, turn.no)
    return events_in(rows, session, turn, skips_damage=skips_damage)


def events_in(
    rows: Sequence[EventColumns], session: SessionRow, turn: TurnRow, *, skips_damage: bool
) -> list[Event]:
    """The events of these rows of a turn, checked."""
    events = []
    for row in rows:
        try:
            events.append(event_of(row, session.id, {turn.no: turn.id}))
        except JournalCorrupt:
            if not skips_damage:
                raise
    return events


def bump(tx: Tx, session: SessionRow, *, is_transcript: bool = True) -> Script[int]:
    """The session's version grows: its transcript changed, or (``is_transcript`` False) only its queue."""
    yield q("session_bump", session.no, int(is_transcript))
    tx.touch(session.owner, session.id)
    return session.session.version + 1


def refresh(tx: Tx, session: SessionRow) -> Script[None]:
    """Recompute the session's row in the list."""
    yield q("session_refresh", session.no)
    tx.touch(session.owner, session.id)
    if session.kind == SessionKind.DELEGATE:
        above = yield from DELEGATE_RIGHTS.first(session.id)
        if above is not None:
            tx.touch(session.owner, above.root_id)  # its row counts the asks of its delegates


def add_change_event(tx: Tx, session: SessionRow, what: str, version: int, head: str | None) -> Script[None]:
    event = SessionChanged(version=version, what=what, head=head)
    yield from add_events(tx, session, OF_SESSION, [event], is_activity=False)


def add_messages(tx: Tx, session: SessionRow, turn_no: int, messages: Sequence[Message]) -> Script[None]:
    if not messages:
        return
    many = []
    for message in messages:
        flags, text, parts = message_columns(message)
        many.append(
            (
                session.owner,
                session.no,
                turn_no,
                message.ordinal,
                message.role.value,
                flags,
                message.model,
                message.created_at,
                text,
                parts,
            )
        )
    yield Query("message_insert", many=many)
    spoken = [m.text for m in messages if m.role is not Role.TOOL and m.text]
    yield q("session_said", session.no, len(messages), preview_of(spoken[-1] if spoken else ""))


def preview_of(text: str) -> str:
    """What lists show of a session's last message."""
    return " ".join(text.split())[:PREVIEW_CHARS]


def delete_answers(tx: Tx, session: SessionRow, turn_no: int) -> Script[None]:
    """Delete a turn's messages, except the user's first, from the transcript and the index."""
    rows = yield from MESSAGES_OF_TURN_AFTER_FIRST.all(turn_no)
    if not rows:
        return
    yield from unindex(tx, rows)
    yield q("messages_delete_turn", turn_no)
    yield q("session_said", session.no, -len(rows), "")


def unindex(tx: Tx, messages: Sequence[IndexedText]) -> Script[None]:
    """Remove those messages from the search index that are in it."""
    if tx.dialect == "postgresql":
        return  # its rows go with their messages
    after, through = yield from read_watermarks()
    leaving = [message for message in messages if message.message_no <= through]
    if not leaving:
        return
    try:
        yield Query("index_remove", many=[(m.message_no, m.text) for m in leaving])
        recent = [(m.message_no, m.text) for m in leaving if m.message_no > after]
        yield Query("index_recent_remove", many=recent)
    except IndexBroken:
        yield from renew_index()


def read_watermarks() -> Script[tuple[int, int]]:
    """Two message numbers: after the first, messages are in SQLite's index of recent ones too; up to the
    second they are indexed at all."""
    recent_after = yield from META_GET.first("recent_after")
    through = yield from META_GET.first("indexed_through")
    return int(recent_after or 0), int(through or 0)


def renew_index() -> Script[None]:
    """A broken index never makes a write fail (A06): it is derived, so it is dropped and fills again."""
    for name in ("index", "index_recent"):
        yield q(f"{name}_drop")
        yield q(f"{name}_create")
        yield q(f"{name}_secure")
    yield q("meta_put", "indexed_through", "0")


def reindex(tx: Tx, message_no: int, old: str, new: str) -> Script[None]:
    """Update a message in the search index. One that is not indexed yet will be indexed with its new text."""
    if tx.dialect == "postgresql":
        yield q("index_again", message_no)
        return
    yield from unindex(tx, [IndexedText(message_no, old)])
    # Asked afterwards: where the index was broken and dropped, it fills again from the beginning.
    after, through = yield from read_watermarks()
    if message_no <= through:
        try:
            yield q("index_add", message_no, new)
            if message_no > after:
                yield q("index_recent_add", message_no, new)
        except IndexBroken:
            yield from renew_index()


def move_head(
    tx: Tx, session: SessionRow, head_no: int | None, *, redo_no: int | None = None, is_clear: bool = False
) -> Script[None]:
    """Move the end of the transcript, and mark the turns that leave or join the shown path. ``is_clear``:
    turns that leave stay owed to memory."""
    leaving, joining = yield from paths_apart(session.head_no, head_no)
    for path, flag in ((leaving, CLEARED if is_clear else TAKEN_OUT), (joining, ON_PATH)):
        for turn_no in path:
            yield q("turn_path_flag", turn_no, flag)
    yield q("session_head", session.no, head_no, redo_no, int(is_clear))


def paths_apart(old: int | None, new: int | None) -> Script[tuple[list[int], list[int]]]:
    """The turns that leave and those that join if the head moves from one turn to another, each from the
    head on.

    Stepping back from both ends in turn meets at the last common turn: the cost is the difference between
    the paths, never their length. The numbers of the turns do not help: one that was overtaken in the
    queue is older than its parent.
    """
    leaving, joining = [old or 0], [new or 0]
    seen = ({leaving[0]}, {joining[0]})
    while leaving[-1] not in seen[1] and joining[-1] not in seen[0]:
        for path, passed in zip((leaving, joining), seen, strict=True):
            if path[-1]:
                row = yield from TURN_PARENT.first(path[-1])
                path.append((row.parent_no or 0) if row else 0)
                passed.add(path[-1])
    common = leaving[-1] if leaving[-1] in seen[1] else joining[-1]
    return leaving[: leaving.index(common)], joining[: joining.index(common)]


def refuse_busy(session: SessionRow) -> Script[None]:
    """Refuse while a turn runs or waits, or is about to run: one that is accepted and that no worker has
    claimed yet. Its sender means to undo that one, not the turn before it."""
    value = session.session
    if value.active_turn is not None:  # guard: a13
        raise Busy(value.id, value.active_turn, str(value.active_state or TurnState.RUNNING))
    if value.queued:
        following = yield from next_turn(session)
        if following is not None:
            raise Busy(value.id, following.id, str(following.state))


def next_turn(session: SessionRow) -> Script[TurnRow | None]:
    """The turn that the next claim of this session takes."""
    turn_no = yield from CLAIMABLE_IN_SESSION.first(session.no, ANY_MACHINE)
    return None if turn_no is None else (yield from get_turn(turn_no))


def refuse_text(text: str, bytes_max: int) -> None:
    """Refuse a message that is too long or cannot be stored."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise TextTooLong(size, bytes_max)
    if "\0" in text or (not text.isascii() and _SURROGATE.search(text)):
        raise Invalid("The text has a character that cannot be stored.", hint="Remove it, then send.")


def refuse_stale(session: SessionRow, version: int | None) -> None:
    if version is not None and version != session.session.version:
        raise Stale(session.id, version, session.session.version)


# --- idempotency --------------------------------------------------------------------------------------


def digest_of(*things: object) -> str:
    """A digest of what a request asks for: it distinguishes a repeat from a reused key."""
    return hashlib.sha256(msgspec.json.encode(things)).hexdigest()


def find_answer(session: SessionRow, request: Request, digest: str) -> Script[str | None]:
    """The answer this key had before, if it was used; KeyReused if for something else."""
    if request.key is None:
        return None
    known = yield from REQUEST_GET.first(session.no, request.key)
    if known is None:
        return None
    if known.digest != digest:  # guard: a01
        raise KeyReused(request.key)
    return known.answer


def save_answer(tx: Tx, session: SessionRow, request: Request, digest: str, answer: str) -> Script[None]:
    if request.key is not None:
        yield q("request_put", session.no, request.key, session.owner, digest, answer, tx.now)


def get_session_again(session: SessionRow) -> Script[Session]:
    return (yield from get_session_by_no(session.no)).session
