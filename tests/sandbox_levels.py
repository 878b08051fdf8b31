"""The levels of the sandbox, for tests that run at each of them."""

from __future__ import annotations

from pathlib import Path

from everturn.tools import Sandbox

# By name: the levels that are tried, and the newest version of Landlock that may be used. Version 1 is the
# oldest, version 5 the last one that keeps no signals in.
LEVELS = {
    "full": (("bubblewrap",), 0),
    "landlock": (("landlock",), 1000),
    "landlock 5": (("landlock",), 5),
    "landlock 1": (("landlock",), 1),
}


def sandbox_at(level: str, home: Path) -> Sandbox:
    """A sandbox that is tried at this level only."""
    levels, version = LEVELS[level]
    return Sandbox(home, levels=levels, landlock_version_max=version)
