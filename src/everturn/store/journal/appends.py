"""Decides about appends: which events may enter the journal, which are there already, at which position.

Both databases call this under their locks; they differ only in how they read and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from everturn.domain.errors import EverturnError, Fenced, NotFound, WrongState
from everturn.store.scripts.script import Append, StoredEvents


class TurnFacts(NamedTuple):
    """What never changes about a turn, so that one lookup is enough."""

    turn_no: int
    session_no: int
    session_id: str
    owner: str


class TurnNow(NamedTuple):
    """A turn as it is now. ``number`` is its writer's last event in the journal; -1: it has no writer."""

    facts: TurnFacts
    state: str
    epoch: int
    number: int
    position: int


class FactsCache:
    """A bounded cache of the facts of turns."""

    def __init__(self, facts_max: int) -> None:
        self._facts: dict[str, TurnFacts] = {}
        self._facts_max = facts_max

    def unknown(self, turn_ids: Iterable[str]) -> list[str]:
        return [turn_id for turn_id in turn_ids if turn_id not in self._facts]

    def learn(self, facts: Mapping[str, TurnFacts]) -> None:
        if len(self._facts) + len(facts) > self._facts_max:
            self._facts.clear()
        self._facts.update(facts)

    def forget(self, turn_id: str) -> None:
        self._facts.pop(turn_id, None)

    def of(self, turn_ids: Iterable[str]) -> dict[str, TurnFacts]:
        """Those that are known."""
        return {turn_id: self._facts[turn_id] for turn_id in turn_ids if turn_id in self._facts}


class PendingAppend(Protocol):
    """A caller's append and its outcome."""

    append: Append
    result: int
    error: EverturnError | None


class EventRun(msgspec.Struct):
    """Consecutive events of one turn with the same time."""

    facts: TurnFacts
    turn_id: str
    epoch: int
    position: int  # of the first, like ``number``
    number: int
    at: int
    data: list[bytes]

    @property
    def last_position(self) -> int:
        return self.position + len(self.data) - 1

    @property
    def last_number(self) -> int:
        return self.number + len(self.data) - 1

    @property
    def stored(self) -> StoredEvents:
        facts = self.facts
        return StoredEvents(
            facts.session_id, self.position, self.turn_id, self.epoch, self.number, self.at, self.data
        )


def plan(items: Iterable[PendingAppend], found: Mapping[str, TurnNow], now: int) -> list[list[EventRun]]:
    """Decide about each item: refused, repeated (skipped), or new. Fills in the results; returns what is to
    be written, turn by turn. A batch that is sent again is decided again."""
    by_turn: dict[tuple[str, int], list[PendingAppend]] = {}
    for item in items:
        by_turn.setdefault((item.append.turn_id, item.append.epoch), []).append(item)
    planned: list[list[EventRun]] = []
    for (turn_id, epoch), own in by_turn.items():
        turn = found.get(turn_id)
        refusal = _refusal(turn_id, epoch, turn)
        if turn is None or refusal is not None:
            for item in own:
                item.error, item.result = refusal, 0
        elif runs := _runs(turn_id, turn, own, now):
            planned.append(runs)
    return planned


def _refusal(turn_id: str, epoch: int, found: TurnNow | None) -> EverturnError | None:
    """Why this epoch may not write to the turn, if it may not."""
    if found is None:
        return NotFound("turn", turn_id)
    if found.state == "running" and found.epoch == epoch and found.number >= 0:  # guard: a12 c09 always
        return None
    return Fenced(turn_id, epoch, found.state, found.epoch)


def _runs(turn_id: str, found: TurnNow, items: Sequence[PendingAppend], now: int) -> list[EventRun]:
    runs: list[EventRun] = []
    number, position = found.number, found.position
    for item in items:
        append = item.append
        item.error, item.result = None, 0
        skip = number + 1 - append.first_number
        if skip < 0:
            item.error = WrongState(
                f"Turn {turn_id} has events up to {number}; the batch begins at {append.first_number}.",
                hint="Send the events between them first.",
            )
            continue
        fresh = append.data[skip:] if skip else append.data
        if fresh:
            at = append.at or now
            if runs and runs[-1].at == at:
                runs[-1].data += fresh
            else:
                runs.append(
                    EventRun(found.facts, turn_id, found.epoch, position + 1, number + 1, at, [*fresh])
                )
            number += len(fresh)
            position += len(fresh)
        item.result = position
    return runs
