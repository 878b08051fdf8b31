"""Folders for temporary files, one for each command under a keeper. Standard library only."""

from __future__ import annotations

import fcntl
import os


def make_scratch(around: str) -> str:
    """Create a temporary folder for this call. Its lock tells a starting server that it is in use."""
    with open(os.path.join(around, "lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        path = os.path.join(around, f"{os.getpid()}-{os.urandom(6).hex()}")
        os.mkdir(path, 0o700)
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_EX)
    return path


def sweep(around: str) -> None:
    """Delete the folders that killed keepers left behind."""
    with open(os.path.join(around, "lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in os.listdir(around):
            path = os.path.join(around, name)
            if not os.path.isdir(path):
                continue
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                delete(path)
            except BlockingIOError:
                continue  # its command still runs
            finally:
                os.close(held)


def delete(path: str) -> None:
    """Delete a folder, including subfolders that a command made unreadable."""
    import shutil

    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
