"""The processes that a shim wrote down: itself, and the first process of its command.

A process id may have been reused, so each is stored with its start time. The start time is compared after
the process was opened, so what was compared is what was opened.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn.domain.errors import EverturnError
from everturn.jobs.shim import KEPT, PROCESSES, started_at
from everturn.tools.sandbox.marked import kill_marked

_END_S = 10.0
_SHIM, _FIRST = 0, 1  # the lines of the file


def wake_shim(folder: Path) -> None:
    """Continue a shim that was halted with SIGSTOP, which a command without a sandbox can do."""
    with _open_process(folder, _SHIM) as shim:
        if shim is not None:
            _send(shim, signal.SIGCONT)


def end_command(folder: Path, mark: str) -> None:
    """Kill what is left of a command whose shim is gone, and wait until its first process has ended.

    In a sandbox the kernel kills all others with that, and reports its end after theirs. The mark finds what
    left the group of a command without a sandbox, and a bubblewrap that waits for ever: its two processes
    build the sandbox together, and only one of them dies with the shim. Raises EverturnError if the first
    process does not end. A keeper ends the others itself, and must not be killed before.
    """
    with _open_process(folder, _FIRST) as first:
        if first is not None:
            _send(first, signal.SIGTERM if _is_keeper(folder) else signal.SIGKILL)
            if not select.select([first], [], [], _END_S)[0]:
                raise EverturnError("Its command was killed and has not ended yet. It will be checked again.")
    kill_marked(mark)


@contextmanager
def _open_process(folder: Path, line: int) -> Iterator[int | None]:
    """A handle to the process; None if it is gone, or if the shim was killed before it wrote the file."""
    handle = _handle(folder, line)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _handle(folder: Path, line: int) -> int | None:
    try:
        pid, started = map(int, (folder / PROCESSES).read_text(encoding="ascii").splitlines()[line].split())
        handle = os.pidfd_open(pid)
    except (FileNotFoundError, IndexError, ValueError, ProcessLookupError):
        return None
    if started and started_at(pid) == started:
        return handle
    os.close(handle)
    return None


def _is_keeper(folder: Path) -> bool:
    return (folder / PROCESSES).read_text(encoding="ascii").endswith(KEPT)


def _send(handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return  # it has just ended
