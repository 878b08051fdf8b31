"""What the shim watches while its command runs, and what it does when the command has ended."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from everturn.tools.disk_sync import DiskSync
from everturn.tools.limits import ProcessLimits, disk_of, known_usage, processes_in, usage_of
from everturn.tools.policy.guarded import ProjectGuard
from everturn.tools.sandbox.control_groups import Group, Hierarchy
from everturn.tools.sandbox.marked import kill_marked

_GUARD = "guard"


class JobWatch:
    """The limits of one command, checked by the shim, which is its parent."""

    # ``Any``: as in the shim, which read it. ``first``: the first process of the sandbox, or its keeper; 0
    # without a sandbox. ``scope``: the control group of its systemd scope.
    def __init__(self, folder: str, spec: Mapping[str, Any], first: int, scope: str) -> None:
        self._first = first
        self._is_kept = bool(spec["is_kept"])
        self._workspace = Path(spec["workspace"])
        self._mark = spec["mark"]
        self._limits = ProcessLimits(*spec["limits"])
        self._disk = disk_of(self._workspace)  # when it started
        self._group = _group_of(spec["groups"])
        # Not removed by us: it is systemd's, and this process is in it.
        self._memory_group = _group_of([(scope, True, True)]) if scope else self._group
        self._guard = read_guard(Path(folder))

    def pause_s(self) -> float:
        """Seconds until the next check."""
        return self._limits.pause_s(disk_of(self._workspace) if self._first else None)

    def breach(self) -> str:
        """The limit that was exceeded, in words; empty if none was. Without a sandbox there are no limits."""
        if not self._first:
            return ""
        processes = processes_in(self._first, is_kept=self._is_kept)
        group = self._memory_group if self._memory_group.holds_memory else None
        used = known_usage(processes, self._limits, group.is_out_of_memory if group else None)
        if used is None:
            used = usage_of(self._first, processes, self._limits, is_kept=self._is_kept)
        used = msgspec.structs.replace(used, disk=disk_of(self._workspace, self._disk))
        return self._limits.breach(used) or self._forbidden_change()

    def finish(self) -> tuple[str, list[str]]:
        """Called after the last process ended: make what it left harmless and durable. Returns the limit
        that the kernel ended it for, in words, and notes for the reader."""
        if self._mark:
            kill_marked(self._mark)
        breach = self._limits.memory_breach if self._memory_group.is_out_of_memory() else ""
        notes = set_aside(self._guard)
        try:
            DiskSync().sync_file_system(self._workspace)
        except OSError as error:
            notes.append(f"a power cut may lose what it wrote: {error.strerror or error}")
        self._group.remove()
        return breach, notes

    def _forbidden_change(self) -> str:
        made = self._guard.forbidden_change() if self._guard else ""
        return f"{made} was made or changed, which other programs run outside the sandbox" if made else ""


def write_guard(folder: Path, guard: ProjectGuard | None) -> None:
    """Durable before the command starts: after a power cut the next server needs it."""
    if guard is None:
        return
    with open(folder / _GUARD, "wb") as file:
        file.write(pickle.dumps(guard))
        file.flush()
        os.fsync(file.fileno())


def read_guard(folder: Path) -> ProjectGuard | None:
    """The guard that was made before the command started; None for a session's own workspace."""
    path = folder / _GUARD
    if not os.path.exists(path):
        return None
    guard: ProjectGuard = pickle.loads(path.read_bytes())  # noqa: S301 - our own file in the data folder
    return guard


def set_aside(guard: ProjectGuard | None) -> list[str]:
    """Rename what a command made and other programs would run; say so."""
    names = guard.rename_harmful() if guard else []
    if not names:
        return []
    return [
        f"renamed, because other programs would run it outside the sandbox: {', '.join(names)}. "
        "To keep it, write it with write_file, which asks."
    ]


def group_words(group: Group | None) -> list[tuple[str, bool, bool]]:
    """A control group as the shim gets it: path, unified hierarchy, holds memory."""
    folders = group.folders if group else []
    return [(str(path), place.is_unified, "memory" in place.holds) for place, path in folders]


def _group_of(words: Sequence[tuple[str, bool, bool]]) -> Group:
    group = Group()
    for path, is_unified, holds_memory in words:
        holds = ("memory",) if holds_memory else ("pids",)
        group.folders.append((Hierarchy(Path(path).parent, holds, is_unified), Path(path)))
    return group
