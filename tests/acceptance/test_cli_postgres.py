"""The command line on PostgreSQL: what differs from a file in the data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.store_values import Submission
from everturn.store import open_store
from everturn.testing.postgres_server import PostgresServer
from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio
OWNER = "local"


async def test_a_backup_of_postgresql_is_restored_into_an_empty_one_only(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    async with open_store(postgres_url, data_dir=home) as store:
        session = await store.sessions.create(OWNER, title="Kept")
        file = await store.files.put(OWNER, "a.txt", "text/plain", b"bytes")
        await store.turns.accept(OWNER, session.id, Submission(text="hello", attachments=(file.id,)))
    done = await command(home, "backup", str(copy), EVERTURN_DATABASE_URL=postgres_url, COLUMNS="200")
    assert done.returncode == 0, done.stderr

    refused = await command(
        tmp_path / "new", "restore", str(copy), EVERTURN_DATABASE_URL=postgres_url, COLUMNS="200"
    )
    assert refused.returncode == 1
    assert "not empty" in refused.stderr
    refused = await command(tmp_path / "new", "restore", str(copy), EVERTURN_DATABASE_URL="", COLUMNS="200")
    assert refused.returncode == 1
    assert "backup of PostgreSQL" in refused.stderr
    assert not (tmp_path / "new").exists()

    with postgres.database() as empty:
        done = await command(
            tmp_path / "new", "restore", str(copy), EVERTURN_DATABASE_URL=empty, COLUMNS="200"
        )
        assert done.returncode == 0, done.stderr
        async with open_store(empty, data_dir=tmp_path / "new") as store:
            assert (await store.sessions.get(OWNER, session.id)).title == "Kept"
            assert (await store.files.path(OWNER, file.id)).read_bytes() == b"bytes"
            assert await store.upkeep.check() == []
