"""Replies: owed to a chat with its turn, recorded as parts once the turn has ended (F03)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain.delivery import AskedElsewhere, NewPart, PartState, ReplyDue, ToolActivity
from everturn.domain.errors import NotFound
from everturn.domain.messages import Message, Result, Role, Text
from everturn.domain.turns import Failure, TurnState
from everturn.store.delivery.chats import chat_of, find_chat, lock_owned_chat
from everturn.store.scripts.common import lock_session
from everturn.store.scripts.queries.delivery import (
    LIVE_PART,
    OUTBOX_PUT,
    OUTBOX_RECORD,
    REPLIES_DUE,
    TURN_NUMBERS_BY_ID,
    UNSEEN_WORDS,
    ChatColumns,
    TurnNumbers,
)
from everturn.store.scripts.queries.messages import MESSAGE_FIRST, MESSAGES_OF_TURN
from everturn.store.scripts.rows import message_of, to_json
from everturn.store.scripts.script import Query, Script, Tx, q
from everturn.store.turn_files import files_of_turns

_ANSWER_FIRST = "The answer was ready first."
_failure = msgspec.json.Decoder(Failure)


def owe_reply(tx: Tx, chat_no: int, turn_id: str) -> Script[int]:
    """Owe the chat a reply to this turn, once; return the turn's number."""
    turn = yield from numbers_of(turn_id)
    outbox_id = tx.ids.make("out")
    yield q("outbox_owe", outbox_id, chat_no, f"turn:{turn_id}", turn.session_no, turn.turn_no, tx.now)
    return turn.turn_no


def replies_due(tx: Tx, account: str, limit: int) -> Script[list[ReplyDue]]:
    found = []
    for row in (yield from REPLIES_DUE.all(account, limit)):
        messages = yield from messages_of(row.turn_no, row.turn_id)
        found.append(
            ReplyDue(
                outbox_id=row.outbox_id,
                chat=chat_of(row),
                session_id=row.in_session,
                turn_id=row.turn_id,
                state=TurnState(row.state),
                epoch=row.epoch,
                answer=last_text(messages),
                failure=_failure.decode(row.failure) if row.failure else None,
                asked=(yield from find_unseen_words(row.chat_no, row.turn_id)),
                files=(yield from files_of_turns([row.turn_id])).get(row.turn_id),
                live_id=row.live_id,
                is_live_last=bool(row.is_live_last),
                activity=_count_calls(messages),
            )
        )
    return found


def find_unseen_words(chat_no: int, turn_id: str) -> Script[AskedElsewhere | None]:
    """The words that a turn answers, if its chat has not seen them."""
    row = yield from UNSEEN_WORDS.first(chat_no, turn_id)
    if row is None:
        return None
    first = yield from MESSAGE_FIRST.first(row.turn_no)
    text = "" if first is None else message_of(first, turn_id).text
    return AskedElsewhere(text, row.asked_on or "")


def is_asked_here(tx: Tx, owner: str, chat_id: str, turn_id: str) -> Script[bool]:
    chat = yield from find_chat(tx, owner, chat_id)
    return bool((yield q("is_asked_here", chat.chat_no, turn_id)))


def messages_of(turn_no: int, turn_id: str) -> Script[list[Message]]:
    return [message_of(row, turn_id) for row in (yield from MESSAGES_OF_TURN.all(turn_no))]


def last_text(messages: Sequence[Message]) -> str:
    """The last message of a turn with text that was not abandoned."""
    for message in reversed(messages):
        parts = message.parts if message.role == Role.ASSISTANT else ()
        text = "".join(part.text for part in parts if isinstance(part, Text) and not part.is_abandoned)
        if text.strip():
            return text
    return ""


def _count_calls(messages: Sequence[Message]) -> ToolActivity:
    """Of calls that ran: one that was refused has no duration."""
    activity = ToolActivity()
    for message in messages:
        for part in message.parts:
            if isinstance(part, Result) and part.duration_ms is not None:
                activity = activity.add(part.name, part.duration_ms)
    return activity


def record_reply(tx: Tx, due: ReplyDue, parts: Sequence[NewPart], age_max_ms: int) -> Script[bool]:
    chat = yield from lock_owned_chat(tx, due.chat.owner, due.chat.id)
    if not (yield from _end_live(tx, chat.chat_no, due)):
        return False
    if due.state is TurnState.INTERRUPTED:
        # The turn may be resumed and completed: its reply stays owed, and this is a message of its own.
        # Its row refers to the session, which must not be purged between the look and the insert.
        yield from lock_session(tx, due.chat.owner, due.session_id)
        turn = yield from numbers_of(due.turn_id)
        key = f"interrupted:{due.turn_id}:{due.epoch}"
        return (yield from put_parts(tx, chat, key, parts, age_max_ms, turn))
    return (yield from record_parts(tx, chat, due.outbox_id, parts, age_max_ms))


def _end_live(tx: Tx, chat_no: int, due: ReplyDue) -> Script[bool]:
    """Drop the live message if it still waits. False if ``due`` is outdated, because the message is being
    sent or was sent since; the reply cannot be recorded yet then."""
    key = live_key(due.turn_id)
    yield q("live_end", chat_no, key, _ANSWER_FIRST, tx.now)
    live = yield from LIVE_PART.first(chat_no, key)
    if live is None or live.state in (PartState.HELD, PartState.UNDELIVERED):
        return True
    return live.state == PartState.SENT and live.external_id == due.live_id  # guard: f03


def live_key(turn_id: str) -> str:
    return f"live:{turn_id}"


def record_parts(
    tx: Tx, chat: ChatColumns, outbox_id: str, parts: Sequence[NewPart], age_max_ms: int
) -> Script[bool]:
    """Write the parts of what was owed; False if that was done already."""
    outbox_no = yield from OUTBOX_RECORD.first(outbox_id, tx.now)
    if outbox_no is None:  # guard: f03 f04
        return False
    yield from add_parts(tx, chat, outbox_no, parts, age_max_ms)
    return True


def put_message(
    tx: Tx, owner: str, chat_id: str, key: str, parts: Sequence[NewPart], age_max_ms: int
) -> Script[bool]:
    chat = yield from lock_owned_chat(tx, owner, chat_id)
    return (yield from put_parts(tx, chat, key, parts, age_max_ms))


def put_parts(
    tx: Tx,
    chat: ChatColumns,
    key: str,
    parts: Sequence[NewPart],
    age_max_ms: int,
    turn: TurnNumbers | None = None,
) -> Script[bool]:
    session_no, turn_no = (None, None) if turn is None else (turn.session_no, turn.turn_no)
    outbox_id = tx.ids.make("out")
    outbox_no = yield from OUTBOX_PUT.first(outbox_id, chat.chat_no, key, session_no, turn_no, tx.now)
    if outbox_no is None:  # guard: f03
        return False
    yield from add_parts(tx, chat, outbox_no, parts, age_max_ms)
    return True


def add_parts(
    tx: Tx, chat: ChatColumns, outbox_no: int, parts: Sequence[NewPart], age_max_ms: int
) -> Script[None]:
    """Under the chat's lock, so that the numbers of parts are the order in which they are sent."""
    if not parts:
        return
    give_up_at = tx.now + age_max_ms
    rows = [
        (
            tx.ids.make("prt"),
            outbox_no,
            chat.chat_no,
            chat.account,
            number,
            to_json(part),
            tx.now,
            give_up_at,
        )
        for number, part in enumerate(parts)
    ]
    yield Query("part_insert", many=rows)


def numbers_of(turn_id: str) -> Script[TurnNumbers]:
    found = yield from TURN_NUMBERS_BY_ID.first(turn_id)
    if found is None:
        raise NotFound("turn", turn_id)
    return found
