"""Backups in object storage, on a real S3-speaking server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import anyio
import pyrage
import pytest

from everturn.backups import BackupSettings, bucket
from everturn.backups.bucket import LEFTOVER_MS
from everturn.backups.encryption import Key
from everturn.backups.rotation import RETRY_MS
from everturn.backups.runner import BackupRunner
from everturn.backups.source import SealedSource, find_source
from everturn.backups.watch import BackupWatch
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.store import Store, open_store
from everturn.testing import FakeClock
from everturn.testing.acting import new_session
from tests.s3_server import S3Server
from tests.unit.backups.kit import HOUR_S, runner_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(store_kind: str, store_url: str) -> str:
    return store_url if store_kind == "postgresql" else ""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket.BucketParts, "part_bytes", 20_000)


def _names(server: S3Server, address: str) -> set[str]:
    return {name.partition("/")[0] for name in server.names(address)}


async def _newest(runner: BackupRunner) -> str:
    return (await runner.status()).state.last_name


async def test_backups_go_there_in_parts_and_old_ones_go_away(
    store: Store, data_dir: Path, clock: FakeClock, database: str, s3_server: S3Server, files_url: str
) -> None:
    await new_session(store, "kept")
    settings = BackupSettings(every_h=24, keep_daily=2, keep_weekly=0, url=files_url, drill_days=1)
    runner = await runner_of(store, data_dir, clock, settings, database=database)
    s3_server.put(files_url, "by-hand/file", b"of somebody else")
    await runner.look()
    first = await _newest(runner)
    assert f"{first}/backup.tar.00001" in s3_server.names(files_url)
    for _ in range(3):
        await clock.advance(24 * HOUR_S)
        await runner.look()
    status = await runner.status()
    assert (await runner.find_problem(), len(status.backups)) == ("", 2)
    assert _names(s3_server, files_url) == {"by-hand", *(entry.name for entry in status.backups)}
    assert first not in _names(s3_server, files_url)
    assert status.drill is not None
    assert (status.drill.name, status.drill.counts["sessions"]) == (status.backups[-1].name, 1)
    assert list((data_dir / "backups").iterdir()) == [], "only the copy in the bucket is left"


async def test_an_encrypted_one_is_found_by_name_and_as_the_newest(
    store: Store, data_dir: Path, clock: FakeClock, files_url: str, s3_server: S3Server, tmp_path: Path
) -> None:
    identity = pyrage.x25519.Identity.generate()
    settings = BackupSettings(
        every_h=24, url=files_url, recipients=(str(identity.to_public()),), drill_days=0
    )
    await new_session(store, "a title that nobody may see")
    runner = await runner_of(store, data_dir, clock, settings)
    await runner.look()
    place, _, options = files_url.partition("?")
    for number, source in enumerate((files_url, f"{place}/{await _newest(runner)}?{options}")):
        found = await find_source(source)
        assert isinstance(found, SealedSource)
        assert found.sealed.is_encrypted
        await found.unpack(tmp_path / f"target-{number}", Key([identity]), BackupWatch())
        assert any((tmp_path / f"target-{number}").iterdir())
    for name in s3_server.names(files_url):
        assert b"nobody may see" not in s3_server.get(files_url, name)
        assert b"everturn.db" not in s3_server.get(files_url, name)


async def test_a_bucket_that_is_away_or_emptied_is_said_and_nothing_is_lost(
    store: Store, data_dir: Path, clock: FakeClock, files_url: str, s3_server: S3Server
) -> None:
    settings = BackupSettings(every_h=24, url=files_url, drill_days=0)
    runner = await runner_of(store, data_dir, clock, settings)
    missing = BackupSettings(every_h=24, url=files_url.replace("s3://", "s3://no-such-"), drill_days=0)
    await (lost := await runner_of(store, data_dir, clock, missing)).look()
    assert "no-such-" in await lost.find_problem()
    await clock.advance(RETRY_MS / 1000)
    await runner.look()
    assert await runner.find_problem() == ""
    for name in s3_server.names(files_url):
        s3_server.delete(files_url, name)
    await clock.advance(24 * HOUR_S)
    await runner.look()
    assert "is empty, although backups were put there" in await runner.find_problem()
    assert s3_server.names(files_url) == set()
    await runner.ask()
    await runner.look()
    assert await runner.find_problem() == ""
    with pytest.raises(Invalid, match="There is no backup in"):
        await find_source(files_url.replace("/files", "/elsewhere"))


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_server_that_is_killed_in_mid_upload_leaves_no_backup(
    store_url: str, empty_tables: None, data_dir: Path, files_url: str, s3_server: S3Server
) -> None:
    line = [sys.executable, "-m", "tests.unit.backups.upload_child", store_url, str(data_dir), files_url]
    with anyio.fail_after(60):
        async with await anyio.open_process(line) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive()).strip() == b"held"
            process.kill()
    (left,) = _names(s3_server, files_url)
    assert f"{left}/sealed.json" not in s3_server.names(files_url)
    clock = FakeClock(SystemClock().now_ms() + 60_000)  # a name of its own
    async with open_store(store_url, data_dir=data_dir) as store:
        settings = BackupSettings(every_h=24, url=files_url)
        runner = await runner_of(store, data_dir, clock, settings)
        await store.workers.take_over("wrk_backups")
        await runner.look()
        made = await _newest(runner)
        assert (made != left, await runner.find_problem()) == (True, "")
        assert [entry.name for entry in (await runner.status()).backups] == [made]
        assert _names(s3_server, files_url) == {made, left}, "another server might still be at it"
        await clock.advance(LEFTOVER_MS / 1000 + 60)
        await runner.look()
        assert left not in _names(s3_server, files_url)
        assert sorted(path.name for path in (data_dir / "backups").iterdir()) == []


def test_what_a_folder_of_the_bucket_holds_can_be_put_together_by_hand(
    store_url: str, empty_tables: None, data_dir: Path, files_url: str, s3_server: S3Server, tmp_path: Path
) -> None:
    """Without Everturn: cat NAME/backup.tar.* | tar x."""

    async def make() -> str:
        async with open_store(store_url, data_dir=data_dir) as store:
            settings = BackupSettings(every_h=24, url=files_url, drill_days=0)
            runner = await runner_of(store, data_dir, SystemClock(), settings)
            await runner.look()
            return await _newest(runner)

    name = asyncio.run(make())
    parts = sorted(each for each in s3_server.names(files_url) if each.startswith(f"{name}/backup.tar."))
    content = b"".join(s3_server.get(files_url, part) for part in parts)
    subprocess.run(["tar", "x", "-C", str(tmp_path)], input=content, check=True)
    assert (tmp_path / "everturn.db").exists() or (tmp_path / "postgresql" / "manifest.json").exists()
