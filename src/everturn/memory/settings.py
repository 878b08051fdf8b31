"""The settings and bounds of memory. The unit is the last part of a name."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

NOTES = "notes"  # the name of the built-in provider
TOOL_NAME = "memory"  # the name of its tool


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Fields with a description are settings of config.toml; the others are fixed bounds."""

    provider: Annotated[
        str,
        Meta(
            description="Memory provider. An empty text switches memory off; turns that are owed stay owed."
        ),
    ] = NOTES

    idle_s: Annotated[float, Meta(description="A session idle for this long is committed to memory.")] = 600.0
    look_s: float = 15.0  # interval between checks for idle sessions and due retries

    # A provider call that takes longer is abandoned and counts as failed.
    commit_timeout_s: Annotated[
        float, Meta(description="Longest commit; a longer one is cancelled and retried.")
    ] = 120.0
    recall_timeout_s: Annotated[
        float,
        Meta(description="Longest wait of a turn for recalled facts; after that it starts without them."),
    ] = 1.0
    observe_timeout_s: float = 10.0
    close_timeout_s: float = 5.0

    retry_first_s: Annotated[
        float, Meta(description="Wait before a failed commit is retried; doubled after every failure.")
    ] = 30.0
    retry_longest_s: Annotated[float, Meta(description="Longest wait between two attempts at a commit.")] = (
        3600.0
    )

    commits_at_once: int = 4
    drain_s: Annotated[float, Meta(description="Time for outstanding commits at shutdown.")] = 10.0
    owing_max: int = 500  # sessions per check

    # The built-in provider.
    extraction_model: Annotated[
        str | None, Meta(description="Model that extracts facts. Unset: the default model.")
    ] = None
    extraction_chars_max: int = 24_000  # of a segment, per model call
    facts_per_commit_max: int = 20
    fact_chars_max: int = 500
    recall_facts_max: Annotated[
        int, Meta(description="Facts recalled for the first message of a session.")
    ] = 8
    profile_facts_max: Annotated[int, Meta(description="Facts about the user in the system prompt.")] = 24
    recall_chars_max: int = 4_000
