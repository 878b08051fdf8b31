"""Jobs: the row is written before the command starts; its end is written together with what follows from
it."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain.errors import Gone, NotFound, TooManyJobs, WrongState
from everturn.domain.events import JobEnded, JobOutput, JobStarted
from everturn.domain.ids import check_id
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job, JobEnding, NewJob
from everturn.domain.machine import Machine
from everturn.domain.messages import Source
from everturn.domain.notifications import NoticeKind
from everturn.domain.store_values import Accepted, Submission, WhenBusy
from everturn.store.notices import NoticeCause, owe_notices
from everturn.store.scripts.common import (
    OF_SESSION,
    add_events,
    get_session,
    lock_session,
    locked_shown_session,
)
from everturn.store.scripts.queries.jobs import (
    JOB,
    JOBS,
    JOBS_LOST,
    JOBS_RUNNING,
    JOBS_RUNNING_COUNT,
    JobColumns,
)
from everturn.store.scripts.rows import SessionRow
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.turns import submissions

_RESTORED_MAX = 100  # newest jobs that are looked at when a session is restored


class JobRows:
    """Implements ``domain.jobs.JobStore``."""

    def __init__(self, db: Database, machine: Machine) -> None:
        self._db = db
        self._machine = machine

    async def add(self, owner: str, session_id: str, new: NewJob, *, running_max: int) -> Job:
        return self._job(await self._db.write(_add, owner, session_id, new, running_max))

    async def get(self, owner: str, job_id: str) -> Job:
        return self._job(await self._db.read(_get, owner, job_id))

    async def list(
        self, owner: str, *, session_id: str = "", before: str = "", limit: int = 100
    ) -> Sequence[Job]:
        return [self._job(row) for row in await self._db.read(_list, owner, session_id, before, limit)]

    async def find_lost(self, owner: str, *, since_ms: int, limit: int) -> Sequence[Job]:
        return [self._job(row) for row in await self._db.read(_find_lost, owner, since_ms, limit)]

    async def find_running(self) -> Sequence[Job]:
        return [self._job(row) for row in await self._db.read(_find_running)]

    async def watch(self, job_id: str, worker: str) -> None:
        await self._db.write(_watch, job_id, worker)

    async def ask_to_stop(self, owner: str, job_id: str) -> Job:
        return self._job(await self._db.write(_ask_to_stop, owner, job_id))

    async def ask_all_to_stop(self, owner: str, session_id: str) -> None:
        await self._db.write(_ask_all_to_stop, owner, session_id)

    async def change_when_ended(self, owner: str, job_id: str, when_ended: WhenEnded) -> Job:
        return self._job(await self._db.write(_change_when_ended, owner, job_id, when_ended))

    async def show_output(self, job_id: str, start: int, end: int, text: str) -> bool:
        return await self._db.write(_show_output, job_id, start, end, text)

    async def end(self, job_id: str, ending: JobEnding) -> tuple[Job, Accepted | None]:
        row, accepted = await self._db.write(_end, job_id, ending)
        return self._job(row), accepted

    def _job(self, row: JobColumns) -> Job:
        """A running job of another machine is unreachable if no server there watches it."""
        state = JobState(row.state)
        is_away = not self._machine.is_same(row.machine) and not row.is_watched
        if state is JobState.RUNNING and is_away:
            state = JobState.UNREACHABLE
        return Job(
            id=row.id,
            owner=row.owner,
            session_id=row.session_id,
            turn_id=row.turn_id,
            call_id=row.call_id,
            state=state,
            command=row.command,
            workspace=row.workspace,
            started_at=row.started_at,
            when_ended=WhenEnded(row.when_ended),
            boot_id=row.boot_id,
            output_bytes_max=row.output_bytes_max,
            machine=row.machine,
            profile=row.profile,
            is_sandboxed=bool(row.is_sandboxed),
            worker=row.worker,
            is_watched=bool(row.is_watched),
            stop_asked_at=row.stop_asked_at,
            shown_bytes=row.shown_bytes,
            ended_at=row.ended_at,
            exit_code=row.exit_code,
            detail=row.detail,
            output_bytes=row.output_bytes,
            output_file=row.output_file,
        )


def _add(tx: Tx, owner: str, session_id: str, new: NewJob, running_max: int) -> Script[JobColumns]:
    session = yield from locked_shown_session(tx, owner, session_id)
    if (yield from JOBS_RUNNING_COUNT.only(session.no)) >= running_max:
        raise TooManyJobs(running_max)
    yield q(
        "job_insert",
        new.id,
        session.no,
        new.turn_id,
        new.call_id,
        new.command,
        new.workspace,
        new.profile,
        int(new.is_sandboxed),
        new.when_ended.value,
        new.machine,
        new.boot_id,
        new.worker,
        new.output_bytes_max,
        tx.now,
    )
    started = JobStarted(new.id, new.call_id, new.command, new.when_ended)
    yield from add_events(tx, session, OF_SESSION, [started])
    tx.touch(owner, new.id)
    return (yield from JOB.only(new.id))


def _get(tx: Tx, owner: str, job_id: str) -> Script[JobColumns]:
    row = yield from JOB.first(check_id(job_id, "job"))
    if row is None or row.owner != owner:
        raise NotFound("job", job_id)
    yield from _refuse_hidden(tx, row)
    return row


def _refuse_hidden(tx: Tx, row: JobColumns) -> Script[None]:
    """Raise NotFound for a job of a deleted session, which is hidden like the session."""
    if (yield from get_session(tx, row.owner, row.session_id)).is_deleted:
        raise Gone("session", row.session_id)


def _list(tx: Tx, owner: str, session_id: str, before: str, limit: int) -> Script[list[JobColumns]]:
    after_no = (yield from _get(tx, owner, before)).job_no if before else 0
    return (yield from JOBS.all(owner, session_id, after_no, limit))


def _find_lost(tx: Tx, owner: str, since_ms: int, limit: int) -> Script[list[JobColumns]]:
    return (yield from JOBS_LOST.all(owner, since_ms, limit))


def _find_running(tx: Tx) -> Script[list[JobColumns]]:
    return (yield from JOBS_RUNNING.all())


def _watch(tx: Tx, job_id: str, worker: str) -> Script[None]:
    row = yield from JOB.first(job_id)
    if row is not None:
        yield q("job_watch", row.job_no, worker)
        tx.touch(row.owner, job_id)


def _ask_to_stop(tx: Tx, owner: str, job_id: str) -> Script[JobColumns]:
    row = yield from _get(tx, owner, job_id)
    if row.state == JobState.RUNNING:
        yield q("job_stop", row.job_no, tx.now)
        tx.touch(owner, job_id)
    return (yield from JOB.only(job_id))


def _ask_all_to_stop(tx: Tx, owner: str, session_id: str) -> Script[None]:
    session = yield from get_session(tx, owner, session_id)
    yield q("jobs_stop_of_session", session.no, tx.now)


def _change_when_ended(tx: Tx, owner: str, job_id: str, when_ended: WhenEnded) -> Script[JobColumns]:
    yield from _get(tx, owner, job_id)
    _, row = yield from _lock(tx, job_id)
    if row.state != JobState.RUNNING:
        raise WrongState("The job is over.", hint="Read how it ended.")
    yield q("job_when_ended", row.job_no, when_ended.value)
    tx.touch(owner, job_id)
    return (yield from JOB.only(job_id))


def _show_output(tx: Tx, job_id: str, start: int, end: int, text: str) -> Script[bool]:
    session, row = yield from _lock(tx, job_id)
    if row.state != JobState.RUNNING or row.shown_bytes != start:  # guard: e07
        return False
    yield q("job_shown", row.job_no, end)
    yield from add_events(tx, session, OF_SESSION, [JobOutput(job_id, start, text)], is_activity=False)
    return True


def _end(tx: Tx, job_id: str, ending: JobEnding) -> Script[tuple[JobColumns, Accepted | None]]:
    session, row = yield from _lock(tx, job_id)
    if row.state != JobState.RUNNING:  # guard: e08
        return row, None
    yield q(
        "job_end",
        row.job_no,
        ending.state.value,
        ending.ended_at or tx.now,
        ending.exit_code,
        ending.detail,
        ending.output_bytes,
        ending.output_file,
    )
    ended = JobEnded(job_id, ending.state, ending.exit_code, ending.detail, ending.output_bytes)
    is_told = row.when_ended != WhenEnded.RECORD
    yield from add_events(tx, session, OF_SESSION, [ended], is_activity=is_told)
    tx.touch(session.owner, session.id)
    tx.touch(session.owner, job_id)
    row = yield from JOB.only(job_id)
    if is_told and not session.is_deleted:
        yield q("session_unread", session.no)
        cause = NoticeCause(NoticeKind.JOB, job_id, session.no, words=_words(row))
        yield from owe_notices(tx, session.owner, cause)  # guard: f10
    if row.when_ended != WhenEnded.WAKE or session.is_deleted:  # guard: e08
        return row, None
    return row, (yield from _wake(tx, session, row))


def _wake(tx: Tx, session: SessionRow, row: JobColumns) -> Script[Accepted]:
    """Report the end to the agent, once: the job's id is the key."""
    asked = Submission(
        text=_report(row),
        profile=row.profile,
        when_busy=WhenBusy.STEER,
        key=f"job:{row.id}",
        source=Source("job", row.id, is_trusted=True),
    )
    return (yield from submissions.accept(tx, session.owner, session.id, asked))


def report_ended(tx: Tx, session: SessionRow) -> Script[None]:
    """Wake the agent of a restored session for jobs that have ended while it was deleted."""
    for row in reversed((yield from JOBS.all(session.owner, session.id, 0, _RESTORED_MAX))):
        if row.ended_at is not None and row.when_ended == WhenEnded.WAKE:
            yield from _wake(tx, session, row)  # guard: e08


def _lock(tx: Tx, job_id: str) -> Script[tuple[SessionRow, JobColumns]]:
    """Lock the job's session, then read the job as it is under the lock."""
    row = yield from JOB.first(job_id)
    if row is None:
        raise NotFound("job", job_id)
    session = yield from lock_session(tx, row.owner, row.session_id)
    return session, (yield from JOB.only(job_id))


def _words(row: JobColumns) -> str:
    """What a notification says: how it ended, then its command."""
    if row.state == JobState.LOST:
        how = "Lost"
    elif row.state == JobState.STOPPED:
        how = "Stopped"
    else:
        how = "Done" if row.exit_code == 0 else f"Failed with exit code {row.exit_code}"
    return f"{how}\n{row.command}"


def _report(row: JobColumns) -> str:
    """What the agent reads as a trusted message. It holds only our own words: the command, the file names
    in ``detail`` and the output may come from others. ``job_output`` returns those, marked."""
    seconds = round(((row.ended_at or row.started_at) - row.started_at) / 1000)
    if row.state == JobState.LOST:
        how = "was lost, and how it ended is not known,"
    elif row.state == JobState.STOPPED:
        how = "was stopped"
    else:
        how = f"ended with exit code {row.exit_code}"
    return (
        f"Job {row.id} {how} after {seconds} s and {row.output_bytes} bytes of output.\n"
        "This report is automatic; the user may be away. Read the command, how it ended and the output with "
        "job_output, and go on."
    )
