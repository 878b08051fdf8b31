"""The documentation names only files, functions and classes that exist, and lists every decision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "everturn"
DECISIONS = ROOT / "docs" / "decisions"

LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
CODE = re.compile(r"`([^`\n]+)`")
PLACE = re.compile(r"([\w/]+\.py)(?:: ([\w.]+))?")  # `store/ledger.py`, `store/ledger.py: owe`
MEMBER = re.compile(r"([A-Z]\w+)\.(\w+)")  # `Runner.accept`


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def quoted(pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
    """Every piece of code in the documentation that has this form, and the page it is on."""
    for page in pages():
        for code in CODE.findall(page.read_text(encoding="utf-8")):
            if found := pattern.fullmatch(code):
                yield page, found


@cache
def names_in(file: Path) -> frozenset[str]:
    """The functions and classes of a module, and the methods as ``Class.method``."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member}" for member in _members(node)}
    return frozenset(names)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for inner in node.body:
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield inner.name
        elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            yield inner.target.id


def test_every_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_module_and_function_that_a_page_names_exists() -> None:
    ours = {path.parts[0] for path in (file.relative_to(SOURCE) for file in SOURCE.rglob("*.py"))}
    wrong = []
    for page, place in quoted(PLACE):
        path, name = place.groups()
        if path.split("/")[0] not in ours and name is None:
            continue  # a file of a user, or of the tests
        files = [file for file in SOURCE.rglob("*.py") if file.as_posix().endswith(f"/{path}")]
        if not files or (name and not any(name in names_in(file) for file in files)):
            wrong.append(f"{page.relative_to(ROOT)}: {place[0]}")
    assert wrong == []


def test_every_method_that_a_page_names_exists() -> None:
    known = frozenset[str]().union(*map(names_in, SOURCE.rglob("*.py")))
    wrong = [
        f"{page.relative_to(ROOT)}: {member[0]}"
        for page, member in quoted(MEMBER)
        if member[1] in known and member[0] not in known
    ]
    assert wrong == []


def test_the_index_of_decisions_lists_each_once() -> None:
    listed = LINK.findall((DECISIONS / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))
