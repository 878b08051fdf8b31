"""G08: a move carries a whole store between SQLite and PostgreSQL, verified, and can be repeated."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import apsw
import asyncpg
import pytest

from everturn.domain.errors import EverturnError, Invalid, StoreBroken, StoreRefused
from everturn.move import move_store
from everturn.store import Store, open_store
from everturn.store.sessions.documents import export_document
from everturn.testing.acting import ME, new_session
from everturn.testing.forks import run_command
from everturn.testing.postgres_server import PostgresServer
from tests.blobs import content_of
from tests.moving import LARGE, counter, dump, large_file, make_folder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]


@pytest.fixture
async def folder(anyio_backend: str, tmp_path: Path) -> Path:
    return await make_folder(tmp_path)


@pytest.fixture
async def moved_url(folder: Path, postgres_url: str) -> str:
    """The address of a database that has everything of the folder."""
    await move_store(str(folder), postgres_url, quiet)
    return postgres_url


def quiet(line: str) -> None:
    """Progress that nobody looks at."""


async def everything(store: Store) -> list[object]:
    """Exports of all sessions, and what a check finds."""
    sessions = (await store.sessions.list(ME, limit=100)).items
    found = {(finding.what, finding.detail) for finding in await store.upkeep.check()}
    return [*[await export_document(store, ME, session.id) for session in sessions], sorted(found)]


async def rows_in(address: str, table: str) -> int:
    connection = await asyncpg.connect(address)
    count = await connection.fetchval(f"SELECT count(*) FROM {table}")
    await connection.close()
    return int(count)


async def test_g08_every_row_and_every_byte_goes_to_postgresql_and_comes_back(
    folder: Path, postgres_url: str, tmp_path: Path
) -> None:
    before = dump(folder)
    assert [name for name, rows in before.items() if not rows] == []  # every table is tried

    moved = await move_store(str(folder), postgres_url, quiet)
    assert not moved.was_there
    assert moved.carried.bytes > len(LARGE)
    assert moved.carried.pages == 1
    assert any("secrets.toml" in line for line in moved.carried.not_carried)
    async with open_store(folder / "everturn.db", data_dir=folder) as store:
        expected = await everything(store)
    async with open_store(postgres_url, data_dir=tmp_path / "server") as store:
        assert await everything(store) == expected
        assert await content_of(store, ME, await large_file(store)) == LARGE
        assert store.notes is not None
        assert set(await store.notes.hashes("local")) >= {"Garden.md"}

    back = tmp_path / "back"
    moved = await move_store(postgres_url, str(back), quiet)
    assert not moved.was_there
    assert dump(back) == dump(folder)
    assert (back / "memory" / "local" / "Garden.md").read_bytes() == (
        folder / "memory" / "local" / "Garden.md"
    ).read_bytes()
    async with open_store(back / "everturn.db", data_dir=back) as store:
        assert await everything(store) == expected
        assert await content_of(store, ME, await large_file(store)) == LARGE


async def test_g08_numbers_that_were_given_are_not_given_again(
    folder: Path, postgres_url: str, tmp_path: Path
) -> None:
    """The last session was deleted: a late delivery for its number must not meet another session."""
    highest = counter(folder)
    await move_store(str(folder), postgres_url, quiet)
    await move_store(postgres_url, str(tmp_path / "back"), quiet)
    assert counter(tmp_path / "back") >= highest
    async with open_store(postgres_url, data_dir=tmp_path / "server") as store:
        await new_session(store, "after the move")
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("SELECT max(session_no) FROM sessions") > highest
    await connection.close()


async def test_g08_sessions_of_the_moved_store_are_worked_on(moved_url: str, tmp_path: Path) -> None:
    """A turn that a dead server held, and one that waits in a session that named a machine, are claimed."""
    await move_store(moved_url, str(tmp_path / "back"), quiet)
    for url, home in ((moved_url, tmp_path / "server"), (None, tmp_path / "back")):
        async with open_store(url, data_dir=home) as store:
            await store.workers.register("wrk_new")
            held = await store.turns.claim("wrk_new")
            assert held, "a turn that was running when its server was killed"
            await store.workers.unregister("wrk_new")


async def test_g08_the_command_says_what_it_did(folder: Path, postgres_url: str) -> None:
    def move() -> str:
        done = run_command(
            "move", str(folder), postgres_url, environ=dict(os.environ), stdin="", timeout_s=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = await anyio.to_thread.run_sync(move)
    assert first.startswith("Moved and verified.\n")
    assert "Not carried:\n  " in first
    assert (await anyio.to_thread.run_sync(move)).startswith("It was moved before; verified again.\n")


async def test_g08_a_repeated_move_verifies_and_a_changed_target_is_not_touched(
    folder: Path, moved_url: str, tmp_path: Path
) -> None:
    assert (await move_store(str(folder), moved_url, quiet)).was_there
    back = tmp_path / "back"
    await move_store(moved_url, str(back), quiet)
    assert (await move_store(moved_url, str(back), quiet)).was_there
    async with open_store(data_dir=back) as store:
        await new_session(store, "only here")
    before = dump(back)
    with pytest.raises(StoreRefused, match="data of its own"):
        await move_store(moved_url, str(back), quiet)
    with pytest.raises(StoreRefused, match="data of its own"):
        await move_store(str(back), moved_url, quiet)
    assert dump(back) == before
    assert (await move_store(str(folder), moved_url, quiet)).was_there


async def test_g08_what_is_in_a_target_without_a_database_is_not_touched(
    moved_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "other"
    (home / "memory" / "local").mkdir(parents=True)
    (home / "memory" / "local" / "Mine.md").write_text("- mine\n")
    (home / "config.toml").write_text("")
    with pytest.raises(StoreRefused, match="data of its own"):
        await move_store(moved_url, str(home), quiet)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"a")
    with pytest.raises(Invalid, match="not Everturn's"):
        await move_store(moved_url, str(tmp_path / "photos"), quiet)
    assert (home / "memory" / "local" / "Mine.md").read_text() == "- mine\n"
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]


async def test_g08_no_move_while_a_server_works_on_either_side(
    folder: Path, moved_url: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    with postgres.database() as empty:
        async with open_store(data_dir=folder) as store:
            await store.workers.register("wrk_lives")
            with pytest.raises(StoreRefused, match="works in"):
                await move_store(str(folder), empty, quiet)
            await store.workers.unregister("wrk_lives")
        async with open_store(moved_url, data_dir=tmp_path / "server") as store:
            await store.workers.register("wrk_lives")
            with pytest.raises(StoreRefused, match="work on the PostgreSQL"):
                await move_store(moved_url, str(tmp_path / "back"), quiet)
            with pytest.raises(StoreRefused, match="work on the PostgreSQL"):
                await move_store(str(folder), moved_url, quiet)
            await store.workers.unregister("wrk_lives")
        assert await rows_in(empty, "sessions") == 0
    assert not (tmp_path / "back" / "everturn.db").exists()


async def test_g08_bytes_that_were_damaged_before_are_named_and_carried(
    folder: Path, postgres_url: str
) -> None:
    pack = max((folder / "blobs").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(pack.read_bytes())
    content[5] ^= 1
    pack.write_bytes(content)
    moved = await move_store(str(folder), postgres_url, quiet)
    assert any("1 blobs were missing or damaged" in line for line in moved.carried.not_carried)


async def test_g08_a_row_that_did_not_arrive_as_it_was_undoes_the_move(
    folder: Path, postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "CREATE FUNCTION shout() RETURNS TRIGGER LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.value := NEW.value || ' '; RETURN NEW; END $$;"
        "CREATE TRIGGER shout BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION shout()"
    )
    await connection.close()
    with pytest.raises(StoreBroken, match="of records"):
        await move_store(str(folder), postgres_url, quiet)
    assert await rows_in(postgres_url, "sessions") == 0


async def test_g08_a_store_of_another_version_is_not_moved(folder: Path, postgres_url: str) -> None:
    database = apsw.Connection(str(folder / "everturn.db"))
    database.execute("UPDATE meta SET value = '13' WHERE name = 'schema'")
    database.close()
    with pytest.raises(StoreRefused, match="schema 13"):
        await move_store(str(folder), postgres_url, quiet)


async def test_g08_two_of_the_same_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="between a data folder"):
        await move_store(str(tmp_path / "a"), str(tmp_path / "b"), quiet)
    with pytest.raises(EverturnError, match="no everturn"):
        await move_store(str(tmp_path), "postgresql://127.0.0.1:1/none", quiet)


@pytest.mark.parametrize("way", ["to PostgreSQL", "to a folder"])
async def test_g08_a_move_that_is_killed_again_and_again_is_whole_in_the_end(
    folder: Path, postgres_url: str, tmp_path: Path, way: str
) -> None:
    """Killed at its first step, the fifth, the ninth and so on, until it gets through."""
    back = tmp_path / "back"
    source, target = str(folder), postgres_url
    if way == "to a folder":
        await move_store(source, target, quiet)
        source, target = target, str(back)
    steps = 0
    while await killed_at(source, target, steps):
        if way == "to PostgreSQL":
            assert await rows_in(postgres_url, "sessions") == 0
        steps += 4
    assert steps > 60
    assert (await move_store(source, target, quiet)).was_there
    if way == "to PostgreSQL":
        await move_store(postgres_url, str(back), quiet)
    assert dump(back) == dump(folder)
    assert not (back / ".moving").exists()


async def killed_at(source: str, target: str, steps: int) -> bool:
    """False if it got through."""
    child = await anyio.run_process(
        [sys.executable, "-m", "tests.contracts.move_child", source, target, str(steps)], check=False
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr.decode()
    return child.returncode != 0
