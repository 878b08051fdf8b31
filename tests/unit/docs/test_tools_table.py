"""The table of docs/agent.md says of each built-in tool what its code says."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.tools.names import BUILT_IN_NAMES
from everturn.tools.schema import Action

PAGE = Path(__file__).resolve().parents[3] / "docs" / "agent.md"
for _room in ("tools.toolbox", "schedules.tool", "memory.tool", "skills.tool"):
    importlib.import_module(f"everturn.{_room}")


def _subclasses(kind: type[Action]) -> Iterator[type[Action]]:
    for found in kind.__subclasses__():
        yield found
        yield from _subclasses(found)


def _built_in() -> dict[str, type[Action]]:
    found: dict[str, type[Action]] = {}
    for kind in _subclasses(Action):
        if kind.__module__.startswith("everturn.") and getattr(kind, "name", "") in BUILT_IN_NAMES:
            found.setdefault(kind.name, kind)
    return found


def _row(kind: type[Action]) -> str:
    again = "yes" if kind.is_safe_to_repeat else "yes, by its key" if kind.takes_key else "no: in doubt"
    again = "yes, it only reads" if kind.reads_only else again
    asks = f"if {kind.asks_when}" if kind.asks_when else "never"
    return f"| `{kind.name}` | {asks} | {again} | {kind.timeout_s:g} s |"


def test_every_built_in_tool_is_one() -> None:
    assert set(_built_in()) == BUILT_IN_NAMES


@pytest.mark.parametrize("name", sorted(BUILT_IN_NAMES))
def test_the_table_has_the_row_of_the_tool(name: str) -> None:
    assert _row(_built_in()[name]) in PAGE.read_text(encoding="utf-8").splitlines()
