"""A process is killed at every named moment, and the next one finds everything that was promised.

The moments are those of ``domain.probe``: a new one is tested without being named here. What only the
store passes is tried in a life through the store alone; all others in one with the engine.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from everturn.domain.messages import Outcome, Result
from everturn.domain.probe import Moment
from everturn.store import Store, open_store
from everturn.testing import RecordingProbe
from tests.acting import ME
from tests.crash import engine_work, store_work
from tests.crash.checking import After, all_sessions
from tests.crash.child import run
from tests.crash.notes import Note, notes_in, read_notes
from tests.forks import run_command

pytestmark = pytest.mark.anyio
KILLED = 137
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


def live_and_die(part: str, url: str, folder: Path, notes: Path, moment: Moment | None, nth: int) -> int:
    """Let a child live this part until the moment; return how it ended."""
    arguments = [part, url, str(folder), str(notes), moment or "", str(nth)]
    done = run_command(*arguments, environ=os.environ, stdin="", timeout_s=180, module="tests.crash.child")
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode


@pytest.mark.parametrize("moment", sorted(store_work.PASSES))
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
    assert set(probe.moments) == store_work.PASSES


ENGINE_TOO = {Moment.ACCEPT_COMMITTED, Moment.BATCH_WRITTEN, Moment.BATCH_COMMITTED, Moment.END_WRITTEN}


@pytest.mark.parametrize("moment", sorted(set(Moment) - store_work.PASSES - ELSEWHERE | ENGINE_TOO))
async def test_a_life_with_the_engine_survives_being_killed(
    moment: Moment, store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    nth = 5 if moment in ENGINE_TOO else 1
    assert live_and_die("engine", store_url, data_dir, notes, moment, nth) == KILLED, f"it passes {moment}"
    await check_engine_life(store_url, data_dir, read_notes(notes))


async def check_engine_life(store_url: str, data_dir: Path, notes: list[Note]) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        after = After(store, notes)
        await after.check_acknowledged()
        await engine_work.survive(store, data_dir)
        await after.check_acknowledged()
        await after.check_sound()
        await check_effects(store, data_dir)
        await check_files(store, notes, data_dir)
        check_memories(notes, data_dir)


async def check_files(store: Store, notes: list[Note], data_dir: Path) -> None:
    """The folder of a session goes with its conversation, whenever the undo was cut off."""
    for note in notes:
        if note["what"] == "drawn":
            session = await store.sessions.get(ME, note["session"])
            picture = engine_work.workspaces_of(data_dir) / session.id / engine_work.PICTURE
            assert picture.exists() == (session.head is not None)
        if note["what"] == "undone":
            assert (await store.sessions.get(ME, note["session"])).head is None


async def check_effects(store: Store, data_dir: Path) -> None:
    """No call took effect twice; one that did has a result, or is said to be of unknown outcome."""
    effects = engine_work.effects_of(data_dir)
    assert all(count == 1 for count in effects.values()), effects
    for session_id in await all_sessions(store):
        _, _, messages = await store.transcript.export(ME, session_id)
        parts = [(m.turn_id, part) for m in messages for part in m.parts]
        results = {f"{turn}:{part.call_id}": part for turn, part in parts if isinstance(part, Result)}
        for key, result in results.items():
            if result.outcome is Outcome.OK and result.name in engine_work.COUNTED:
                assert effects.get(key) == 1 or "took effect" in result.text, result
            if key in effects:
                assert result.outcome in (Outcome.OK, Outcome.UNKNOWN, Outcome.CANCELLED), result


def check_memories(notes: list[Note], data_dir: Path) -> None:
    """What memory is owed reached the provider, always under the same key."""
    keys: dict[str, set[str]] = defaultdict(set)
    for key, turns in engine_work.memories_of(data_dir):
        for turn in turns:
            keys[turn].add(key)
    for note in notes:
        if note["what"] in ("owed", "remembered"):
            assert len(keys[note["turn"]]) == 1, keys


async def test_the_life_with_the_engine_passes_all_other_moments(
    store_url: str, data_dir: Path, tmp_path: Path
) -> None:
    probe = RecordingProbe()
    await run("engine", store_url, data_dir, notes_in(tmp_path / "notes"), probe)
    assert set(Moment) - store_work.PASSES - ELSEWHERE <= set(probe.moments)
