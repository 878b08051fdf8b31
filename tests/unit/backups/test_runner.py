"""Scheduled backups on a server: made when due, by one server at a time, and a failure is said."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest

from everturn.backups import BackupSettings, backup
from everturn.backups.rotation import RETRY_MS
from everturn.backups.runner import LEASE, LOOK_S
from everturn.store import Store, check_backup, is_postgres, open_store
from everturn.testing import FakeClock
from everturn.testing.acting import new_session
from tests.conftest import OpenAnother
from tests.small_disk import small_disk
from tests.unit.backups.kit import DAILY, HOUR_S, runner_of

pytestmark = pytest.mark.anyio


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_backup_is_made_when_it_is_due_and_old_ones_go(
    store: Store, store_url: str, data_dir: Path, clock: FakeClock
) -> None:
    await new_session(store, "kept")
    settings = BackupSettings(every_h=24, keep_daily=2, keep_weekly=0)
    runner, folder = await runner_of(store, data_dir, clock, settings), data_dir / "backups"
    await runner.look()
    (first,) = names(folder)
    await runner.look()
    assert names(folder) == [first], "it is not due yet"
    check_backup(store_url if is_postgres(store_url) else None, folder / first)
    (folder / "by-hand").mkdir()
    for _ in range(3):
        await clock.advance(24 * HOUR_S)
        await runner.look()
    status = await runner.status()
    assert [entry.name for entry in status.backups] == [each for each in names(folder) if each != "by-hand"]
    assert len(status.backups) == 2
    assert first not in names(folder)
    assert status.state.last_name == status.backups[-1].name
    assert status.backups[-1].verified_at == clock.now_ms()
    assert status.backups[-1].bytes > 10_000
    assert status.next_at == clock.now_ms() + 24 * HOUR_S * 1000
    assert (status.is_running, await runner.find_problem()) == (False, "")


async def test_without_a_schedule_one_is_made_when_it_is_asked_for(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    runner = await runner_of(store, data_dir, clock, BackupSettings())
    await runner.look()
    assert not (data_dir / "backups").exists()
    await runner.ask()
    assert (await runner.status()).is_running
    async with runner:
        await clock.someone_sleeps(LOOK_S)
    status = await runner.status()
    assert (len(status.backups), status.is_running, status.next_at) == (1, False, None)


async def test_two_servers_make_one_backup_and_the_other_takes_over_from_a_dead_one(
    store: Store, open_another: OpenAnother, data_dir: Path, clock: FakeClock
) -> None:
    one = await runner_of(store, data_dir, clock, worker="wrk_one")
    other_store = await open_another()
    other = await runner_of(other_store, data_dir, clock, worker="wrk_two")
    lease = await store.delivery.leases.take(LEASE, "wrk_one")
    assert lease is not None
    await other.look()
    assert not (data_dir / "backups").exists(), "the first server is making it"
    await store.workers.unregister("wrk_one")  # what a server does for one that is dead
    await other.look()
    assert len(names(data_dir / "backups")) == 1
    await one.look()
    assert len(names(data_dir / "backups")) == 1


async def test_a_folder_that_is_gone_or_lost_its_disk_is_said_and_never_made(
    store: Store, data_dir: Path, tmp_path: Path, clock: FakeClock
) -> None:
    disk = tmp_path / "disk"
    settings = BackupSettings(every_h=24, folder=str(disk))
    runner = await runner_of(store, data_dir, clock, settings)
    await runner.look()
    assert "is not there" in await runner.find_problem()
    status = await runner.status()
    assert "Mount it" in status.state.hint
    assert status.next_at == clock.now_ms() + RETRY_MS
    assert not disk.exists()
    disk.mkdir()
    await runner.look()
    assert names(disk) == [], "it is tried again after a while"
    await clock.advance(RETRY_MS / 1000)
    await runner.look()
    (made,) = names(disk)
    assert await runner.find_problem() == ""
    (disk / made).rename(tmp_path / "elsewhere")  # as if the disk were not mounted
    await clock.advance(24 * HOUR_S)
    await runner.look()
    assert (names(disk), "is empty, although" in await runner.find_problem()) == ([], True)
    await runner.ask()
    await runner.look()
    assert (len(names(disk)), await runner.find_problem()) == (1, "")


async def test_a_full_disk_leaves_the_old_backups_and_nothing_of_the_new_one(
    store: Store, data_dir: Path, clock: FakeClock, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", 12) as small:
        disk = small.root
        runner = await runner_of(store, data_dir, clock, BackupSettings(every_h=24, folder=str(disk)))
        await runner.look()
        (kept,) = names(disk)
        (data_dir / "memory").mkdir()
        (data_dir / "memory" / "large").write_bytes(bytes(14_000_000))
        await clock.advance(24 * HOUR_S)
        await runner.look()
        assert names(disk) == [kept]
        assert "No space left" in await runner.find_problem()
        (data_dir / "memory" / "large").unlink()
        await clock.advance(RETRY_MS / 1000)
        await runner.look()
        assert (len(names(disk)), await runner.find_problem()) == (2, "")


async def test_a_server_that_is_killed_during_a_backup_leaves_none_and_another_makes_it(
    store_url: str, empty_tables: None, data_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    line = [sys.executable, "-m", "tests.unit.backups.backup_child", store_url, str(data_dir), str(folder)]
    with anyio.fail_after(60):
        async with await anyio.open_process(line) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive()).strip() == b"held"
            process.kill()
    (left,) = names(folder)
    assert left.endswith(".unfinished")
    async with open_store(store_url, data_dir=data_dir) as store:
        clock = FakeClock()
        runner = await runner_of(store, data_dir, clock, BackupSettings(every_h=24, folder=str(folder)))
        await store.workers.take_over("wrk_backups")
        await runner.look()
        (made,) = names(folder)
        assert made.startswith("auto-")
        assert not made.endswith(".unfinished")
        assert (await runner.status()).state.last_name == made


async def test_a_backup_that_is_stopped_with_its_server_is_no_backup(
    store: Store, data_dir: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = anyio.Event(), anyio.Event()
    make = asyncio.to_thread

    async def hold(act: Callable[..., object], *more: object, **named: object) -> object:
        if act is backup.copy_memory:
            begun.set()
            await may_go_on.wait()
        return await make(act, *more, **named)

    monkeypatch.setattr(asyncio, "to_thread", hold)
    runner = await runner_of(store, data_dir, clock, DAILY)
    async with runner:
        with anyio.fail_after(30):
            await begun.wait()
        asyncio.get_running_loop().call_soon(
            may_go_on.set
        )  # right after the stop, which waits for the thread
    assert names(data_dir / "backups") == []
    assert not (await runner.status()).is_running, "the lease is free"


async def test_a_server_that_stops_does_not_copy_the_workspaces_first(
    store: Store, data_dir: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data_dir / "workspaces" / "ses_one"
    folder.mkdir(parents=True)
    for number in range(3):
        folder.joinpath(f"{number}.txt").write_text("some work")
    begun, may_go_on, copied = threading.Event(), threading.Event(), []
    copy = shutil.copyfileobj

    def hold(source: BinaryIO, target: BinaryIO) -> None:
        copied.append(target.name)
        begun.set()
        may_go_on.wait(30)
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfileobj", hold)
    runner = await runner_of(store, data_dir, clock, DAILY)
    async with runner, anyio.create_task_group() as group:
        assert await anyio.to_thread.run_sync(begun.wait, 30)
        group.start_soon(runner.stop)
        await anyio.wait_all_tasks_blocked()
        (left,) = names(data_dir / "backups")
        assert left.endswith(".unfinished"), "not removed while the thread writes there"
        may_go_on.set()
    assert len(copied) == 1, "the file that was being copied"
    assert names(data_dir / "backups") == [], "removed after the copy has ended"
