"""Live messages: one line in the chat while a turn runs, which its answer replaces (F03)."""

from __future__ import annotations

from everturn.domain.delivery import AccountLease, NewPart, PartState, ReplyUnderway
from everturn.store.delivery.chats import chat_of, lock_owned_chat
from everturn.store.delivery.leases import is_present_lease
from everturn.store.delivery.replies import live_key, numbers_of, put_parts
from everturn.store.scripts.common import lock_session
from everturn.store.scripts.queries.delivery import REPLIES_UNDERWAY
from everturn.store.scripts.script import Script, Tx, q


def replies_underway(tx: Tx, account: str, limit: int) -> Script[list[ReplyUnderway]]:
    return [
        ReplyUnderway(
            chat=chat_of(row),
            session_id=row.in_session,
            turn_id=row.turn_id,
            first_position=row.first_position,
            started_at=row.started_at or tx.now,
            is_shown=row.live_state is not None,
            live_id=row.live_id if row.live_state == PartState.SENT else None,
        )
        for row in (yield from REPLIES_UNDERWAY.all(account, limit))
    ]


def is_underway(tx: Tx, lease: AccountLease, underway: ReplyUnderway) -> Script[bool]:
    if not (yield from is_present_lease(lease)):
        return False
    return bool((yield q("reply_is_underway", underway.chat.id, underway.turn_id)))


def put_live(tx: Tx, underway: ReplyUnderway, part: NewPart, age_max_ms: int) -> Script[bool]:
    owner, turn_id = underway.chat.owner, underway.turn_id
    chat = yield from lock_owned_chat(tx, owner, underway.chat.id)
    yield from lock_session(tx, owner, underway.session_id)
    # Not after the answer: under the chat's lock it cannot be recorded meanwhile.
    if not (yield q("reply_is_underway", underway.chat.id, turn_id)):  # guard: f03
        return False
    # Nor before the answer of an earlier turn, which would then come below it.
    if (yield q("answer_is_due_before", underway.chat.id, turn_id)):
        return False
    turn = yield from numbers_of(turn_id)
    return (yield from put_parts(tx, chat, live_key(turn_id), [part], age_max_ms, turn))
