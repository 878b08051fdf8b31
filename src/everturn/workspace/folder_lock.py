"""One arrival, save or restore at a time in a folder, of all tasks and processes on this machine."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from everturn.domain.errors import WorkspaceUnreadable

_PATIENCE_S: Final = 600  # longer than a restore takes; a stopped process must not block the session for ever
_PAUSES_S: Final = (0.005, 0.02, 0.05)


@asynccontextmanager
async def hold_folder(folder: Path) -> AsyncIterator[None]:
    """Hold the folder's lock. It is an advisory lock on the folder itself, which ends with the process and
    leaves no file behind. It is not reentrant: what runs under it must not ask for it again.

    Raises WorkspaceUnreadable if the folder does not exist, or if the lock is not released in time.
    """
    handle = await _lock(folder)
    try:
        yield
    finally:
        os.close(handle)


async def _lock(folder: Path) -> int:
    """Asks again and again instead of waiting in the kernel, so that a task that waits can be cancelled."""
    tries = 0
    with anyio.move_on_after(_PATIENCE_S):
        while True:
            with anyio.CancelScope(shield=True):  # or the handle would be lost
                handle = await anyio.to_thread.run_sync(_try_lock, folder)
            if handle is not None:
                return handle
            await anyio.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
            tries += 1
    raise WorkspaceUnreadable(
        "The files of the workspace are being restored by another process, which does not end.",
        hint="Look for a process of Everturn that hangs, and end it.",
    )


def _try_lock(folder: Path) -> int | None:
    """A handle that holds the lock; None if another one does."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceUnreadable(
            f"The folder of the workspace could not be opened: {error.strerror or error}."
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EWOULDBLOCK, errno.EINTR):
            return None
        raise WorkspaceUnreadable(
            f"The folder of the workspace could not be locked: {error.strerror or error}."
        ) from error
    return handle
