"""Syncs files, folders and file systems, so that what a step wrote is on disk before the step is recorded."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_DEPTH_MAX = 256


class DiskSync:
    """The real disk. Tests override these two calls to see what survives a power cut."""

    def sync(self, descriptor: int) -> None:
        """One file or folder."""
        os.fsync(descriptor)

    def sync_file_system(self, folder: Path) -> None:
        """Sync everything that any process wrote to the file system of this folder. Raises OSError.

        A command can write any number of files: one call for all of them takes milliseconds where one for
        each would take minutes.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if libc.syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
        finally:
            os.close(descriptor)


def sync_upwards(disk: DiskSync, folder: int, root: int) -> None:
    """Sync a folder and every folder above it up to ``root`` and the one that names it.

    Old folders too: the process that made them may have been killed before it synced them. A folder that may
    be written but not read cannot be synced, nor can those above it.
    """
    top = os.fstat(root)
    at = os.dup(folder)
    is_last = False
    try:
        for _ in range(_DEPTH_MAX):
            disk.sync(at)
            if is_last:
                return
            is_last = os.path.samestat(os.fstat(at), top)
            above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = above
    except PermissionError:
        return
    finally:
        os.close(at)
