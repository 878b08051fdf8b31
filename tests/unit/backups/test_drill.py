"""Trial restores: made by themselves, on both stores, and what is wrong with a backup comes out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyrage
import pytest

from everturn.backups import BackupSettings, drill
from everturn.backups.book import BackupBook
from everturn.backups.runner import BackupRunner
from everturn.domain.backups import BackupDrill
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import new_session
from tests.unit.backups.kit import HOUR_S, runner_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(store_kind: str, store_url: str) -> str:
    return store_url if store_kind == "postgresql" else ""


async def _drill(runner: BackupRunner) -> BackupDrill:
    found = (await runner.status()).drill
    assert found is not None
    return found


async def test_the_newest_backup_is_restored_on_trial_now_and_then(
    store: Store, data_dir: Path, clock: FakeClock, database: str
) -> None:
    await new_session(store, "kept")
    settings = BackupSettings(every_h=24, drill_days=2)
    runner = await runner_of(store, data_dir, clock, settings, database=database)
    await runner.look()
    first = await _drill(runner)
    assert (first.problem, first.name) == ("", (await runner.status()).state.last_name)
    assert first.counts == {"sessions": 1, "turns": 0, "messages": 0}
    assert (await runner.status()).backups[-1].counts == first.counts
    await clock.advance(24 * HOUR_S)
    await runner.look()
    assert await _drill(runner) == first, "it is not due yet"
    await clock.advance(24 * HOUR_S)
    await runner.look()
    assert (await _drill(runner)).at == clock.now_ms()
    assert sorted(path.name for path in (data_dir / "backups").iterdir()) == [
        entry.name for entry in (await runner.status()).backups
    ], "nothing of the trial is left"
    assert (await runner.figures())["drill_is_failing"] == 0.0


async def test_a_damaged_backup_is_found_and_takes_no_place(
    store: Store, store_kind: str, data_dir: Path, clock: FakeClock, database: str
) -> None:
    await new_session(store, "kept")
    settings = BackupSettings(every_h=24, drill_days=1)
    runner = await runner_of(store, data_dir, clock, settings, database=database)
    await runner.look()
    (made,) = (await runner.status()).backups
    folder = data_dir / "backups" / made.name
    file = folder / ("everturn.db" if store_kind == "sqlite" else "postgresql/sessions.rows")
    file.write_bytes(file.read_bytes()[:-900] if store_kind == "sqlite" else b"")
    await clock.advance(24 * HOUR_S - 1)
    await runner.look()
    assert (await _drill(runner)).problem == "", "not due yet"
    clock_ms = clock.now_ms()
    runner = await runner_of(
        store, data_dir, clock, BackupSettings(every_h=100, drill_days=1), database=database
    )
    await clock.advance(1)
    await runner.look()
    found = await _drill(runner)
    assert found.at > clock_ms
    assert found.is_damaged, found
    assert found.name in await runner.find_problem()
    assert (await runner.status()).backups[0].problem
    assert folder.exists(), "it is the only one"
    assert (await runner.figures())["drill_is_failing"] == 1.0


async def test_a_backup_with_fewer_rows_than_were_copied_is_damaged(
    store: Store, data_dir: Path, clock: FakeClock, database: str
) -> None:
    runner = await runner_of(store, data_dir, clock, BackupSettings(every_h=24), database=database)
    await new_session(store, "kept")
    await runner.look()
    (made,) = (await runner.status()).backups
    more = {"sessions": 2, "turns": 0, "messages": 0}
    await BackupBook(store.records).put_entry(msgspec.structs.replace(made, counts=more))
    await clock.advance(7 * 24 * HOUR_S)
    runner = await runner_of(store, data_dir, clock, BackupSettings(every_h=1000), database=database)
    await runner.look()
    assert "1 sessions, 0 turns, 0 messages instead of 2 sessions" in (await _drill(runner)).problem


async def test_without_room_it_is_not_begun_and_the_backup_is_not_blamed(
    store: Store, data_dir: Path, clock: FakeClock, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill, "_SPARE_BYTES", 1 << 60)
    runner = await runner_of(store, data_dir, clock, BackupSettings(every_h=24), database=database)
    await runner.look()
    found = await _drill(runner)
    assert "no room for a trial restore" in found.problem
    assert "drill_days = 0" in found.hint
    assert not found.is_damaged
    assert (await runner.status()).backups[0].problem == ""
    monkeypatch.undo()
    await clock.advance(24 * HOUR_S)
    await runner.look()
    assert ((await _drill(runner)).problem, await runner.find_problem()) == ("", "")


async def test_an_encrypted_backup_is_restored_on_trial_when_it_is_made(
    store: Store, data_dir: Path, clock: FakeClock, database: str
) -> None:
    identity = pyrage.x25519.Identity.generate()
    settings = BackupSettings(every_h=24, drill_days=1, recipients=(str(identity.to_public()),))
    runner = await runner_of(store, data_dir, clock, settings, database=database)
    await new_session(store, "kept")
    await runner.look()
    first = await _drill(runner)
    assert (first.problem, first.counts["sessions"]) == ("", 1)
    (made,) = (await runner.status()).backups
    assert made.is_encrypted
    slower = BackupSettings(every_h=1000, drill_days=1, recipients=settings.recipients)
    runner = await runner_of(store, data_dir, clock, slower, database=database)
    await clock.advance(48 * HOUR_S)
    await runner.look()
    assert (await _drill(runner), await runner.find_problem()) == (first, ""), "this server cannot read it"


async def test_drill_days_0_is_never(store: Store, data_dir: Path, clock: FakeClock, database: str) -> None:
    settings = BackupSettings(every_h=24, drill_days=0)
    runner = await runner_of(store, data_dir, clock, settings, database=database)
    await runner.look()
    assert (await runner.status()).drill is None
