"""Every bound of memory, named with its unit."""

from __future__ import annotations

import msgspec

NOTES = "notes"  # the name of the built-in provider


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    provider: str = NOTES  # "" switches memory off; what is owed stays owed

    # When a session that nobody left is committed all the same.
    idle_s: float = 600.0
    look_s: float = 15.0  # how often somebody looks for idle sessions and due retries

    # What a provider may take. Past it, the call is given up and counts as failed.
    commit_timeout_s: float = 120.0
    recall_timeout_s: float = 1.0  # a turn waits for it
    observe_timeout_s: float = 10.0
    close_timeout_s: float = 5.0

    # A commit that failed is tried again, each time later.
    retry_first_s: float = 30.0
    retry_longest_s: float = 3600.0

    commits_at_once: int = 4
    drain_s: float = 10.0  # what shutdown gives to everything that is owed
    owing_max: int = 500  # sessions that one look takes

    # The built-in provider.
    extraction_model: str | None = None  # None: the default model
    extraction_chars_max: int = 24_000  # of a segment, per model call
    facts_per_commit_max: int = 20
    fact_chars_max: int = 500
    recall_facts_max: int = 8
    profile_facts_max: int = 24
    recall_chars_max: int = 4_000
