"""Queries of jobs."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue


class JobColumns(Columns, frozen=True):
    """``is_watched``: the server that watches it is alive."""

    job_no: int
    id: str
    session_id: str
    owner: str
    turn_id: str
    call_id: str
    state: str
    command: str
    workspace: str
    profile: str | None
    is_sandboxed: int
    when_ended: str
    machine: str | None
    boot_id: str
    worker: str | None
    output_bytes_max: int
    started_at: int
    stop_asked_at: int | None
    shown_bytes: int
    ended_at: int | None
    exit_code: int | None
    detail: str
    output_bytes: int
    output_file: str | None
    is_watched: int


JOB: Select[[str], JobColumns] = Select("job_get", JobColumns)
JOBS: Select[[str, str, int, int], JobColumns] = Select("jobs_list", JobColumns)
JOBS_LOST: Select[[str, int, int], JobColumns] = Select("jobs_lost", JobColumns)
JOBS_RUNNING: Select[[], JobColumns] = Select("jobs_running", JobColumns)
JOBS_RUNNING_COUNT: SelectValue[[int], int] = SelectValue("jobs_running_count")
JOBS_RUNNING_OF_SESSION: SelectValue[[int], str] = SelectValue("jobs_running_of_session")
