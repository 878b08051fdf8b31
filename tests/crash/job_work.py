"""The life of one job, in a process that is killed at a moment: ``python -m tests.crash.job_work``."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.job_states import WhenEnded
from everturn.domain.probe import Moment, Probe
from everturn.domain.runtime import Runtime
from everturn.domain.tool import ToolCall
from everturn.jobs import Jobs, JobServices, JobSettings
from everturn.store import Store, open_store
from everturn.testing import KillingProbe
from everturn.tools import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.background import JobRequest
from tests.acting import ME

SETTINGS = JobSettings(output_bytes_max=4096, look_every_s=0.02, idle_look_every_s=0.1)
COMMAND = "echo ran >> ran; echo out"


def jobs_of(store: Store, home: Path, sandbox: Sandbox, probe: Probe) -> Jobs:
    clock = SystemClock()
    runtime = Runtime(clock, Ids(clock), probe)
    services = JobServices(store.jobs, store.files, store.machine, sandbox, runtime, home / "jobs")
    return Jobs(services, SETTINGS)


def workspace_of(home: Path) -> Path:
    return home / "workspaces" / "one"


async def live(url: str, home: Path, session_id: str, moment: str) -> None:
    """Start a job and wait for its end; the probe ends the process on the way."""
    sandbox = Sandbox(home)
    await sandbox.open()
    workspace = workspace_of(home)
    workspace.mkdir(parents=True, exist_ok=True)
    async with open_store(url, data_dir=home) as store:
        jobs = jobs_of(store, home, sandbox, KillingProbe(Moment(moment)))
        call = ToolCall(
            id="call_1",
            name="terminal",
            arguments={},
            owner=ME,
            session_id=session_id,
            turn_id="trn_x",
            workspace=workspace,
            key="trn_x:call_1",
        )
        request = JobRequest(
            call, COMMAND, ("/bin/sh", "-c", COMMAND), SandboxView(workspace), WhenEnded.WAKE
        )
        async with jobs.serve("wrk_dying", lambda: None):
            job = await jobs.start(request)
            await jobs.wait(ME, job.id, seconds=120)
            await anyio.sleep(120)  # until the watcher has passed its last moment


if __name__ == "__main__":
    anyio.run(live, sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
