"""No name that is stored, sent or typed by a person goes away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.names import FILE, collect

pytestmark = pytest.mark.anyio


async def test_names_outside_the_code_are_the_frozen_ones(tmp_path: Path, postgres_url: str) -> None:
    frozen = json.loads(FILE.read_text())
    found = json.loads(json.dumps(await collect(tmp_path / "home", postgres_url)))
    gone = _missing(frozen, found)
    assert not gone, f"Existing data or clients use these names, which are gone: {gone}"
    added = _missing(found, frozen)
    assert not added, f"New names: freeze them with `python -m tests.golden.names`: {added}"


def _missing(wanted: Any, there: Any, place: str = "") -> list[str]:
    """What of ``wanted`` is not in ``there``."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return [
            line
            for name, value in wanted.items()
            for line in (
                _missing(value, there[name], f"{place}/{name}") if name in there else [f"{place}/{name}"]
            )
        ]
    if isinstance(wanted, list) and isinstance(there, list):
        return [f"{place}: {value}" for value in wanted if value not in there]
    return [] if wanted == there else [f"{place}: {wanted}"]
