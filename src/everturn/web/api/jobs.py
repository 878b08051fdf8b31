"""Jobs: commands that run in the background of a session."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job, JobStore
from everturn.domain.machine import Machine
from everturn.jobs import Jobs
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.api.sessions import SessionId
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_BYTES_MAX = 256 * 1024
JobId = Annotated[str, Meta(pattern=r"^job_[0-9a-hjkmnp-tv-z]{26}$")]


class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session``: only its jobs. ``before``: only jobs older than this one."""

    session: SessionId | None = None
    before: JobId | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class ShownJob(msgspec.Struct, frozen=True):
    """``machine``: the name of the machine that runs it, where there are several. Times: milliseconds."""

    id: str
    session_id: str
    turn_id: str
    call_id: str
    state: JobState
    command: str
    started_at: int
    when_ended: WhenEnded
    is_sandboxed: bool
    machine: str
    is_stopping: bool
    ended_at: int | None
    exit_code: int | None
    detail: str
    output_bytes: int


class JobsOut(msgspec.Struct, frozen=True):
    items: tuple[ShownJob, ...]


class OutputQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``after``: only output after this many bytes."""

    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=_BYTES_MAX)] = _BYTES_MAX


class OutputOut(msgspec.Struct, frozen=True):
    """``start``, ``end``: the place of the text in the whole output, in bytes. ``total``: all so far."""

    start: int
    end: int
    total: int
    text: str


class ChangeJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    when_ended: WhenEnded


class JobsApi:
    def __init__(self, jobs: Jobs, store: JobStore, audit: Audit) -> None:
        self._jobs = jobs
        self._store = store
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        tag, gone = "jobs", (e.NotFound, e.Gone)
        return [
            Endpoint(
                method="GET",
                path="/api/jobs",
                run=self.list,
                summary="Jobs, the newest first.",
                tag=tag,
                query=JobsQuery,
                answer=JobsOut,
                errors=gone,
            ),
            Endpoint(
                method="GET",
                path="/api/jobs/{job}",
                run=self.get,
                summary="A job: its command, state and end.",
                tag=tag,
                answer=ShownJob,
                errors=gone,
            ),
            Endpoint(
                method="GET",
                path="/api/jobs/{job}/output",
                run=self.output,
                summary="A piece of a job's output.",
                tag=tag,
                query=OutputQuery,
                answer=OutputOut,
                errors=(*gone, e.JobElsewhere),
            ),
            Endpoint(
                method="PATCH",
                path="/api/jobs/{job}",
                run=self.change,
                summary="Change what the end of a job does.",
                tag=tag,
                scope=Scope.CHAT,
                body=ChangeJob,
                answer=ShownJob,
                errors=(*gone, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/api/jobs/{job}/stop",
                run=self.stop,
                summary="Stop a job. It is over when its state says so.",
                tag=tag,
                scope=Scope.CHAT,
                answer=ShownJob,
                errors=gone,
            ),
        ]

    async def list(self, call: ApiCall[JobsQuery, Nothing]) -> JobsOut:
        query = call.query
        found = await self._store.list(
            call.owner, session_id=query.session or "", before=query.before or "", limit=query.limit
        )
        return JobsOut(tuple(map(show_job, found)))

    async def get(self, call: ApiCall[Nothing, Nothing]) -> ShownJob:
        return show_job(await self._store.get(call.owner, call.path["job"]))

    async def output(self, call: ApiCall[OutputQuery, Nothing]) -> OutputOut:
        query = call.query
        found = await self._jobs.output(
            call.owner, call.path["job"], after=query.after, bytes_max=query.limit
        )
        return OutputOut(found.start, found.end, found.total, found.data.decode("utf-8", "replace"))

    async def change(self, call: ApiCall[Nothing, ChangeJob]) -> ShownJob:
        return show_job(
            await self._store.change_when_ended(call.owner, call.path["job"], call.body.when_ended)
        )

    async def stop(self, call: ApiCall[Nothing, Nothing]) -> ShownJob:
        job = await self._jobs.stop(call.owner, call.path["job"])
        await self._audit.note("job.stopped", call.caller, job.id)
        return show_job(job)


def show_job(job: Job) -> ShownJob:
    return ShownJob(
        id=job.id,
        session_id=job.session_id,
        turn_id=job.turn_id,
        call_id=job.call_id,
        state=job.state,
        command=job.command,
        started_at=job.started_at,
        when_ended=job.when_ended,
        is_sandboxed=job.is_sandboxed,
        machine=Machine.parse(job.machine or "").name,
        is_stopping=job.stop_asked_at is not None and not job.state.is_over,
        ended_at=job.ended_at,
        exit_code=job.exit_code,
        detail=job.detail,
        output_bytes=job.output_bytes,
    )
