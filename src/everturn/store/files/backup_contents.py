"""Reads rows of a backup's database without restoring it: a backup can come from anywhere."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from everturn.domain.errors import NotADatabase
from everturn.domain.json_types import JsonObject
from everturn.domain.turns import ENDED
from everturn.store.sql import all_schemas

_COUNTED = ("sessions", "turns", "messages")
_SQLITE = b"SQLite format 3\0"  # how such a file begins
_ENDED = frozenset(state.value for state in ENDED)


class BackupRecord(msgspec.Struct, frozen=True):
    """A row of the table ``records``.

    ``value`` is empty if the row holds no object: a notice is a text, and nothing of that kind takes effect.
    """

    owner: str
    kind: str
    name: str
    value: JsonObject


class BackupContents(msgspec.Struct, frozen=True):
    """What of a backup takes effect by itself or with the next message."""

    records: tuple[BackupRecord, ...]
    projects: tuple[str, ...]  # folders in which its sessions work
    unfinished_turns: int
    storages: tuple[str, ...] = ()  # object storage that its files are read from
    schedules: tuple[JsonObject, ...] = ()  # their settings


def read_contents(source: Path, database: str) -> BackupContents:
    """The contents of a backup folder; nothing if there is no database in it. Raises NotADatabase.

    ``database``: the name of SQLite's file.
    """
    try:
        if (source / "postgresql" / "manifest.json").is_file():
            return _of_postgres(source / "postgresql")
        is_there = (source / database).is_file()
        return _of_sqlite(source / database) if is_there else BackupContents((), (), 0)
    except (OSError, apsw.Error, msgspec.MsgspecError, ValueError, LookupError) as error:
        raise NotADatabase(
            f"{source} cannot be read as a backup of Everturn: {error}. Nothing was restored.",
            hint="Name the folder that 'everturn backup' made.",
        ) from error


def count_rows(source: Path, database: str = "") -> dict[str, int]:
    """The rows of a backup's sessions, turns and messages. ``database``: the name of SQLite's file; left out,
    the only one with this suffix. Raises NotADatabase."""
    try:
        if (source / "postgresql" / "manifest.json").is_file():
            content = (source / "postgresql" / "manifest.json").read_bytes()
            tables = msgspec.json.decode(content, type=_CountedManifest).tables
            return {table.name: table.rows for table in tables if table.name in _COUNTED}
        file = source / database if database else next(path for path in source.iterdir() if is_sqlite(path))
        connection = _open_copy(file)
        try:
            return {name: _count(connection, name) for name in _COUNTED}
        finally:
            connection.close()
    except (OSError, apsw.Error, msgspec.MsgspecError, StopIteration) as error:
        raise NotADatabase(f"{source} cannot be read as a backup of Everturn: {error}.") from error


def _count(connection: apsw.Connection, table: str) -> int:
    found = connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - our names
    return int(found or 0)


def _open_copy(file: Path) -> apsw.Connection:
    """A backup has no writer, and no file is made beside it."""
    address = f"{file.resolve().as_uri()}?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def is_sqlite(path: Path) -> bool:
    if not path.is_file() or not os.access(path, os.R_OK):
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


# Backups of earlier versions do not have the last of them.
_TABLES = (
    ("records", ("owner", "kind", "name", "value")),
    ("sessions", ("project",)),
    ("turns", ("state",)),
    ("packs", ("place",)),
    ("schedules", ("settings",)),
)
_QUERIES = (
    "SELECT owner, kind, name, value FROM records",
    "SELECT project FROM sessions",
    "SELECT state FROM turns",
    "SELECT DISTINCT place FROM packs",
    "SELECT settings FROM schedules",
)
_Rows = Sequence[tuple[str | None, ...]]


def _count_tables(names: Container[str]) -> int:
    """How many of ``_TABLES`` a backup with tables of these names has."""
    return sum(table in names for table, _ in _TABLES)


def _contents(
    records: _Rows, sessions: _Rows, turns: _Rows, packs: _Rows = (), schedules: _Rows = ()
) -> BackupContents:
    return BackupContents(
        records=tuple(
            BackupRecord(owner or "", kind or "", name or "", _object(value or "{}"))
            for owner, kind, name, value in records
        ),
        projects=tuple(sorted({project for (project,) in sessions if project})),
        unfinished_turns=sum(state not in _ENDED for (state,) in turns),
        storages=tuple(sorted({place for (place,) in packs if place and "://" in place})),
        schedules=tuple(_object(settings or "{}") for (settings,) in schedules),
    )


def _object(value: str) -> JsonObject:
    found = msgspec.json.decode(value)
    return found if isinstance(found, dict) else {}


# --- SQLite ------------------------------------------------------------------------------------------


def _of_sqlite(file: Path) -> BackupContents:
    connection = _open_copy(file)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        _refuse_foreign_code(connection, file)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        return _contents(*(list(connection.execute(query)) for query in _QUERIES[: _count_tables(names)]))
    finally:
        connection.close()


def _refuse_foreign_code(connection: apsw.Connection, file: Path) -> None:
    """Refuse triggers and views that no version of Everturn makes: a trigger could write a token later."""
    own = all_schemas("sqlite")
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('trigger', 'view')")
    for name, sql in found:
        if _flat(sql or "") not in _flat(own):
            raise NotADatabase(
                f"{file} holds {name[:60]!r}, a trigger or view that Everturn does not make. Nothing was "
                "restored.",
                hint="Name a backup that 'everturn backup' made.",
            )


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


# --- PostgreSQL --------------------------------------------------------------------------------------


class _TableCopy(msgspec.Struct, frozen=True):
    name: str
    columns: list[str]


class _CountedTable(msgspec.Struct, frozen=True):
    name: str
    rows: int


class _CountedManifest(msgspec.Struct, frozen=True):
    tables: list[_CountedTable]


class _Manifest(msgspec.Struct, frozen=True):
    tables: list[_TableCopy]


def _of_postgres(folder: Path) -> BackupContents:
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=_Manifest)
    columns = {each.name: each.columns for each in manifest.tables}
    tables = _TABLES[: _count_tables(columns)]
    return _contents(*(list(_read_copy(folder, table, columns[table], names)) for table, names in tables))


def _read_copy(
    folder: Path, table: str, columns: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[str | None, ...]]:
    """These columns of a table in PostgreSQL's binary COPY format; all of them are texts."""
    wanted = [columns.index(name) for name in names]
    with (folder / f"{table}.rows").open("rb") as file, _map_file(file.fileno()) as content:
        for fields in _fields(content):
            yield tuple(None if (field := fields[index]) is None else field.decode() for index in wanted)


def _map_file(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _fields(content: mmap.mmap) -> Iterator[list[bytes | None]]:
    place = 19 + int.from_bytes(content[15:19], "big")
    while place + 2 <= len(content):
        count = int.from_bytes(content[place : place + 2], "big", signed=True)
        if count < 0:
            return
        place += 2
        fields: list[bytes | None] = []
        for _ in range(count):
            size = int.from_bytes(content[place : place + 4], "big", signed=True)
            place += 4
            fields.append(None if size < 0 else content[place : place + size])
            place += max(0, size)
        yield fields
    raise LookupError("a table ends early")
