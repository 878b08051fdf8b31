"""The name under which a user's own version of a file stays beside the restored one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_NAME_BYTES_MAX: Final = 255
_MINE: Final = re.compile(rb"(.+) \(mine(?: \d+)?\)(\.[^.]*)?", re.DOTALL)


def find_free_name(path: bytes, is_taken: Callable[[bytes], bool]) -> bytes:
    """``notes (mine).txt`` for ``notes.txt``; ``notes (mine 2).txt`` if that is taken."""
    folder, slash, name = path.rpartition(b"/")
    stem, dot, ending = name.rpartition(b".")
    if not stem:  # no ending, or a hidden file
        stem, dot, ending = name, b"", b""
    number = 1
    while True:
        mark = b" (mine)" if number == 1 else b" (mine %d)" % number
        tail = mark + dot + ending
        found = folder + slash + _cut(stem, _NAME_BYTES_MAX - len(tail)) + tail
        if not is_taken(found):
            return found
        number += 1


def find_original(path: bytes) -> bytes | None:
    """The path of which this one is the user's own version; None if it is not named so."""
    folder, slash, name = path.rpartition(b"/")
    match = _MINE.fullmatch(name)
    return None if match is None else folder + slash + match[1] + (match[2] or b"")


def _cut(stem: bytes, size: int) -> bytes:
    """At most this many bytes, without half a character at the end."""
    if len(stem) <= size:
        return stem
    return stem[: max(size, 1)].decode("utf-8", "ignore").encode() or stem[: max(size, 1)]
