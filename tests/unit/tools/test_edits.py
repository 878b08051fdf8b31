from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.tools.files.edits import apply_hunks, diff_display, lines_of, parse_patch, replace_exact
from everturn.tools.schema import ToolFailed

LINES = st.lists(
    st.sampled_from(["a", "b", "", "  x", "-minus", "+plus", "--- a", "@@ x", "\\ no"]), max_size=20
)


@settings(deadline=None)  # how long it takes is not the question
@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_a_real_diff_leads_from_the_old_to_the_new(
    old: list[str], new: list[str], end: str, is_old_open: bool, is_new_open: bool
) -> None:
    before, after = ("".join(f"{line}{end}" for line in lines) for lines in (old, new))
    before = before.removesuffix(end) if is_old_open and old and old[-1] else before
    after = after.removesuffix(end) if is_new_open and new and new[-1] else after
    if before == after or end not in before + "\n":
        return
    rows = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/f", "b/f")
    marked = (row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)
    [patch] = parse_patch("".join(marked))
    assert apply_hunks(before, patch.hunks, "f") == after


def test_a_blank_line_between_two_files_belongs_to_neither() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n\n\n--- a/y\n+++ b/y\n@@ -1,2 +1,2 @@\n-1\n+2\n \n\n"
    first, second = parse_patch(text)
    assert (first.hunks[0].old, first.hunks[0].new) == (("1",), ("2",))
    assert (second.hunks[0].old, second.hunks[0].new) == (("1", ""), ("2", ""))


def test_a_hunk_is_found_where_it_has_moved_to_and_wrong_counts_do_no_harm() -> None:
    content = "".join(f"{n}\n" for n in range(100))
    [patch] = parse_patch("--- a/f\n+++ b/f\n@@ -3,9 +3,9 @@\n 50\n-51\n+fifty-one\n 52\n")
    assert apply_hunks(content, patch.hunks, "f") == content.replace("51\n", "fifty-one\n", 1)


@pytest.mark.parametrize("text", ["", "hello", "--- a/x\n+++ b/x\n", "@@ -1 +1 @@\n-a\n+b\n"])
def test_text_that_is_no_patch_is_refused(text: str) -> None:
    with pytest.raises(ToolFailed):
        parse_patch(text)


@pytest.mark.parametrize("patch_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("one\r\ntwo\r\nthree\r\n", "one\r\nTWO\r\nand\r\nthree\r\n"),
        ("one\ntwo\nthree", "one\nTWO\nand\nthree"),
        ("one\r\ntwo\r\nthree", "one\r\nTWO\r\nand\r\nthree"),
        ("one\ntwo\r\nthree\n\n\n", "one\nTWO\nand\nthree\n\n\n"),
        ("\ufeffone\ntwo\nthree\n", "\ufeffone\nTWO\nand\nthree\n"),
    ],
    ids=["CRLF", "no last end", "CRLF, no last end", "mixed", "byte order mark"],
)
def test_a_patch_keeps_the_files_line_ends(before: str, after: str, patch_end: str) -> None:
    text = "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+and\n three\n".replace("\n", patch_end)
    [patch] = parse_patch(text)
    assert apply_hunks(before, patch.hunks, "f") == after


NO_END = "\\ No newline at end of file\n"


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        ("a\nb", f" a\n-b\n{NO_END}+B\n{NO_END}", "a\nB"),
        ("a\nb", f" a\n-b\n{NO_END}+B\n", "a\nB\n"),
        ("a\nb\n", f" a\n-b\n+B\n{NO_END}", "a\nB"),
        ("a\nb", f" a\n-b\n{NO_END}+b\n+c\n{NO_END}\n", "a\nb\nc"),
        ("a\nb", f"-a\n+A\n b\n{NO_END}", "A\nb"),
        ("a\nb", f" a\n-b\n{NO_END}", "a\n"),
        ("a\nb\nc\n", f" a\n-b\n{NO_END}+B\n", "a\nB\nc\n"),
        ("a\r\nb", f" a\r\n-b\n{NO_END}+B\n{NO_END}", "a\r\nB"),
        ("a\r\nb", f" a\n-b\n{NO_END}+B\n", "a\r\nB\r\n"),
        ("a\r\nb\r\n", f" a\n-b\n+B\n{NO_END}", "a\r\nB"),
        ("a\r\nb", " a\n-b\n+B\n", "a\r\nB"),
        ("a\r\nb", " a\n b\n+c\n", "a\r\nb\r\nc"),
    ],
)
def test_a_patch_says_how_the_last_line_ends(before: str, body: str, after: str) -> None:
    [patch] = parse_patch(f"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n{body}")
    assert apply_hunks(before, patch.hunks, "f") == after


def test_a_file_follows_one_that_ends_without_a_line_end() -> None:
    one = f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n{NO_END}+2\n{NO_END}"
    first, second = parse_patch(f"{one}\n\n{one.replace('x', 'y')}")
    assert first.hunks == second.hunks
    assert (first.hunks[0].old, first.hunks[0].new) == (("1",), ("2",))


@pytest.mark.parametrize("ends", ["", "\n"])
def test_a_file_that_was_emptied_can_be_filled_again(ends: str) -> None:
    [patch] = parse_patch("--- a/f\n+++ b/f\n@@ -1 +0,0 @@\n-1\n@@ -2,0 +1 @@\n+2\n")
    assert apply_hunks(f"1{ends}", patch.hunks, "f") == "2\n"


@pytest.mark.parametrize(
    ("start", "after"), [(0, "new\n1\n2\n"), (1, "1\nnew\n2\n"), (2, "1\n2\nnew\n"), (9, "1\n2\nnew\n")]
)
def test_a_hunk_without_context_stands_after_the_line_it_names(start: int, after: str) -> None:
    [patch] = parse_patch(f"--- a/f\n+++ b/f\n@@ -{start},0 +{start + 1} @@\n+new\n")
    assert apply_hunks("1\n2\n", patch.hunks, "f") == after


def test_an_edit_of_a_file_with_crlf_keeps_its_line_ends() -> None:
    assert replace_exact("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "f", everywhere=False) == "x\r\ny\r\nc\r\n"


@settings(deadline=None)  # how long it takes is not the question
@given(st.text(alphabet="ab\n\r\f", max_size=40), st.text(alphabet="ab\n\r\f", max_size=40))
def test_the_drawing_of_a_diff_accounts_for_every_line(before: str, after: str) -> None:
    display = diff_display("f", before, after)
    rows = [row for hunk in display["hunks"] for row in hunk["lines"]]
    assert sum(row["sign"] == "+" for row in rows) == display["added"]
    assert display["added"] - display["removed"] == len(lines_of(after)) - len(lines_of(before))
    for row in rows:
        if row["old"] is not None:
            assert lines_of(before)[row["old"] - 1] == row["text"]
        if row["new"] is not None:
            assert lines_of(after)[row["new"] - 1] == row["text"]


PIECES = st.text(alphabet="ab\n\r", max_size=12)


@settings(deadline=None)  # how long it takes is not the question
@given(PIECES, PIECES, PIECES, st.booleans())
def test_a_repeated_edit_changes_nothing(content: str, old: str, new: str, everywhere: bool) -> None:
    try:
        after = replace_exact(content, old, new, "f", everywhere=everywhere)
    except ToolFailed:
        return
    try:
        again = replace_exact(after, old, new, "f", everywhere=everywhere)
    except ToolFailed:
        return
    assert again == after


def test_an_edit_that_keeps_the_old_text_in_the_new_is_made_once() -> None:
    once = replace_exact("x\nfoo()\ny\n", "foo()\n", "foo()\nbar()\n", "f", everywhere=False)
    assert once == "x\nfoo()\nbar()\ny\n"
    assert replace_exact(once, "foo()\n", "foo()\nbar()\n", "f", everywhere=False) == once
    many = replace_exact("a b a", "a", "aa", "f", everywhere=True)
    assert many == "aa b aa"
    assert replace_exact(many, "a", "aa", "f", everywhere=True) == many


def test_an_edit_that_would_fit_again_beside_its_own_text_is_refused() -> None:
    with pytest.raises(ToolFailed, match="make the old text again"):
        replace_exact("xaab", "ab", "b", "f", everywhere=False)


def test_a_text_that_is_not_there_is_refused_although_nothing_should_take_its_place() -> None:
    with pytest.raises(ToolFailed, match="does not contain"):
        replace_exact("abc", "x", "", "f", everywhere=False)
