"""Notifications: owed by the transaction that causes them, to each device that wants their kind (F10)."""

from __future__ import annotations

import msgspec

from everturn.domain.asks import Ask, AskTopic
from everturn.domain.notifications import ANSWER_AFTER_MS, GRACE_MS, DeviceKind, NoticeKind
from everturn.domain.schedules import ScheduleSettings
from everturn.domain.sessions import SessionKind
from everturn.store.scripts.queries.notifications import DEVICES, NOTE_OWE, RUN_OF_TURN, DeviceColumns
from everturn.store.scripts.rows import SessionRow, TurnRow
from everturn.store.scripts.script import Script, Tx, q

WORDS_CHARS_MAX = 1_000
_settings = msgspec.json.Decoder(ScheduleSettings)


class NoticeCause(msgspec.Struct, frozen=True):
    """``id``: of what happened. ``words``: what only this transaction knows of it. ``time``: when, of
    what can happen again."""

    kind: NoticeKind
    id: str
    session_no: int | None = None
    turn_no: int | None = None
    words: str = ""
    time: int | None = None


def owe_notices(tx: Tx, owner: str, cause: NoticeCause) -> Script[None]:
    for device in (yield from DEVICES.all(owner)):
        is_wanted = cause.kind.value in device.kinds.split()
        if is_wanted and device.ended_at is None:  # guard: f10 always
            yield from owe_notice(tx, device, cause)


def owe_notice(
    tx: Tx, device: DeviceColumns, cause: NoticeCause, *, grace_ms: int = GRACE_MS
) -> Script[str | None]:
    """Owe the device this notification, once; return its id."""
    if device.device_kind == DeviceKind.CHAT and cause.session_no is not None:
        # A second message would say what the chat is told anyway.
        found = yield q("note_in_chat", device.device_chat_no, cause.session_no, cause.turn_no)
        if found:  # guard: f10
            return None
    key = f"note:{cause.kind}:{cause.id}" + ("" if cause.time is None else f":{cause.time}")
    outbox_no = yield from NOTE_OWE.first(
        tx.ids.make("out"), device.device_chat_no, key, cause.session_no, cause.turn_no, tx.now
    )
    if outbox_no is None:  # guard: f10
        return None
    note_id = tx.ids.make("ntf")
    words = cause.words[:WORDS_CHARS_MAX]
    due_at = tx.now + grace_ms
    yield q(
        "note_insert", note_id, outbox_no, device.device_no, cause.kind.value, cause.id, words, tx.now, due_at
    )
    return note_id


def owe_for_ask(tx: Tx, session: SessionRow, turn: TurnRow, ask: Ask) -> Script[None]:
    if ask.topic == AskTopic.DELEGATE:  # guard: f10
        return  # no person is asked
    kind = NoticeKind.BUDGET if ask.topic == AskTopic.BUDGET else NoticeKind.APPROVAL
    yield from owe_notices(tx, session.owner, NoticeCause(kind, ask.id, session.no, turn.no))


def owe_for_end(tx: Tx, session: SessionRow, turn: TurnRow, failure: str = "") -> Script[None]:
    """Called when a turn has completed or failed. A delegate's end is for its parent."""
    if session.kind == SessionKind.DELEGATE:  # guard: f10
        return
    run = (yield from RUN_OF_TURN.first(turn.no)) if failure else None
    if run is not None:
        words = f"{_settings.decode(run.settings).name}\n{failure}"
        cause = NoticeCause(NoticeKind.SCHEDULE, run.id, session.no, turn.no, words)
        yield from owe_notices(tx, session.owner, cause)
    elif tx.now - turn.turn.created_at >= ANSWER_AFTER_MS:  # guard: f10 always
        cause = NoticeCause(NoticeKind.ANSWER, turn.id, session.no, turn.no, failure)
        yield from owe_notices(tx, session.owner, cause)
