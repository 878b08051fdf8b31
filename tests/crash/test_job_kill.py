"""A server is killed at every moment of a job, or together with the job's shim; the next one finds the job, and
its end enters the session once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.domain.job_states import JobState
from everturn.domain.probe import Moment, Probe
from everturn.store import open_store
from everturn.testing.acting import ME, new_session
from everturn.tools import Sandbox
from tests.crash.job_work import COMMAND, found, jobs_of, workspace_of
from tests.crash.test_kill import JOBS, KILLED
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("moment", sorted(JOBS))
async def test_a_job_has_one_end_wherever_its_server_was_killed(
    moment: Moment, store_url: str, data_dir: Path
) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await new_session(store)
    command = [sys.executable, "-m", "tests.crash.job_work", store_url, str(data_dir), session.id, moment]
    died = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert died.returncode == KILLED, died.stderr
    sandbox = Sandbox(data_dir)
    await sandbox.open()
    async with open_store(store_url, data_dir=data_dir) as store:
        await store.workers.take_over("wrk_next")
        async with jobs_of(store, data_dir, sandbox, Probe()).serve("wrk_next", lambda: None):

            async def is_over() -> bool:
                return all(job.state.is_over for job in await store.jobs.list(ME))

            await until("the job is over", is_over)
        (job,) = await store.jobs.list(ME)
        ran = workspace_of(data_dir) / "ran"
        if moment is Moment.JOB_ADDED:
            assert (job.state, ran.exists()) == (JobState.LOST, False), "it never ran"
        else:
            assert (job.state, job.exit_code, ran.read_text()) == (JobState.ENDED, 0, "ran\n")
            assert job.output_file is not None
        held = await store.turns.claim("wrk_next")
        assert [job.id in (claim.message.text if claim.message else "") for claim in held] == [True]
    sandbox.close()


@pytest.mark.parametrize("moment", sorted(JOBS))
async def test_a_job_has_one_end_wherever_its_server_and_its_shim_were_killed_together(
    moment: Moment, store_url: str, data_dir: Path
) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await new_session(store)
    seconds = f"1000.{random.randrange(10**9)}"
    is_early = moment in (Moment.JOB_ADDED, Moment.JOB_STARTED)
    # Later moments are passed only when the command has ended, and the shim perhaps with it.
    command = f"echo ran >> ran; sleep {seconds} & sleep {seconds}" if is_early else COMMAND
    arguments = [store_url, str(data_dir), session.id, "both", moment, command]
    died = subprocess.run(
        [sys.executable, "-m", "tests.crash.job_work", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert died.returncode == KILLED, died.stderr
    assert found(str(data_dir / "jobs" / "job_")) == [], "no shim is left"
    sandbox = Sandbox(data_dir)
    await sandbox.open()
    for worker in ("wrk_next", "wrk_third"):  # the second finds nothing left to do
        async with open_store(store_url, data_dir=data_dir) as store:
            await store.workers.take_over(worker)
            async with jobs_of(store, data_dir, sandbox, Probe()).serve(worker, lambda: None):

                async def is_over() -> bool:
                    return all(job.state.is_over for job in await store.jobs.list(ME))

                await until("the job is over", is_over)
            (job,) = await store.jobs.list(ME)
            assert job.state is (JobState.LOST if is_early else JobState.ENDED)
            assert found(seconds) == [], "nothing of a lost job runs"
            ended = [
                event for event in await store.journal.after(ME, session.id, 0) if event.kind == "job.ended"
            ]
            assert len(ended) == 1
    sandbox.close()


async def test_of_jobs_whose_shims_were_killed_with_the_server_nothing_runs_when_they_are_lost(
    store_url: str, data_dir: Path
) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        session = await new_session(store)
    place = workspace_of(data_dir)
    seconds = f"1000.{random.randrange(10**9)}"  # by which its processes are recognized
    command = f"sleep {seconds} & touch begun_$$; sleep {seconds}; wait"
    arguments = [store_url, str(data_dir), session.id, "run", command]
    server = subprocess.Popen([sys.executable, "-m", "tests.crash.job_work", *arguments])
    try:
        await until("both run", lambda: len(list(place.glob("begun_*"))) == 2 and len(found(seconds)) >= 7)
        # A server that is halted cannot notice that a shim has died: it is as if both died at once.
        server.send_signal(signal.SIGSTOP)
        shims = found(str(data_dir / "jobs" / "job_"))
        assert len(shims) == 2
        for shim in shims:
            os.kill(shim, signal.SIGKILL)
    finally:
        server.kill()
        server.wait()
    sandbox = Sandbox(data_dir)
    await sandbox.open()
    async with open_store(store_url, data_dir=data_dir) as store:
        await store.workers.take_over("wrk_next")
        async with jobs_of(store, data_dir, sandbox, Probe()).serve("wrk_next", lambda: None):

            async def lost() -> bool:
                return all(job.state is JobState.LOST for job in await store.jobs.list(ME))

            await until("both are lost", lost)
            assert found(seconds) == []
        (held,) = await store.turns.claim("wrk_next")
        assert held.message is not None
    sandbox.close()
