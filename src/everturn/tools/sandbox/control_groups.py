"""Control groups that limit the memory and the processes of a sandbox, where the server may create them.

Without a group the kernel limits memory per process only, and does not count files in memory (/tmp, memfd).
It never applies ``RLIMIT_NPROC`` to root. Sampling can come too late for a fork bomb, because the bomb
starves the sampler.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

_PREFIX = "everturn"
_OWN = "everturn-server"  # the server moves here, below the group delegated to it
_PROCS, _KIND, _ENABLED = "cgroup.procs", "cgroup.type", "cgroup.subtree_control"
_TRIAL_BYTES = 64 * 1024**2


class Hierarchy(msgspec.Struct, frozen=True):
    """A group below which others are created. ``holds`` is what they can limit: ``pids``, ``memory``."""

    base: Path
    holds: tuple[str, ...]
    is_unified: bool = False
    is_threaded: bool = False


class Groups:
    """Creates one group per sandbox, below the server's own group."""

    def __init__(self, places: tuple[Hierarchy, ...]) -> None:
        self._places = places

    @classmethod
    def open(cls, proc: Path = Path("/proc/self")) -> Groups | None:
        """Find the hierarchies in which this server can create groups, by trying; None if there are none."""
        held: dict[str, Hierarchy] = {}
        for place in _places(proc):
            if any(what in held for what in place.holds):
                continue
            groups = cls((place,))
            try:
                groups._sweep()
                if place.is_unified:
                    _prepare(place)
                groups.make(1, _TRIAL_BYTES).remove()
            except OSError:
                continue  # usually not ours to write to
            held.update(dict.fromkeys(place.holds, place))
        return cls(tuple(dict.fromkeys(held.values()))) if held else None

    def holds(self, what: str) -> bool:
        return any(what in place.holds for place in self._places)

    @property
    def are_unified(self) -> bool:
        """True if a group of the unified hierarchy limits memory."""
        return any(place.is_unified and "memory" in place.holds for place in self._places)

    def outside_unified(self) -> Groups | None:
        """Return the groups of the old hierarchies. A systemd scope replaces the unified one."""
        places = tuple(place for place in self._places if not place.is_unified)
        return Groups(places) if places else None

    def make(self, processes: int, memory: int) -> Group:
        group = Group()
        name = f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            for place in self._places:
                path = place.base / name
                path.mkdir()
                group.folders.append((place, path))
                if place.is_threaded:
                    (path / _KIND).write_text("threaded")
                    (place.base / _ENABLED).write_text("+pids")
                if "pids" in place.holds:
                    (path / "pids.max").write_text(str(processes))
                if "memory" in place.holds:
                    _hold_memory(path, memory, is_unified=place.is_unified)
        except OSError as error:
            try:
                group.remove()
            except OSError as left:
                error.add_note(f"The group that was begun could not be removed: {left}")
            raise
        return group

    def _sweep(self) -> None:
        """Remove groups that killed servers left behind. Only empty groups can be removed."""
        for place in self._places:
            for left in place.base.glob(f"{_PREFIX}-*-*"):
                owner = left.name.split("-")[1]
                if owner.isdigit() and not Path("/proc", owner).exists():
                    with suppress(OSError):  # another server removed it, or its processes are still ending
                        left.rmdir()


class Group:
    """The groups of one sandbox, one in each hierarchy."""

    def __init__(self) -> None:
        self.folders: list[tuple[Hierarchy, Path]] = []

    @property
    def holds_memory(self) -> bool:
        return any("memory" in place.holds for place, _ in self.folders)

    def add(self, pid: int) -> None:
        """Add a process; its children will be in the group too."""
        for _, path in self.folders:
            (path / _PROCS).write_text(str(pid))

    def is_out_of_memory(self) -> bool:
        """True if the kernel killed a process of the group because memory ran out."""
        for place, path in self.folders:
            if "memory" in place.holds:
                events = path / ("memory.events" if place.is_unified else "memory.oom_control")
                try:
                    counts = dict(line.split() for line in events.read_text().splitlines())
                except FileNotFoundError:
                    return False  # removed by a server that found it empty at its start
                return counts.get("oom_kill", "0") != "0"
        return False

    def remove(self) -> None:
        """Remove every folder of the group. Call it after the last process has ended.

        Tries all of them before it raises OSError.
        """
        failed: list[OSError] = []
        for _, path in self.folders:
            try:
                path.rmdir()
            except FileNotFoundError:
                continue  # removed by another program
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]


def _hold_memory(path: Path, most: int, *, is_unified: bool) -> None:
    """Limit the memory of a group, and its swap where the kernel counts swap."""
    if is_unified:
        (path / "memory.max").write_text(str(most))
        (path / "memory.oom.group").write_text("1")
        swap, none = path / "memory.swap.max", "0"
    else:
        (path / "memory.limit_in_bytes").write_text(str(most))
        swap, none = path / "memory.memsw.limit_in_bytes", str(most)
    if swap.exists():
        swap.write_text(none)


def _prepare(place: Hierarchy) -> None:
    """Enable memory limits for the groups below this one. Raises OSError.

    The unified hierarchy forbids that for a group that has processes of its own. If the server is alone in a
    group that was delegated to it (systemd's ``Delegate=yes``), it moves into a group below.
    """
    if place.is_threaded:
        return
    words = " ".join(f"+{what}" for what in place.holds)
    try:
        (place.base / _ENABLED).write_text(words)
    except OSError:
        if (place.base / _PROCS).read_text().split() != [str(os.getpid())]:
            raise
        own = place.base / _OWN
        own.mkdir(exist_ok=True)
        (own / _PROCS).write_text(str(os.getpid()))
        (place.base / _ENABLED).write_text(words)


def _places(proc: Path) -> list[Hierarchy]:
    """Return this process's groups in the old and the unified hierarchies, best first."""
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
        if kind == "cgroup":
            for what in {"pids", "memory"} & set(options.split(",")) & own.keys():
                places.append(Hierarchy(_below(point, root, own[what]), (what,)))
        elif kind == "cgroup2" and "" in own:
            base = _below(point, root, own[""])
            base = base.parent if base.name == _OWN else base
            places.append(Hierarchy(base, ("pids", "memory"), is_unified=True))
            # A group with processes, such as the server's, can only have threaded groups below, which cannot
            # limit memory.
            places.append(Hierarchy(base, ("pids",), is_unified=True, is_threaded=True))
    return places


def _below(point: str, root: str, path: str) -> Path:
    """Return a group's folder.

    The mount shows the hierarchy below ``root``, in a container not the whole of it.
    """
    return Path(point, os.path.relpath(path, root))
