"""Waits with a time limit: a hang becomes a failure that names what did not happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

PATIENCE_S = 60.0  # long enough for a loaded machine; only a failing test waits this long


@contextmanager
def within(what: str, seconds: float = PATIENCE_S) -> Iterator[None]:
    """Fail, saying ``what`` did not happen, if the body takes longer than this. The body is cancelled."""
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise AssertionError(f"not within {seconds:g} s: {what}")
