"""Queries of sessions: their rows, their list, the requests that made them."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue

# --- meta ----------------------------------------------------------------------------------------------

META_GET: SelectValue[[str], str] = SelectValue("meta_get")

# --- sessions ------------------------------------------------------------------------------------------


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
    machine: str | None
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
    first_text: str  # the beginning of the first message; empty if there is a title
    head_no: int | None
    redo_no: int | None
    redo_all: int
    active_no: int | None
    pruned_through: int
    transcript_version: int
    kind: str
    deleted_at: int | None
    chat: str | None  # its id, account, platform, kind and title, with colons between them
    parent_turn: str | None
    parent_session: str | None
    parameters: str | None  # JSON


class SessionOfTurn(Columns, frozen=True):
    session_no: int
    id: str
    owner: str


class DeletedSession(Columns, frozen=True):
    id: str
    owner: str
    deleted_at: int


class LabelColumns(Columns, frozen=True):
    """How many listed sessions have these tags and this project."""

    tags: str  # JSON
    project: str | None
    sessions: int


class NewSessionColumns(Columns, frozen=True):
    """``is_empty``: it never had a turn, a title or any setting."""

    session_no: int
    id: str
    owner: str
    created_at: int
    is_empty: int


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
SESSION_INSERT: SelectValue[
    [str, str, str, int, str, int, int, str | None, str | None, str | None, str | None], int
] = SelectValue("session_insert")
SESSION_NO_OF_ID: SelectValue[[str], int] = SelectValue("session_no_of_id")
SESSION_OF_TURN: Select[[str], SessionOfTurn] = Select("session_no_of_turn", SessionOfTurn)
SESSION_LIST: Select[[str, int, int, int, int], SessionColumns] = Select("session_list", SessionColumns)
SESSION_LIST_MATCHING: Select[[str, int, int, int, int, int, str, str], SessionColumns] = Select(
    "session_list_matching", SessionColumns
)
SESSION_LIST_TITLED: Select[[str, int, int, int, int, int, str, str, int, str], SessionColumns] = Select(
    "session_list_titled", SessionColumns
)
SESSION_LIST_INDEXED: Select[
    [str, int, int, int, int, int, str, str, str | list[str], str], SessionColumns
] = Select("session_list_indexed", SessionColumns)
SESSION_COUNTS: Select[[str], SessionCounts] = Select("session_counts", SessionCounts)
SESSION_LABELS: Select[[str], LabelColumns] = Select("session_labels", LabelColumns)
SESSIONS_AFTER: Select[[int, int], NewSessionColumns] = Select("sessions_after", NewSessionColumns)
SESSIONS_ALL: Select[[], SessionNo] = Select("sessions_all", SessionNo)
SESSIONS_DELETED: Select[[], DeletedSession] = Select("sessions_deleted", DeletedSession)
SESSIONS_WITH_PROFILE: SelectValue[[str], int] = SelectValue("sessions_with_profile")
SESSIONS_ON_KEY: SelectValue[[str, str], str] = SelectValue("sessions_on_key")
WAITING_SESSIONS: Select[[str], SessionColumns] = Select("waiting_sessions", SessionColumns)
TAIL_MOVE: SelectValue[[int, int, int], int] = SelectValue("tail_move")
TAIL_POSITION: SelectValue[[int, int], int] = SelectValue("tail_position")
TITLE_GET: SelectValue[[int], str] = SelectValue("title_get")
TITLES_ALL: Select[[], TitleColumns] = Select("titles_all", TitleColumns)

# --- requests ------------------------------------------------------------------------------------------


class RequestColumns(Columns, frozen=True):
    digest: str
    answer: str


class CreationColumns(Columns, frozen=True):
    digest: str
    session_id: str


REQUEST_GET: Select[[int, str], RequestColumns] = Select("request_get", RequestColumns)
CREATION_GET: Select[[str, str], CreationColumns] = Select("creation_get", CreationColumns)
