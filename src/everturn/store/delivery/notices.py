"""Notifications: looked at before they are sent, dropped or taken back when their cause is gone (F10)."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain.delivery import NewPart, PartState
from everturn.domain.errors import WrongState
from everturn.domain.notifications import (
    ABOUT_ASKS,
    KEEP_MS,
    Notice,
    NoticeKind,
    NoticeState,
)
from everturn.store.delivery.chats import chat_of, lock_chat
from everturn.store.delivery.devices import device_of, find_device
from everturn.store.delivery.leases import lock_lease_row
from everturn.store.delivery.replies import add_parts, last_text, messages_of
from everturn.store.notices import NoticeCause, owe_notice
from everturn.store.scripts.queries.delivery import CHAT_AT, OUTBOX_RECORD
from everturn.store.scripts.queries.notifications import (
    NOTE,
    NOTE_MOVE,
    NOTE_PARTS,
    NOTE_STATE,
    NOTES_DUE,
    NOTES_OVER,
    NoteColumns,
)
from everturn.store.scripts.queries.turns import ASK
from everturn.store.scripts.rows import ask_of, to_json
from everturn.store.scripts.script import Database, Script, Tx, q

_PRUNE_BATCH = 500
_OVER = "Its cause was gone."


class Notices:
    """Implements ``domain.notifications.Notices``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def put_test(self, owner: str, device_id: str) -> str:
        return await self._db.write(_put_test, owner, device_id)

    async def due(self, *, limit: int) -> Sequence[Notice]:
        return await self._db.read(_due, limit)

    async def record(self, notice: Notice, part: NewPart | None) -> NoticeState | None:
        return await self._db.write(_record, notice, part)

    async def postpone(self, notice: Notice, until_ms: int) -> None:
        await self._db.write(_postpone, notice.id, until_ms)

    async def over(self, *, limit: int) -> Sequence[Notice]:
        return await self._db.read(_over, limit)

    async def withdraw(self, notice: Notice, part: NewPart | None) -> NoticeState | None:
        return await self._db.write(_withdraw, notice, part)

    async def prune(self, before_ms: int) -> int:
        # Looking first costs no write transaction when there is nothing to do (A03).
        if not await self._db.read(_is_aged, before_ms):
            return 0
        return await self._db.write(_prune, before_ms)

    async def state(self, notice_id: str) -> NoticeState | None:
        found = await self._db.read(_state, notice_id)
        return None if found is None else NoticeState(found)


def _put_test(tx: Tx, owner: str, device_id: str) -> Script[str]:
    device = yield from find_device(tx, owner, device_id)
    if device.ended_at is not None:
        raise WrongState(f"{device.name} is gone: nothing is sent there.", hint="Add it again.")
    note_id = yield from owe_notice(tx, device, NoticeCause(NoticeKind.TEST, tx.ids.make("tst")), grace_ms=0)
    assert note_id is not None  # noqa: S101 - its cause is new
    return note_id


# --- looking ------------------------------------------------------------------------------------------


def _due(tx: Tx, limit: int) -> Script[list[Notice]]:
    found = []
    for row in (yield from NOTES_DUE.all(tx.now, limit)):
        found.append((yield from _notice(row)))
    return found


def _over(tx: Tx, limit: int) -> Script[list[Notice]]:
    found = []
    for row in (yield from NOTES_OVER.all(limit)):
        found.append((yield from _notice(row)))
    return found


def _notice(row: NoteColumns) -> Script[Notice]:
    kind = NoticeKind(row.note_kind)
    asked = (yield from ASK.first(row.cause, row.owner)) if kind in ABOUT_ASKS else None
    ask = None if asked is None else ask_of(asked)
    answer = ""
    if kind is NoticeKind.ANSWER and row.turn_no is not None and row.turn_id is not None:
        answer = last_text((yield from messages_of(row.turn_no, row.turn_id)))
    return Notice(
        id=row.note_id,
        outbox_id=row.outbox_id,
        kind=kind,
        cause=row.cause,
        chat=chat_of(row),
        device=device_of(row),
        created_at=row.noted_at,
        due_at=row.due_at,
        is_standing=bool(row.is_standing),
        # A delegate's ask is seen in the session at the top of its tree.
        session_id=(None if ask is None else ask.root_session) or row.in_session,
        title=row.session_title or "",
        words=row.words,
        ask=ask,
        answer=answer,
    )


def _state(tx: Tx, notice_id: str) -> Script[str | None]:
    return (yield from NOTE_STATE.first(notice_id))


# --- settling -----------------------------------------------------------------------------------------


def _record(tx: Tx, notice: Notice, part: NewPart | None) -> Script[NoticeState | None]:
    row = yield from _lock(tx, notice)
    if row is None or (yield from OUTBOX_RECORD.first(row.outbox_id, tx.now)) is None:  # guard: f10
        return None
    is_standing = bool(row.is_standing) and row.ended_at is None  # guard: f10
    state = NoticeState.SHOWN if is_standing else NoticeState.DROPPED
    yield from NOTE_MOVE.first(notice.id, state.value, NoticeState.DUE.value)
    if is_standing and part is not None:
        yield from add_parts(tx, row, row.outbox_no, [part], KEEP_MS)
    return state


def _withdraw(tx: Tx, notice: Notice, part: NewPart | None) -> Script[NoticeState | None]:
    # The lease first: its sender claims parts under it, and what is deleted here must not be claimed now.
    yield q("lease_insert", notice.chat.place.account)
    yield from lock_lease_row(tx, notice.chat.place.account)
    row = yield from _lock(tx, notice)
    if row is None or row.note_state != NoticeState.SHOWN or row.is_standing:  # guard: f10
        return None
    parts = yield from NOTE_PARTS.all(row.outbox_no)
    if any(found.state == PartState.SENDING for found in parts):  # guard: f10
        return None
    is_unsent = bool((yield q("note_parts_waiting", row.outbox_no)))  # guard: f10
    state = NoticeState.DROPPED if is_unsent else NoticeState.WITHDRAWN
    yield from NOTE_MOVE.first(notice.id, state.value, NoticeState.SHOWN.value)
    if not is_unsent:
        yield q("note_parts_end", row.outbox_no, _OVER, tx.now)
    if part is not None and parts and not is_unsent and row.ended_at is None:
        gone = (tx.ids.make("prt"), row.outbox_no, to_json(part), tx.now, tx.now + KEEP_MS)
        yield q("note_part_gone", *gone)  # guard: f10
    return state


def _lock(tx: Tx, notice: Notice) -> Script[NoteColumns | None]:
    """Take the lock of the chat, then read the notification as it is under the lock."""
    place = notice.chat.place
    chat = yield from CHAT_AT.first(place.account, place.chat, place.thread)
    if chat is None:
        return None
    yield from lock_chat(tx, chat.chat_no)
    return (yield from NOTE.first(notice.id))


def _postpone(tx: Tx, notice_id: str, until_ms: int) -> Script[None]:
    yield q("note_postpone", notice_id, until_ms)


def _is_aged(tx: Tx, before_ms: int) -> Script[bool]:
    return bool((yield q("notes_aged", before_ms)))


def _prune(tx: Tx, before_ms: int) -> Script[int]:
    return len((yield q("notes_prune", before_ms, _PRUNE_BATCH)))
