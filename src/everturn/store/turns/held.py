"""The turn that a worker holds: every write of the worker begins with this check."""

from __future__ import annotations

from everturn.domain.errors import Fenced, WrongState
from everturn.domain.turns import TurnState
from everturn.store.scripts.common import lock_turn
from everturn.store.scripts.queries.turns import WRITER
from everturn.store.scripts.rows import SessionRow, TurnRow
from everturn.store.scripts.script import Script, Tx


def lock_held_turn(
    tx: Tx, turn_id: str, epoch: int, number: int | None = None
) -> Script[tuple[SessionRow, TurnRow]]:
    """Lock the turn's session and read both. Raises Fenced if this worker no longer holds the turn,
    WrongState if its last event in the journal is not ``number``."""
    session, turn = yield from lock_turn(tx, turn_id)
    is_held = turn.state is TurnState.RUNNING and turn.turn.epoch == epoch and turn.worker is not None
    if not is_held:  # guard: c09 e01
        raise Fenced(turn_id, epoch, turn.state, turn.turn.epoch)
    if number is not None:
        writer = yield from WRITER.first(turn.no, epoch)
        last = writer.number if writer else 0
        if last != number:  # guard: a08
            raise WrongState(
                f"Turn {turn_id} has event {last} in its journal, its worker counted up to {number}.",
                hint="The writer must be quiet before the turn changes its state.",
            )
    return session, turn
