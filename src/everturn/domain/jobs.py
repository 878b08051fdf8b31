"""Jobs: commands that keep running after their tool call returned."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """``unreachable``: it runs on a machine that does not answer. ``lost``: how it ended is not known."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    UNREACHABLE = "unreachable"
    LOST = "lost"

    @property
    def is_over(self) -> bool:
        return self in (JobState.ENDED, JobState.STOPPED, JobState.LOST)
