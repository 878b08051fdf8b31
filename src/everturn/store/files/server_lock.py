"""The lock that servers share, and that is held alone by a command that replaces what they work on."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everturn.domain.errors import StoreRefused
from everturn.store.files.disk import report_errors

_SERVES = ("server.lock", "workers/*.lock")


@contextmanager
def hold_server_lock(folder: Path, nothing: str) -> Iterator[None]:
    """Hold the lock that servers share. Raises StoreRefused while a process works in the data folder;
    ``nothing``: says that nothing was done then."""
    for path in (path for pattern in _SERVES for path in folder.glob(pattern)):
        with path.open("rb") as file:
            _lock(file.fileno(), folder, nothing)
    with report_errors(folder):
        descriptor = os.open(folder / "server.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, folder, nothing)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, nothing: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreRefused(
            f"A server or another command works in {folder}. {nothing}", hint="Stop it first."
        ) from error
