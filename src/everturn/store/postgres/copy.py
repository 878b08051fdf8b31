"""A logical copy of the database: one file per table, made in one transaction, and a manifest.

It needs no tool of the server's. The search index is left out, because it is derived and fills again.
"""

from __future__ import annotations

import asyncio
import hashlib
import mmap
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import msgspec

from everturn.domain.errors import NotADatabase, StoreBroken, StoreTooNew
from everturn.store.files.disk import Disk, write_atomically
from everturn.store.postgres.connection import LONG_TIMEOUT_S, LOST, SCHEMA, Connector, explain_error, prepare

FOLDER = "postgresql"
MANIFEST = "manifest.json"
_DERIVED = ("message_words", "unindexed")
_ROWS = """
SELECT c.relname::TEXT, array_agg(a.attname::TEXT ORDER BY a.attnum) FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind = 'r' AND NOT c.relname = ANY ($1::TEXT[])
GROUP BY c.relname ORDER BY min(c.oid)
"""
_COUNTERS = """
SELECT c.relname::TEXT, a.attname::TEXT FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind = 'r' AND a.attidentity <> ''
"""


class TableCopy(msgspec.Struct, frozen=True):
    name: str
    columns: list[str]
    rows: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a copy holds. ``tables`` are in an order in which they can be filled."""

    schema: int
    tables: list[TableCopy]


async def copy_out(connection: asyncpg.Connection, target: Path) -> None:
    """Write all tables as they are at one moment, then read the files back and check them."""
    folder = target / FOLDER
    await asyncio.to_thread(folder.mkdir)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        version = int(await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'"))
        tables = []
        for name, columns in await connection.fetch(_ROWS, list(_DERIVED)):
            path = folder / f"{name}.rows"
            done = await connection.copy_from_table(
                name, columns=columns, output=path, format="binary", timeout=LONG_TIMEOUT_S
            )
            digest = await asyncio.to_thread(_digest, path)
            tables.append(TableCopy(name, columns, int(done.split()[-1]), digest))
    manifest = Manifest(version, tables)
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    await asyncio.to_thread(write_atomically, Disk(), folder / MANIFEST, content)
    await asyncio.to_thread(verify_copy, target)


def verify_copy(target: Path) -> Manifest:
    """Read a copy back: every file whole, every row counted. Raises StoreBroken, NotADatabase."""
    folder = target / FOLDER
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise NotADatabase(f"{target.name} holds no copy of a PostgreSQL database: {error}.") from error
    for table in manifest.tables:
        path = folder / f"{table.name}.rows"
        if not path.exists() or _digest(path) != table.sha256:
            raise StoreBroken(f"The copy {target.name} did not verify: table {table.name} is damaged.")
        rows = _count(path)
        if rows != table.rows:
            raise StoreBroken(
                f"The copy {target.name} did not verify: table {table.name} has {rows} rows instead of "
                f"{table.rows}."
            )
    return manifest


async def copy_in(address: str, source: Path) -> None:
    """Fill an empty database from a copy, in one transaction. Raises StoreRefused, StoreBroken."""
    manifest = await asyncio.to_thread(verify_copy, source)
    if manifest.schema > SCHEMA:
        raise StoreTooNew(f"The copy has schema {manifest.schema}; this version knows up to {SCHEMA}.")
    connection = await Connector(address).connect()
    try:
        await prepare(connection, address, manifest.schema)
        async with connection.transaction():
            await _refuse_other_schema(connection, manifest.schema)
            await _fill(connection, source / FOLDER, manifest)
        await prepare(connection, address)
    except (*LOST, asyncpg.PostgresError) as error:
        raise explain_error(error, address) from error
    finally:
        await connection.close()


async def _refuse_other_schema(connection: asyncpg.Connection, schema: int) -> None:
    """The copy says which schema its rows have: over other tables they would be migrated again."""
    found = int(await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'"))
    if found != schema:
        raise NotADatabase(
            f"The database has tables of schema {found}, the copy has schema {schema}. Nothing was restored.",
            hint="Restore it into a database without tables.",
        )


async def _fill(connection: asyncpg.Connection, folder: Path, manifest: Manifest) -> None:
    if await connection.fetchval("SELECT EXISTS (SELECT 1 FROM sessions)"):
        raise NotADatabase("The database is not empty: nothing was restored into it.")
    await connection.execute("TRUNCATE meta, moves")
    for table in manifest.tables:
        path = folder / f"{table.name}.rows"
        await connection.copy_to_table(
            table.name, columns=table.columns, source=path, format="binary", timeout=LONG_TIMEOUT_S
        )
    await set_counters(connection, {})


async def set_counters(connection: asyncpg.Connection, at_least: Mapping[str, int]) -> None:
    """Continue the numbers of each table after its highest one, and after ``at_least``."""
    for name, column in await connection.fetch(_COUNTERS):
        await connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{name}', '{column}'), greatest(n, 1), n > 0) FROM "  # noqa: S608 - names of our own
            f"(SELECT greatest(coalesce(max({column}), 0), {at_least.get(name, 0)}) AS n FROM {name}) t"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count(path: Path) -> int:
    """The rows of a file in PostgreSQL's binary COPY format, walked field by field."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _count_rows(content)


def _count_rows(content: mmap.mmap) -> int:
    place = 15 + int.from_bytes(content[15:19], "big") + 4
    rows = 0
    while (fields := int.from_bytes(content[place : place + 2], "big", signed=True)) >= 0:
        place += 2
        for _ in range(fields):
            place += 4 + max(0, int.from_bytes(content[place : place + 4], "big", signed=True))
        rows += 1
        if place >= len(content):
            return -1  # no end mark
    return rows
