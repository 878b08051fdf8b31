"""A data folder as one side of a move: the SQLite file, packs in files, notes in files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

import apsw

from everturn.domain.clock import SystemClock
from everturn.domain.errors import StoreBroken, StoreRefused
from everturn.domain.ids import Ids
from everturn.memory.notebook import FileNotebooks
from everturn.memory.pages import is_page
from everturn.move.tables import BATCH, Change, MovedTable, Row, is_index
from everturn.store.blobs.packs import CHUNK_BYTES, FolderPacks, PackGone
from everturn.store.files.disk import Disk, report_errors
from everturn.store.scripts.schema_range import refuse_newer
from everturn.store.sqlite.connection import (
    SCHEMA,
    explain_error,
    open_connection,
    prepare,
    schema_version,
)

DATABASE = "everturn.db"
_PACK = re.compile(r"pck_[0-9A-Za-z]+")
Notes = dict[str, dict[str, bytes]]  # pages and records by owner


class SqliteSide:
    """One connection. From ``open_source`` until it closes, other processes cannot write."""

    def __init__(self, folder: Path, connection: apsw.Connection) -> None:
        self._folder = folder
        self._connection = connection
        self._packs = FolderPacks(folder, Disk())
        self._notebooks = FileNotebooks(folder / "memory", Ids(SystemClock()))

    @classmethod
    def open_source(cls, folder: Path) -> SqliteSide:
        """Open an existing store for reading. Raises StoreRefused for another schema version."""
        path = folder / DATABASE
        connection = open_connection(path)
        try:
            version = schema_version(connection)
            if version > SCHEMA:
                refuse_newer(path.name, version, version, SCHEMA)
            if version != SCHEMA:
                raise StoreRefused(
                    f"{path} has schema {version}, and this version works with {SCHEMA}. Nothing was moved.",
                    hint="Start the server once: that brings it up to date and keeps a copy. Then move it.",
                )
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            connection.close()
            raise explain_error(error, path) from error
        except StoreRefused:
            connection.close()
            raise
        return cls(folder, connection)

    @classmethod
    def make(cls, folder: Path) -> SqliteSide:
        """Create a new database in a folder that is not in use yet."""
        connection = prepare(folder / DATABASE)
        connection.execute("PRAGMA foreign_keys=OFF")  # checked at the end
        connection.execute("PRAGMA wal_autocheckpoint=10000")
        connection.execute("BEGIN IMMEDIATE")
        return cls(folder, connection)

    def close(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.close()

    def commit(self) -> None:
        """Check the foreign keys of the whole database, then commit."""
        connection = self._connection
        connection.execute("INSERT INTO title_index(title_index) VALUES ('rebuild')")
        for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            raise StoreBroken(f"A row of {table} names a row of {parent} that is not there.")
        connection.execute("COMMIT")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    # --- rows ------------------------------------------------------------------------------------------

    def columns(self) -> dict[str, frozenset[str]]:
        found: list[Row] = self._connection.execute(
            "SELECT t.name, c.name FROM pragma_table_list t, pragma_table_xinfo(t.name) c "
            "WHERE t.schema = 'main' AND t.type IN ('table', 'shadow')"
        ).fetchall()
        tables: dict[str, frozenset[str]] = {}
        for table, column in found:
            if not is_index(table):
                tables[table] = tables.get(table, frozenset()) | {column}
        return tables

    async def count(self, table: MovedTable) -> int:
        rows: list[Row] = self._connection.execute(
            f"SELECT count(*) FROM {table.name} WHERE {table.condition}"  # noqa: S608 - names of our own
        ).fetchall()
        return int(rows[0][0])

    async def rows(self, table: MovedTable) -> AsyncIterator[list[Row]]:
        cursor: Iterator[Row] = self._connection.execute(
            f"SELECT {_names(table)} FROM {table.name} WHERE {table.condition} "  # noqa: S608
            f"ORDER BY {_order_by(table)}"
        )
        while batch := list(islice(cursor, BATCH)):
            yield batch

    async def add(self, table: MovedTable, rows: list[Row], change: Change) -> None:
        marks = ", ".join("?" * len(table.columns))
        self._connection.executemany(
            f"INSERT INTO {table.name} ({_names(table)}) VALUES ({marks})",  # noqa: S608
            [change(row) for row in rows],
        )

    async def counters(self) -> dict[str, int]:
        """Return the highest number that each table has assigned, including to deleted rows."""
        rows: list[Row] = self._connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        return dict(rows)

    async def set_counters(self, at_least: Mapping[str, int]) -> None:
        """Set the counters, so that numbers are not reused. Only tables with a counter have an entry."""
        rows: list[Row] = self._connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()
        text: dict[str, str] = {name: statement or "" for name, statement in rows}
        own = await self.counters()
        for name, number in at_least.items():
            if "AUTOINCREMENT" in text.get(name, "") and number > own.get(name, 0):
                self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                self._connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, number))

    # --- bytes -----------------------------------------------------------------------------------------

    async def pack(self, pack: str, path: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a pack, as far as they exist."""
        size = await self._packs.size(path)
        if not size:
            return
        try:
            reader = await self._packs.open(path)
        except PackGone:
            return
        try:
            for at in range(0, size, CHUNK_BYTES):
                yield await reader.read(at, min(CHUNK_BYTES, size - at), _skip_check)
        finally:
            await reader.close()

    async def put_pack(self, pack: str, pieces: AsyncIterator[bytes]) -> None:
        if not _PACK.fullmatch(pack):
            raise StoreRefused(f"{pack!r} is not the name of a pack. Nothing was moved.")
        writer = await self._packs.create(f"blobs/{pack}")
        try:
            async for piece in pieces:
                await writer.write(piece)
            await writer.finish()
        except BaseException:
            await writer.discard()
            raise

    # --- notes -----------------------------------------------------------------------------------------

    async def notes(self) -> tuple[Notes, list[str]]:
        """Return all pages, and the names of what cannot be read."""
        folder = self._folder / "memory"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        notes: Notes = {}
        left: list[str] = []
        for name in sorted(names):
            if not (folder / name).is_dir() or (folder / name).is_symlink():
                continue
            owner = "" if name == "%" else unquote(name)
            records = await self._notebooks.records(owner)  # first, because it finishes an interrupted write
            if found := await self._notebooks.contents(owner) | records:
                notes[owner] = found
            left += [f"notes of {owner}: {problem}" for problem in await self._notebooks.problems(owner)]
        return notes, left

    async def put_notes(self, notes: Notes) -> list[str]:
        left = []
        for owner, pages in notes.items():
            good = {name: content for name, content in pages.items() if is_page(name)}
            others = {name: content for name, content in pages.items() if name.startswith(".")}
            left += [
                f"notes of {owner}: {name!r} is not a page"
                for name in pages
                if name not in good and name not in others
            ]
            with report_errors(self._folder):
                await self._notebooks.adopt(owner, good, others)
        return left


def _names(table: MovedTable) -> str:
    return ", ".join(f'"{name}"' for name in table.columns)


def _order_by(table: MovedTable) -> str:
    return ", ".join(f'"{name}"' for name, _ in table.key)


def _skip_check(data: bytes) -> None:
    """Skip the check of each piece: the whole pack is verified blob by blob."""
