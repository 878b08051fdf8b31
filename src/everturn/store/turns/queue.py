"""The queue of a session: list it, edit it, take a turn out of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain.errors import (
    WrongState,
)
from everturn.domain.messages import Text, untrusted_source
from everturn.domain.store_values import Request, TakenBack
from everturn.domain.turns import Turn, TurnState
from everturn.store.journal.fold import JournalFold
from everturn.store.scripts.common import (
    add_change_event,
    bump,
    digest_of,
    find_answer,
    find_turn,
    lock_turn,
    refuse_stale,
    reindex,
    save_answer,
    shown_session,
)
from everturn.store.scripts.queries.messages import MESSAGE_FIRST
from everturn.store.scripts.queries.turns import QUEUE_PLACES, QUEUE_ROWS
from everturn.store.scripts.rows import (
    SessionRow,
    TurnRow,
    message_columns,
    message_of,
    to_json,
    turn_of,
)
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns import endings
from everturn.store.turns.details import with_text

_ids: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])


def list_queue(tx: Tx, owner: str, session_id: str) -> Script[list[Turn]]:
    session = yield from shown_session(tx, owner, session_id)
    return (yield from queued_turns(session))


def queued_turns(session: SessionRow) -> Script[list[Turn]]:
    """The session's queued turns with their texts, in the order in which they will run."""
    turns = []
    for row in (yield from QUEUE_ROWS.all(session.no)):
        turns.append((yield from with_text(turn_of(row))))
    return turns


def _lock_queued(tx: Tx, owner: str, turn_id: str) -> Script[tuple[SessionRow, TurnRow]]:
    session, turn = yield from lock_turn(tx, turn_id, owner)
    if turn.state is not TurnState.QUEUED:
        raise WrongState(f"Turn {turn_id} is {turn.state}, not queued.", hint="It can be stopped or undone.")
    return session, turn


def edit_queued(
    tx: Tx, owner: str, turn_id: str, text: str | None, place: int | None, version: int | None
) -> Script[Turn]:
    session, turn = yield from _lock_queued(tx, owner, turn_id)
    refuse_stale(session, version)
    if text is not None:
        yield from _reword(tx, turn, text)
    if place is not None:
        yield from _move(session, turn, place)
    version = yield from bump(tx, session, is_transcript=False)
    yield from add_change_event(tx, session, "queue", version, session.session.head)
    return (yield from with_text(turn))


def _move(session: SessionRow, turn: TurnRow, place: int) -> Script[None]:
    """Renumber the queue, from its lowest place on."""
    rows = yield from QUEUE_ROWS.all(session.no)
    order = [found for row in rows if (found := turn_of(row)).no != turn.no]
    order.insert(max(0, place), turn)
    places = yield from QUEUE_PLACES.only(session.no)
    for number, found in enumerate(order, start=places.lowest):
        yield q("turn_place", found.no, number)


def _reword(tx: Tx, turn: TurnRow, text: str) -> Script[None]:
    first = yield from MESSAGE_FIRST.first(turn.no)
    if first is None:
        raise WrongState(f"Turn {turn.id} is a {turn.turn.kind}: it has no text.", hint="Remove it instead.")
    old = message_of(first, turn.id)
    reworded = Text(text, source=untrusted_source(old))
    parts = (reworded, *(part for part in old.parts if not isinstance(part, Text)))
    _, words, packed = message_columns(msgspec.structs.replace(old, parts=parts))
    yield q("message_text_update", turn.no, words, packed)
    yield from reindex(tx, first.message_no, first.text, words)


def remove_queued(tx: Tx, owner: str, turn_id: str) -> Script[None]:
    session, turn = yield from _lock_queued(tx, owner, turn_id)
    yield from endings.end_queued(tx, session, turn, endings.Ending(TurnState.CANCELLED, by="queue"))


def take_back(
    tx: Tx, owner: str, turn_id: str, by: str, key: str | None, ahead: JournalFold | None
) -> Script[TakenBack]:
    session, turn = yield from lock_turn(tx, turn_id, owner)
    request, digest = Request(key=key), digest_of("take_back", turn_id)
    before = yield from find_answer(session, request, digest)
    if before is not None:
        return (yield from _read_taken(turn.turn, _ids.decode(before)))
    # The end queues what steered the turn and was not taken in: it is taken back with the rest.
    ended = yield from endings.cancel(tx, owner, turn_id, by, ahead)
    ids = []
    for row in (yield from QUEUE_ROWS.all(session.no)):
        waiting = turn_of(row)
        yield from endings.end_queued(tx, session, waiting, endings.Ending(TurnState.CANCELLED, by="queue"))
        ids.append(waiting.id)
    yield from save_answer(tx, session, request, digest, to_json(ids))
    return (yield from _read_taken(ended, ids))


def _read_taken(turn: Turn, ids: Sequence[str]) -> Script[TakenBack]:
    messages = []
    for turn_id in ids:
        taken = yield from find_turn(turn_id)
        first = None if taken is None else (yield from MESSAGE_FIRST.first(taken.no))
        if first is not None:  # a compaction has no message
            messages.append(message_of(first, turn_id))
    return TakenBack(turn, tuple(messages))
