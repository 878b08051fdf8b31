"""The command line on PostgreSQL: what differs from a file in the data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Submission
from everturn.store import open_store
from everturn.testing.ports import free_port
from everturn.testing.postgres_server import PostgresServer
from tests.acceptance.command_line import command
from tests.blobs import content_of

pytestmark = pytest.mark.anyio
OWNER = "local"


async def test_a_backup_of_postgresql_is_restored_into_an_empty_one_only(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    async with open_store(postgres_url, data_dir=home) as store:
        session = await store.sessions.create(OWNER, NewSession(title="Kept"))
        file = await store.files.put(OWNER, "a.txt", "text/plain", b"bytes")
        await store.turns.accept(OWNER, session.id, Submission(text="hello", attachments=(file.id,)))
    done = await command(home, "backup", str(copy), EVERTURN_DATABASE_URL=postgres_url, COLUMNS="200")
    assert done.returncode == 0, done.stderr

    refused = await command(
        tmp_path / "new", "restore", "--yes", str(copy), EVERTURN_DATABASE_URL=postgres_url, COLUMNS="200"
    )
    assert refused.returncode == 1
    assert "not empty" in refused.stderr
    refused = await command(tmp_path / "new", "restore", str(copy), EVERTURN_DATABASE_URL="", COLUMNS="200")
    assert refused.returncode == 1
    assert "backup of PostgreSQL" in refused.stderr
    assert not (tmp_path / "new").exists()

    with postgres.database() as empty:
        done = await command(
            tmp_path / "new", "restore", "--yes", str(copy), EVERTURN_DATABASE_URL=empty, COLUMNS="200"
        )
        assert done.returncode == 0, done.stderr
        async with open_store(empty, data_dir=tmp_path / "new") as store:
            assert (await store.sessions.get(OWNER, session.id)).title == "Kept"
            assert await content_of(store, OWNER, file.id) == b"bytes"
            assert await store.upkeep.check() == []


async def test_a_store_is_moved_and_each_step_is_shown(postgres_url: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_store("", data_dir=home) as store:
        session = await store.sessions.create(OWNER, NewSession(title="Kept"))
    moved = await command(tmp_path / "none", "move", str(home), postgres_url)
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout.startswith("Moved and verified.\n")
    assert moved.stderr.count("\n") > 1
    async with open_store(postgres_url, data_dir=tmp_path / "new") as store:
        assert (await store.sessions.get(OWNER, session.id)).title == "Kept"


@pytest.mark.timeout(400)  # each command is a process, and a busy machine takes seconds to start one
async def test_secrets_are_encrypted_shown_by_name_and_rotated(postgres_url: str, tmp_path: Path) -> None:
    async def secrets(*words: str, key: str, home: str = "home") -> tuple[int, str]:
        done = await command(
            tmp_path / home,
            *words,
            EVERTURN_DATABASE_URL=postgres_url,
            EVERTURN_SECRET_KEY=key,
            COLUMNS="200",
        )
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "secrets.toml").write_text('[keys]\nopenai = "sk-planted-0123456789"\n')
    status, said = await secrets("secrets", "status", key="")
    assert status == 0, said
    assert "stay on this machine" in said
    old, new = [(await secrets("secrets", "new-key", key=""))[1].strip() for _ in range(2)]

    status, said = await secrets("secrets", "status", key=old)
    assert status == 0, said
    assert "keys/openai" in said
    assert "the database, encrypted" in said
    assert "sk-planted" not in said
    assert not (tmp_path / "home" / "secrets.toml").exists()

    status, said = await secrets("secrets", "rotate", key=new)
    assert status == 1
    assert "Nothing was changed" in said
    status, said = await secrets("secrets", "rotate", key=f"{new},{old}", home="elsewhere")
    assert status == 0, said
    assert "1 secret is encrypted" in said
    assert "in the database, encrypted" in (await secrets("doctor", key=new))[1]
    assert "Nothing was changed" in (await secrets("doctor", key=old))[1]

    status, said = await secrets("secrets", "reset", "--yes", key=old)
    assert (status, "keys/openai" in said) == (0, True), said
    status, said = await secrets("secrets", "rotate", key="")
    assert status == 1
    assert "no key encrypts" in said


@pytest.mark.timeout(400)
async def test_notes_are_imported_exported_edited_and_brought_back(postgres_url: str, tmp_path: Path) -> None:
    async def memory(home: str, *words: str, editor: str = "") -> str:
        done = await command(
            tmp_path / home,
            "memory",
            *words,
            EVERTURN_DATABASE_URL=postgres_url,
            COLUMNS="200",
            EDITOR=editor,
            VISUAL=editor,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    own = tmp_path / "one" / "memory" / OWNER
    own.mkdir(parents=True)
    (own / "2025-06.md").write_text("# Mine\n\n- Keeps bees\n\nThe end.\n")
    assert "Keeps bees" in await memory("one", "list")
    assert (tmp_path / "one" / "memory.imported").is_dir()
    assert "Keeps bees" in await memory("two", "list")
    assert "in the database" in await memory("two", "where")

    files = tmp_path / "files"
    await memory("two", "export", str(files))
    page = files / "2025-06.md"
    assert page.read_text() == "# Mine\n\n- Keeps bees\n\nThe end.\n"
    assert page.stat().st_mode & 0o777 == 0o600
    page.write_text(page.read_text().replace("bees", "goats"))
    await memory("two", "import", str(files))
    assert "Keeps goats" in await memory("one", "list")

    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/goats/sheep/ "$1"\n')
    editor.chmod(0o700)
    await memory("one", "edit", "2025-06.md", editor=str(editor))
    assert "Keeps sheep" in await memory("two", "list")


@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("sessions",)])
async def test_a_database_that_cannot_be_reached_is_one_sentence_and_a_hint(
    data_dir: Path, arguments: tuple[str, ...]
) -> None:
    url = f"postgresql://ada:secret@127.0.0.1:{free_port()}/everturn"
    done = await command(data_dir, *arguments, EVERTURN_DATABASE_URL=url)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "See whether the server runs" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
