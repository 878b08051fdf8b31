"""The power goes: what was acknowledged is there, whatever was not synced is lost, torn or mixed up."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from everturn.domain.errors import Gone, NotFound, StoreBroken
from tests.crash.power import check_cut, cuts, live_on

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
CUTS_IN_CI = {"lost": 60, "torn": 25, "mixed": 25, "kept": 15}


async def test_what_was_acknowledged_survives_a_power_cut_at_any_operation(tmp_path: Path) -> None:
    platter = await live_on(tmp_path / "life")
    choice = random.Random(20)
    tried = 0
    for way, count in CUTS_IN_CI.items():
        places = cuts(platter, way)
        chosen = places if len(places) <= count else sorted({places[-1], *choice.sample(places, count)})
        for upto in chosen:
            folder = tmp_path / "found"
            try:
                await check_cut(platter, folder, upto, way, seed=upto)
            except Exception as error:
                error.add_note(f"cut after operation {upto} of {len(platter.log)}, unsynced {way}")
                raise
            shutil.rmtree(folder)
            tried += 1
    assert tried > 100


async def test_a_disk_that_only_pretends_to_sync_is_caught(tmp_path: Path) -> None:
    """The check itself can fail: without the log's syncs, acknowledged things are missing."""
    platter = await live_on(tmp_path / "life")
    platter.log = [op for op in platter.log if not (op.kind == "sync" and op.path.endswith("-wal"))]
    with pytest.raises((AssertionError, NotFound, Gone, StoreBroken)):
        await check_cut(platter, tmp_path / "found", len(platter.log) * 2 // 3, "lost", seed=0)


async def test_a_folder_that_was_not_synced_is_caught(tmp_path: Path) -> None:
    platter = await live_on(tmp_path / "life")
    platter.log = [op for op in platter.log if op.kind != "sync_folder"]
    with pytest.raises(FileNotFoundError):
        await check_cut(platter, tmp_path / "found", len(platter.log), "lost", seed=0)
