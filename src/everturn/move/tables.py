"""Decides which rows are copied, in which order, and how they change for the other database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from everturn.domain.errors import StoreBroken, StoreRefused
from everturn.store.blobs.address import SCHEME

# A row as both drivers return it. ``Any``: a column holds a number, text, bytes or NULL.
Row = tuple[Any, ...]

# PostgreSQL tables that are not copied as rows: the schema's own tables; the search index, which is rebuilt;
# packs and notes, which are files with SQLite; and secrets, which are encrypted for one database.
_NOT_ROWS = frozenset(
    {"meta", "moves", "message_words", "unindexed", "pack_bytes", "notes", "secrets", "secret_holders"}
)
_OWN_COLUMNS = {"titles": {"grams"}, "events": {"seq"}}  # derived, or specific to one database
# Order columns for tables that lack a primary key in one of the databases.
_KEYS = {
    "events": ("session_no", "position"),
    "spendings": ("owner", "at", "purpose", "model", "usage"),
}
# Rows about the database itself.
CONDITIONS = {"records": "NOT (owner = 'system' AND kind = 'secrets')"}
BATCH = 200


class MovedTable(msgspec.Struct, frozen=True):
    """A table to copy. ``key`` holds the columns that order its rows, and whether each is text."""

    name: str
    columns: tuple[str, ...]
    key: tuple[tuple[str, bool], ...]

    @property
    def condition(self) -> str:
        return CONDITIONS.get(self.name, "TRUE")


class TableDescription(msgspec.Struct, frozen=True):
    """A table as one database describes it. ``texts`` names its text columns."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    texts: frozenset[str] = frozenset()


def tables_of(postgres: Sequence[TableDescription], sqlite: dict[str, frozenset[str]]) -> list[MovedTable]:
    """Return the tables to copy, in an order in which they can be filled.

    ``postgres`` is already in that order. Raises StoreBroken if the databases have different tables.
    """
    found = []
    for table in postgres:
        if table.name in _NOT_ROWS:
            continue
        own = _OWN_COLUMNS.get(table.name, set())
        columns = tuple(name for name in table.columns if name not in own)
        if set(columns) != sqlite.get(table.name, frozenset()) - own:
            raise StoreBroken(f"The two databases have different columns in {table.name}. Nothing was moved.")
        key = _KEYS.get(table.name, table.key)
        found.append(MovedTable(table.name, columns, tuple((name, name in table.texts) for name in key)))
    names = {table.name for table in found}
    if missing := sqlite.keys() - names - _NOT_ROWS:
        raise StoreBroken(f"PostgreSQL has no table {min(missing)}. Nothing was moved.")
    return found


def is_index(name: str) -> bool:
    """True if an SQLite table belongs to a search index or to SQLite itself."""
    return name.startswith("sqlite_") or name.partition("_index")[1] != ""


Change = Callable[[Row], Row]


def to_postgres(table: MovedTable, machine: str) -> Change:
    """Change a row for PostgreSQL.

    ``machine`` has the source's folders; rows in SQLite may leave it out.
    """
    if table.name == "packs":
        return _change_packs(table, "folder", "database", "")
    if table.name in ("workspaces", "jobs"):
        place = table.columns.index("machine")
        return lambda row: _with_value(row, place, row[place] or machine)
    if table.name == "sessions":
        place, project = table.columns.index("machine"), table.columns.index("project")
        return lambda row: row if row[project] is None else _with_value(row, place, row[place] or machine)
    return _keep


def to_sqlite(table: MovedTable, machine_id: str) -> Change:
    """Change a row for SQLite.

    ``machine_id`` belongs to the target's folder. Files of other machines come from their last checkpoint.
    """
    if table.name == "packs":
        return _change_packs(table, "database", "folder", "blobs/")
    if table.name in ("workspaces", "jobs"):
        place = table.columns.index("machine")
        return lambda row: (
            _with_value(row, place, None) if (row[place] or "").startswith(f"{machine_id}@") else row
        )
    if table.name == "sessions":
        # SQLite has one machine only. Any other value would prevent the session from being claimed.
        place = table.columns.index("machine")
        return lambda row: _with_value(row, place, None)
    return _keep


def _change_packs(table: MovedTable, from_place: str, to_place: str, prefix: str) -> Change:
    number, place, path = (table.columns.index(name) for name in ("id", "place", "path"))

    def change(row: Row) -> Row:
        if row[place] == from_place:
            return _with_value(_with_value(row, place, to_place), path, prefix + row[number])
        if not row[place].startswith(SCHEME):
            raise StoreRefused(f"Files are in {row[place]!r}, which this version does not know.")
        return row

    return change


def _with_value(row: Row, place: int, value: object) -> Row:
    return (*row[:place], value, *row[place + 1 :])


def _keep(row: Row) -> Row:
    return row
