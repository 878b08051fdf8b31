"""Workers: a dead one's turns are found and released, a living one's never."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.store import Store, open_store
from everturn.testing.acting import ME, answer, append, claim, complete, new_session, start

pytestmark = pytest.mark.anyio

_DIES_WITH_A_TURN = """
import asyncio, os, sys
from everturn.domain.store import Submission
from everturn.store import open_store

async def main(url, folder):
    async with open_store(url, data_dir=folder) as store:
        await store.workers.register("wrk_dies")
        session = await store.sessions.create("local")
        await store.turns.accept("local", session.id, Submission(text="hello"))
        await store.turns.claim("wrk_dies")
        print(session.id, flush=True)
        os._exit(137)

asyncio.run(main(*sys.argv[1:]))
"""


def die_with_a_turn(url: str, folder: Path) -> str:
    """The session whose turn a process held when it was killed."""
    command = [sys.executable, "-c", _DIES_WITH_A_TURN, url, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 137, done.stderr
    return done.stdout.strip()


async def test_the_turn_of_a_killed_process_is_taken_over_at_once(store_url: str, data_dir: Path) -> None:
    session_id = die_with_a_turn(store_url, data_dir)
    async with open_store(store_url, data_dir=data_dir) as store:
        await store.workers.register("wrk_lives")
        assert await store.turns.claim("wrk_lives") == []
        assert await store.workers.take_over("wrk_lives") == 1
        held = await claim(store, "wrk_lives")
        assert (held.reason, held.turn.session_id, held.turn.attempts) == ("crash", session_id, 1)
        assert await store.workers.take_over("wrk_lives") == 0


async def test_c01_the_turn_of_a_living_worker_is_left_alone(store: Store, open_another: object) -> None:
    other: Store = await open_another()
    await store.workers.register("wrk_one")
    session = await new_session(store)
    held = await start(store, session.id, "hello", "wrk_one")
    await other.workers.register("wrk_two")
    assert await other.workers.take_over("wrk_two") == 0
    number = await append(store, held, answer("still mine"))
    assert (await complete(store, held, number)).state == "completed"


async def test_a_folder_that_was_moved_after_a_crash_gives_its_turns_a_fate(tmp_path: Path) -> None:
    """The dead worker's row names the old place; no process holds its lock in the new one."""
    die_with_a_turn("", tmp_path / "before")
    os.rename(tmp_path / "before", tmp_path / "after")
    async with open_store(data_dir=tmp_path / "after") as store:
        await store.workers.register("wrk_lives")
        assert await store.workers.take_over("wrk_lives") == 1


async def test_a_backup_that_is_restored_elsewhere_does_not_wait_for_the_living_original(
    tmp_path: Path,
) -> None:
    async with open_store(data_dir=tmp_path / "original") as original:
        await original.workers.register("wrk_one")
        session = await new_session(original)
        await start(original, session.id, "hello", "wrk_one")
        backup = await original.upkeep.backup(tmp_path / "backup")
        shutil.copytree(backup, tmp_path / "restored")
        async with open_store(data_dir=tmp_path / "restored") as restored:
            await restored.workers.register("wrk_two")
            assert await restored.workers.take_over("wrk_two") == 1
            assert (await claim(restored, "wrk_two")).turn.session_id == session.id
        assert (await original.sessions.get(ME, session.id)).active_state == "running"


async def test_two_data_folders_on_one_database_see_each_other_s_locks(tmp_path: Path) -> None:
    url = str(tmp_path / "shared.db")
    async with (
        open_store(url, data_dir=tmp_path / "one") as one,
        open_store(url, data_dir=tmp_path / "two") as two,
    ):
        await one.workers.register("wrk_one")
        session = await new_session(one)
        await start(one, session.id, "hello", "wrk_one")
        await two.workers.register("wrk_two")
        assert await two.workers.take_over("wrk_two") == 0
    session_id = die_with_a_turn(url, tmp_path / "three")
    async with open_store(url, data_dir=tmp_path / "two") as two:
        await two.workers.register("wrk_three")
        assert await two.workers.take_over("wrk_three") >= 1
        claims = await two.turns.claim("wrk_three", limit=9)
        assert session_id in [held.turn.session_id for held in claims]


async def test_registering_again_keeps_the_lock(store: Store, open_another: object) -> None:
    """A worker that lost its lease registers again under its own name."""
    other: Store = await open_another()
    await store.workers.register("wrk_one")
    await store.workers.register("wrk_one")
    session = await new_session(store)
    await start(store, session.id, "hello", "wrk_one")
    await other.workers.register("wrk_two")
    assert await other.workers.take_over("wrk_two") == 0


async def test_a_worker_that_retires_hands_its_turns_over(store: Store) -> None:
    await store.workers.register("wrk_one")
    session = await new_session(store)
    await start(store, session.id, "hello", "wrk_one")
    await store.workers.unregister("wrk_one")
    held = await claim(store, "wrk_two")
    assert (held.reason, held.turn.attempts) == ("handed_over", 0)


async def test_a_store_that_is_closed_without_retiring_leaves_its_turns_to_others(
    store: Store, open_another: object, store_url: str, data_dir: Path
) -> None:
    session = await new_session(store)
    async with open_store(store_url, data_dir=data_dir) as short:
        await short.workers.register("wrk_short")
        await start(short, session.id, "hello", "wrk_short")
    await store.workers.register("wrk_one")
    assert await store.workers.take_over("wrk_one") == 1
    assert (await claim(store, "wrk_one")).reason == "crash"


async def test_a_worker_without_a_row_leaves_no_turn_behind(tmp_path: Path) -> None:
    """Its lock file was deleted under it and its row taken; it went on claiming, and then it died."""
    async with open_store(data_dir=tmp_path) as store:
        session = await new_session(store)
        await start(store, session.id, "hello", "wrk_forgotten")
        await store.workers.register("wrk_one")
        assert await store.workers.take_over("wrk_one") == 1
        assert (await claim(store, "wrk_one")).reason == "crash"
