"""Jobs of a process that is killed: ``python -m tests.crash.job_work URL HOME SESSION MOMENT``, ``both MOMENT
COMMAND`` to kill the job's shim with it, or ``run COMMAND``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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


class KillingBoth(KillingProbe):
    """Kills the shims first, so that both are dead when the next server looks."""

    def __init__(self, moment: Moment, folder: Path) -> None:
        super().__init__(moment)
        self._doomed = moment
        self._folder = folder

    async def reach(self, moment: Moment, subject: str = "") -> None:
        if moment is self._doomed:
            for shim in found(str(self._folder / "job_")):
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(shim, signal.SIGKILL)
        await super().reach(moment, subject)


def found(words: str) -> list[int]:
    """The processes whose command line has these words."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended
                if os.fsencode(words) in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
    return pids


async def live(url: str, home: Path, session_id: str, probe: Probe, command: str = COMMAND) -> None:
    """Start a job and wait for its end; the probe ends the process on the way."""
    async with serving(url, home, probe) as jobs:
        job = await jobs.start(request(workspace_of(home), session_id, command))
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
    elif what[0] == "both":
        both = KillingBoth(Moment(what[1]), Path(home) / "jobs")
        anyio.run(live, url, Path(home), session_id, both, what[2])
    else:
        anyio.run(live, url, Path(home), session_id, KillingProbe(Moment(what[0])))
