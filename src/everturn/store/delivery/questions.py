"""Approvals and questions in chats: asked once, and shown as answered once (F04)."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain.asks import Ask
from everturn.domain.delivery import AnswerDue, AskDue, NewPart, PartState, PartStatus
from everturn.store.delivery.chats import chat_of, find_chat, lock_owned_chat
from everturn.store.delivery.replies import find_unseen_words, numbers_of, put_parts, record_parts
from everturn.store.scripts.common import lock_session
from everturn.store.scripts.queries.delivery import (
    ANSWERS_DUE,
    ASKS_DUE,
    PARTS_OF_KEY,
    AskDueColumns,
    PartColumns,
)
from everturn.store.scripts.queries.turns import ASK
from everturn.store.scripts.rows import ask_of
from everturn.store.scripts.script import Script, Tx, q


def asks_due(tx: Tx, account: str, limit: int) -> Script[list[AskDue]]:
    found = []
    for row in (yield from ASKS_DUE.all(account, limit)):
        ask = yield from _ask(row)
        asked = yield from find_unseen_words(row.chat_no, ask.turn_id)
        found.append(AskDue(chat_of(row), ask, asked))
    return found


def record_question(
    tx: Tx, due: AskDue, parts: Sequence[NewPart], age_max_ms: int, words: Sequence[NewPart]
) -> Script[bool]:
    chat = yield from lock_owned_chat(tx, due.chat.owner, due.chat.id)
    # The rows refer to the turn, which must not be purged between the look and the insert.
    yield from lock_session(tx, due.chat.owner, due.ask.session_id)
    turn = yield from numbers_of(due.ask.turn_id)
    if words:
        yield from put_parts(tx, chat, f"asked:{due.ask.turn_id}", words, age_max_ms, turn)
    if not (yield from put_parts(tx, chat, f"ask:{due.ask.id}", parts, age_max_ms, turn)):  # guard: f04
        return False
    owed = tx.ids.make("out")
    key = f"answered:{due.ask.id}"
    yield q("outbox_owe", owed, chat.chat_no, key, turn.session_no, turn.turn_no, tx.now)
    return True


def answers_due(tx: Tx, account: str, limit: int) -> Script[list[AnswerDue]]:
    found = []
    for row in (yield from ANSWERS_DUE.all(account, limit)):
        ask = yield from _ask(row)
        question = yield from PARTS_OF_KEY.all(row.chat_no, f"ask:{ask.id}")
        found.append(AnswerDue(row.outbox_id, chat_of(row), ask, tuple(map(status_of, question))))
    return found


def record_answer(tx: Tx, due: AnswerDue, parts: Sequence[NewPart], age_max_ms: int) -> Script[bool]:
    chat = yield from lock_owned_chat(tx, due.chat.owner, due.chat.id)
    return (yield from record_parts(tx, chat, due.outbox_id, parts, age_max_ms))


def find_parts(tx: Tx, owner: str, chat_id: str, key: str) -> Script[list[PartStatus]]:
    chat = yield from find_chat(tx, owner, chat_id)
    return [status_of(row) for row in (yield from PARTS_OF_KEY.all(chat.chat_no, key))]


def _ask(row: AskDueColumns) -> Script[Ask]:
    return ask_of((yield from ASK.only(row.ask_id, row.owner)))


def status_of(row: PartColumns) -> PartStatus:
    return PartStatus(
        id=row.id,
        outbox_id=row.outbox_id,
        chat_id=row.chat_id,
        number=row.number,
        state=PartState(row.state),
        attempts=row.attempts,
        is_repeat=bool(row.is_repeat),
        turn_id=row.turn_id,
        external_id=row.external_id,
        error=row.error,
        changed_at=row.changed_at,
    )
