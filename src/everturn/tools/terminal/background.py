"""What the tools for jobs need of the room that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from everturn.domain.job_states import WhenEnded
from everturn.domain.jobs import Job
from everturn.domain.tool import ToolCall
from everturn.tools.sandbox.gate import Door
from everturn.tools.sandbox.view import SandboxView


class JobRequest(msgspec.Struct, frozen=True):
    """A command that is to run in the background. ``network``: its door, open from its start to its end."""

    call: ToolCall
    command: str  # as the model wrote it
    argv: tuple[str, ...]
    view: SandboxView
    when_ended: WhenEnded
    is_sandboxed: bool = True
    network: AbstractAsyncContextManager[Door] | None = None


class OutputPiece(msgspec.Struct, frozen=True):
    """A piece of a job's output. ``start``: its place in the whole; a place before it was not kept."""

    start: int
    data: bytes
    total: int

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Jobs(Protocol):
    async def start(self, request: JobRequest) -> Job:
        """Start a job; on return its command runs. Raises EverturnError, and then nothing runs."""
        ...

    async def get(self, owner: str, job_id: str) -> Job:
        """Raises NotFound."""
        ...

    async def list(self, owner: str, session_id: str) -> Sequence[Job]: ...

    async def output(self, owner: str, job_id: str, *, after: int, bytes_max: int) -> OutputPiece:
        """The output after this place. Raises NotFound, JobElsewhere."""
        ...

    async def wait(self, owner: str, job_id: str, *, seconds: float) -> Job:
        """Wait until the job is over, at most this long; return it as it is then."""
        ...

    async def stop(self, owner: str, job_id: str) -> Job:
        """Ask the job to stop; it is over when its state says so."""
        ...

    async def stop_all(self, owner: str, session_id: str, *, seconds: float) -> None:
        """Stop the jobs of a session and wait until those of this machine are over, at most this long."""
        ...
