"""The power goes: acknowledged writes survive; unsynced ones may be lost, torn or reordered."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from everturn.domain.errors import FileMissing, Gone, NotFound, StoreBroken
from everturn.lab.crash.power import check_cut, cuts, live_on
from everturn.store.sqlite import database
from everturn.testing.faulty_disk import Platter

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
CUTS_IN_LOG = {"lost": 14, "torn": 8, "mixed": 8}
CUTS_IN_CI = {"lost": 30, "torn": 12, "mixed": 12, "kept": 8}  # `make crash` tries any number


async def survive_cuts(platter: Platter, folder: Path, chosen: dict[str, int]) -> int:
    """Cut the power in so many places for each way of losing what was not synced, and check what is found."""
    choice = random.Random(20)
    tried = 0
    for way, count in chosen.items():
        places = cuts(platter, way)
        if len(places) > count:
            places = sorted({places[-1], *choice.sample(places, count)})
        for upto in places:
            try:
                await check_cut(platter, folder, upto, way, seed=upto)
            except Exception as error:
                error.add_note(f"cut after operation {upto} of {len(platter.log)}, unsynced {way}")
                raise
            shutil.rmtree(folder)
            tried += 1
    return tried


async def test_what_was_acknowledged_survives_a_power_cut_at_any_operation(tmp_path: Path) -> None:
    platter = await live_on(tmp_path / "life")
    assert await survive_cuts(platter, tmp_path / "found", CUTS_IN_CI) > 50


async def test_it_survives_a_power_cut_while_the_log_is_started_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is moved into the database and cut after nearly every commit, so that most cuts fall there."""
    monkeypatch.setattr(database, "CHECKPOINT_EVERY_S", 0.0)
    monkeypatch.setattr(database, "PAGE_BYTES", 0)  # a log of any length is long
    monkeypatch.setattr(database, "LOG_BYTES_MAX", 0)
    platter = await live_on(tmp_path / "life")
    assert sum(op.kind == "truncate" and op.path.endswith("-wal") for op in platter.log) > 10
    assert await survive_cuts(platter, tmp_path / "found", CUTS_IN_LOG) >= 30


async def test_a_disk_that_only_pretends_to_sync_is_caught(tmp_path: Path) -> None:
    """The check itself can fail: without the log's syncs, acknowledged things are missing."""
    platter = await live_on(tmp_path / "life")
    platter.log = [op for op in platter.log if not (op.kind == "sync" and op.path.endswith("-wal"))]
    with pytest.raises((AssertionError, NotFound, Gone, StoreBroken)):
        await check_cut(platter, tmp_path / "found", len(platter.log) * 2 // 3, "lost", seed=0)


async def test_a_folder_that_was_not_synced_is_caught(tmp_path: Path) -> None:
    platter = await live_on(tmp_path / "life")
    platter.log = [op for op in platter.log if op.kind != "sync_folder"]
    with pytest.raises(FileMissing):
        await check_cut(platter, tmp_path / "found", len(platter.log), "lost", seed=0)
