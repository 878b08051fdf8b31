"""A process is killed at every named moment, and the next one finds everything that was promised.

The moments are those of ``domain.probe``: a new one is tested without being named here. What only the
store passes is tried in a life through the store alone; all others in one with the engine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everturn.domain.probe import Moment
from everturn.store import open_store
from everturn.testing import RecordingProbe
from tests.crash import store_work
from tests.crash.checking import After
from tests.crash.child import run
from tests.crash.notes import notes_in, read_notes

pytestmark = pytest.mark.anyio
KILLED = 137


def live_and_die(part: str, url: str, folder: Path, notes: Path, moment: Moment | None, nth: int) -> int:
    """Let a child live this part until the moment; return how it ended."""
    arguments = [part, url, str(folder), str(notes), moment or "", str(nth)]
    command = [sys.executable, "-m", "tests.crash.child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("moment", sorted(store_work.PASSES))
async def test_a_life_through_the_store_survives_being_killed(
    moment: Moment, nth: int, store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    code = live_and_die("store", store_url, data_dir, notes, moment, nth)
    assert code == KILLED or nth > 1, f"the life passes {moment}"
    async with open_store(store_url, data_dir=data_dir) as store:
        await After(store, read_notes(notes)).check()


async def test_the_life_through_the_store_passes_exactly_the_moments_it_names(
    store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    probe = RecordingProbe()
    await run("store", store_url, data_dir, notes_in(tmp_path / "notes"), probe)
    assert set(probe.moments) == store_work.PASSES
