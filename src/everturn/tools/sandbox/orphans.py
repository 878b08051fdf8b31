"""Ends sandboxes that a killed server left behind in the middle of their start.

bubblewrap forks the first process of the sandbox, which waits for a word from it and asks only then to die
with it. Killed with its server in between, it leaves that process waiting for ever. It has run nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

_NAME_CHARS: Final = 15  # the kernel keeps no more of a process's name


def kill_orphans(program: str) -> int:
    """Kill first processes of sandboxes that have lost their bubblewrap, and return how many there were.

    Ours are told from those of other programs by their empty environment, and from those of containers by the
    depth of their namespace.
    """
    name, depth = os.path.basename(program)[:_NAME_CHARS], len(_field("self", "NSpid")) + 1
    killed = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_orphan(entry.name, name, depth):
            try:
                os.kill(int(entry.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended meanwhile, or belongs to another user
            killed += 1
    return killed


def _is_orphan(pid: str, name: str, depth: int) -> bool:
    # By name: of the first process of the machine, not even root may be told the program.
    try:
        numbers = _field(pid, "NSpid")
        if _field(pid, "Name") != [name] or len(numbers) != depth or numbers[-1] != "1":
            return False
        is_ours = not Path(f"/proc/{pid}/environ").read_bytes()
        return is_ours and _field(_field(pid, "PPid")[0], "Name") != [name]
    except OSError:
        return False  # it has ended meanwhile, or belongs to another user


def _field(pid: str, name: str) -> list[str]:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split()[1:]
    return []
