"""The queries that return rows: the arguments they take and the columns they give, named and typed.

The text of a query is in ``sql/`` under the same name. Flags are integers there, 0 or 1.
"""

from __future__ import annotations

import msgspec

from everturn.store.scripts.script import Select, SelectTuples, SelectValue


class Columns(msgspec.Struct, frozen=True, gc=False):
    """A row. ``gc`` off: it holds plain values only, and costs half as much without."""


# --- meta ---------------------------------------------------------------------------------------------

META_GET: SelectValue[[str], str] = SelectValue("meta_get")

# --- sessions -----------------------------------------------------------------------------------------


class SessionColumns(Columns, frozen=True):
    session_no: int
    id: str
    owner: str
    version: int
    position: int
    created_at: int
    updated_at: int
    title: str
    is_title_given: int
    key: str
    head: str | None
    redo_to: str | None
    pinned: int
    archived: int
    private: int
    tags: str  # JSON
    project: str | None
    profile: str | None
    model: str | None
    active_turn: str | None
    active_state: str | None
    last_state: str | None
    queued: int
    asks: int
    is_unread: int
    messages: int
    preview: str
    head_no: int | None
    redo_no: int | None
    redo_all: int
    active_no: int | None
    pruned_through: int
    transcript_version: int
    kind: str
    deleted_at: int | None


class SessionOfTurn(Columns, frozen=True):
    session_no: int
    id: str
    owner: str


class DeletedSession(Columns, frozen=True):
    id: str
    owner: str
    deleted_at: int


class SessionCounts(Columns, frozen=True):
    sessions: int
    archived: int


class SessionNo(Columns, frozen=True):
    session_no: int
    id: str


class TitleColumns(Columns, frozen=True):
    """``text``: what the session is found by; empty where it has no row in ``titles``."""

    session_no: int
    id: str
    title: str
    tags: str  # JSON
    text: str


SESSION: Select[[str, str], SessionColumns] = Select("session_row", SessionColumns)
SESSION_BY_NO: Select[[int], SessionColumns] = Select("session_row_by_no", SessionColumns)
SESSION_INSERT: SelectValue[[str, str, str, int, str, int, int, str | None, str | None, str | None], int] = (
    SelectValue("session_insert")
)
SESSION_NO_OF_ID: SelectValue[[str], int] = SelectValue("session_no_of_id")
SESSION_OF_TURN: Select[[str], SessionOfTurn] = Select("session_no_of_turn", SessionOfTurn)
SESSION_LIST: Select[[str, int, int, int, int], SessionColumns] = Select("session_list", SessionColumns)
SESSION_LIST_MATCHING: Select[[str, int, int, int, int, int, str], SessionColumns] = Select(
    "session_list_matching", SessionColumns
)
SESSION_LIST_TITLED: Select[[str, int, int, int, int, int, str, str, int], SessionColumns] = Select(
    "session_list_titled", SessionColumns
)
SESSION_LIST_INDEXED: Select[[str, int, int, int, int, int, str, str, str | list[str]], SessionColumns] = (
    Select("session_list_indexed", SessionColumns)
)
SESSION_COUNTS: Select[[str], SessionCounts] = Select("session_counts", SessionCounts)
SESSIONS_ALL: Select[[], SessionNo] = Select("sessions_all", SessionNo)
SESSIONS_DELETED: Select[[], DeletedSession] = Select("sessions_deleted", DeletedSession)
SESSIONS_ON_KEY: SelectValue[[str, str], str] = SelectValue("sessions_on_key")
WAITING_SESSIONS: Select[[str], SessionColumns] = Select("waiting_sessions", SessionColumns)
TAIL_MOVE: SelectValue[[int, int, int], int] = SelectValue("tail_move")
TAIL_POSITION: SelectValue[[int, int], int] = SelectValue("tail_position")
TITLE_GET: SelectValue[[int], str] = SelectValue("title_get")
TITLES_ALL: Select[[], TitleColumns] = Select("titles_all", TitleColumns)

# --- requests -----------------------------------------------------------------------------------------


class RequestColumns(Columns, frozen=True):
    digest: str
    answer: str


class CreationColumns(Columns, frozen=True):
    digest: str
    session_id: str


REQUEST_GET: Select[[int, str], RequestColumns] = Select("request_get", RequestColumns)
CREATION_GET: Select[[str, str], CreationColumns] = Select("creation_get", CreationColumns)

# --- turns --------------------------------------------------------------------------------------------


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
CLAIMABLE: Select[[int], ClaimableTurn] = Select("claimable", ClaimableTurn)
CLAIMABLE_IN_SESSION: SelectValue[[int], int] = SelectValue("claimable_in_session")
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

# --- events -------------------------------------------------------------------------------------------

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

# --- messages -----------------------------------------------------------------------------------------


class MessageColumns(Columns, frozen=True):
    message_no: int
    turn_no: int
    ordinal: int
    role: str
    flags: int
    model: str
    created_at: int
    text: str
    parts: bytes | None  # JSON


class PathMessage(MessageColumns, frozen=True):
    turn_id: str


class PagedMessage(Columns, frozen=True):
    """A message on the path to the head; all None but the last two for a turn without one."""

    message_no: int | None
    turn_no: int | None
    ordinal: int
    role: str
    flags: int
    model: str
    created_at: int
    text: str
    parts: bytes | None
    turn_id: str
    parent_no: int | None


class IndexedText(Columns, frozen=True):
    message_no: int
    text: str


MESSAGE_FIRST: Select[[int], MessageColumns] = Select("message_first", MessageColumns)
MESSAGES_OF_TURN: Select[[int], MessageColumns] = Select("messages_of_turn", MessageColumns)
MESSAGES_OF_SESSION: Select[[int], MessageColumns] = Select("messages_of_session", MessageColumns)
MESSAGES_OF_TURN_AFTER_FIRST: Select[[int], IndexedText] = Select("messages_of_turn_after_first", IndexedText)
MESSAGE_NUMBERS_OF_SESSION: Select[[int], IndexedText] = Select("message_numbers_of_session", IndexedText)
PATH_PAGE: Select[[int, int, int, int], PagedMessage] = Select("path_page", PagedMessage)
NEWEST_SUMMARY: Select[[int], PathMessage] = Select("newest_summary", PathMessage)
CONTEXT_MESSAGES: Select[[int, int, int], PathMessage] = Select("context_messages", PathMessage)
OUTSIDE_MESSAGES: Select[[int, int], PathMessage] = Select("outside_messages", PathMessage)
SUMMARIES_OF_SESSION: Select[[int], PathMessage] = Select("summaries_of_session", PathMessage)

# --- steering and asks --------------------------------------------------------------------------------


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


class ExpiredAsk(Columns, frozen=True):
    id: str
    owner: str


STEERING_OF_TURN: Select[[int], SteeringColumns] = Select("steering_of_turn", SteeringColumns)
ASK: Select[[str, str], AskColumns] = Select("ask_get", AskColumns)
ASKS_OPEN: Select[[str, str], AskColumns] = Select("asks_open", AskColumns)
ASKS_OPEN_OF_TURN: SelectValue[[int], int] = SelectValue("asks_open_of_turn")
ASKS_EXPIRED: Select[[int], ExpiredAsk] = Select("asks_expired", ExpiredAsk)

# --- checkpoints --------------------------------------------------------------------------------------


class CheckpointColumns(Columns, frozen=True):
    checkpoint_no: int
    id: str
    session_id: str
    turn_id: str
    call_id: str | None
    epoch: int
    created_at: int
    before: str
    tree: str
    body: str  # JSON


class CheckpointTree(Columns, frozen=True):
    checkpoint_no: int
    tree: str


CHECKPOINT_INSERT: SelectValue[[str, int, int, str | None, int, int, str, str, str], int] = SelectValue(
    "checkpoint_insert"
)
CHECKPOINT_LAST: Select[[int], CheckpointColumns] = Select("checkpoint_last", CheckpointColumns)
CHECKPOINTS_OF_TURN: Select[[int], CheckpointColumns] = Select("checkpoints_of_turn", CheckpointColumns)
CHECKPOINT_TREES: Select[[int, int], CheckpointTree] = Select("checkpoint_trees", CheckpointTree)

# --- files --------------------------------------------------------------------------------------------


class FileColumns(Columns, frozen=True):
    id: str
    owner: str
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: int
    kind: str


class FilePlace(Columns, frozen=True):
    """A file, and the pack that holds its bytes; None if no row says where they are."""

    id: str
    name: str
    damaged_at: int | None
    place: str | None
    path: str | None
    pack_size: int | None


FILE: Select[[str, str], FileColumns] = Select("file_get", FileColumns)
FILES_UNUSED: SelectValue[[int, int], str] = SelectValue("files_unused")
FILES_ALL: Select[[], FilePlace] = Select("files_all", FilePlace)
FILES_HASHES: SelectValue[[str, int], str] = SelectValue("files_hashes")
FILES_WITHOUT_BYTES: SelectValue[[], str] = SelectValue("files_without_bytes")

# --- blobs --------------------------------------------------------------------------------------------


class FoundBlob(Columns, frozen=True):
    sha256: str
    size: int
    touched_at: int


class BlobPlace(Columns, frozen=True):
    size: int
    pack: str
    place: str
    path: str
    start: int
    checksums: bytes | None


class PackedBlob(Columns, frozen=True):
    sha256: str
    size: int


class PackColumns(Columns, frozen=True):
    id: str
    place: str
    path: str
    size: int


BLOBS_FIND: Select[[str], FoundBlob] = Select("blobs_find", FoundBlob)  # a list in JSON
BLOB_PLACE: Select[[str], BlobPlace] = Select("blob_place", BlobPlace)
BLOBS_IN_PACK: SelectValue[[str], int] = SelectValue("blobs_in_pack")
BLOBS_OF_PACK: Select[[str], PackedBlob] = Select("blobs_of_pack", PackedBlob)
BLOBS_TO_MARK: SelectValue[[str, int, int], str] = SelectValue("blobs_to_mark")
BLOBS_MARKED: SelectValue[[str, int], str] = SelectValue("blobs_marked")
BLOBS_TO_MOVE: SelectValue[[int], str] = SelectValue("blobs_to_move")
PACKS_TO_DELETE: Select[[int], PackColumns] = Select("packs_to_delete", PackColumns)
PACKS_ALL: Select[[], PackColumns] = Select("packs_all", PackColumns)
PACK_BYTES_SIZE: SelectValue[[str], int] = SelectValue("pack_bytes_size")
PACK_PIECES: SelectValue[[str, int, int, int, int], bytes] = SelectValue("pack_pieces")

# --- workers ------------------------------------------------------------------------------------------


class WorkerColumns(Columns, frozen=True):
    id: str
    folder: str


WORKERS_ALL: Select[[], WorkerColumns] = Select("workers_all", WorkerColumns)
WORKERS_UNKNOWN: Select[[], WorkerColumns] = Select("workers_unknown", WorkerColumns)
WORKERS_EXPIRED: SelectValue[[], str] = SelectValue("workers_expired")  # PostgreSQL, like those below
WORKERS_FORGOTTEN: SelectValue[[int], str] = SelectValue("workers_forgotten")
WORKER_CLAIMS: SelectValue[[str], int | None] = SelectValue("worker_claims")
SESSIONS_LOCK_OF_WORKER: SelectValue[[str], int] = SelectValue("sessions_lock_of_worker")

# --- memory -------------------------------------------------------------------------------------------


class OwedColumns(Columns, frozen=True):
    turn_no: int
    turn_id: str
    provider: str
    handle: str


class CommitColumns(Columns, frozen=True):
    provider: str
    handle: str
    from_turn: str
    to_turn: str
    turns: str  # JSON: turn numbers
    holder: str
    held_until: int
    is_dead: int


class OwingColumns(Columns, frozen=True):
    """From ``holder`` on: the last commit, None where there was none."""

    session_id: str
    owner: str
    title: str
    turns: int
    since: int
    provider: str
    elsewhere: int
    holder: str | None
    held_until: int | None
    attempts: int | None
    failed_at: int | None
    retry_at: int | None
    error: str | None
    is_dead: int


OWED_OPEN: Select[[int], OwedColumns] = Select("owed_open", OwedColumns)
COMMIT: Select[[int], CommitColumns] = Select("commit_get", CommitColumns)
COMMIT_PUT: SelectValue[[int, str, str, str, str, str, str, str, int, int], int] = SelectValue("commit_put")
OWING: Select[[str, str, int, int, int, str, int], OwingColumns] = Select("owing", OwingColumns)
RECALL: SelectValue[[int], str] = SelectValue("recall_get")

# --- records ------------------------------------------------------------------------------------------


class RecordColumns(Columns, frozen=True):
    name: str
    value: str  # JSON


RECORD: SelectValue[[str, str, str], str] = SelectValue("record_get")
RECORDS: Select[[str, str], RecordColumns] = Select("records_list", RecordColumns)

# --- search -------------------------------------------------------------------------------------------


class HitColumns(Columns, frozen=True):
    message_no: int
    ordinal: int
    role: str
    created_at: int
    text: str
    turn_id: str
    session_id: str
    title: str


class UnindexedMessage(Columns, frozen=True):
    message_no: int
    session_no: int
    owner: str
    text: str


SEARCH_NEWEST: Select[[str, str, int, str, str], HitColumns] = Select("search_newest", HitColumns)
SEARCH_BEST: Select[[str, str, int, str, str], HitColumns] = Select("search_best", HitColumns)
# SQLite
SEARCH_RECENT_NEWEST: Select[[str, str, int, str, str], HitColumns] = Select(
    "search_recent_newest", HitColumns
)
SEARCH_RECENT_BEST: Select[[str, str, int, str, str], HitColumns] = Select("search_recent_best", HitColumns)
SEARCH_RECENT_COUNT: SelectValue[[str, int], int] = SelectValue("search_recent_count")
NEWEST_NUMBER: SelectValue[[], int] = SelectValue("newest_number")
INDEX_NEXT: Select[[int, int], IndexedText] = Select("index_next", IndexedText)
RECENT_LEAVING: Select[[int, int], IndexedText] = Select("recent_leaving", IndexedText)
# PostgreSQL
INDEX_TAKE: Select[[int], UnindexedMessage] = Select("index_take", UnindexedMessage)
INDEX_STATE: SelectValue[[], int] = SelectValue("index_state")
INDEX_MISSING: SelectValue[[], int] = SelectValue("index_missing")

# --- secrets (PostgreSQL) -----------------------------------------------------------------------------


class SealedColumns(Columns, frozen=True):
    name: str
    key_id: str
    nonce: bytes
    sealed: bytes


class HolderColumns(Columns, frozen=True):
    """``key_ids``: separated by spaces."""

    id: str
    machine: str
    key_ids: str


SECRETS_ALL: Select[[], SealedColumns] = Select("secrets_all", SealedColumns)
SECRET_HOLDERS: Select[[int], HolderColumns] = Select("secret_holders", HolderColumns)

# --- notes (PostgreSQL) -------------------------------------------------------------------------------


class NoteHash(Columns, frozen=True):
    page: str
    sha256: str


class NotePage(Columns, frozen=True):
    page: str
    sha256: str
    content: bytes


NOTE_HASHES: Select[[str], NoteHash] = Select("note_hashes", NoteHash)
NOTE_PAGES: Select[[str, list[str]], NotePage] = Select("note_pages", NotePage)

# --- upkeep -------------------------------------------------------------------------------------------


class OrphanCount(Columns, frozen=True):
    what: str
    count: int


class Totals(Columns, frozen=True):
    sessions: int
    turns: int
    messages: int
    asks: int
    resumed: int


class UsageColumns(Columns, frozen=True):
    """``purpose``: ``turn``, or what was paid for besides turns."""

    model: str | None
    usage: str  # JSON
    at: int
    purpose: str


LISTS_DIFFER: SelectValue[[], str] = SelectValue("lists_differ")
TAILS_BEHIND: SelectValue[[], str] = SelectValue("tails_behind")
ORPHANS: Select[[], OrphanCount] = Select("orphans", OrphanCount)
TOTALS: Select[[], Totals] = Select("totals", Totals)
USAGE_ROWS: Select[[str, int], UsageColumns] = Select("usage_rows", UsageColumns)
