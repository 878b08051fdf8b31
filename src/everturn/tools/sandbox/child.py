"""A process that a tool started, tracked until it and all its descendants have ended."""

from __future__ import annotations

import logging
import os
import re
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec
from anyio.abc import Process

from everturn.tools.limits import (
    DiskUsage,
    ProcessLimits,
    ResourceUsage,
    disk_of,
    known_usage,
    processes_in,
    usage_of,
)
from everturn.tools.policy.guarded import ProjectGuard
from everturn.tools.sandbox.control_groups import Group
from everturn.tools.sandbox.marked import kill_marked

_log = logging.getLogger("everturn.tools")


class InSandbox(NamedTuple):
    """How a sandbox started a process.

    ``first`` is the id and a handle of the first process inside, or None if it could not be started.
    If ``is_kept``, the started process is the keeper. ``sockets`` holds the version of each socket that was
    covered at the start, by path.
    """

    first: tuple[int, int] | None
    is_kept: bool
    sockets: Mapping[str, str]


_OUTSIDE = InSandbox(None, False, {})


class Child:
    """A process that a tool started, and all its descendants."""

    def __init__(
        self,
        process: Process,
        *,
        mark: str = "",
        inside: InSandbox = _OUTSIDE,
        workspace: Path | None = None,
        guard: ProjectGuard | None = None,
    ) -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process was started without pipes")
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._mark = mark
        self._first = inside.first[0] if inside.first else 0
        self._namespace: int | None = inside.first[1] if inside.first else None
        self._is_kept = inside.is_kept
        self._workspace = workspace
        self.guard = guard
        self._covered = inside.sockets
        self.set_aside: list[str] = []  # files it created that must never run; known after it ended
        self._disk = disk_of(workspace) if workspace else None  # at the start
        self.is_out_of_memory = False  # known after it ended
        self.group: Group | None = None  # limits its memory and its number of processes

    @property
    def is_sandboxed(self) -> bool:
        return self._namespace is not None

    async def measure(self, limits: ProcessLimits) -> ResourceUsage:
        """Return what the process and its descendants use now.

        Zero outside a sandbox: they cannot be found.
        """
        if self._namespace is None:
            return ResourceUsage()
        top = self.process.pid if self._is_kept else self._first
        processes = processes_in(top, is_kept=self._is_kept)
        group = self.group if self.group is not None and self.group.holds_memory else None
        used = known_usage(processes, limits, group.is_out_of_memory if group else None)
        if used is None:
            used = await anyio.to_thread.run_sync(
                lambda: usage_of(top, processes, limits, is_kept=self._is_kept)
            )
        # After it ended, another process may have its id.
        if self._namespace is None or _is_over(self._namespace):
            return ResourceUsage()
        return msgspec.structs.replace(used, disk=self.disk())

    def disk(self) -> DiskUsage | None:
        """Return the disk that holds the workspace. None outside a sandbox."""
        return disk_of(self._workspace, self._disk) if self._workspace else None

    def list_uncovered(self, sockets: Mapping[str, str]) -> list[str]:
        """Return the sockets that it can connect to because they were created after its start."""
        return [path for path, version in sockets.items() if self._covered.get(path) != version]

    async def end(self) -> None:
        """Kill the process with everything it started, and wait until all of it is gone.

        In a sandbox this kills the first process of the namespace. The kernel then kills the others and
        reports the first one's end only after theirs. A keeper does the same when asked to end. Without a
        sandbox this kills the process group, then every process that left the group but carries the mark of
        the call in its environment.
        """
        with anyio.CancelScope(shield=True):
            if self._is_kept:
                await self._end_keeper()
            elif self._namespace is not None:
                await _kill_namespace(self._namespace)
                self._namespace = None
            _kill_group(self.process.pid)
            if self._mark:
                await anyio.to_thread.run_sync(kill_marked, self._mark)
            await self.process.wait()
            if self.guard is not None:
                self.set_aside += await anyio.to_thread.run_sync(self.guard.rename_harmful)
            await self.process.aclose()
            self._leave_group()

    async def _end_keeper(self) -> None:
        """Ask the keeper to end. If we killed it, it could not end the others."""
        with suppress(ProcessLookupError):  # it has ended already, and all others with it
            self.process.terminate()
        await self.process.wait()
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None

    def _leave_group(self) -> None:
        """Read the control group's counters, then remove it.

        Errors are logged and not raised, because the finished command's result must not be lost. A group that
        could not be removed holds no process; the next start of the server removes it.
        """
        group, self.group = self.group, None
        if group is None:
            return
        try:
            self.is_out_of_memory = group.is_out_of_memory()
        except OSError as error:
            _log.warning("cannot tell whether a command ran out of memory: %s", error)
        try:
            group.remove()
        except OSError as error:
            _log.warning("a control group could not be removed; the next start tries again: %s", error)


async def first_process(info: int) -> tuple[int, int] | None:
    """Return the sandbox's first process and a handle of it, or None if bubblewrap could not start it."""
    written = b""
    with anyio.CancelScope(shield=True):
        # Read to the end: bubblewrap writes in pieces and dies if the pipe closes early.
        while not written.rstrip().endswith(b"}"):
            await anyio.wait_readable(info)
            piece = os.read(info, 4096)
            if not piece:
                break
            written += piece
    found = re.search(rb'"child-pid":\s*(\d+)', written)
    if found is None:
        return None
    try:
        return int(found[1]), os.pidfd_open(int(found[1]))
    except ProcessLookupError:
        return None  # it has ended already


def _is_over(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])


async def _kill_namespace(handle: int) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        await anyio.wait_readable(handle)
    except ProcessLookupError:
        return  # it has ended already, and all others with it
    finally:
        os.close(handle)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # already gone, with everything in its group
