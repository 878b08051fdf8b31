"""Where the head goes when the conversation moves."""

from __future__ import annotations

from everturn.domain.errors import NotFound, NothingToDo, WrongState
from everturn.domain.working_copies import Move
from everturn.store.scripts.common import find_turn, get_turn
from everturn.store.scripts.queries.turns import PATH, TURN_NEWEST_CHILD
from everturn.store.scripts.rows import SessionRow, TurnRow
from everturn.store.scripts.script import Script

_WHOLE_PATH = 1 << 30


def find_target(session: SessionRow, move: Move, turn_id: str | None) -> Script[int | None]:
    """The turn that a move makes the head, or the one that a repeated turn follows; None: the start.

    Raises NothingToDo, NotFound, WrongState.
    """
    if move is Move.UNDO:
        return (yield from undo_target(session))
    if move is Move.REDO:
        return (yield from redo_target(session))
    if move is Move.SELECT:
        return (yield from select_target(session, turn_id))
    if move is Move.RETRY:
        return (yield from turn_in(session, turn_id)).parent_no
    return None


def undo_target(session: SessionRow) -> Script[int | None]:
    if session.head_no is None:
        raise NothingToDo(f"Session {session.id} has no turn to undo.")
    return (yield from get_turn(session.head_no)).parent_no


def redo_target(session: SessionRow) -> Script[int]:
    if session.redo_no is None:
        raise NothingToDo(f"Session {session.id} has nothing to redo.")
    if session.redo_all:
        return session.redo_no
    path = yield from PATH.all(session.redo_no, _WHOLE_PATH)
    place = path.index(session.head_no) if session.head_no in path else len(path)
    return path[place - 1]


def select_target(session: SessionRow, turn_id: str | None) -> Script[int]:
    turn = yield from turn_in(session, turn_id)
    if not turn.has_parent:
        raise WrongState(f"Turn {turn.id} never began: there is nothing of it to show.")
    tip = turn.no
    while child := (yield from TURN_NEWEST_CHILD.first(session.no, tip)):
        tip = child
    return tip


def turn_in(session: SessionRow, turn_id: str | None) -> Script[TurnRow]:
    """The named turn of this session, or its head."""
    if turn_id is None:
        if session.head_no is None:
            raise NothingToDo(f"Session {session.id} has no turn yet.")
        return (yield from get_turn(session.head_no))
    turn = yield from find_turn(turn_id)
    if turn is None or turn.session_no != session.no:  # guard: d06
        raise NotFound("turn", turn_id)
    return turn
