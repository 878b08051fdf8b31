"""Queries of messages: the transcript and the search in it."""

from __future__ import annotations

from typing import TypeAlias

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue

# --- messages ------------------------------------------------------------------------------------------


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

# --- search --------------------------------------------------------------------------------------------


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


_Search: TypeAlias = Select[[str, str, int, str, str, int, int, str, str], HitColumns]
SEARCH_NEWEST: _Search = Select("search_newest", HitColumns)
SEARCH_BEST: _Search = Select("search_best", HitColumns)
# SQLite
SEARCH_RECENT_NEWEST: _Search = Select("search_recent_newest", HitColumns)
SEARCH_RECENT_BEST: _Search = Select("search_recent_best", HitColumns)
SEARCH_RECENT_COUNT: SelectValue[[str, int], int] = SelectValue("search_recent_count")
NEWEST_NUMBER: SelectValue[[], int] = SelectValue("newest_number")
INDEX_NEXT: Select[[int, int], IndexedText] = Select("index_next", IndexedText)
RECENT_LEAVING: Select[[int, int], IndexedText] = Select("recent_leaving", IndexedText)
# PostgreSQL
INDEX_TAKE: Select[[int], UnindexedMessage] = Select("index_take", UnindexedMessage)
INDEX_STATE: SelectValue[[], int] = SelectValue("index_state")
INDEX_MISSING: SelectValue[[], int] = SelectValue("index_missing")
