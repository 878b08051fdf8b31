"""The states of a job, and what its end does."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """``unreachable``: it runs on a machine that does not answer. ``lost``: nobody will know how it ended."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    UNREACHABLE = "unreachable"
    LOST = "lost"

    @property
    def is_over(self) -> bool:
        return self in (JobState.ENDED, JobState.STOPPED, JobState.LOST)


class WhenEnded(StrEnum):
    """What a job's end does: start a turn, tell the user, or nothing but be recorded."""

    WAKE = "wake"
    TELL = "tell"
    RECORD = "record"
