"""The endpoints of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job, JobEnding
from everturn.domain.runtime import Runtime
from everturn.domain.store_values import FileKind
from everturn.jobs import Jobs, JobServices, JobSettings
from everturn.store import Store
from everturn.testing.acting import ME, new_job, new_session
from everturn.testing.web_server import Running, run_web
from everturn.tools import Sandbox

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@asynccontextmanager
async def serving(store: Store, home: Path) -> AsyncIterator[Running]:
    """A server that has endpoints for jobs, and watches none."""
    clock = SystemClock()
    services = JobServices(
        store.jobs, store.files, store.machine, Sandbox(home), Runtime(clock, Ids(clock)), home / "jobs"
    )
    extras: dict[str, Any] = {"jobs": Jobs(services, JobSettings())}
    async with run_web(store, home, extras=extras) as web:
        yield web


async def add(store: Store, number: int = 1, session_id: str = "") -> Job:
    session_id = session_id or (await new_session(store)).id
    return await store.jobs.add(ME, session_id, new_job(number, when_ended=WhenEnded.RECORD), running_max=8)


async def test_jobs_are_listed_newest_first_and_by_session(store: Store, data_dir: Path) -> None:
    first, second = await add(store, 1), await add(store, 2)
    third = await add(store, 3, second.session_id)

    async def listed(query: str = "") -> list[str]:
        answer = await web.http.get(f"/api/jobs{query}")
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    async with serving(store, data_dir) as web:
        assert await listed() == [third.id, second.id, first.id]
        assert await listed(f"?session={second.session_id}") == [third.id, second.id]
        assert await listed(f"?before={third.id}&limit=1") == [second.id]


async def test_a_job_is_read_changed_and_stopped(store: Store, data_dir: Path) -> None:
    job = await add(store)
    async with serving(store, data_dir) as web:
        path = f"/api/jobs/{job.id}"
        found = (await web.http.get(path)).json()
        assert (found["state"], found["command"], found["is_stopping"]) == ("running", "make all", False)
        changed = await web.http.patch(path, json={"when_ended": "tell"})
        assert changed.json()["when_ended"] == "tell"
        assert (await web.http.post(f"{path}/stop")).json()["is_stopping"] is True
        (seen,) = await store.jobs.find_running()
        assert seen.stop_asked_at is not None, "the server that watches it stops it"
        await store.jobs.end(job.id, JobEnding(JobState.STOPPED, -9))
        found = (await web.http.get(path)).json()
        assert (found["state"], found["exit_code"], found["is_stopping"]) == ("stopped", -9, False)
        late = await web.http.patch(path, json={"when_ended": "wake"})
        assert (late.status_code, late.json()["code"]) == (409, "wrong_state")


async def test_output_is_read_from_its_place_while_the_job_runs_and_after_its_end(
    store: Store, data_dir: Path
) -> None:
    job = await add(store)
    folder = data_dir / "jobs" / job.id
    folder.mkdir(parents=True)
    (folder / "output.0").write_bytes(b"one\ntwo\n")

    async def output(query: str) -> dict[str, Any]:
        found: dict[str, Any] = (await web.http.get(f"/api/jobs/{job.id}/output{query}")).json()
        return found

    async with serving(store, data_dir) as web:
        rest = {"start": 4, "end": 8, "total": 8, "text": "two\n"}
        assert await output("?after=4") == rest
        assert (await output("?limit=3"))["text"] == "one"
        kept = await store.files.put(
            ME, "out.txt", "text/plain", b"one\ntwo\n", kind=FileKind.ARTIFACT, session_id=job.session_id
        )
        await store.jobs.end(job.id, JobEnding(JobState.ENDED, 0, output_bytes=8, output_file=kept.id))
        assert await output("?after=4") == rest


async def test_a_job_that_is_not_there_is_not_found(store: Store, data_dir: Path) -> None:
    missing = "job_" + "9" * 26
    async with serving(store, data_dir) as web:
        for path in (f"/api/jobs/{missing}", f"/api/jobs/{missing}/output"):
            assert (await web.http.get(path)).status_code == 404
        assert (await web.http.post(f"/api/jobs/{missing}/stop")).status_code == 404
