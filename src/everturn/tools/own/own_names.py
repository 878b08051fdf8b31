"""Where own tools are, and their names as far as they can be known without running any of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

FOLDER: Final = "tools"  # of the data folder
GROUP: Final = "everturn.tools"  # of entry points: NAME = "module:function", with the name of the tool
HOOKS: Final = "everturn.hooks"  # the same for hooks
_FUNCTION: Final = re.compile(r"^(?:async\s+)?def\s+([A-Za-z_]\w*)\s*\(", re.M)


def own_files(folder: Path) -> list[Path]:
    """The files that may hold tools. Those whose names begin with _ or a dot are left alone."""
    try:
        return sorted(path for path in folder.glob("*.py") if path.name[0] not in "._")
    except OSError:
        return []  # loading the folder states why


def find_own_names(folder: Path) -> frozenset[str]:
    """The names that a tool there can have. Every function counts, also in a file that has a mistake: it
    must not keep the server from starting."""
    return frozenset((*_functions(folder), *(entry.name for entry in entry_points(group=GROUP))))


def _functions(folder: Path) -> Iterator[str]:
    for path in own_files(folder):
        try:
            yield from _FUNCTION.findall(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # as above
