"""Jobs: commands that keep running after their tool call returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.store_values import Accepted


class NewJob(msgspec.Struct, frozen=True):
    """A job that is about to start. ``machine`` and ``boot_id``: where; ``worker``: who watches it."""

    id: str
    turn_id: str
    call_id: str
    command: str
    workspace: str
    boot_id: str
    worker: str
    output_bytes_max: int
    machine: str | None = None
    profile: str | None = None
    is_sandboxed: bool = True
    when_ended: WhenEnded = WhenEnded.WAKE


class Job(msgspec.Struct, frozen=True):
    """``shown_bytes``: how much of its output the session's events hold. ``output_file``: the output that
    was kept, once the job is over. ``detail``: why it ended, if its exit code does not say. ``is_watched``:
    the server
    that watches it is alive."""

    id: str
    owner: str
    session_id: str
    turn_id: str
    call_id: str
    state: JobState
    command: str
    workspace: str
    started_at: int
    when_ended: WhenEnded
    boot_id: str
    output_bytes_max: int
    machine: str | None = None
    profile: str | None = None
    is_sandboxed: bool = True
    worker: str | None = None
    is_watched: bool = False
    stop_asked_at: int | None = None
    shown_bytes: int = 0
    ended_at: int | None = None
    exit_code: int | None = None
    detail: str = ""
    output_bytes: int = 0
    output_file: str | None = None


class JobEnding(msgspec.Struct, frozen=True):
    """How a job ended."""

    state: JobState
    exit_code: int | None = None
    detail: str = ""
    output_bytes: int = 0
    output_file: str | None = None
    ended_at: int | None = None  # None: now


class JobStore(Protocol):
    """The rows of jobs. Each write is one transaction, and durable when its call returns."""

    async def add(self, owner: str, session_id: str, new: NewJob, *, running_max: int) -> Job:
        """Add the row of a job that is about to start. Raises Gone, NotFound, TooManyJobs."""
        ...

    async def get(self, owner: str, job_id: str) -> Job:
        """Raises NotFound."""
        ...

    async def list(
        self, owner: str, *, session_id: str = "", before: str = "", limit: int = 100
    ) -> Sequence[Job]:
        """Newest first; ``before``: only jobs older than this one."""
        ...

    async def find_lost(self, owner: str, *, since_ms: int, limit: int) -> Sequence[Job]:
        """Jobs that were found lost since then, newest first."""
        ...

    async def find_running(self) -> Sequence[Job]:
        """The running jobs of all owners and machines, oldest first."""
        ...

    async def watch(self, job_id: str, worker: str) -> None:
        """This worker watches the job from now on."""
        ...

    async def ask_to_stop(self, owner: str, job_id: str) -> Job:
        """Ask the machine that runs it to stop it; a job that is over stays as it is. Raises NotFound."""
        ...

    async def ask_all_to_stop(self, owner: str, session_id: str) -> None:
        """The same for all jobs of a session."""
        ...

    async def change_when_ended(self, owner: str, job_id: str, when_ended: WhenEnded) -> Job:
        """Raises NotFound, WrongState if the job is over."""
        ...

    async def show_output(self, job_id: str, start: int, end: int, text: str) -> bool:
        """Tell the session's readers about more output, once; False if that was done before."""
        ...

    async def end(self, job_id: str, ending: JobEnding) -> tuple[Job, Accepted | None]:
        """Record the end and what follows from it in one transaction, so that both happen once. A job that
        is over is returned as it is. Also returns the turn that it woke. Raises NotFound."""
        ...
