"""A PostgreSQL database of every earlier schema is migrated and served, with rows that older versions wrote.

The rows are those of the data folders in ``folders/``. They are put into tables that the migrations of PostgreSQL
make up to the same schema: a migration is never changed once it is released.
"""

from __future__ import annotations

import signal
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import apsw
import httpx2
import pytest

from everturn.move.postgres_side import PostgresSide
from everturn.move.sqlite_side import SqliteSide
from everturn.move.tables import Change, MovedTable, tables_of, to_postgres
from everturn.store.postgres.connection import Connector, prepare
from everturn.testing.forks import fork_command
from everturn.testing.ports import free_port
from everturn.testing.postgres_server import PostgresServer
from tests.acceptance.command_line import environment
from tests.golden.make_folder import PASSWORD, provider, wait_until_ready
from tests.golden.test_folders import FOLDERS

MACHINE = "0123456789abcdef0123456789abcdef@golden"


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name.split(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[httpx2.Client]:
    """Today's server on a database of an earlier schema, and a client that is signed in."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    home, port = tmp_path / "data", free_port()
    with postgres.database() as address, provider() as wire:
        anyio.run(_carry, home, address)
        (home / "everturn.db").unlink()
        environ = environment(
            home,
            OPENAI_BASE_URL=f"http://127.0.0.1:{wire}/v1",
            OPENAI_API_KEY="sk-not-a-key",
            EVERTURN_DATABASE_URL=address,
        )
        serving = fork_command("serve", "--port", str(port), environ=environ)
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
                wait_until_ready(client)
                assert client.post("/api/signin", json={"password": PASSWORD}).status_code < 300
                yield client
        finally:
            serving.send_signal(signal.SIGKILL)
            serving.wait(60)


async def _carry(home: Path, address: str) -> None:
    """Make the tables of the folder's schema, and fill them with its rows and notes."""
    file = apsw.Connection(str(home / "everturn.db"))
    schema = int(str(file.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()[0][0]))
    connection = await Connector(address).connect()
    with closing(SqliteSide(home, file)) as source:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await prepare(connection, address, schema)
        target = PostgresSide(connection)
        async with connection.transaction():
            for table in tables_of(await target.describe(), source.columns()):
                async for rows in source.rows(table):
                    await target.add(table, rows, _change(table))
            await target.set_counters(await source.counters())
    await connection.close()


def _change(table: MovedTable) -> Change:
    """Earlier schemas do not have all the columns that a move changes."""
    if table.name == "packs":
        return lambda row: row
    if table.name in ("workspaces", "jobs", "sessions") and "machine" not in table.columns:
        return lambda row: row
    return to_postgres(table, MACHINE)


def test_an_old_database_shows_everything_that_was_in_it(old: httpx2.Client) -> None:
    sessions = {item["title"]: item for item in _items(old, "/api/sessions?limit=100")}
    assert {"Plain talk", "Tools", "Attachments", "Summarised", "Cut off"} <= sessions.keys()
    assert "Archived" in {item["title"] for item in _items(old, "/api/sessions?limit=100&archived=true")}
    assert sessions["Plain talk"]["tags"] == ["old", "kept"]
    answer = old.get(f"/api/sessions/{sessions['Plain talk']['id']}/messages?limit=100")
    texts = [part["text"] for each in answer.json()["messages"] for part in each["parts"] if "text" in part]
    assert texts[:2] == ["question 0", "An answer to: question 0"]
    assert [found["title"] for found in _items(old, "/api/sessions?q=kept")] == ["Plain talk"]
    assert [token["label"] for token in _items(old, "/api/tokens")] == ["phone"]
    (ask,) = _items(old, "/api/approvals")
    denied = old.post(f"/api/approvals/{ask['id']}", json={"decision": "deny"})
    assert denied.status_code < 300, denied.text
    with old.stream("GET", f"/api/sessions/{ask['session_id']}/events?after=0") as stream:
        assert any("An answer to: this one waits its turn" in line for line in stream.iter_lines())


def _items(client: httpx2.Client, path: str) -> list[dict[str, object]]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["items"]
    return found
