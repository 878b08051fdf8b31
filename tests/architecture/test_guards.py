"""Guards mark what can be broken, so that no rename or edit leaves one behind that says nothing."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutation.guards import BadGuard, mutants

SOURCE = Path(__file__).parents[2] / "src" / "everturn"


def test_every_guard_of_the_source_marks_something_and_leaves_valid_python() -> None:
    found = list(mutants(SOURCE))
    assert {mutant.contract[0] for mutant in found} >= {"a", "b", "c", "d"}
    for mutant in found:
        if mutant.file.endswith(".py"):
            compile(mutant.text, mutant.file, "exec")


@pytest.mark.parametrize(
    ("code", "broken"),
    [
        ("act()  # guard: b05", "pass  # guard: b05"),
        ("act(\n    1,\n)  # guard: b05", "pass  # guard: b05"),
        ("if is_ours:  # guard: b05\n    act()", "if False:  # guard: b05\n    act()"),
        ("if is_ours:  # guard: b05 always\n    act()", "if True:  # guard: b05 always\n    act()"),
        ("while waits():  # guard: b05\n    act()", "while False:  # guard: b05\n    act()"),
        ("x = (\n    a  # guard: b05\n    and b\n)", "x = (\n    True  # guard: b05\n    and b\n)"),
        (
            "if (\n    a\n    or b  # guard: b05\n):\n    c",
            "if (\n    a\n    or False  # guard: b05\n):\n    c",
        ),
        ("with lock:  # guard: b05\n    act()", "if True:  # guard: b05\n    act()"),
        (
            "try:\n    a()\nexcept KeyError:  # guard: b05\n    b()",
            "try:\n    a()\nexcept ():  # guard: b05\n    b()",
        ),
    ],
)
def test_what_a_guard_marks_is_broken(tmp_path: Path, code: str, broken: str) -> None:
    (tmp_path / "room.py").write_text(code)
    (mutant,) = mutants(tmp_path)
    assert mutant.text == broken


def test_a_marked_line_of_a_query_is_left_out(tmp_path: Path) -> None:
    query = """\
    -- name: open
    SELECT 1 FROM owed
    WHERE owner = $1
      AND settled_at IS NULL  -- guard: b03
    """
    (tmp_path / "queries.sql").write_text(dedent(query))
    (mutant,) = mutants(tmp_path)
    assert (mutant.place, mutant.before) == ("open", "AND settled_at IS NULL")
    assert "settled_at" not in mutant.text


def test_a_guard_that_marks_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text("def act():  # guard: b05\n    return 1\n")
    with pytest.raises(BadGuard, match=r"room.py:1"):
        list(mutants(tmp_path))
