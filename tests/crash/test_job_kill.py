"""A server is killed at every moment of a job; the next one finds the job, and its end enters the session once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everturn.domain.job_states import JobState
from everturn.domain.probe import Moment, Probe
from everturn.store import open_store
from everturn.tools import Sandbox
from tests.acting import ME, new_session
from tests.crash.job_work import jobs_of, workspace_of
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
