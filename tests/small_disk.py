"""A real file system of a few megabytes that a test can fill and free. Mounting it needs root."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_CHUNK = 4096


class SmallDisk:
    """``root`` is where it is mounted; ``fill`` leaves so many bytes free, ``free`` gives them back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self, *, but: int = 0) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_CHUNK))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        os.truncate(self._ballast, self._ballast.stat().st_size - but)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(root: Path, megabytes: int, *, files: int = 10_000) -> Iterator[SmallDisk]:
    """``files``: how many files and folders it has room for."""
    root.mkdir()
    options = f"size={megabytes}m,nr_inodes={files},mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "everturn-test", str(root)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"a small file system needs root and the right to mount: {done.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        # Lazily: a process that still has a file open there must not keep it mounted.
        subprocess.run(["umount", "--lazy", str(root)], check=True)
