"""Opening a SQLite store: what is refused and with which words, migrations, several processes at once."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from everturn.domain.errors import (
    DiskFull,
    DiskReadOnly,
    EverturnError,
    NotADatabase,
    Stopped,
    StoreBroken,
    StoreRefused,
    StoreTooNew,
)
from everturn.store import open_store, sql
from everturn.store.files.disk import Disk
from everturn.store.sqlite import connection, writer
from everturn.testing.acting import ME, answered, new_session, words
from everturn.testing.faulty_disk import FaultyDisk, Platter

pytestmark = pytest.mark.anyio


async def _refused(path: Path, error: type[EverturnError]) -> EverturnError:
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(error) as refused:
        async with open_store(path, data_dir=path.parent):
            pass
    assert refused.value.message
    assert refused.value.hint
    assert (path.read_bytes() if path.is_file() else b"") == before, "it was not touched"
    return refused.value


@pytest.mark.parametrize(
    "content", [b"hello", b"This is a letter, not a database.\n" * 200, b"\xff" * 70_000]
)
async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(content)
    error = await _refused(path, NotADatabase)
    assert "letter.db" in error.message


class _RecordingDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def sync_folder(self, folder: Path) -> None:
        self.synced.append(folder)
        super().sync_folder(folder)


async def test_folders_that_are_made_for_the_data_are_there_after_a_power_cut(tmp_path: Path) -> None:
    disk = _RecordingDisk()
    for expected in ([tmp_path / "new", tmp_path], []):
        disk.synced.clear()
        async with open_store(data_dir=tmp_path / "new" / "data", disk=disk):
            assert disk.synced == expected


async def test_a_database_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    foreign = apsw.Connection(str(path))
    foreign.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')")
    foreign.close()
    with pytest.raises(NotADatabase):
        async with open_store(path, data_dir=tmp_path):
            pass
    foreign = apsw.Connection(str(path))
    assert foreign.execute("SELECT text FROM notes").fetchall() == [("mine",)]
    foreign.close()


async def test_a_database_whose_schema_is_not_stated_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.db"
    foreign = apsw.Connection(str(path))
    foreign.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
    foreign.close()
    with pytest.raises(NotADatabase):
        async with open_store(path, data_dir=tmp_path):
            pass


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    await _refused(tmp_path / "folder.db", DiskReadOnly)


async def test_an_address_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused):
        async with open_store("mysql://somewhere/db", data_dir=tmp_path):
            pass


async def test_other_users_may_not_read_the_database_files(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path) as store:
        await new_session(store, "mine")
        files = [path for path in tmp_path.iterdir() if path.name.startswith("everturn.db")]
        assert len(files) == 3
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path) as store:
        await new_session(store, "kept")
    _set_schema(tmp_path / "everturn.db", connection.SCHEMA + 1)
    with pytest.raises(StoreTooNew) as refused:
        async with open_store(data_dir=tmp_path):
            pass
    assert refused.value.hint
    _set_schema(tmp_path / "everturn.db", connection.SCHEMA)
    async with open_store(data_dir=tmp_path) as store:
        assert [s.title for s in (await store.sessions.list(ME)).items] == ["kept"]


async def test_a_process_that_finds_a_newer_schema_stops_writing(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path) as store:
        session = await new_session(store, "before")
        _set_schema(tmp_path / "everturn.db", connection.SCHEMA + 1)
        for _ in range(2):
            with pytest.raises(StoreTooNew):
                await new_session(store, "after")
        assert (await store.sessions.get(ME, session.id)).title == "before"
    _set_schema(tmp_path / "everturn.db", connection.SCHEMA)
    async with open_store(data_dir=tmp_path) as store:
        assert [s.title for s in (await store.sessions.list(ME)).items] == ["before"]


def _set_schema(path: Path, number: int) -> None:
    database = apsw.Connection(str(path))
    database.execute("UPDATE meta SET value = ? WHERE name IN ('schema', 'schema_min')", (str(number),))
    database.close()


# --- migration -----------------------------------------------------------------------------------------


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> int:
    """A program that knows one schema more than this one."""
    number = connection.SCHEMA + 1
    known = sql.schema
    statements = "ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';\n"
    statements += f"UPDATE meta SET value = '{number}' WHERE name = 'schema'"
    monkeypatch.setattr(sql, "schema", lambda n, dialect: statements if n == number else known(n, dialect))
    monkeypatch.setattr(connection, "SCHEMA", number)
    monkeypatch.setattr(writer, "SCHEMA", number)
    return number


async def test_an_older_database_is_migrated_after_a_backup(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with open_store(data_dir=tmp_path) as store:
        session = await new_session(store, "old")
        await answered(store, session.id, "a", "A")
    number = request.getfixturevalue("next_schema")
    async with open_store(data_dir=tmp_path) as store:
        assert await words(store, session.id) == ["a", "A"]
        await answered(store, session.id, "b", "B")
    (backup,) = tmp_path.glob("*before-schema*")
    copy = apsw.Connection(str(backup))
    assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.schema_version(copy) == number - 1
    assert copy.execute("SELECT count(*) FROM messages").fetchall() == [(2,)]
    copy.close()


async def test_a_migration_that_fails_leaves_the_old_database_and_is_tried_again(
    tmp_path: Path, next_schema: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(connection, "SCHEMA", next_schema - 1)
        older.setattr(writer, "SCHEMA", next_schema - 1)
        async with open_store(data_dir=tmp_path) as store:
            session = await new_session(store, "old")
    good = sql.schema
    with monkeypatch.context() as broken:
        broken.setattr(sql, "schema", lambda n, d: good(n, d).replace("UPDATE meta", "UPDATE nothing"))
        with pytest.raises(Stopped):
            async with open_store(data_dir=tmp_path):
                pass
    async with open_store(data_dir=tmp_path) as store:
        assert (await store.sessions.get(ME, session.id)).title == "old"


async def test_a_second_process_that_comes_late_to_a_migration_leaves_the_backup_alone(
    tmp_path: Path, next_schema: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw the old schema; one has migrated when the other begins to copy."""
    with monkeypatch.context() as older:
        older.setattr(connection, "SCHEMA", next_schema - 1)
        older.setattr(writer, "SCHEMA", next_schema - 1)
        async with open_store(data_dir=tmp_path) as store:
            await new_session(store, "old")
    path = tmp_path / "everturn.db"
    late = connection.open_connection(path)
    async with open_store(data_dir=tmp_path):
        pass
    connection.copy_before_migrating(late, path, next_schema - 1)
    late.close()
    (backup,) = tmp_path.glob("*before-schema*")
    copy = apsw.Connection(str(backup))
    assert connection.schema_version(copy) == next_schema - 1
    copy.close()


# --- several processes ------------------------------------------------------------------------------------

_OPENS = """
import asyncio, sys
from everturn.store import open_store

async def main(folder):
    sys.stdin.readline()
    async with open_store(data_dir=folder) as store:
        await store.sessions.create("local")

asyncio.run(main(sys.argv[1]))
"""


async def test_processes_that_open_a_new_store_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    for attempt in range(3):
        folder = tmp_path / f"data-{attempt}"
        folder.mkdir()
        command = [sys.executable, "-c", _OPENS, str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        racers = [subprocess.Popen(command, **pipes) for _ in range(4)]
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.communicate(timeout=180)[1] for racer in racers]
        assert [racer.returncode for racer in racers] == [0] * 4, "\n".join(said)
        async with open_store(data_dir=folder) as store:
            assert len((await store.sessions.list(ME)).items) == 4


# --- surroundings -----------------------------------------------------------------------------------------


def test_an_old_sqlite_is_refused() -> None:
    with pytest.raises(StoreRefused) as refused:
        connection.refuse_old_sqlite((3, 40, 1))
    assert "3.40.1" in refused.value.message
    connection.refuse_old_sqlite((3, 51, 3))


def test_the_file_system_of_a_folder_is_that_of_its_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw 0 0\nb {tmp_path} nfs4 rw 0 0\nc /elsewhere ext4 rw 0 0\nbroken\n")
    assert connection.file_system_of(tmp_path / "data", mounts) == "nfs4"
    assert connection.file_system_of(Path("/"), mounts) == "ext4"
    assert connection.file_system_of(tmp_path, tmp_path / "nothing") == ""


async def test_what_was_opened_is_closed_when_opening_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's thread and connection must not outlive a failure to open the readers."""
    real = connection.open_connection

    def fails(path: Path, **more: Any) -> apsw.Connection:
        if more.get("is_reader"):
            raise StoreRefused("no reader today")
        return real(path, **more)

    monkeypatch.setattr("everturn.store.sqlite.database.open_connection", fails)
    with pytest.raises(StoreRefused):
        async with open_store(data_dir=tmp_path):
            pass
    monkeypatch.undo()
    assert not [c for c in apsw.connections() if c.filename.startswith(str(tmp_path))]


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.EIO, StoreBroken), (errno.ENOSPC, DiskFull), (errno.EROFS, DiskReadOnly)]
)
async def test_a_new_data_folder_whose_sync_fails_is_refused_with_a_reason(
    platter: Platter, code: int, kind: type[EverturnError]
) -> None:
    platter.fail("sync_folder", code)
    with pytest.raises(kind, match="data folder") as refused:
        async with open_store(data_dir=platter.root, disk=FaultyDisk(platter)):
            pass
    assert refused.value.hint
    platter.heal()
    async with open_store(data_dir=platter.root, disk=FaultyDisk(platter)) as store:
        await new_session(store)


async def test_a_new_database_whose_folder_cannot_be_synced_is_refused_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(connection, "sync_folder", fails)
    with pytest.raises(StoreBroken, match=r"everturn\.db"):
        async with open_store(data_dir=tmp_path):
            pass
