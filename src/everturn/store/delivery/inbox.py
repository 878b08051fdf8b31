"""The inbox: an update is a row before it is acknowledged, and becomes a turn or a refusal later (F01)."""

from __future__ import annotations

import msgspec

from everturn.domain.delivery import (
    Chat,
    InboxState,
    Received,
    Refusal,
    Update,
    session_key,
)
from everturn.domain.errors import Gone, NotFound, WrongState
from everturn.domain.store_values import Accepted, Submission, WhenBusy
from everturn.store.delivery.chats import chat_of, lock_chat, lock_chat_at, set_session
from everturn.store.delivery.replies import owe_reply
from everturn.store.scripts.common import find_turn, lock_turn, next_turn, shown_session
from everturn.store.scripts.queries.delivery import (
    INBOX,
    INBOX_FIND,
    INBOX_FIRST,
    INBOX_PRUNE,
    INBOX_WAITING,
    InboxColumns,
)
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.sessions.sessions import start_session
from everturn.store.turns import submissions

PRUNED_MAX = 200  # in one transaction
_update = msgspec.json.Decoder(Update)
_refusal = msgspec.json.Decoder(Refusal)


class Inbox:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self._db = db
        self._text_bytes_max = text_bytes_max

    async def receive(self, owner: str, update: Update, *, profile: str) -> Received:
        return await self._db.write_urgent(_receive, owner, update, profile)

    async def list_waiting(self, account: str, *, limit: int) -> list[Received]:
        return await self._db.read(_list_waiting, account, limit)

    async def accept(self, inbox_id: str, submission: Submission) -> tuple[Received, Accepted | None]:
        submissions.check_submission(submission, self._text_bytes_max)
        return await self._db.write(_accept, inbox_id, submission)

    async def refuse(self, inbox_id: str, refusal: Refusal, *, turn_id: str | None = None) -> Received:
        return await self._db.write(_refuse, inbox_id, refusal, turn_id)

    async def prune(self, before_ms: int) -> int:
        # Looking first costs no write transaction when there is nothing to delete (A03).
        if not await self._db.read(_prunable, before_ms):
            return 0
        return await self._db.write(_prune, before_ms)


def _receive(tx: Tx, owner: str, update: Update, profile: str) -> Script[Received]:
    chat = yield from lock_chat_at(tx, owner, profile, update)
    known = yield from INBOX_FIND.first(update.place.account, update.id)
    if known is not None:  # guard: f01
        return msgspec.structs.replace(_to_received(known), is_repeat=True)
    last = chat.last_number
    is_late = (
        update.number is not None and last is not None and update.number < last  # guard: f02
    )
    inbox_id = tx.ids.make("inb")
    yield q(
        "inbox_insert",
        inbox_id,
        update.place.account,
        update.id,
        chat.chat_no,
        tx.now,
        int(is_late),
        to_json(update),
    )
    newest = last if is_late or update.number is None else update.number
    yield q("chat_seen", chat.chat_no, newest, update.chat_title or chat.title)
    return _to_received((yield from INBOX.only(inbox_id)))


def _list_waiting(tx: Tx, account: str, limit: int) -> Script[list[Received]]:
    return [_to_received(row) for row in (yield from INBOX_WAITING.all(account, limit))]


def _accept(tx: Tx, inbox_id: str, submission: Submission) -> Script[tuple[Received, Accepted | None]]:
    row = yield from _lock(tx, inbox_id)
    asked = msgspec.structs.replace(submission, key=f"inbox:{inbox_id}")
    if row.state != InboxState.RECEIVED:  # guard: f01
        return _to_received(row), (yield from _first_answer(row))
    yield from _refuse_overtaking(row)
    chat = chat_of(row)
    session_id = yield from _current_session(tx, row, chat)
    accepted = yield from submissions.accept(tx, chat.owner, session_id, asked)
    turn_no = yield from owe_reply(tx, row.chat_no, accepted.turn.id)
    yield q("inbox_settle", row.inbox_no, InboxState.ACCEPTED.value, tx.now, turn_no, None)
    settled = _to_received((yield from INBOX.only(inbox_id)))
    if not accepted.is_steering and asked.when_busy != WhenBusy.INTERRUPT:
        session = yield from shown_session(tx, chat.owner, session_id)
        first = yield from next_turn(session)
        behind = session.session.active_turn or (None if first is None else first.id)
        if behind != accepted.turn.id:
            settled = msgspec.structs.replace(settled, behind=behind)
    return settled, accepted


def _refuse(tx: Tx, inbox_id: str, refusal: Refusal, turn_id: str | None) -> Script[Received]:
    row = yield from _lock(tx, inbox_id)
    if row.state == InboxState.RECEIVED:
        yield from _refuse_overtaking(row)
        turn_no = None if turn_id is None else (yield from _lock_turn(tx, row.owner, turn_id))
        yield q("inbox_settle", row.inbox_no, InboxState.REFUSED.value, tx.now, turn_no, to_json(refusal))
    return _to_received((yield from INBOX.only(inbox_id)))


def _lock_turn(tx: Tx, owner: str, turn_id: str) -> Script[int | None]:
    """The number of the turn, which cannot be purged any more in this transaction; None if it was."""
    try:
        _, turn = yield from lock_turn(tx, turn_id, owner)
    except NotFound:
        return None
    return turn.no


def _lock(tx: Tx, inbox_id: str) -> Script[InboxColumns]:
    """Lock the row's chat, then read the row as it is under the lock."""
    row = yield from INBOX.first(inbox_id)
    if row is None:
        raise NotFound("received message", inbox_id)
    yield from lock_chat(tx, row.chat_no)
    return (yield from INBOX.only(inbox_id))


def _refuse_overtaking(row: InboxColumns) -> Script[None]:
    if (yield from INBOX_FIRST.first(row.chat_no)) != row.inbox_no:  # guard: f02
        raise WrongState(
            f"An earlier message of the chat than {row.inbox_id} is not settled.",
            hint="Accept or refuse the messages of a chat in their order.",
        )


def _current_session(tx: Tx, row: InboxColumns, chat: Chat) -> Script[str]:
    """The chat's session; a new one if it has none, or if a user deleted it."""
    if chat.session_id is not None:
        try:
            return (yield from shown_session(tx, chat.owner, chat.session_id)).id
        except (Gone, NotFound):
            pass  # a new one follows
    session = yield from start_session(tx, chat.owner, session_key(chat.profile, chat.place), chat.profile)
    yield from set_session(tx, row, session.id)
    return session.id


def _first_answer(row: InboxColumns) -> Script[Accepted | None]:
    turn = None if row.turn_id is None else (yield from find_turn(row.turn_id))
    if turn is None:
        return None
    return Accepted(turn.turn, turn.turn.first_position - 1, is_repeat=True)


def _prunable(tx: Tx, before_ms: int) -> Script[bool]:
    return bool((yield q("inbox_prunable", before_ms)))


def _prune(tx: Tx, before_ms: int) -> Script[int]:
    pruned = yield from INBOX_PRUNE.all(before_ms, PRUNED_MAX)
    for row in pruned:
        yield q("outbox_prune", row.chat_no, f"inbox:{row.inbox_id}")
    return len(pruned)


def _to_received(row: InboxColumns) -> Received:
    return Received(
        id=row.inbox_id,
        chat=chat_of(row),
        state=InboxState(row.state),
        received_at=row.received_at,
        update=_update.decode(row.body) if row.body else None,
        is_late=bool(row.is_late),
        turn_id=row.turn_id,
        refusal=_refusal.decode(row.refusal) if row.refusal else None,
    )
