"""Jobs of a process that is killed: ``python -m tests.crash.job_work URL HOME SESSION MOMENT`` (or ``run COMMAND``)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from everturn.testing.acting import ME
from everturn.tools import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.background import JobRequest

SETTINGS = JobSettings(output_bytes_max=4096, look_every_s=0.02, idle_look_every_s=0.1)
COMMAND = "echo ran >> ran; echo out"


def jobs_of(store: Store, home: Path, sandbox: Sandbox, probe: Probe) -> Jobs:
    clock = SystemClock()
    runtime = Runtime(clock, Ids(clock), probe)
    services = JobServices(store.jobs, store.files, store.machine, sandbox, runtime, home / "jobs")
    return Jobs(services, SETTINGS)


def workspace_of(home: Path) -> Path:
    return home / "workspaces" / "one"


def request(workspace: Path, session_id: str, command: str, *, is_sandboxed: bool = True) -> JobRequest:
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
    words = ("/bin/sh", "-c", command)
    return JobRequest(call, command, words, SandboxView(workspace), WhenEnded.WAKE, is_sandboxed)


async def live(url: str, home: Path, session_id: str, moment: str) -> None:
    """Start a job and wait for its end; the probe ends the process on the way."""
    async with serving(url, home, KillingProbe(Moment(moment))) as jobs:
        job = await jobs.start(request(workspace_of(home), session_id, COMMAND))
        await jobs.wait(ME, job.id, seconds=120)
        await anyio.sleep(120)  # until the watcher has passed its last moment


async def run_on(url: str, home: Path, session_id: str, command: str) -> None:
    """Start the command as a job with a sandbox and as one without, and stay until killed."""
    async with serving(url, home, Probe()) as jobs:
        for is_sandboxed in (True, False):
            await jobs.start(request(workspace_of(home), session_id, command, is_sandboxed=is_sandboxed))
        await anyio.sleep_forever()


@asynccontextmanager
async def serving(url: str, home: Path, probe: Probe) -> AsyncIterator[Jobs]:
    sandbox = Sandbox(home)
    await sandbox.open()
    workspace_of(home).mkdir(parents=True, exist_ok=True)
    async with open_store(url, data_dir=home) as store:
        jobs = jobs_of(store, home, sandbox, probe)
        async with jobs.serve("wrk_dying", lambda: None):
            yield jobs


if __name__ == "__main__":
    url, home, session_id, *what = sys.argv[1:]
    if what[0] == "run":
        anyio.run(run_on, url, Path(home), session_id, what[1])
    else:
        anyio.run(live, url, Path(home), session_id, what[0])
