"""A process is killed at every named moment, and the next one finds everything that was promised.

The moments are those of ``domain.probe``: a new one is tested without being named here. What only the
store passes is tried in a life through the store alone; all others in one with the engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.probe import Moment
from everturn.lab.crash import store_life
from everturn.lab.crash.checks import After
from everturn.lab.crash.child import run
from everturn.lab.crash.engine_checks import check_engine_life
from everturn.lab.crash.kills import KILLED, live_and_die
from everturn.lab.crash.notes import notes_in, read_notes
from everturn.store import open_store
from everturn.testing import RecordingProbe

pytestmark = pytest.mark.anyio
# Only a database that is away makes a worker spool; these deaths are in test_spool_kill.py.
SPOOLED = {Moment.SPOOL_SYNCED, Moment.SPOOL_DELIVERED}
# Only a second machine passes it: this death is in contracts/test_e05_machines.py.
ARRIVING = {Moment.FILES_PUT_ASIDE}
# Only a server with an account passes them: these deaths are in test_delivery_kill.py.
DELIVERING = {Moment.INBOX_RECEIVED, Moment.REPLY_RECORDED, Moment.PART_CLAIMED, Moment.PART_SENT}
# Passed by what is due later; killed in test_schedule_kill.
SCHEDULING = {Moment.OCCURRENCE_WRITTEN, Moment.OCCURRENCE_COMMITTED}
# Only a background command passes them: these deaths are in test_job_kill.py.
JOBS = {Moment.JOB_ADDED, Moment.JOB_STARTED, Moment.JOB_KEPT, Moment.JOB_ENDED}
# Only a person who makes or trusts a skill passes it; killed in test_skill_kill.
SKILLS = {Moment.SKILL_STORED}
ELSEWHERE = SPOOLED | ARRIVING | DELIVERING | SCHEDULING | JOBS | SKILLS


@pytest.mark.parametrize("moment", sorted(store_life.PASSES))
async def test_a_life_through_the_store_survives_being_killed(
    moment: Moment, store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    assert live_and_die("store", store_url, data_dir, notes, moment, 1) == KILLED, f"it passes {moment}"
    async with open_store(store_url, data_dir=data_dir) as store:
        await After(store, read_notes(notes)).check()


async def test_the_life_through_the_store_passes_exactly_the_moments_it_names(
    store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    probe = RecordingProbe()
    await run("store", store_url, data_dir, notes_in(tmp_path / "notes"), probe)
    assert set(probe.moments) == store_life.PASSES


ENGINE_TOO = {Moment.ACCEPT_COMMITTED, Moment.BATCH_WRITTEN, Moment.BATCH_COMMITTED, Moment.END_WRITTEN}


@pytest.mark.parametrize("moment", sorted(set(Moment) - store_life.PASSES - ELSEWHERE | ENGINE_TOO))
async def test_a_life_with_the_engine_survives_being_killed(
    moment: Moment, store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    nth = 5 if moment in ENGINE_TOO else 1
    assert live_and_die("engine", store_url, data_dir, notes, moment, nth) == KILLED, f"it passes {moment}"
    await check_engine_life(store_url, data_dir, read_notes(notes))


async def test_the_life_with_the_engine_passes_all_other_moments(
    store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    probe = RecordingProbe()
    await run("engine", store_url, data_dir, notes_in(tmp_path / "notes"), probe)
    assert set(Moment) - store_life.PASSES - ELSEWHERE <= set(probe.moments)
