"""Queries of turns: rows, the queue, claims, steering, asks, and the workers that run them."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue

# --- turns ---------------------------------------------------------------------------------------------


class TurnColumns(Columns, frozen=True):
    """``readable_from``: the position of the turn's oldest event that was not pruned."""

    turn_no: int
    id: str
    session_id: str
    owner: str
    state: str
    epoch: int
    created_at: int
    kind: str
    parent_id: str | None
    model: str | None
    profile: str | None
    started_at: int | None
    ended_at: int | None
    attempts: int
    is_ready: int
    failure: str | None  # JSON
    recovery: str
    recovered_at: int | None
    usage: str | None  # JSON
    timeline: str | None  # JSON
    note: str
    session_no: int
    parent_no: int | None
    has_parent: int
    first_position: int
    ready_reason: str
    stopped_at: int | None
    recovery_attempts: int
    is_late: int
    worker: str | None
    is_pruned: int
    readable_from: int
    parameters: str | None  # JSON


class TurnName(Columns, frozen=True):
    turn_no: int
    id: str


class QueuePlaces(Columns, frozen=True):
    lowest: int
    highest: int
    count: int


class ClaimableTurn(Columns, frozen=True):
    turn_no: int
    session_no: int
    owner: str


class TurnOfWorker(Columns, frozen=True):
    id: str
    session_id: str
    owner: str
    epoch: int


class StateCount(Columns, frozen=True):
    state: str
    count: int


class ParentColumns(Columns, frozen=True):
    parent_no: int | None
    is_off_path: int


class WriterColumns(Columns, frozen=True):
    """``number``: of the last event that this epoch's worker wrote."""

    number: int
    is_sealed: int
    worker: str | None


class AppendState(Columns, frozen=True):
    turn_no: int
    session_no: int
    state: str
    epoch: int
    number: int | None
    session_id: str
    owner: str


class HeldEpoch(Columns, frozen=True):
    id: str
    epoch: int


class PrunableTurn(Columns, frozen=True):
    turn_no: int
    session_no: int
    first_position: int


TURN: Select[[str], TurnColumns] = Select("turn_row", TurnColumns)
TURN_BY_NO: Select[[int], TurnColumns] = Select("turn_row_by_no", TurnColumns)
TURN_INSERT: SelectValue[
    [str, str, int, int | None, int, int, str, str | None, str | None, str, int, int], int
] = SelectValue("turn_insert")
TURN_CLAIM: SelectValue[[int, str, int, int | None, int], int] = SelectValue("turn_claim")
TURN_TEXT: SelectValue[[int], str] = SelectValue("turn_text")
TURN_IDS: Select[[int, int, int], TurnName] = Select("turn_ids", TurnName)
TURN_NUMBERS: SelectValue[[int, str], int] = SelectValue("turn_numbers")
TURN_PARENT: Select[[int], ParentColumns] = Select("turn_parent", ParentColumns)
TURN_SIBLINGS: Select[[int, int], TurnName] = Select("turn_siblings", TurnName)
ROOT_SIBLINGS: Select[[int], TurnName] = Select("root_siblings", TurnName)
TURN_NEWEST_CHILD: SelectValue[[int, int], int] = SelectValue("turn_newest_child")
TURN_STATES: Select[[], StateCount] = Select("turn_states", StateCount)
TURN_LAST_POSITION: SelectValue[[int, int, int], int | None] = SelectValue("turn_last_position")
TURNS_OF_SESSION: Select[[int], TurnColumns] = Select("turns_of_session", TurnColumns)
TURNS_OF_WORKER: Select[[str], TurnOfWorker] = Select("turns_of_worker", TurnOfWorker)
TURNS_PENDING: Select[[int], TurnColumns] = Select("turns_pending", TurnColumns)
EVENTS_OTHER_KIND: SelectValue[[int, int, int, int, str | list[str]], int] = SelectValue("events_other_kind")
TURNS_TO_PRUNE: Select[[int, int], PrunableTurn] = Select("turns_to_prune", PrunableTurn)
QUEUE_PLACES: Select[[int], QueuePlaces] = Select("queue_places", QueuePlaces)
QUEUE_ROWS: Select[[int], TurnColumns] = Select("queue_rows", TurnColumns)
ANY_MACHINE = "%"  # a pattern of machines for the next two
CLAIMABLE: Select[[int, str], ClaimableTurn] = Select("claimable", ClaimableTurn)
CLAIMABLE_IN_SESSION: SelectValue[[int, str], int] = SelectValue("claimable_in_session")
PATH: SelectValue[[int, int], int] = SelectValue("path")
IMPORT_TURN: SelectValue[
    [
        str,
        str,
        int,
        str | None,
        str,
        str,
        int,
        int,
        str | None,
        str | None,
        str,
        int,
        int | None,
        int,
        str | None,
        str,
        int | None,
        str,
        str,
        int,
    ],
    int,
] = SelectValue("import_turn")
WRITER: Select[[int, int], WriterColumns] = Select("writer_get", WriterColumns)
APPEND_STATE: Select[[str, int], AppendState] = Select("append_state", AppendState)
HELD_EPOCHS: Select[[list[str]], HeldEpoch] = Select("held_epochs", HeldEpoch)  # PostgreSQL

# --- steering and asks ---------------------------------------------------------------------------------


class SteeringColumns(Columns, frozen=True):
    steering_no: int
    text: str
    attachments: str  # JSON
    created_at: int


class AskColumns(Columns, frozen=True):
    id: str
    session_id: str
    turn_id: str
    topic: str
    created_at: int
    call_id: str | None
    body: str  # JSON
    answer: str | None
    answered_by: str | None
    answered_at: int | None
    expires_at: int | None
    title: str
    root_session: str | None


class ExpiredAsk(Columns, frozen=True):
    id: str
    owner: str


STEERING_OF_TURN: Select[[int], SteeringColumns] = Select("steering_of_turn", SteeringColumns)
ASK: Select[[str, str], AskColumns] = Select("ask_get", AskColumns)
ASKS_OPEN: Select[[str, str], AskColumns] = Select("asks_open", AskColumns)
ASKS_ANSWERED: Select[[str, int, int], AskColumns] = Select("asks_answered", AskColumns)
ASKS_OPEN_OF_TURN: SelectValue[[int], int] = SelectValue("asks_open_of_turn")
ASKS_EXPIRED: Select[[int], ExpiredAsk] = Select("asks_expired", ExpiredAsk)

# --- workers -------------------------------------------------------------------------------------------


class WorkerColumns(Columns, frozen=True):
    id: str
    folder: str


WORKERS_ALL: Select[[], WorkerColumns] = Select("workers_all", WorkerColumns)
WORKERS_UNKNOWN: Select[[], WorkerColumns] = Select("workers_unknown", WorkerColumns)
WORKERS_EXPIRED: SelectValue[[], str] = SelectValue("workers_expired")  # PostgreSQL, like those below
WORKERS_FORGOTTEN: SelectValue[[int], str] = SelectValue("workers_forgotten")
WORKER_CLAIMS: SelectValue[[str], int | None] = SelectValue("worker_claims")
SESSIONS_LOCK_OF_WORKER: SelectValue[[str], int] = SelectValue("sessions_lock_of_worker")
