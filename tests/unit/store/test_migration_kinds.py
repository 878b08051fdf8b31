"""Migration 005: what sessions of schema 4 become, and a crash at each of its statements."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from everturn.domain.errors import Gone, StoreAway
from everturn.domain.sessions import SessionFilter
from everturn.store import Store, open_store, sql
from everturn.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio
OWNER = "ada"
DUE_AT = 4_000_000_000_000
NUMBER = 5
# id, key, archived, and the record of its deletion: due_at, was_archived
OLD: tuple[tuple[str, str, int, tuple[int, bool] | None], ...] = (
    ("ses_plain", "", 0, None),
    ("ses_put_away", "", 1, None),
    ("ses_deleted", "", 1, (DUE_AT, False)),
    ("ses_deleted_archived", "", 1, (DUE_AT + 1, True)),
    ("ses_one_answer", "ephemeral:ses_one_answer", 1, (DUE_AT + 2, True)),
)
_SESSION = (
    "INSERT INTO sessions (id, owner, key, version, created_at, title, is_title_given, pinned, archived, private, tags, "
    "is_unread) VALUES ($1, $2, $3, 1, 1, '', 0, 0, $4, 0, '[]', 0)"
)
_TAILS = "INSERT INTO tails SELECT session_no, owner, archived, 0, session_no FROM sessions"
_RECORD = "INSERT INTO records VALUES ('system', 'deletion', $1, $2, 1)"
GONE = "ses_purged"  # purged, but the server was killed before it removed the record


def _sessions() -> list[tuple[Any, ...]]:
    return [(ident, OWNER, key, archived) for ident, key, archived, _ in OLD]


def _records() -> list[tuple[str, str]]:
    marked = [(ident, record) for ident, *_, record in OLD if record is not None]
    return [
        (ident, json.dumps({"owner": OWNER, "due_at": due_at, "was_archived": was_archived}))
        for ident, (due_at, was_archived) in [*marked, (GONE, (1, False))]
    ]


def make_sqlite(path: Path) -> None:
    database = apsw.Connection(str(path))
    for number in range(1, NUMBER):
        database.execute(sql.schema(number, "sqlite"))
    for table, rows in ((_SESSION, _sessions()), (_RECORD, _records())):
        database.executemany(table.replace("$", "?"), rows)
    database.execute(_TAILS)
    database.close()


async def make_postgresql(address: str) -> None:
    connection = await asyncpg.connect(address)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for number in range(1, NUMBER):
        await connection.execute(sql.schema(number, "postgresql"))
    await connection.executemany(_SESSION, _sessions())
    await connection.executemany(_RECORD, _records())
    await connection.execute(_TAILS)
    await connection.close()


@pytest.fixture
async def old_url(store_kind: str, store_url: str) -> str:
    if store_kind == "postgresql":
        await make_postgresql(store_url)
    else:
        await asyncio.to_thread(make_sqlite, Path(store_url.removeprefix("sqlite://")))
    return store_url


async def check(store: Store) -> None:
    """Everything is there, and deletions have kept their time and what undoing them restores."""
    assert await listed(store, archived=False) == ["ses_plain"]
    assert await listed(store, archived=True) == ["ses_put_away"]
    assert await listed(store, archived=None) == ["ses_put_away", "ses_plain"]
    due = {found.session_id: found.due_at for found in await store.sessions.deletions()}
    assert due == {"ses_deleted": DUE_AT, "ses_deleted_archived": DUE_AT + 1, "ses_one_answer": DUE_AT + 2}
    assert await store.records.list("system", "deletion") == {}
    with pytest.raises(Gone):
        await store.sessions.get(OWNER, "ses_deleted")
    assert (await store.sessions.restore(OWNER, "ses_deleted")).archived is False
    assert (await store.sessions.restore(OWNER, "ses_deleted_archived")).archived is True
    assert await listed(store, archived=False) == ["ses_deleted", "ses_plain"]
    assert await listed(store, archived=True) == ["ses_deleted_archived", "ses_put_away"]
    assert await store.upkeep.check() == []


async def listed(store: Store, *, archived: bool | None) -> list[str]:
    return [
        session.id for session in (await store.sessions.list(OWNER, SessionFilter(archived=archived))).items
    ]


async def test_sessions_of_schema_4_keep_their_list_their_deletion_and_its_undo(
    old_url: str, data_dir: Path
) -> None:
    async with open_store(old_url, data_dir=data_dir) as store:
        await check(store)


def statements(dialect: str) -> int:
    """How many the migration has. The function's body is one statement, whatever it holds."""
    text = sql.schema(NUMBER, dialect).split("CREATE OR REPLACE FUNCTION")[0]
    return sum(line.rstrip().endswith(";") for line in text.splitlines())


# Forks a process for each statement, which ends there; the last one ends with the migration.
KILL = """
import os, shutil, sys
from pathlib import Path
from everturn.store.sqlite import connection

def migrate(path, left):
    is_migrating = False
    def count(cursor, text, bindings):
        nonlocal left, is_migrating
        if is_migrating:
            left -= 1
            if left < 0:
                os._exit(9)
        is_migrating = is_migrating or text.lstrip().startswith("BEGIN IMMEDIATE")
        return True
    opened = connection.open_connection
    def traced(*args, **more):
        database = opened(*args, **more)
        database.exec_trace = count
        return database
    connection.open_connection = traced
    connection.prepare(path).close()

template, folder = map(Path, sys.argv[1:])
killed, code = 0, 9
while code == 9:
    path = folder / str(killed) / "everturn.db"
    path.parent.mkdir()
    shutil.copy(template, path)
    child = os.fork()
    if child == 0:
        migrate(path, killed)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    killed += 1
sys.exit(code)
"""


def test_a_process_killed_at_any_statement_of_the_migration_leaves_a_folder_that_opens(
    tmp_path: Path,
) -> None:
    template, folder = tmp_path / "template.db", tmp_path / "killed"
    make_sqlite(template)
    folder.mkdir()
    subprocess.run([sys.executable, "-c", KILL, str(template), str(folder)], check=True)
    left = sorted(folder.iterdir())
    for each in left:
        asyncio.run(_open_and_check(each))
    assert len(left) > statements("sqlite") + 1, "each statement of the migration, its commit, and none"


async def _open_and_check(folder: Path) -> None:
    async with open_store(data_dir=folder) as store:
        await check(store)


@pytest.mark.parametrize("count", range(statements("postgresql") + 1))
async def test_a_connection_lost_at_any_statement_of_the_migration_leaves_a_database_that_opens(
    postgres: PostgresServer, data_dir: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    good = sql.schema

    def cut(number: int, dialect: str) -> str:
        text = good(number, dialect)
        if number != NUMBER:
            return text
        ends = [0, *(at + 2 for at in range(len(text)) if text.startswith(";\n", at))]
        return text[: ends[count]] + "SELECT pg_terminate_backend(pg_backend_pid());"

    with postgres.database() as address:
        await make_postgresql(address)
        with monkeypatch.context() as killed:
            killed.setattr(sql, "schema", cut)
            with pytest.raises(StoreAway):
                async with open_store(address, data_dir=data_dir):
                    pass
        async with open_store(address, data_dir=data_dir) as store:
            await check(store)
