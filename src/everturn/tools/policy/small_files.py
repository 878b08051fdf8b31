"""Reads small files of a project, through no link, whatever a command has put in their place."""

from __future__ import annotations

import os
import stat

_BYTES_MAX = 256 * 1024


def read_small_file(path: str) -> bytes | None:
    """A small regular file; None for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        content = file.read(_BYTES_MAX + 1)
    return content if len(content) <= _BYTES_MAX else None


def git_folder(path: str) -> str | None:
    """The folder of the repository that ``.git`` is, or that a link or a file "gitdir: …" there names."""
    if os.path.isdir(path) and not os.path.islink(path):
        return path
    if os.path.islink(path):
        return os.path.realpath(path)
    content = read_small_file(path) or b""
    if not content.startswith(b"gitdir:"):
        return None
    return os.path.realpath(os.path.join(os.path.dirname(path), os.fsdecode(content[7:].strip())))
