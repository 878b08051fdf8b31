"""The terminal in the background and the tools for jobs, with jobs that are only rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from everturn.domain.errors import NotFound
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job
from everturn.domain.tool import Verdict
from everturn.tools.terminal.background import JobRequest, OutputPiece
from tests.unit.tools.kit import Kit, open_kit

pytestmark = pytest.mark.anyio


class FakeJobs:
    """Implements ``background.Jobs``: each job runs until it is stopped."""

    def __init__(self) -> None:
        self.requests: list[JobRequest] = []
        self.jobs: dict[str, Job] = {}

    async def start(self, request: JobRequest) -> Job:
        self.requests.append(request)
        call = request.call
        job = Job(
            id=f"job_{len(self.requests):026d}",
            owner=call.owner,
            session_id=call.session_id,
            turn_id=call.turn_id,
            call_id=call.id,
            state=JobState.RUNNING,
            command=request.command,
            workspace=str(call.workspace),
            started_at=0,
            when_ended=request.when_ended,
            boot_id="",
            output_bytes_max=1000,
            is_sandboxed=request.is_sandboxed,
        )
        self.jobs[job.id] = job
        return job

    async def get(self, owner: str, job_id: str) -> Job:
        if job_id not in self.jobs:
            raise NotFound("job", job_id)
        return self.jobs[job_id]

    async def list(self, owner: str, session_id: str) -> Sequence[Job]:
        return list(self.jobs.values())

    async def output(self, owner: str, job_id: str, *, after: int, bytes_max: int) -> OutputPiece:
        whole = b"one\ntwo\n"
        return OutputPiece(after, whole[after : after + bytes_max], len(whole))

    async def wait(self, owner: str, job_id: str, *, seconds: float) -> Job:
        return self.jobs[job_id]

    async def stop(self, owner: str, job_id: str) -> Job:
        self.jobs[job_id] = msgspec.structs.replace(self.jobs[job_id], state=JobState.STOPPED)
        return self.jobs[job_id]

    async def stop_all(self, owner: str, session_id: str, *, seconds: float) -> None:
        for job_id in self.jobs:
            await self.stop(owner, job_id)


@pytest.fixture
def jobs() -> FakeJobs:
    return FakeJobs()


@pytest.fixture
async def kit(anyio_backend: str, tmp_path: Path, jobs: FakeJobs) -> AsyncIterator[Kit]:
    async with open_kit(tmp_path / "home", jobs=jobs) as opened:
        yield opened


async def test_a_command_in_the_background_is_the_same_command(kit: Kit, jobs: FakeJobs) -> None:
    said = await kit.run("terminal", command="make all", background=True, when_ended="tell")
    (request,) = jobs.requests
    assert request.argv[-2:] == ("-c", "make all")
    assert (request.command, request.when_ended) == ("make all", WhenEnded.TELL)
    assert request.view.workspace == kit.workspace
    assert request.is_sandboxed
    assert "job_00000000000000000000000001" in said.text
    assert (await kit.run("terminal", command="echo here")).text == "here"
    assert len(jobs.requests) == 1


async def test_the_policy_asks_about_a_command_in_the_background_as_about_any_other(kit: Kit) -> None:
    for background in (False, True):
        ruling = await kit.rule("terminal", command="rm -rf /", background=background)
        assert ruling.verdict is not Verdict.ALLOW


async def test_output_is_read_from_a_place_and_says_how_much_there_is(kit: Kit) -> None:
    await kit.run("terminal", command="make all", background=True)
    said = await kit.run("job_output", job_id="job_00000000000000000000000001", after=4)
    assert said.text.startswith("two\n")
    assert "8 bytes" in said.text


async def test_a_job_is_listed_waited_for_and_stopped(kit: Kit) -> None:
    assert (await kit.run("jobs")).text == "There are no jobs."
    await kit.run("terminal", command="sleep 1000", background=True)
    job_id = "job_00000000000000000000000001"
    assert (await kit.run("jobs")).text == f"{job_id} is running: sleep 1000"
    assert "is running" in (await kit.run("job_wait", job_id=job_id, seconds=1)).text
    assert "was stopped" in (await kit.run("job_stop", job_id=job_id)).text


async def test_a_job_of_another_session_is_not_found(kit: Kit, jobs: FakeJobs) -> None:
    await kit.run("terminal", command="sleep 1000", background=True)
    job_id, job = next(iter(jobs.jobs.items()))
    jobs.jobs[job_id] = msgspec.structs.replace(job, session_id="ses_other")
    with pytest.raises(NotFound):
        await kit.run("job_output", job_id=job_id)
