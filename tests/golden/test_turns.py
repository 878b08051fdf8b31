"""The page's fixtures are those of the present fold, and hold every kind of event."""

from __future__ import annotations

import json

from everturn.domain.fold import FOLDED_KINDS
from tests.golden import turns

# They change a turn's state or the session, and neither a message nor the timeline.
NOT_FOLDED = {
    "turn.accepted",
    "turn.started",
    "turn.waiting",
    "progress",
    "files.changed",
    "files.moved",
    "budget.reached",
    *turns.SESSION_KINDS,
}


def test_the_pages_fixtures_are_those_of_the_fold() -> None:
    assert turns.FILE.read_bytes() == turns.fixtures(), "run 'python -m tests.golden.turns'"


def test_every_kind_of_event_is_in_a_turn() -> None:
    held = {
        event["event"]["kind"] for turn in json.loads(turns.fixtures())["turns"] for event in turn["events"]
    }
    assert held == set(turns.kinds()) - turns.SESSION_KINDS


def test_the_fold_knows_every_kind_of_event() -> None:
    assert set(turns.kinds()) == FOLDED_KINDS | NOT_FOLDED
    assert not FOLDED_KINDS & NOT_FOLDED
