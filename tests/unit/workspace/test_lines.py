"""Line diffs: what they say is true, and no pair of texts takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.workspace.lines import count_lines, diff_lines

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "d e"]), max_size=30).map("\n".join)


def divided(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def apply(text: str, before: str) -> str:
    """What a unified diff makes of a text."""
    old, out, at = divided(before), "", 0
    for line in re.findall(r"[^\n]*\n(?:\\ No newline at end of file\n)?", text):
        content = line[1:].removesuffix("\n\\ No newline at end of file\n")
        if found := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+\S+ @@\n", line):
            start = int(found[1]) - (0 if found[2] == "0" else 1)
            out += "".join(old[at:start])
            at = start
        elif line.startswith("+"):
            out += content
        else:
            assert old[at] == content
            at += 1
            out += content if line.startswith(" ") else ""
    return out + "".join(old[at:])


@given(TEXTS, TEXTS)
def test_a_diff_turns_the_first_text_into_the_second(before: str, after: str) -> None:
    found = diff_lines(before, after, 10**9)
    assert apply(found.text, before) == after
    assert (found.text == "") == (before == after)
    assert (found.added, found.removed) == count_lines(before, after)
    assert not found.is_cut


def test_a_small_change_is_shown_with_its_context() -> None:
    before = "".join(f"line {number}\n" for number in range(20))
    after = before.replace("line 10\n", "line ten\n")
    assert diff_lines(before, after, 10_000).text == (
        "@@ -8,7 +8,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
    )


def test_a_missing_last_line_feed_is_said() -> None:
    assert diff_lines("a\n", "a", 1000).text == "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"
    assert diff_lines("", "a\n", 1000).text == "@@ -0,0 +1 @@\n+a\n"


def test_a_long_diff_is_cut() -> None:
    found = diff_lines("", "line\n" * 1000, 100)
    assert found.is_cut
    assert len(found.text) <= 100
    assert found.added == 1000


def test_many_changes_are_found_between_lines_that_occur_once() -> None:
    before = "".join(f"unique {number}\nold\n" for number in range(2000))
    after = "".join(f"unique {number}\nnew\n" for number in range(2000))
    assert count_lines(before, after) == (2000, 2000)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "".join(f"{number % 97}\n" for number in range(100_000)),
            "".join(f"{n % 89}\n" for n in range(100_000)),
        ),
        ("a\n" * 300_000, "b\n" * 300_000),
        ("a\nb\n" * 100_000, "b\na\nc\n" * 100_000),
    ],
    ids=["periods", "other lines", "swapped"],
)
def test_no_pair_of_texts_takes_long(before: str, after: str) -> None:
    begun = time.process_time()
    count_lines(before, after)
    assert time.process_time() - begun < 20.0  # a quadratic search would take hours
