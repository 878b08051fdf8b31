"""The rooms of the house and the doors between them, read from one list.

A room may import only rooms on lines above its own; rooms on one line do not import each other. Imports
inside functions count like all others.
"""

from __future__ import annotations

import ast
import importlib
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import everturn

ROOMS = """
domain
store models tools
memory workspace
skills
engine
delivery
jobs schedules importers move tracing backups
gateway web
lab
config
app
agent
bench speed
cli
"""
# Inside a room: a folder imports only folders before it in its line. Modules beside the folders are free.
FOLDERS = {
    "store": "sql scripts files blobs secrets journal turns sessions delivery sqlite postgres",
    "tools": "policy web sandbox terminal files documents knowledge mcp own",
    "web": "access http streams openai api",
}
# May import anything; only tests, the benchmarks of speed and the lab import it.
OPEN = "testing"
# The package's own two files: `everturn.open` and `python -m everturn`.
DOORS = {"__init__": "agent", "__main__": "cli"}

ROOT = Path(everturn.__file__).parent
LEVELS = {room: level for level, line in enumerate(ROOMS.split("\n")) for room in line.split()}


class Import(NamedTuple):
    module: str
    line: int
    target: str
    is_at_top: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [(_name(path), ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(ROOT.rglob("*.py"))]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def imports() -> list[Import]:
    found = []
    for module, tree in modules():
        top = set(map(id, tree.body))
        for node in ast.walk(tree):
            for target in _targets(node, module):
                if target.split(".")[0] == "everturn":
                    found.append(Import(module, node.lineno, target, id(node) in top))  # type: ignore[attr-defined]  # import nodes have a line
    return found


def _targets(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert not node.level, f"{module}:{node.lineno} imports by a relative name"
        assert node.module is not None
        # `from everturn.store import sql` names a module, `from everturn.store import Store` does not.
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def room_of(module: str) -> str:
    return module.removeprefix("everturn.").split(".")[0]


def test_every_folder_and_file_is_a_room_of_the_list() -> None:
    found = {room_of(module) for module, _ in modules()}
    assert found - set(LEVELS) - {OPEN} - set(DOORS) == set()


def test_a_room_imports_only_rooms_above_it() -> None:
    wrong = []
    for entry in imports():
        here, there = room_of(entry.module), room_of(entry.target)
        if here in (OPEN, there) or there not in LEVELS:
            continue
        allowed = LEVELS[DOORS[here]] + 1 if here in DOORS else LEVELS[here]
        if LEVELS[there] >= allowed:
            wrong.append(str(entry))
    assert wrong == []


@pytest.mark.parametrize("room", FOLDERS)
def test_a_folder_inside_a_room_imports_only_folders_before_it(room: str) -> None:
    places = {folder: place for place, folder in enumerate(FOLDERS[room].split())}
    wrong = []
    for entry in imports():
        here, there = _folder(entry.module, room), _folder(entry.target.removeprefix("everturn."), room)
        if here in places and there in places and places[there] > places[here]:
            wrong.append(str(entry))
    assert wrong == []


@pytest.mark.parametrize("room", FOLDERS)
def test_every_folder_inside_a_room_has_its_place(room: str) -> None:
    found = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    assert found - set(FOLDERS[room].split()) == set()


def _folder(module: str, room: str) -> str:
    """The folder of the room that a module is in; empty if it is in none."""
    parts = module.split(".")
    return parts[1] if parts[0] == room and len(parts) > 2 else ""


def test_only_tests_import_the_fakes() -> None:
    users = {room_of(entry.module) for entry in imports() if room_of(entry.target) == OPEN}
    assert users <= {OPEN, "lab", "speed"}


def test_only_the_command_line_and_the_front_door_import_the_composition_root() -> None:
    users = {room_of(entry.module) for entry in imports() if room_of(entry.target) == "app"}
    assert users <= {"cli", "agent", "speed", OPEN}


def test_domain_imports_nothing_that_has_to_be_installed_but_its_values_and_its_clock() -> None:
    outside = set()
    for module, tree in modules():
        if room_of(module) == "domain":
            for node in ast.walk(tree):
                outside |= {target.split(".")[0] for target in _targets(node, module)}
    assert outside - set(sys.stdlib_module_names) - {"everturn"} <= {"anyio", "msgspec"}


def test_no_module_needs_itself_to_be_imported() -> None:
    """Cycles of imports at the top of modules, however long."""
    names = {f"everturn.{module}" for module, _ in modules()} | {"everturn"}
    needs: dict[str, set[str]] = {name: set() for name in names}
    for entry in imports():
        if entry.is_at_top:
            target = entry.target if entry.target in names else entry.target.rpartition(".")[0]
            if target in names and target != f"everturn.{entry.module}":
                needs[f"everturn.{entry.module}"].add(target)
    while free := [name for name, needed in needs.items() if not needed]:
        for name in free:
            del needs[name]
        for needed in needs.values():
            needed.difference_update(free)
    assert needs == {}


def rooms() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@pytest.mark.parametrize("room", rooms())
def test_a_room_says_what_it_is_and_what_it_gives(room: str) -> None:
    module = importlib.import_module(f"everturn.{room}")
    assert module.__doc__, "it says in a few lines what it owns"
    for name in module.__all__:
        assert hasattr(module, name) or importlib.import_module(f"everturn.{room}.{name}")
    assert sorted(set(module.__all__)) == sorted(module.__all__)
