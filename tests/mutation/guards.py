"""Guards: comments in the source that name the contract which a statement, a condition or a clause keeps.

In Python, ``# guard: b05`` stands at the end of what it marks, and says with it how that is broken:

- a simple statement is replaced by ``pass``;
- ``if``, ``elif`` and ``while`` never hold; with ``# guard: b05 always`` they always do;
- the operand of ``and`` or ``or`` that ends a line is left out;
- ``with`` is left out and its body stays; ``except`` catches nothing any more.

In SQL, ``-- guard: b05`` marks a line that is left out. Several contracts may be named: each has to notice.
``# guard: a07 postgresql`` is a guard that SQLite has no need of; the word comes last.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PYTHON = re.compile(r"#\s*guard:\s*((?:[a-g]\d\d\s*)+)(always)?\s*(postgresql)?\s*$")
_SQL = re.compile(r"--\s*guard:\s*((?:[a-g]\d\d\s*)+)$")
_BRANCHES = (ast.If, ast.While)
_SIMPLE = (
    ast.Expr,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Delete,
    ast.Return,
    ast.Raise,
    ast.Continue,
    ast.Break,
)


class BadGuard(Exception):
    """A guard that marks nothing that could be broken."""


@dataclass(frozen=True)
class Mutant:
    """One guarded place and the text of its file without it."""

    contract: str
    file: str  # below src/everturn
    place: str  # the function or query
    line: int
    before: str  # the marked code, on one line
    after: str  # what stands there instead
    text: str  # of the whole file, broken
    store: str = ""  # the one that it matters for; empty: both

    @property
    def key(self) -> str:
        """The same for as long as the code reads the same; lines may move."""
        return f"{self.contract} {self.file} {self.place} {self.before} {self.after}"


def mutants(source: Path) -> Iterator[Mutant]:
    """Every mutant of the source below this folder, in the order of files and lines."""
    for path in sorted([*source.rglob("*.py"), *source.rglob("*.sql")]):
        text = path.read_text(encoding="utf-8")
        if "guard:" in text:
            name = path.relative_to(source).as_posix()
            yield from (_in_sql if path.suffix == ".sql" else _in_python)(name, text)


def _in_sql(file: str, text: str) -> Iterator[Mutant]:
    lines = text.splitlines(keepends=True)
    query = ""
    for index, line in enumerate(lines):
        if line.startswith(("-- name:", "-- macro:")):
            query = line.split()[-1]
        if found := _SQL.search(line.rstrip()):
            broken = "".join([*lines[:index], *lines[index + 1 :]])
            before = _SQL.sub("", line.rstrip()).strip()
            for contract in found[1].split():
                yield Mutant(contract, file, query, index + 1, before, "", broken)


def _in_python(file: str, text: str) -> Iterator[Mutant]:
    tree = ast.parse(text)
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if found := _PYTHON.search(line):
            column = len(line[: found.start()].rstrip().encode())
            broken, before, after = _break(
                tree, text, number, column, found[2] == "always", f"{file}:{number}"
            )
            store = found[3] or ""
            for contract in found[1].split():
                place = _function_at(tree, number)
                yield Mutant(contract, file, place, number, before, after, broken, store)


def _break(
    tree: ast.Module, text: str, line: int, column: int, is_always: bool, where: str
) -> tuple[str, str, str]:
    """The broken text, and the marked code before and after."""
    for node in ast.walk(tree):
        if isinstance(node, _SIMPLE) and node.end_lineno == line:
            return _replaced(text, node, "pass")
        if isinstance(node, _BRANCHES) and _header_ends(node.test, line, column):
            return _replaced(text, node.test, "True" if is_always else "False")
        if isinstance(node, ast.BoolOp):
            for operand in reversed(node.values):
                if operand.end_lineno == line and not _header_ends(node, line, column):
                    return _replaced(text, operand, "True" if isinstance(node.op, ast.And) else "False")
        if isinstance(node, (ast.With, ast.AsyncWith)) and _header_ends(
            node.items[-1].optional_vars or node.items[-1].context_expr, line, column
        ):
            last = node.items[-1].optional_vars or node.items[-1].context_expr
            return _spliced(text, (node.lineno, node.col_offset), _end(last), "if True")
        if (
            isinstance(node, ast.ExceptHandler)
            and node.type is not None
            and node.type.end_lineno == line  # "as error" may follow
        ):
            return _replaced(text, node.type, "()")
    raise BadGuard(f"{where}: the guard marks no statement, condition or operand")


def _header_ends(node: ast.AST, line: int, column: int) -> bool:
    """Whether the header of a compound statement, whose last expression this is, ends at the marker."""
    end_line, end_column = _end(node)
    return end_line == line and column - end_column <= 2 and column > end_column


def _end(node: ast.AST) -> tuple[int, int]:
    end_line, end_column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
    assert end_line is not None
    assert end_column is not None
    return end_line, end_column


def _replaced(text: str, node: ast.stmt | ast.expr, instead: str) -> tuple[str, str, str]:
    return _spliced(text, (node.lineno, node.col_offset), _end(node), instead)


def _spliced(text: str, start: tuple[int, int], end: tuple[int, int], instead: str) -> tuple[str, str, str]:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    before = b"".join(lines[: start[0] - 1]) + lines[start[0] - 1][: start[1]]
    after = lines[end[0] - 1][end[1] :] + b"".join(lines[end[0] :])
    marked = text.encode()[len(before) : len(text.encode()) - len(after)].decode()
    return (before + instead.encode() + after).decode(), " ".join(marked.split()), instead


def _function_at(tree: ast.Module, line: int) -> str:
    """The innermost function around this line, with its class."""
    name = ""
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if child.lineno <= line <= (child.end_lineno or 0):
                    name = f"{prefix}{child.name}"
                    stack.append((child, f"{name}."))
            elif hasattr(child, "lineno"):
                stack.append((child, prefix))
    return name
