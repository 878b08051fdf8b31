"""Finds the files of own tools, and the tools' names without running them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

FOLDER: Final = "tools"  # of the data folder
GROUP: Final = "everturn.tools"  # entry points, NAME = "module:function"; NAME is the tool's
HOOKS: Final = "everturn.hooks"  # the same for hooks
_FUNCTION: Final = re.compile(r"^(?:async\s+)?def\s+([A-Za-z_]\w*)\s*\(", re.M)


def own_files(folder: Path) -> list[Path]:
    """Return the files that may hold tools. Names that begin with _ or a dot are ignored."""
    try:
        return sorted(path for path in folder.glob("*.py") if path.name[0] not in "._")
    except OSError:
        return []  # loading the folder states why


def find_own_names(folder: Path) -> frozenset[str]:
    """Return the names that own tools may have.

    Every function counts, even in a file with an error: such a file must not keep the server from starting.
    """
    return frozenset((*_functions(folder), *(entry.name for entry in entry_points(group=GROUP))))


def _functions(folder: Path) -> Iterator[str]:
    for path in own_files(folder):
        try:
            yield from _FUNCTION.findall(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # as above
