"""The command line on PostgreSQL: what differs from a file in the data folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from everturn.domain.storing import Submission
from everturn.store import open_store
from everturn.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
OWNER = "local"


async def command(home: Path, address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN")}
    kept |= {"EVERTURN_HOME": str(home), "EVERTURN_DATABASE_URL": address, "COLUMNS": "200"}

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "everturn", *arguments],
            env=kept,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return await anyio.to_thread.run_sync(call)


async def test_a_backup_of_postgresql_is_restored_into_an_empty_one_only(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    async with open_store(postgres_url, data_dir=home) as store:
        session = await store.sessions.create(OWNER, title="Kept")
        file = await store.files.put(OWNER, "a.txt", "text/plain", b"bytes")
        await store.turns.accept(OWNER, session.id, Submission(text="hello", attachments=(file.id,)))
    done = await command(home, postgres_url, "backup", str(copy))
    assert done.returncode == 0, done.stderr

    refused = await command(tmp_path / "new", postgres_url, "restore", str(copy))
    assert refused.returncode == 1
    assert "not empty" in refused.stderr
    refused = await command(tmp_path / "new", "", "restore", str(copy))
    assert refused.returncode == 1
    assert "backup of PostgreSQL" in refused.stderr
    assert not (tmp_path / "new").exists()

    with postgres.database() as empty:
        done = await command(tmp_path / "new", empty, "restore", str(copy))
        assert done.returncode == 0, done.stderr
        async with open_store(empty, data_dir=tmp_path / "new") as store:
            assert (await store.sessions.get(OWNER, session.id)).title == "Kept"
            assert (await store.files.path(OWNER, file.id)).read_bytes() == b"bytes"
            assert await store.upkeep.check() == []
