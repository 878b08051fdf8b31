"""What a function is called and how much it is given (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[2] / "src" / "everturn"
PARAMETERS_MAX = 6
NOT_COUNTED = frozenset({"self", "cls", "tx"})
# Lists of named things: arguments of a tool, keywords of the Python API, options of the harnesses of tests.
LISTS = ("agent.py", "testing/")
# Words that look like participles and are verbs or nouns.
PLAIN = frozenset(
    {
        *(
            "bring",
            "embed",
            "exceed",
            "feed",
            "need",
            "pending",
            "ping",
            "proceed",
            "reasoning",
            "ring",
            "seed",
        ),
        *("speed", "succeed", "thinking"),
    }
)
PARTICIPLES = frozenset(
    [
        "begun",
        "bound",
        "brought",
        "built",
        "chosen",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "held",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "met",
        "paid",
        "said",
        "seen",
        "sent",
        "shown",
        "spent",
        "spoken",
        "taken",
        "told",
        "written",
    ]
)
# An endpoint is named by what it answers, and a fake by what a test says of it.
NAMED_BY_FACTS = ("web/api/", "testing/")


class Named(NamedTuple):
    path: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    def __str__(self) -> str:
        return f"{self.path}:{self.node.lineno} {self.node.name}"

    @property
    def decorators(self) -> str:
        return " ".join(map(ast.unparse, self.node.decorator_list))

    @property
    def parameters(self) -> list[str]:
        given = self.node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        return [name for name in names if name not in NOT_COUNTED]


def functions() -> Iterator[Named]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield Named(path.relative_to(SOURCE).as_posix(), node)


def is_participle(name: str) -> bool:
    if name.startswith("_") and name.endswith("_"):
        return False  # a hook of Python, such as ``_missing_`` of an enum
    word = name.strip("_")
    return word in PARTICIPLES or (word.endswith(("ed", "ing")) and word.isalpha() and word not in PLAIN)


def test_a_function_has_at_most_six_parameters() -> None:
    long = [
        f"{one}: {len(one.parameters)}"
        for one in functions()
        if len(one.parameters) > PARAMETERS_MAX
        and not one.path.startswith(LISTS)
        and "command(" not in one.decorators
        and one.node.name != "act"
    ]
    assert long == [], "look for the missing noun"


def test_no_function_is_named_by_a_participle_alone() -> None:
    named = [
        str(one)
        for one in functions()
        if is_participle(one.node.name)
        and "property" not in one.decorators
        and not one.path.startswith(NAMED_BY_FACTS)
    ]
    assert named == [], "name what it does: list_answered, not answered"
