"""What a sandboxed command may use: memory, processes, the size of a file, the disk.

There are two mechanisms, because neither is enough. The kernel's limits (``setrlimit``) take effect at once,
but they count memory per process, and do not count root's processes at all (``control_groups`` does). So the
server also samples the whole sandbox ten times a second, and ends it with the reason. The disk is only
sampled, more often when little of it is left: quotas of folders need a file system that was set up for them.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from everturn.tools.sandbox.process_tree import descendants

_MIB = 1024 * 1024
_MEMORY_MIB_MAX = 4096  # where nothing is configured
_DISK_TAKEN_MIB = 64  # a command that takes less did not fill the disk
_FILES_TAKEN = 4096  # nor one that makes fewer files
_FILES_FREE = 100_000  # what a command must leave to others; on small disks a twentieth
_DISK_MIB_PER_S = 8192  # no command writes faster
_LOOK_EVERY_S = 0.1  # a fork bomb makes a few hundred processes in that time
_DISK_LOOK_EVERY_S = 0.005  # at the most often
_THREADS, _RSS = 17, 21  # fields of /proc/N/stat after the program's name


class ProcessLimits(msgspec.Struct, frozen=True):
    """``memory_mib`` None: half of the machine's, at most 4 GiB. ``processes`` counts threads too."""

    memory_mib: int | None = None
    processes: int = 512
    file_mib: int = 4096
    disk_free_mib: int = 1024  # what a command must leave to others; on small disks a twentieth

    @property
    def memory(self) -> int:
        """In bytes."""
        if self.memory_mib is not None:
            return self.memory_mib * _MIB
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(_MEMORY_MIB_MAX * _MIB, machine // 2)

    def is_within(self, other: ProcessLimits) -> bool:
        """True if none of these is above its counterpart."""
        return (
            self.memory <= other.memory
            and self.processes <= other.processes
            and self.file_mib <= other.file_mib
        )

    def values(self) -> dict[int, int]:
        """For ``setrlimit`` on a process before it begins; what it starts inherits them.

        Memory means writable memory. Address space alone uses none, and some runtimes reserve terabytes.
        """
        return {
            resource.RLIMIT_DATA: self.memory,
            resource.RLIMIT_FSIZE: self.file_mib * _MIB,
            resource.RLIMIT_CORE: 0,
        }

    def hold_processes(self, pid: int) -> None:
        """Limit the number of processes in the user namespace of this one."""
        hard = resource.prlimit(pid, resource.RLIMIT_NPROC)[1]
        most = self.processes if hard == resource.RLIM_INFINITY else min(self.processes, hard)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))

    def breach(self, used: ResourceUsage) -> str:
        """Which limit is passed, in words; empty if none is."""
        if used.tasks >= self.processes:
            return f"it ran {used.tasks} processes and threads at once, and the limit is {self.processes}"
        if used.is_out_of_memory or used.memory > self.memory:
            return self.memory_breach
        return self.disk_breach(used.disk)

    def disk_breach(self, disk: DiskUsage | None) -> str:
        if disk and disk.files_taken > _FILES_TAKEN and disk.files_free < _files_free(disk):
            return (
                f"it made {disk.files_taken} files on a disk that has room for only {disk.files_free} more. "
                "They are still there"
            )
        if disk and disk.taken > _DISK_TAKEN_MIB * _MIB and disk.free < self._disk_free(disk):
            return (
                f"it took {disk.taken // _MIB} MiB of the disk, where only {disk.free // _MIB} MiB are free "
                "now. What it wrote is still there"
            )
        return ""

    @property
    def memory_breach(self) -> str:
        return f"it used more than {self.memory // _MIB} MiB of memory, with files in /tmp; that is the limit"

    def pause_s(self, disk: DiskUsage | None) -> float:
        """How long the disk can be left alone: less than it takes to fill what a command may take of it."""
        if disk is None:
            return _LOOK_EVERY_S
        left_mib = (disk.free - self._disk_free(disk)) / _MIB
        return min(_LOOK_EVERY_S, max(_DISK_LOOK_EVERY_S, left_mib / _DISK_MIB_PER_S))

    def _disk_free(self, disk: DiskUsage) -> int:
        return min(self.disk_free_mib * _MIB, disk.size // 20)

    def hint(self, exit_code: int, output: bytes) -> str:
        """Why a command that ended badly may have, if a limit of the kernel was in its way."""
        tail = output[-2000:].lower()
        if exit_code == 128 + 25 or b"file too large" in tail or b"file size limit" in tail:
            return f"no file may become larger than {self.file_mib} MiB here"
        if any(words in tail for words in (b"memoryerror", b"cannot allocate memory", b"out of memory")):
            return f"the limit of memory here is {self.memory // _MIB} MiB"
        if b"resource temporarily unavailable" in tail or b"can't start new thread" in tail:
            return f"the limit here is {self.processes} processes and threads at once"
        return ""


class DiskUsage(msgspec.Struct, frozen=True):
    """The disk of the workspace, in bytes. ``taken``: how much less is free than when the command started.

    ``files_size`` is how many files it can hold; 0 where the file system has no such number.
    """

    free: int
    taken: int
    size: int
    files_free: int = 0
    files_taken: int = 0
    files_size: int = 0


class ResourceUsage(msgspec.Struct, frozen=True):
    tasks: int = 0  # processes with their threads
    memory: int = 0  # bytes
    is_out_of_memory: bool = False  # the kernel ended a process for that
    disk: DiskUsage | None = None


def disk_of(folder: Path, before: DiskUsage | None = None) -> DiskUsage:
    found = os.statvfs(folder)
    free, files_free = found.f_bavail * found.f_frsize, found.f_favail
    return DiskUsage(
        free,
        before.free - free if before else 0,
        found.f_blocks * found.f_frsize,
        files_free,
        before.files_free - files_free if before else 0,
        found.f_files,
    )


def _files_free(disk: DiskUsage) -> int:
    return min(_FILES_FREE, disk.files_size // 20)


def processes_in(pid: int, *, is_kept: bool = False) -> list[str]:
    """The processes in the sandbox of this first process; none where they cannot be seen (yet). ``is_kept``:
    it is the keeper of a sandbox without a namespace."""
    if is_kept:
        return [str(each) for each in descendants(pid)]
    proc = f"/proc/{pid}/root/proc"
    try:
        if os.stat(proc).st_dev == os.stat("/proc").st_dev:
            return []  # the sandbox is still being built: that is the machine's own
        return [entry for entry in os.listdir(proc) if entry.isdigit()]
    except OSError:
        return []


def known_usage(
    processes: Sequence[str], limits: ProcessLimits, is_out_of_memory: Callable[[], bool] | None
) -> ResourceUsage | None:
    """What they use, as far as that is known without reading each of them; None: ask ``usage_of``.

    ``is_out_of_memory``: of the control group that holds their memory, if there is one.
    """
    if len(processes) >= limits.processes:
        # Do not read each of them: under a fork bomb that would never end.
        return ResourceUsage(len(processes))
    if is_out_of_memory is not None:
        return ResourceUsage(len(processes), is_out_of_memory=is_out_of_memory())
    return None


def usage_of(
    pid: int, processes: Sequence[str], limits: ProcessLimits, *, is_kept: bool = False
) -> ResourceUsage:
    """What these processes of the sandbox use together. For sandboxes without a control group."""
    proc = Path("/proc" if is_kept else f"/proc/{pid}/root/proc")
    tasks = 0
    places = () if is_kept else ("/tmp", "/dev/shm")  # noqa: S108
    files = sum(_in_memory(Path(f"/proc/{pid}/root{place}")) for place in places)
    memory = files
    for process in processes:
        fields = _fields(proc / process / "stat")
        if fields:
            tasks += int(fields[_THREADS])
            memory += int(fields[_RSS]) * resource.getpagesize()
    if memory > limits.memory:
        # Shared pages were counted once per process. Exact figures cost more, so they are read only now.
        memory = files + sum(_own_share(proc / process / "smaps_rollup") for process in processes)
    return ResourceUsage(tasks, memory)


def _in_memory(folder: Path) -> int:
    """The bytes of the files in a memory file system."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0  # it has ended
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _fields(stat: Path) -> list[bytes]:
    try:
        return stat.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []  # it has ended


def _own_share(rollup: Path) -> int:
    try:
        lines = rollup.read_bytes().splitlines()
    except OSError:
        return 0  # it has ended
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
