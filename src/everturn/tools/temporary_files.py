"""Names of the files that are written beside their place and then renamed: a process that dies leaves them
behind. They are never shown or stored, and removed later."""

from __future__ import annotations

import re
import secrets
from typing import Final

STALE_S: Final = 600  # nothing writes to one of them for so long
_TEMPORARY: Final = re.compile(rb"\.everturn-[0-9a-f]{16}\.(?:partial|new)")


def restore_name(key: str) -> bytes:
    """For a file that is restored. ``key``: 16 hexadecimal digits, the same for each attempt."""
    return b".everturn-%s.partial" % key.encode()


def write_name() -> str:
    """For a file that is written. Short: the file's own name may be as long as allowed."""
    return f".everturn-{secrets.token_hex(8)}.new"


def is_temporary(name: bytes) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def is_of_restore(name: bytes) -> bool:
    """Only one restore runs in a folder, so that the next one may remove what it finds."""
    return is_temporary(name) and name.endswith(b".partial")
