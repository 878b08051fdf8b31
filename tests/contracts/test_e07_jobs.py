"""E07: a job outlives its tool call, its turn and the server; it is found again, and its end is known."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import JobsOff
from everturn.domain.events import JobOutput
from everturn.domain.ids import Ids
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.domain.tool import ToolCall
from everturn.jobs import Jobs, JobServices, JobSettings
from everturn.jobs.folder import JobFolder
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, new_session
from everturn.testing.waiting import within
from everturn.tools import Sandbox
from everturn.tools.sandbox.view import SandboxView
from everturn.tools.terminal.background import JobRequest
from tests.conftest import OpenAnother
from tests.waiting import until

pytestmark = pytest.mark.anyio
SETTINGS = JobSettings(output_bytes_max=4096, look_every_s=0.02, idle_look_every_s=0.1)


class Machine:
    """A server's jobs without the server: its sandbox, and a session in whose workspace they run."""

    def __init__(self, store: Store, home: Path, sandbox: Sandbox, session_id: str) -> None:
        self.store = store
        self.session_id = session_id
        self.folder = home / "jobs"
        self.workspace = home / "workspaces" / session_id
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.woken = 0
        self._sandbox = sandbox

    def jobs(
        self,
        store: Store | None = None,
        probe: HoldingProbe | None = None,
        settings: JobSettings = SETTINGS,
    ) -> Jobs:
        at = store or self.store
        clock = SystemClock()
        runtime = Runtime(clock, Ids(clock), probe) if probe else Runtime(clock, Ids(clock))
        services = JobServices(at.jobs, at.files, at.machine, self._sandbox, runtime, self.folder)
        return Jobs(services, settings)

    @asynccontextmanager
    async def serving(self, worker: str = "wrk_one", store: Store | None = None) -> AsyncIterator[Jobs]:
        jobs = self.jobs(store)
        async with jobs.serve(worker, self._wake):
            yield jobs

    def _wake(self) -> None:
        self.woken += 1

    def request(
        self, command: str, *, is_sandboxed: bool = True, when: WhenEnded = WhenEnded.RECORD
    ) -> JobRequest:
        call = ToolCall(
            id="call_1",
            name="terminal",
            arguments={},
            owner=ME,
            session_id=self.session_id,
            turn_id="trn_x",
            workspace=self.workspace,
            key="trn_x:call_1",
        )
        view = SandboxView(self.workspace)
        return JobRequest(call, command, ("/bin/sh", "-c", command), view, when, is_sandboxed)

    def is_swept(self, job: Job) -> bool:
        """True if its folder is gone; until then the folder is made to look old."""
        try:
            os.utime(self.folder / job.id, (0, 0))
        except FileNotFoundError:
            return True
        return False

    async def over(self, job: Job) -> Job:
        """The job, once its end is in the session."""

        async def is_over() -> bool:
            return (await self.store.jobs.get(ME, job.id)).state.is_over

        await until(f"{job.id} is over", is_over)
        return await self.store.jobs.get(ME, job.id)

    def shim_of(self, job: Job) -> int:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if os.fsencode(self.folder / job.id) in words:
                    return int(entry.name)
        raise AssertionError("no shim")


def _is_free(folder: JobFolder) -> bool:
    return not folder.is_held()


@pytest.fixture
async def machine(store: Store, tmp_path: Path) -> AsyncIterator[Machine]:
    home = tmp_path / "home"
    sandbox = Sandbox(home)
    await sandbox.open()
    session = await new_session(store)
    machine = Machine(store, home, sandbox, session.id)
    yield machine
    for path in machine.folder.glob("job_*"):
        folder = JobFolder(path, SETTINGS.output_bytes_max)
        folder.ask_to_stop()
        await until("nothing is left running", partial(_is_free, folder))
    sandbox.close()


async def test_e07_a_job_runs_on_without_a_server_and_is_found_again(machine: Machine) -> None:
    async with machine.serving() as jobs:
        job = await jobs.start(machine.request("until [ -e go ]; do sleep 0.02; done; echo done; exit 4"))
        assert job.state is JobState.RUNNING
    (machine.workspace / "go").touch()
    async with machine.serving("wrk_two") as jobs:
        ended = await machine.over(job)
        assert (ended.state, ended.exit_code) == (JobState.ENDED, 4)
        found = await jobs.output(ME, job.id, after=0, bytes_max=100)
        assert (found.data, found.total) == (b"done\n", 5)
        await until("its files are deleted", lambda: not list(machine.folder.iterdir()))


async def test_e07_output_is_shown_while_it_runs_and_can_be_read(machine: Machine) -> None:
    async with machine.serving() as jobs:
        job = await jobs.start(machine.request("echo eins; until [ -e go ]; do sleep 0.02; done; echo zwei"))

        async def is_shown() -> bool:
            return (await machine.store.jobs.get(ME, job.id)).shown_bytes == 5

        await until("its output is shown", is_shown)
        assert (await jobs.output(ME, job.id, after=0, bytes_max=100)).data == b"eins\n"
        (machine.workspace / "go").touch()
        await machine.over(job)
        assert (await jobs.output(ME, job.id, after=5, bytes_max=100)).data == b"zwei\n"


async def test_e07_what_python_prints_is_shown_at_once(machine: Machine) -> None:
    async with machine.serving() as jobs:
        wait = "import os, time; print('eins'); [time.sleep(0.02) for _ in iter(lambda: os.path.exists('go'), True)]"
        job = await jobs.start(machine.request(f'python3 -c "{wait}"'))

        async def is_shown() -> bool:
            return (await machine.store.jobs.get(ME, job.id)).shown_bytes == 5

        await until("its output is shown", is_shown)
        (machine.workspace / "go").touch()
        await machine.over(job)


async def test_e07_all_output_is_shown_also_if_it_comes_faster_than_it_is_looked_at(
    machine: Machine,
) -> None:
    async with machine.serving() as jobs:
        command = "until [ -e go ]; do sleep 0.02; done; seq 1 300; printf '\\303'"
        job = await jobs.start(machine.request(command))
    (machine.workspace / "go").touch()
    folder = JobFolder(machine.folder / job.id, SETTINGS.output_bytes_max)
    await until("the command has ended", partial(_is_free, folder))
    small = machine.jobs(settings=msgspec.structs.replace(SETTINGS, piece_bytes_max=100))
    async with small.serve("wrk_two", lambda: None):
        await machine.over(job)
    events = await machine.store.journal.after(ME, machine.session_id, 0)
    shown = [event.payload.text for event in events if isinstance(event.payload, JobOutput)]
    assert "".join(shown) == "".join(f"{number}\n" for number in range(1, 301)) + "\ufffd"


async def test_e07_a_damaged_job_is_lost_and_ends_neither_the_server_nor_the_others(machine: Machine) -> None:
    async with machine.serving() as jobs:
        damaged = await jobs.start(machine.request("sleep 1000"))
        other = await jobs.start(machine.request("until [ -e go ]; do sleep 0.02; done"))
    (machine.folder / damaged.id / "guard").touch()  # empty, as a power cut leaves it
    os.kill(machine.shim_of(damaged), signal.SIGKILL)
    (machine.workspace / "go").touch()
    async with machine.serving("wrk_two"):
        lost = await machine.over(damaged)
        assert (await machine.over(other)).state is JobState.ENDED
    assert lost.state is JobState.LOST
    assert "could not be checked" in lost.detail


@pytest.mark.parametrize("is_sandboxed", [True, False])
async def test_e07_a_stop_asked_for_elsewhere_stops_it(machine: Machine, is_sandboxed: bool) -> None:
    async with machine.serving() as jobs:
        job = await jobs.start(machine.request("sleep 1000 & sleep 1000", is_sandboxed=is_sandboxed))
        await machine.store.jobs.ask_to_stop(ME, job.id)
        assert (await machine.over(job)).state is JobState.STOPPED


async def test_e07_a_job_whose_shim_was_killed_is_lost_and_only_then(machine: Machine) -> None:
    async with machine.serving() as jobs:
        job = await jobs.start(machine.request("touch begun; sleep 1000"))
    # Until it runs, the sandbox is being built, and would not notice that its parent is gone.
    await until("the command runs", (machine.workspace / "begun").exists)
    async with machine.serving("wrk_two") as jobs:
        await jobs.look()
        assert (await machine.store.jobs.get(ME, job.id)).state is JobState.RUNNING
        os.kill(machine.shim_of(job), signal.SIGKILL)
        lost = await machine.over(job)
    assert (lost.state, lost.detail) == (JobState.LOST, "The process that watched it was killed.")


async def test_e07_a_job_that_is_being_started_is_not_taken_for_lost(machine: Machine) -> None:
    probe = HoldingProbe()
    probe.hold(Moment.JOB_ADDED)
    jobs = machine.jobs(probe=probe)
    async with anyio.create_task_group() as group, jobs.serve("wrk_one", lambda: None):
        group.start_soon(jobs.start, machine.request("touch ran"))
        await probe.reached(Moment.JOB_ADDED)
        (row,) = await machine.store.jobs.find_running()
        await jobs.look()
        assert (await machine.store.jobs.get(ME, row.id)).state is JobState.RUNNING, "its lock is held"
        probe.release(Moment.JOB_ADDED)
        await machine.over(row)
    assert (machine.workspace / "ran").exists()


async def test_e07_a_command_that_cannot_start_is_no_job(machine: Machine) -> None:
    async with machine.serving() as jobs:
        request = machine.request("true")
        wrong = SandboxView(machine.folder.parent.parent / "missing project")
        broken = JobRequest(request.call, "true", request.argv, wrong, WhenEnded.WAKE)
        with pytest.raises(FileNotFoundError):
            await jobs.start(broken)
        (job,) = await machine.store.jobs.list(ME)
        assert job.state is JobState.LOST
        assert job.detail.startswith("It could not be started")
    assert machine.woken == 0


async def test_e07_a_job_of_a_deleted_session_is_stopped(machine: Machine) -> None:
    async with machine.serving() as jobs:
        job = await jobs.start(machine.request("sleep 1000"))
        await jobs.stop_all(ME, machine.session_id, seconds=60)
        assert (await machine.store.jobs.get(ME, job.id)).state is JobState.STOPPED
        other = await jobs.start(machine.request("sleep 1000"))
        await machine.store.sessions.delete(ME, machine.session_id)
        await until("the job without a row is gone", lambda: machine.is_swept(other))


async def test_e08_the_end_wakes_the_agent_through_any_server(
    machine: Machine, open_another: OpenAnother
) -> None:
    command = "until [ -e go ]; do sleep 0.02; done"  # so that it does not end while the first server runs
    async with machine.serving() as jobs:
        job = await jobs.start(machine.request(command, when=WhenEnded.WAKE))
    other = await open_another()
    (machine.workspace / "go").touch()
    async with machine.serving("wrk_two", other), machine.serving("wrk_three"):
        await machine.over(job)
        await until("the engine is woken", lambda: machine.woken)
    with within(
        "the turn can be claimed"
    ):  # not while the other server, which came second, still holds the row
        while not (claimed := await machine.store.turns.claim("wrk_one")):
            await anyio.lowlevel.checkpoint()
    (held,) = claimed
    assert held.message is not None
    assert f"Job {job.id} ended with exit code 0" in held.message.text
    assert machine.woken == 1
    assert await machine.store.turns.claim("wrk_one") == []


async def test_e07_nothing_starts_where_nothing_watches(machine: Machine) -> None:
    with pytest.raises(JobsOff):
        await machine.jobs().start(machine.request("true"))
