"""Tells the model what the user saved since the turn before, with the turn's message.

It is journaled before the first model call: a resumed turn, and every later one, gives the model the same.
"""

from __future__ import annotations

from typing import Final

from everturn.domain import events as ev
from everturn.domain.checkpoints import merge_changes
from everturn.domain.ids import message_id
from everturn.domain.messages import Message, Role, SavedFiles
from everturn.domain.store import Store
from everturn.domain.store_values import Claim
from everturn.engine.turn_log import TurnLog

LISTED_MAX: Final = 20


async def tell_saved(store: Store, log: TurnLog, claim: Claim) -> None:
    """Add a message to the turn that lists the files; none if there are none, or if the model was called
    already."""
    turn, said = claim.turn, log.fold().messages
    if log.progress.step or any(_is_told(message) for message in said):
        return
    saved = await store.checkpoints.of_user(turn.owner, turn.session_id, turn.parent_id)
    found = merge_changes(made.changes for made in saved)
    if not found.changed_total:
        return
    message = Message(
        id=message_id(turn.id, len(said) + 1),
        turn_id=turn.id,
        role=Role.USER,
        parts=(SavedFiles(found.changed[:LISTED_MAX], found.changed_total),),
        created_at=log.now_ms(),
    )
    await log.append(ev.MessageAdded(message))


def _is_told(message: Message) -> bool:
    return any(isinstance(part, SavedFiles) for part in message.parts)
