"""A PostgreSQL database as one side of a move, in one transaction that excludes all other writers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg

from everturn.domain.errors import StoreRefused
from everturn.move.sqlite_side import Notes
from everturn.move.tables import BATCH, Change, MovedTable, Row, TableDescription
from everturn.store.blobs.packs import CHUNK_BYTES
from everturn.store.postgres.connection import (
    LONG_TIMEOUT_S,
    LOST,
    MIGRATION_LOCK,
    SCHEMA,
    Connector,
    explain_error,
    prepare,
    redact,
)
from everturn.store.postgres.copy import set_counters
from everturn.store.sessions.titles import grams_of

_TABLES = """
SELECT c.relname::TEXT, array_agg(a.attname::TEXT ORDER BY a.attnum),
  array_agg(a.attname::TEXT) FILTER (WHERE a.atttypid = 'text'::REGTYPE),
  (SELECT array_agg(k.attname::TEXT ORDER BY array_position(i.indkey::INT2[], k.attnum)) FROM pg_index i
   JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey::INT2[])
   WHERE i.indrelid = c.oid AND i.indisprimary)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind = 'r'
GROUP BY c.oid, c.relname ORDER BY c.oid
"""
_COUNTERS = """
SELECT c.relname::TEXT, s.last_value FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_sequences s ON s.schemaname = current_schema()
  AND to_regclass(quote_ident(s.sequencename)) = pg_get_serial_sequence(c.relname, a.attname)::REGCLASS
WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind = 'r' AND a.attidentity <> ''
"""


@asynccontextmanager
async def open_postgres_side(address: str, *, is_target: bool) -> AsyncIterator[PostgresSide]:
    """Open the transaction; it commits if the block ends without an error.

    ``is_target``: create missing tables.
    """
    connection = await Connector(address).connect()
    try:
        if is_target:
            await prepare(connection, address)
        await _refuse_other_schema(connection, address)
        async with connection.transaction():
            # Every write transaction takes this lock shared, so none can run until this one has ended.
            await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            yield PostgresSide(connection)
    except (*LOST, asyncpg.PostgresError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # it concerns a file on the other side
        raise explain_error(error, address) from error
    finally:
        await connection.close()


async def _refuse_other_schema(connection: asyncpg.Connection, address: str) -> None:
    has_tables = await connection.fetchval("SELECT to_regclass('meta') IS NOT NULL")
    value = await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'") if has_tables else None
    if value is None:
        raise StoreRefused(f"There is no Everturn data at {redact(address)}. Nothing was moved.")
    if int(value) != SCHEMA:
        raise StoreRefused(
            f"The database at {redact(address)} has schema {value}; this version works with {SCHEMA}.",
            hint="Start a server of this version on it once, or upgrade this one. Then move it.",
        )


class PostgresSide:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    # --- rows ------------------------------------------------------------------------------------------

    async def describe(self) -> list[TableDescription]:
        return [
            TableDescription(name, tuple(columns), tuple(key or ()), frozenset(texts or ()))
            for name, columns, texts, key in await self._connection.fetch(_TABLES)
        ]

    async def count(self, table: MovedTable) -> int:
        return int(
            await self._connection.fetchval(
                f"SELECT count(*) FROM {table.name} WHERE {table.condition}",  # noqa: S608 - names of our own
                timeout=LONG_TIMEOUT_S,
            )
        )

    async def rows(self, table: MovedTable) -> AsyncIterator[list[Row]]:
        # SQLite sorts texts by bytes.
        order = ", ".join(f'{_quote(name)} COLLATE "C"' if text else _quote(name) for name, text in table.key)
        names = ", ".join(map(_quote, table.columns))
        cursor = await self._connection.cursor(
            f"SELECT {names} FROM {table.name} WHERE {table.condition} ORDER BY {order}",  # noqa: S608
            timeout=LONG_TIMEOUT_S,
        )
        while batch := await cursor.fetch(BATCH, timeout=LONG_TIMEOUT_S):
            yield [tuple(row) for row in batch]

    async def add(self, table: MovedTable, rows: list[Row], change: Change) -> None:
        columns = list(table.columns)
        records = [change(row) for row in rows]
        if table.name == "titles":
            text = columns.index("text")
            columns.append("grams")
            records = [(*row, grams_of(row[text])) for row in records]
        try:
            await self._connection.copy_records_to_table(
                table.name, records=records, columns=columns, timeout=LONG_TIMEOUT_S
            )
        except asyncpg.DataError as error:
            raise StoreRefused(
                f"A row of {table.name} cannot be stored in PostgreSQL ({error}). Nothing was moved.",
                hint="A text with a NUL character cannot be moved: delete the session that has it.",
            ) from error

    async def counters(self) -> dict[str, int]:
        """Return the highest number that each table has assigned, including to deleted rows."""
        found = await self._connection.fetch(_COUNTERS)
        return {name: int(number) for name, number in found if number is not None}

    async def set_counters(self, at_least: Mapping[str, int]) -> None:
        await set_counters(self._connection, at_least)

    async def live_workers(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM workers WHERE lease_until > 0"))

    async def saved_secrets(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM secrets"))

    async def lost_writers(self) -> int:
        """Count the turns whose worker disappeared without ending them."""
        return int(await self._connection.fetchval("SELECT count(*) FROM writers WHERE is_sealed = 0"))

    # --- bytes -----------------------------------------------------------------------------------------

    async def pack(self, pack: str, path: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a pack, as far as they exist."""
        number = 0
        while True:
            piece = await self._connection.fetchval(
                "SELECT data FROM pack_bytes WHERE pack = $1 AND number = $2", path, number
            )
            if piece is None:
                return
            yield piece
            number += 1

    async def put_pack(self, pack: str, pieces: AsyncIterator[bytes]) -> None:
        """Store a pack in pieces of a mebibyte, the size in which packs are read from a folder."""
        number, pending = 0, bytearray()

        async def put(piece: bytes) -> None:
            await self._connection.copy_records_to_table(
                "pack_bytes", records=[(pack, number, piece)], columns=["pack", "number", "data"]
            )

        async for piece in pieces:
            pending += piece
            while len(pending) >= CHUNK_BYTES:
                await put(bytes(pending[:CHUNK_BYTES]))
                del pending[:CHUNK_BYTES]
                number += 1
        if pending:
            await put(bytes(pending))

    # --- notes -----------------------------------------------------------------------------------------

    async def notes(self) -> tuple[Notes, list[str]]:
        """Return all pages, and the names of the damaged ones."""
        notes: Notes = {}
        left = []
        for owner, page, content, sha256 in await self._connection.fetch(
            "SELECT owner, page, content, sha256 FROM notes", timeout=LONG_TIMEOUT_S
        ):
            if hashlib.sha256(content).hexdigest() == sha256:
                notes.setdefault(owner, {})[page] = content
            else:
                left.append(f"notes of {owner}: {page} is damaged in the database")
        return notes, left

    async def put_notes(self, notes: Notes) -> list[str]:
        now = time.time_ns() // 1_000_000
        rows = [
            (owner, page, content, hashlib.sha256(content).hexdigest(), now)
            for owner, pages in notes.items()
            for page, content in pages.items()
        ]
        columns = ["owner", "page", "content", "sha256", "changed_at"]
        await self._connection.copy_records_to_table("notes", records=rows, columns=columns)
        return []


def _quote(name: str) -> str:
    return f'"{name}"'
