"""A turn as callers see it: with its text, and its place among its siblings."""

from __future__ import annotations

import msgspec

from everturn.domain.errors import (
    NotFound,
)
from everturn.domain.turns import Turn
from everturn.store.scripts.common import (
    find_turn,
)
from everturn.store.scripts.queries.turns import ROOT_SIBLINGS, TURN_SIBLINGS, TURN_TEXT
from everturn.store.scripts.rows import (
    TurnRow,
)
from everturn.store.scripts.script import Script, Tx


def with_text(turn: TurnRow) -> Script[Turn]:
    text = yield from TURN_TEXT.first(turn.no)
    return msgspec.structs.replace(turn.turn, text=text or "")


def with_siblings(turn: TurnRow) -> Script[Turn]:
    if turn.parent_no is None:
        siblings = yield from ROOT_SIBLINGS.all(turn.session_no)
    else:
        siblings = yield from TURN_SIBLINGS.all(turn.session_no, turn.parent_no)
    numbers = [sibling.turn_no for sibling in siblings]
    place = numbers.index(turn.no) + 1 if turn.no in numbers else 1
    ids = tuple(sibling.id for sibling in siblings) if len(siblings) > 1 else ()
    return msgspec.structs.replace(turn.turn, sibling=place, siblings=max(1, len(numbers)), sibling_ids=ids)


def get(tx: Tx, owner: str, turn_id: str) -> Script[Turn]:
    turn = yield from find_turn(turn_id)
    if turn is None or turn.turn.owner != owner:
        raise NotFound("turn", turn_id)
    text = yield from with_text(turn)
    return msgspec.structs.replace((yield from with_siblings(turn)), text=text.text)
