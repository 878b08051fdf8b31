"""Queries of memory: what is owed to it, its commits, the pages of its notes."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue

# --- memory --------------------------------------------------------------------------------------------


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

# --- notes (PostgreSQL) --------------------------------------------------------------------------------


class NoteHash(Columns, frozen=True):
    page: str
    sha256: str


class NotePage(Columns, frozen=True):
    page: str
    sha256: str
    content: bytes


NOTE_HASHES: Select[[str], NoteHash] = Select("note_hashes", NoteHash)
NOTE_PAGES: Select[[str, list[str]], NotePage] = Select("note_pages", NotePage)
