"""Finds the processes of a call without a sandbox by a mark in their environment.

A job's bubblewrap carries the mark too. The command inside does not, but dies with bubblewrap.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from everturn.tools.sandbox.launch import MARK

_LOOKS_MAX = 200
_EMPTY_LOOKS = 2


def kill_marked(mark: str) -> None:
    """Kill the processes that carry the mark until none is left.

    One scan that finds none is not enough: a process can start another after the process list was read, and
    exit before its own environment is read.
    """
    empty = 0
    for _ in range(_LOOKS_MAX):
        found = _find_marked(mark)
        empty = 0 if found else empty + 1
        if empty == _EMPTY_LOOKS:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended by itself
        time.sleep(0.01)


def _find_marked(mark: str) -> list[int]:
    needle = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile, or belongs to another user
    return found
