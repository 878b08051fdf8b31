"""In-memory files that pass data to a child without putting it on the command line."""

from __future__ import annotations

import os
from contextlib import ExitStack


def memory_file(name: str, content: bytes, stack: ExitStack) -> int:
    """Return an in-memory file, positioned at its beginning and closed with the stack."""
    fd = os.memfd_create(name, 0)
    stack.callback(os.close, fd)
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
