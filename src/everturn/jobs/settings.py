"""Settings of jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class JobSettings(msgspec.Struct, frozen=True):
    """Fields with a description are settings of config.toml."""

    per_session_max: Annotated[
        int, Meta(ge=0, le=1000, description="Jobs that a session runs at once. 0: no jobs.")
    ] = 8
    output_bytes_max: Annotated[
        int,
        Meta(
            ge=4096,
            description="How much of a job's output is kept: the first quarter, and the end of the rest.",
        ),
    ] = 16 * 1024 * 1024
    shown_bytes_max: int = 256 * 1024  # of a job's output, in the events of its session
    piece_bytes_max: int = 16 * 1024  # in one event
    look_every_s: float = 0.5  # while a job runs here
    idle_look_every_s: float = 5.0  # for jobs that another process started
    stray_age_s: float = 60.0  # a folder without a row may be that of a job that is being started
