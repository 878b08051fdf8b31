"""The states of a job, and what its end does."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """``unreachable``: it runs on a machine that does not answer. ``lost``: how it ended will never be
    known, or it could not be started."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    UNREACHABLE = "unreachable"
    LOST = "lost"

    @property
    def is_over(self) -> bool:
        return self in (JobState.ENDED, JobState.STOPPED, JobState.LOST)


class WhenEnded(StrEnum):
    """What happens at a job's end: a turn starts, the user is notified, or the end is only recorded."""

    WAKE = "wake"
    TELL = "tell"
    RECORD = "record"
