"""Lists the descendants of a process. Standard library only: keepers import it and must start fast."""

from __future__ import annotations

import os
from collections.abc import Callable


def descendants(pid: int) -> list[int]:
    """Return the descendants of this process. One that ends or forks during the call may be missed."""
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue  # it has ended
        for thread in threads:
            try:
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    children = [int(word) for word in file.read().split()]
            except FileNotFoundError:
                if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                    return _descendants_by_parent(pid)
                continue  # it has ended
            except OSError:
                continue  # the same
            found += children
            waiting += children
    return found


def _descendants_by_parent(pid: int) -> list[int]:
    """Do the same on a kernel without lists of children."""
    parents = {child: fields[1] for child, fields in all_processes()}
    return [child for child in parents if child != pid and _leads_to(child, pid, parents.get)]


def is_descendant(pid: int, ancestor: int) -> bool:
    return pid != ancestor and _leads_to(pid, ancestor, lambda each: (_fields(each) or (0, 0))[1])


def _leads_to(pid: int, ancestor: int, parent_of: Callable[[int], int | None]) -> bool:
    for _ in range(100_000):
        if pid == ancestor:
            return True
        pid = parent_of(pid) or 0
        if pid <= 1:
            break
    return False


def all_processes() -> list[tuple[int, tuple[int, ...]]]:
    numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [(pid, fields) for pid in numbers if (fields := _fields(pid))]


def _fields(pid: int) -> tuple[int, ...] | None:
    """Return zero, the parent and the group of a process; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return 0, int(words[1]), int(words[2])


def leader_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", "rb") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))
