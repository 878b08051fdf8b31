"""Steering: messages that were sent into a running turn."""

from __future__ import annotations

from everturn.domain import events as ev
from everturn.domain.errors import (
    NotFound,
)
from everturn.domain.ids import message_id
from everturn.domain.messages import Message, Role
from everturn.store.scripts.common import (
    EventPlace,
    add_events,
)
from everturn.store.scripts.queries.turns import STEERING_OF_TURN, TURN
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns import endings
from everturn.store.turns.held import lock_held_turn


def has_steering(tx: Tx, turn_id: str) -> Script[bool]:
    turn = yield from TURN.first(turn_id)
    if turn is None:
        raise NotFound("turn", turn_id)
    return bool((yield q("steering_of_turn", turn.turn_no)))


def take_steering(tx: Tx, turn_id: str, epoch: int, number: int) -> Script[list[Message]]:
    session, turn = yield from lock_held_turn(tx, turn_id, epoch, number - 1)
    waiting = yield from STEERING_OF_TURN.all(turn.no)
    messages = [
        Message(
            id=message_id(turn_id, 0),
            turn_id=turn_id,
            role=Role.USER,
            parts=endings.steering_parts(sent.text, sent.attachments),
            created_at=sent.created_at,
            is_steering=True,
        )
        for sent in waiting
    ]
    if messages:
        payloads = [ev.MessageAdded(message=message) for message in messages]
        yield from add_events(tx, session, EventPlace(turn, epoch, number), payloads)
        yield q("writer_number", turn.no, epoch, number + len(messages) - 1)
        yield q("steering_delete", turn.no)  # guard: a16
    return messages
