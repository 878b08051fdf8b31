"""Control groups that hold the number of processes in a sandbox, where the server may make them.

They are for servers that run as root: the kernel never applies ``RLIMIT_NPROC`` to root's processes, and
whoever only looks now and then can come too late for a fork bomb, because the bomb takes the processor from
the one who looks. Other users need no group: their limit is the kernel's.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

_PREFIX = "everturn"
_PROCS, _MOST, _KIND = "cgroup.procs", "pids.max", "cgroup.type"


class Groups:
    """Makes one group per sandbox, below the group that the server itself is in."""

    def __init__(self, base: Path, *, is_unified: bool) -> None:
        self._base = base
        self._is_unified = is_unified
        self._numbers = itertools.count(1)

    @classmethod
    def open(cls, proc: Path = Path("/proc/self")) -> Groups | None:
        """The groups of this server, tried by making one; None where that is not allowed."""
        for base, is_unified in _places(proc):
            groups = cls(base, is_unified=is_unified)
            try:
                groups._sweep()
                groups.make(1).remove()
            except OSError:
                continue  # seldom ours to write to: the next place, or none
            return groups
        return None

    def make(self, processes: int) -> Group:
        group = Group(self._base / f"{_PREFIX}-{os.getpid()}-{next(self._numbers)}")
        group.path.mkdir()
        try:
            if self._is_unified:
                # Threaded, because a group with processes in it, as the server's is, may have no other below.
                (group.path / _KIND).write_text("threaded")
                (self._base / "cgroup.subtree_control").write_text("+pids")
            (group.path / _MOST).write_text(str(processes))
        except OSError:
            group.remove()
            raise
        return group

    def _sweep(self) -> None:
        """Remove what servers that were killed have left: only an empty group can be removed."""
        for left in self._base.glob(f"{_PREFIX}-*-*"):
            owner = left.name.split("-")[1]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with suppress(OSError):  # another server was faster, or its processes are still ending
                    left.rmdir()


class Group:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int) -> None:
        """Put a process in; what it starts will be in it too."""
        (self.path / _PROCS).write_text(str(pid))

    def remove(self) -> None:
        """After the end of its last process."""
        self.path.rmdir()


def _places(proc: Path) -> list[tuple[Path, bool]]:
    """Where this process is in the hierarchy that counts processes, the old one or the unified one."""
    own = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    places = []
    for line in (proc / "mountinfo").read_text().splitlines():
        # ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS … - TYPE SOURCE OPTIONS
        mount, _, filesystem = line.partition(" - ")
        root, point = mount.split()[3:5]
        kind, _, options = filesystem.split(maxsplit=2)
        if kind == "cgroup" and "pids" in options.split(",") and "pids" in own:
            places.append((_below(point, root, own["pids"]), False))
        elif kind == "cgroup2" and "" in own:
            places.append((_below(point, root, own[""]), True))
    return places


def _below(point: str, root: str, path: str) -> Path:
    """A group's folder. A mount shows the hierarchy from ``root`` on; in a container that is not its top."""
    return Path(point, os.path.relpath(path, root))
