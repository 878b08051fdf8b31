"""G04: the schema states the oldest version that may write, and programs within that range share a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import pytest

from everturn.domain.errors import StoreTooNew
from everturn.domain.sessions import NewSession
from everturn.store import Store, open_store
from everturn.store.postgres.connection import SCHEMA as POSTGRES_SCHEMA
from everturn.store.sqlite.connection import SCHEMA as SQLITE_SCHEMA

pytestmark = pytest.mark.anyio
OWNER = "ada"

SetMeta = Callable[[int, int], Awaitable[None]]


@pytest.fixture
def set_schema(store_url: str) -> SetMeta:
    """Let the store look as a newer program left it: a column more, its schema, and who may write."""

    async def sqlite(schema: int, schema_min: int) -> None:
        await asyncio.to_thread(_alter_sqlite, store_url.removeprefix("sqlite://"), schema, schema_min)

    async def postgresql(schema: int, schema_min: int) -> None:
        connection = await asyncpg.connect(store_url)
        await connection.execute("ALTER TABLE sessions ADD COLUMN IF NOT EXISTS mood TEXT DEFAULT 'calm'")
        for name, value in (("schema", schema), ("schema_min", schema_min)):
            await connection.execute("UPDATE meta SET value = $2 WHERE name = $1", name, str(value))
        await connection.close()

    return postgresql if store_url.startswith("postgresql") else sqlite


def _alter_sqlite(path: str, schema: int, schema_min: int) -> None:
    database = apsw.Connection(path)
    database.set_busy_timeout(10_000)
    if not database.execute("SELECT 1 FROM pragma_table_info('sessions') WHERE name = 'mood'").fetchall():
        database.execute("ALTER TABLE sessions ADD COLUMN mood TEXT DEFAULT 'calm'")
    for name, value in (("schema", schema), ("schema_min", schema_min)):
        database.execute("UPDATE meta SET value = ? WHERE name = ?", (str(value), name))
    database.close()


def test_g04_both_stores_know_the_same_schema() -> None:
    assert SQLITE_SCHEMA == POSTGRES_SCHEMA


async def test_g04_a_newer_schema_that_this_version_may_write_is_opened_and_written(
    store: Store, store_url: str, data_dir: Path, set_schema: SetMeta
) -> None:
    await store.sessions.create(OWNER, NewSession(title="before"))
    await set_schema(SQLITE_SCHEMA + 3, SQLITE_SCHEMA)
    await store.sessions.create(OWNER, NewSession(title="a program that was running goes on"))
    async with open_store(store_url, data_dir=data_dir / "second") as second:
        await second.sessions.create(OWNER, NewSession(title="after"))
        listed = [session.title for session in (await second.sessions.list(OWNER)).items]
    assert listed == ["after", "a program that was running goes on", "before"]


async def test_g04_a_schema_that_this_version_may_not_write_is_refused_and_says_what_to_do(
    store: Store, store_url: str, data_dir: Path, set_schema: SetMeta
) -> None:
    session = await store.sessions.create(OWNER, NewSession(title="before"))
    await set_schema(SQLITE_SCHEMA + 3, SQLITE_SCHEMA + 1)
    with pytest.raises(StoreTooNew):
        await store.sessions.create(OWNER, NewSession(title="a program that was running stops writing"))
    with pytest.raises(StoreTooNew) as refused:
        async with open_store(store_url, data_dir=data_dir / "second"):
            pass
    for number in (SQLITE_SCHEMA, SQLITE_SCHEMA + 1, SQLITE_SCHEMA + 3):
        assert f"schema {number}" in refused.value.message or f"up to {number}" in refused.value.message
    assert "Upgrade Everturn" in refused.value.hint
    assert (await store.sessions.get(OWNER, session.id)).title == "before", "it can still be read"
