"""Starts jobs, watches those of this machine, and reports their ends."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from everturn.delivery.bell import Bell
from everturn.domain.errors import EverturnError, JobElsewhere, JobsOff, NotFound, Retry
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import Job, JobEnding, JobStore, NewJob
from everturn.domain.machine import Machine
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.domain.store import Files
from everturn.domain.store_values import FileKind
from everturn.engine.context import storable
from everturn.jobs.folder import JobEnd, JobFolder
from everturn.jobs.launcher import JobCommand, launch
from everturn.jobs.processes import end_command
from everturn.jobs.scopes import Scopes, find_scopes
from everturn.jobs.settings import JobSettings
from everturn.jobs.watch import read_guard, set_aside
from everturn.tools.sandbox.sandbox import Sandbox
from everturn.tools.terminal.background import JobRequest, OutputPiece

_log = logging.getLogger("everturn.jobs")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_WAIT_LOOK_S = 0.2
_MORE = "\n[… more output than is shown live …]\n"
_REBOOTED = "The machine was restarted."
_SHIM_GONE = "The process that watched it was killed."
_UNCHECKED = "what it left in its folder could not be checked: look for new hooks and editor settings there"
_NEVER_BEGUN = "The server stopped before starting it."


class JobServices(msgspec.Struct, frozen=True):
    """``folder``: in which each job has a folder of its own."""

    jobs: JobStore
    files: Files
    machine: Machine
    sandbox: Sandbox
    runtime: Runtime
    folder: Path


class Jobs:
    """Implements ``tools.terminal.background.Jobs``. Jobs are started and watched while ``serve`` runs."""

    def __init__(self, services: JobServices, settings: JobSettings) -> None:
        self._services = services
        self._settings = settings
        self._jobs = services.jobs
        self._clock = services.runtime.clock
        self._probe = services.runtime.probe
        self._bell = Bell(self._clock)
        self._boot_id = _boot_id()
        self._worker = ""
        self._wake: Callable[[], None] = lambda: None
        self._networks: dict[str, AsyncExitStack] = {}  # of the jobs that were started here
        self._scopes: Scopes | None = None

    @asynccontextmanager
    async def serve(self, worker: str, wake: Callable[[], None]) -> AsyncIterator[None]:
        """Watch the jobs of this machine for as long as the block runs. ``wake``: a turn may be claimed.

        Leaving it leaves the jobs running; only their way to the network ends.
        """
        self._worker, self._wake = worker, wake
        if self._settings.per_session_max:
            needs_memory = self._services.sandbox.needs_scope_memory
            self._scopes = await anyio.to_thread.run_sync(lambda: find_scopes(needs_memory=needs_memory))
        group = anyio.create_task_group()
        await group.__aenter__()
        group.start_soon(self._run, name="jobs")
        try:
            yield
        finally:
            self._worker = ""
            group.cancel_scope.cancel()
            # Not with what the block raised: the group would wrap it.
            await group.__aexit__(None, None, None)
            with anyio.CancelScope(shield=True):
                for job_id in list(self._networks):
                    await self._close_network(job_id)

    # --- what tools and the API ask for --------------------------------------------------------------

    async def start(self, request: JobRequest) -> Job:
        """Shielded: a cancelled call must not leave a command half started."""
        if not self._worker or not self._settings.per_session_max:
            raise JobsOff
        started: list[Job] = []
        with anyio.CancelScope(shield=True):
            started.append(await self._start(request))
        return started[0]

    async def get(self, owner: str, job_id: str) -> Job:
        return await self._jobs.get(owner, job_id)

    async def list(self, owner: str, session_id: str) -> Sequence[Job]:
        return await self._jobs.list(owner, session_id=session_id)

    async def output(self, owner: str, job_id: str, *, after: int, bytes_max: int) -> OutputPiece:
        job = await self._jobs.get(owner, job_id)
        if job.state.is_over:
            return await self._read_kept_output(job, after, bytes_max)
        if not self._is_here(job):
            raise JobElsewhere(job_id, Machine.parse(job.machine or "").name)
        return await anyio.to_thread.run_sync(self._folder(job).read, after, bytes_max)

    async def wait(self, owner: str, job_id: str, *, seconds: float) -> Job:
        until = self._clock.monotonic() + seconds
        while True:
            job = await self._jobs.get(owner, job_id)
            if job.state.is_over or self._clock.monotonic() >= until:
                return job
            await self._clock.sleep(_WAIT_LOOK_S)

    async def stop(self, owner: str, job_id: str) -> Job:
        job = await self._jobs.ask_to_stop(owner, job_id)
        self._bell.ring()
        return job

    async def stop_all(self, owner: str, session_id: str, *, seconds: float) -> None:
        """Stop the jobs of a session and wait until those of this machine are over, at most this long."""
        await self._jobs.ask_all_to_stop(owner, session_id)
        self._bell.ring()
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until:
            running = [job for job in await self._jobs.find_running() if job.session_id == session_id]
            if not any(map(self._is_here, running)):
                return
            await self._clock.sleep(_WAIT_LOOK_S)

    # --- starting --------------------------------------------------------------------------------------

    async def _start(self, request: JobRequest) -> Job:
        settings, call = self._settings, request.call
        job_id = self._services.runtime.ids.make("job")
        new = NewJob(
            id=job_id,
            turn_id=call.turn_id,
            call_id=call.id,
            command=storable(request.command),
            workspace=str(call.workspace),
            boot_id=self._boot_id,
            worker=self._worker,
            output_bytes_max=settings.output_bytes_max,
            machine=self._services.machine.text,
            profile=call.profile,
            is_sandboxed=request.is_sandboxed,
            when_ended=request.when_ended,
        )
        folder = JobFolder(self._services.folder / job_id, settings.output_bytes_max)
        lock = await anyio.to_thread.run_sync(folder.make)
        try:
            # The row before the process: a server that dies now leaves a job that has never run.
            job = await self._jobs.add(call.owner, call.session_id, new, running_max=settings.per_session_max)
            await self._probe.reach(Moment.JOB_ADDED, job_id)
            await self._launch(request, folder, lock, job)
        except BaseException:
            await anyio.to_thread.run_sync(_delete, folder.path)
            raise
        finally:
            os.close(lock)  # the shim has it now
        await self._probe.reach(Moment.JOB_STARTED, job_id)
        self._bell.ring()
        return job

    async def _launch(self, request: JobRequest, folder: JobFolder, lock: int, job: Job) -> None:
        stack, view = AsyncExitStack(), request.view
        try:
            if request.network is not None:
                door = await stack.enter_async_context(request.network)
                view = msgspec.structs.replace(view, gate=door.path)
            command = JobCommand(
                request.argv,
                view,
                job.id,
                job.output_bytes_max,
                is_sandboxed=request.is_sandboxed,
                scopes=self._scopes,
            )
            await launch(self._services.sandbox, folder, lock, command)
        except BaseException as error:
            await stack.aclose()
            # The call says that it failed; nothing else has to.
            await self._jobs.change_when_ended(job.owner, job.id, WhenEnded.RECORD)
            await self._jobs.end(job.id, JobEnding(JobState.LOST, detail=f"It could not be started: {error}"))
            raise
        self._networks[job.id] = stack

    # --- watching --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            watched = 0
            try:
                watched = await self.look()
            except (Retry, OSError) as error:
                _log.warning("jobs could not be checked: %s", error)
            settings = self._settings
            await self._bell.wait(settings.look_every_s if watched else settings.idle_look_every_s)

    async def look(self) -> int:
        """Check every job of this machine once; return how many are running."""
        running = [job for job in await self._jobs.find_running() if self._is_here(job)]
        for job in running:
            try:
                await self._look_at(job)
            except NotFound:
                _log.debug("the session of job %s is gone", job.id)
            except EverturnError as error:
                _log.warning("job %s: %s", job.id, error.message)
            except Exception:
                # One job whose files are damaged must end neither the server nor the watch of the others.
                _log.exception("job %s could not be checked", job.id)
        await anyio.to_thread.run_sync(self._sweep, {job.id for job in running})
        return len(running)

    async def _look_at(self, job: Job) -> None:
        if job.worker != self._worker:
            if job.is_watched:
                return  # by another process on this machine
            await self._jobs.watch(job.id, self._worker)
        folder = self._folder(job)
        if job.stop_asked_at is not None:
            await anyio.to_thread.run_sync(folder.ask_to_stop)
        # First the lock, then the end: a shim writes its end before the lock is free.
        is_held = await anyio.to_thread.run_sync(folder.is_held)
        end = await anyio.to_thread.run_sync(folder.end)
        is_over = end is not None or not is_held
        shown = await self._show_piece(job, folder, job.shown_bytes, is_over=is_over)
        while is_over and shown is not None:  # nothing is shown after the end
            shown = await self._show_piece(job, folder, shown, is_over=is_over)
        if end is not None:
            await self._finish(job, folder, end)
        elif not is_held:  # guard: e07 always
            await self._finish(job, folder, await anyio.to_thread.run_sync(self._end_of_lost, job, folder))

    async def _show_piece(self, job: Job, folder: JobFolder, place: int, *, is_over: bool) -> int | None:
        """Show new output to the session's readers, up to the limit. Returns the offset after it, or None if
        no more is shown."""
        left = self._settings.shown_bytes_max - place
        if left <= 0:
            return None
        piece_max = min(left, self._settings.piece_bytes_max)
        found = await anyio.to_thread.run_sync(folder.read, place, piece_max)
        data = _whole_characters(found.data)
        if is_over and found.end == found.total:
            data = found.data
        if not data:
            return None
        text = storable(data.decode("utf-8", "replace"))
        if len(data) >= left:
            text += _MORE
        end = found.start + len(data)
        return end if await self._jobs.show_output(job.id, place, end, text) else None

    async def _finish(self, job: Job, folder: JobFolder, end: JobEnd) -> None:
        """The output first: a row never names bytes that are not stored."""
        kept = await anyio.to_thread.run_sync(folder.read_kept)
        file_id = None
        if kept:
            name = f"{job.id}.txt"
            file = await self._services.files.put(
                job.owner, name, "text/plain", kept, kind=FileKind.ARTIFACT, session_id=job.session_id
            )
            file_id = file.id
        await self._probe.reach(Moment.JOB_KEPT, job.id)
        detail = "; ".join(part for part in (end.detail, *end.notes) if part)
        ending = JobEnding(
            end.state, end.exit_code, storable(detail), end.output_bytes, file_id, end.ended_at
        )
        _, accepted = await self._jobs.end(job.id, ending)
        await self._probe.reach(Moment.JOB_ENDED, job.id)
        if accepted is not None:
            self._wake()
        await self._close_network(job.id)
        await anyio.to_thread.run_sync(_delete, folder.path)

    def _end_of_lost(self, job: Job, folder: JobFolder) -> JobEnd:
        """Nothing holds the lock and no end was written, so none will be.

        In a sandbox the command died with its shim, unless that was killed while the sandbox was being built.
        What is left of it is ended now.
        """
        if job.boot_id == self._boot_id:
            end_command(folder.path, job.id)
        try:
            notes = set_aside(read_guard(folder.path))
        except Exception:
            # A file damaged by a power cut can raise almost anything; the job is lost all the same.
            _log.exception("job %s: its folder could not be checked", job.id)
            notes = [_UNCHECKED]
        if job.boot_id != self._boot_id:
            detail = _REBOOTED
        else:
            detail = _SHIM_GONE if folder.was_begun else _NEVER_BEGUN
        return JobEnd(
            JobState.LOST, None, detail, tuple(notes), self._clock.now_ms(), folder.read(0, 0).total
        )

    def _sweep(self, known: set[str]) -> None:
        """Stop jobs without a row, because their session was deleted; delete the folders of jobs that are
        over."""
        now = self._clock.now_ms() / 1000
        for path in self._services.folder.glob("job_*"):
            try:
                is_young = now - path.stat().st_mtime < self._settings.stray_age_s
            except FileNotFoundError:
                continue  # another process was faster
            if path.name in known or is_young:
                continue
            folder = JobFolder(path, self._settings.output_bytes_max)
            if folder.is_held():
                folder.ask_to_stop()
            else:
                _delete(path)

    async def _close_network(self, job_id: str) -> None:
        stack = self._networks.pop(job_id, None)
        if stack is not None:
            await stack.aclose()

    async def _read_kept_output(self, job: Job, after: int, bytes_max: int) -> OutputPiece:
        if job.output_file is None:
            return OutputPiece(0, b"", 0)
        file = await self._services.files.get(job.owner, job.output_file)
        start = min(max(0, after), file.size)
        end = min(file.size, start + bytes_max)
        pieces = [piece async for piece in self._services.files.read(file, start, end)]
        return OutputPiece(start, b"".join(pieces), file.size)

    def _folder(self, job: Job) -> JobFolder:
        return JobFolder(self._services.folder / job.id, job.output_bytes_max)

    def _is_here(self, job: Job) -> bool:
        return self._services.machine.is_same(job.machine)


def _whole_characters(data: bytes) -> bytes:
    """The data without an incomplete character at its end, which comes with the next piece."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        return data[:-back] if length > back else data
    return data


def _delete(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _boot_id() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
