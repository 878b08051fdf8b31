"""What turns changed in their workspace, from their checkpoints, and how these are merged into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from everturn.domain.checkpoints import Cause, Changes, TurnFiles, merge_changes
from everturn.store.checkpoints import body_of
from everturn.store.scripts.queries.files import CHANGES_OF_TURNS, CHECKPOINTS_OF_TURN, CheckpointColumns
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Script, encode_list, q

SHOWN_MAX: Final = 20  # changes of a turn on a page of messages
_changes = msgspec.json.Decoder(Changes)


def files_of_turns(turn_ids: Iterable[str]) -> Script[dict[str, TurnFiles]]:
    """By turn, without turns that changed nothing."""
    steps: dict[str, list[Changes]] = {}
    for row in (yield from CHANGES_OF_TURNS.all(encode_list(turn_ids))):
        steps.setdefault(row.turn_id, []).append(_changes.decode(row.body))
    merged = {turn_id: merge_changes(each) for turn_id, each in steps.items()}
    return {
        turn_id: TurnFiles(found.changed[:SHOWN_MAX], found.changed_total)
        for turn_id, found in merged.items()
        if found.changed_total
    }


def thin_checkpoints(turn_no: int) -> Script[None]:
    """Keep the last checkpoint that the turn made, and the last one of what was changed after it.

    The one that the workspace holds stays, too, and what a restore replaced: no other checkpoint has it.
    """
    rows = yield from CHECKPOINTS_OF_TURN.all(turn_no)
    for is_of_turn in (True, False):
        for group in _groups([row for row in rows if (row.epoch > 0) is is_of_turn]):
            if len(group) > 1:
                yield from _merge(group)


def _groups(rows: Sequence[CheckpointColumns]) -> list[list[CheckpointColumns]]:
    """The rows that become one: of one folder. A group ends with what a user changed if a restore then
    replaced it."""
    groups: list[list[CheckpointColumns]] = []
    for row in rows:
        is_restored = row.cause == Cause.RESTORED
        last = groups[-1][-1] if groups else None
        is_after = last is not None and body_of(last).project == body_of(row).project
        if last and is_after and not (is_restored and last.cause in (Cause.FOUND, Cause.SAVED)):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _merge(group: Sequence[CheckpointColumns]) -> Script[None]:
    *others, last = group
    merged = merge_changes(_changes.decode(row.body) for row in group)
    body = msgspec.structs.replace(body_of(last), **msgspec.structs.asdict(merged))
    for row in others:
        yield q("checkpoint_thin", row.checkpoint_no)
    yield q("checkpoint_merge", last.checkpoint_no, group[0].before, to_json(body))
