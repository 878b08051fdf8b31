"""Queries of schedules and their occurrences."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue


class ScheduleColumns(Columns, frozen=True):
    schedule_no: int
    id: str
    owner: str
    version: int
    settings: str  # JSON
    session_id: str | None
    due_at: int | None
    look_at: int | None
    paused_at: int | None
    pause_reason: str
    created_at: int


class OccurrenceColumns(Columns, frozen=True):
    id: str
    due_at: int
    fate: str
    reason: str
    is_manual: int
    created_at: int
    turn_id: str | None
    session_id: str | None
    turn_state: str | None
    ended_at: int | None
    failure: str | None  # JSON
    started_at: int | None
    usage: str | None  # JSON


class TroubledColumns(ScheduleColumns, frozen=True):
    """A schedule with its latest run, if that failed."""

    run_id: str | None
    run_turn: str | None
    run_session: str | None
    run_ended_at: int | None
    run_failure: str | None  # JSON


class ActiveRun(Columns, frozen=True):
    id: str
    state: str


SCHEDULE: Select[[str], ScheduleColumns] = Select("schedule_get", ScheduleColumns)
SCHEDULES: Select[[str, str, int], ScheduleColumns] = Select("schedules_list", ScheduleColumns)
SCHEDULES_COUNT: SelectValue[[str], int] = SelectValue("schedules_count")
SCHEDULES_DUE: Select[[int, int], ScheduleColumns] = Select("schedules_due", ScheduleColumns)
SCHEDULES_FROM_THE_FUTURE: Select[[int, int], ScheduleColumns] = Select(
    "schedules_from_the_future", ScheduleColumns
)
SCHEDULE_OF_TURN: Select[[str, str], ScheduleColumns] = Select("schedule_of_turn", ScheduleColumns)
SCHEDULES_TROUBLED: Select[[str, int], TroubledColumns] = Select("schedules_troubled", TroubledColumns)
NEXT_LOOK: SelectValue[[], int | None] = SelectValue("schedules_next_look")
OCCURRENCE_INSERT: SelectValue[[str, int, int, str, str, int, int], int] = SelectValue("occurrence_insert")
OCCURRENCE: Select[[int], OccurrenceColumns] = Select("occurrence_get", OccurrenceColumns)
OCCURRENCES: Select[[int, int, int], OccurrenceColumns] = Select("occurrences_list", OccurrenceColumns)
ACTIVE_RUNS: Select[[int], ActiveRun] = Select("occurrences_active", ActiveRun)
