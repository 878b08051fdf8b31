"""Queries of the journal's events."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectTuples, SelectValue

EventColumns = tuple[int, int | None, int, int, int, int, int, bytes]
EVENT_COLUMNS = ("position", "turn_no", "epoch", "number", "is_late", "at", "crc", "data")


class ScannedEvent(Columns, frozen=True):
    session_no: int
    position: int
    crc: int
    data: bytes


EVENTS_AFTER: SelectTuples[[int, int, int], EventColumns] = SelectTuples("events_after", EVENT_COLUMNS)
EVENTS_OF_TURN: SelectTuples[[int, int, int], EventColumns] = SelectTuples("events_of_turn", EVENT_COLUMNS)
EVENTS_OF_TURN_FROM: SelectTuples[[int, int, int, int], EventColumns] = SelectTuples(
    "events_of_turn_from", EVENT_COLUMNS
)
EVENTS_NEWER: SelectTuples[[int, str | list[str]], EventColumns] = SelectTuples("events_newer", EVENT_COLUMNS)
EVENTS_SCAN: Select[[int, int, int], ScannedEvent] = Select("events_scan", ScannedEvent)
LATE_NUMBERS: SelectValue[[int, int, int, int], int] = SelectValue("late_numbers")
