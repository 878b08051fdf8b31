"""What clients were told, recorded where a crash of the process cannot undo it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from everturn.domain.json_types import Json, JsonObject

Note = JsonObject


class Notes:
    """Each note is written after the act was acknowledged, and before the next act."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def __call__(self, what: str, **facts: Json) -> None:
        self._write(json.dumps({"what": what, **facts}))


def notes_in(path: Path) -> Notes:
    """Notes in a file. A killed process leaves what it has written to the operating system."""
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    return Notes(lambda line: _append(descriptor, line))


def _append(descriptor: int, line: str) -> None:
    os.write(descriptor, line.encode() + b"\n")


def read_notes(path: Path) -> list[Note]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
