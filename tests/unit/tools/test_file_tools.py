from __future__ import annotations

import os
from pathlib import Path

import pytest

from everturn.domain.messages import Outcome
from tests.unit.tools.kit import OWNER, SESSION, Kit

pytestmark = pytest.mark.anyio


async def test_reading_numbers_the_lines_and_says_where_to_continue(kit: Kit) -> None:
    (kit.workspace / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    result = await kit.run("read_file", path="a.txt", start=3, lines=2)
    assert result.text == "     3\tline 3\n     4\tline 4\n[lines 3 to 4 of 10; go on with start=5]"
    assert result.display == {"kind": "file", "path": "a.txt", "lines": 2}


async def test_a_long_file_is_cut_at_a_line_and_can_be_gone_through(kit: Kit) -> None:
    (kit.workspace / "long.txt").write_text("".join(f"{n} {'x' * 90}\n" for n in range(1, 2001)))
    seen, start = 0, 1
    while True:
        text = (await kit.run("read_file", path="long.txt", start=start)).text
        assert len(text.encode()) <= 48_000
        seen += text.count("x" * 90)
        if "go on with" not in text:
            break
        start = int(text.rpartition("start=")[2].rstrip("]"))
    assert seen == 2000


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.txt", "no file"),
        (".", "folder"),
        ("binary", "(3 bytes)."),
        ("manual.pdf", "read_document"),
        ("../x", "outside"),
        ("a.txt", "no line"),
    ],
)
async def test_a_file_that_cannot_be_read_is_reported_plainly(kit: Kit, path: str, words: str) -> None:
    (kit.workspace / "binary").write_bytes(b"\xff\xfe\x00")
    (kit.workspace / "manual.pdf").write_bytes(b"%PDF-1.7\n\xff\xfe")
    (kit.workspace / "a.txt").write_text("one\n")
    result = await kit.run("read_file", path=path, start=5 if path == "a.txt" else 1)
    assert result.outcome is Outcome.ERROR
    assert words in result.text


async def test_a_wrong_name_is_answered_with_the_existing_ones(kit: Kit) -> None:
    assert (await kit.run("read_file", path="a.txt")).text == "There is no file a.txt. The folder is empty."
    (kit.workspace / "b.txt").write_text("b")
    (kit.workspace / ".hidden").write_text("h")
    (kit.workspace / "sub").mkdir()
    assert (await kit.run("read_file", path="a.txt")).text == "There is no file a.txt. There are: b.txt, sub."
    assert (await kit.run("read_file", path="no/a.txt")).text == "There is no file no/a.txt."
    for number in range(30):
        (kit.workspace / f"c{number:02}").write_text("c")
    assert (await kit.run("read_file", path="a.txt")).text.endswith("c18, ….")


async def test_writing_makes_folders_and_shows_a_diff(kit: Kit) -> None:
    result = await kit.run("write_file", path="src/new.py", content="a\nb\n")
    assert result.text == "Made src/new.py (2 lines)."
    assert result.display["kind"] == "diff"
    assert (result.display["added"], result.display["removed"]) == (2, 0)
    result = await kit.run("write_file", path="src/new.py", content="a\nc\n")
    assert result.text == "Replaced src/new.py: it had 2 lines, now 2 lines."
    assert result.display["hunks"] == [
        {
            "old": 1,
            "new": 1,
            "lines": [
                {"sign": " ", "old": 1, "new": 1, "text": "a"},
                {"sign": "-", "old": 2, "new": None, "text": "b"},
                {"sign": "+", "old": None, "new": 2, "text": "c"},
            ],
        }
    ]


async def test_an_edit_replaces_exactly_one_piece(kit: Kit) -> None:
    file = kit.workspace / "ops.sh"
    file.write_text("start\nrestic backup\nend\n")
    result = await kit.run(
        "edit_file", path="ops.sh", old="restic backup", new="restic backup --retry-lock 30m"
    )
    assert result.text == "Edited ops.sh: +1 -1."
    assert file.read_text() == "start\nrestic backup --retry-lock 30m\nend\n"


@pytest.mark.parametrize(
    ("old", "words"),
    [("x = 1", "2 times"), ("y = 3", "exactly"), ("", "empty"), ("  z = 9\n  w", "Line 3 is similar")],
)
async def test_an_edit_that_is_not_certain_changes_nothing(kit: Kit, old: str, words: str) -> None:
    file = kit.workspace / "a.py"
    file.write_text("x = 1\nx = 1\n    z = 9\n")
    result = await kit.run("edit_file", path="a.py", old=old, new="new")
    assert result.outcome is Outcome.ERROR
    assert words in result.text
    assert file.read_text() == "x = 1\nx = 1\n    z = 9\n"


async def test_an_edit_can_be_everywhere(kit: Kit) -> None:
    file = kit.workspace / "a.py"
    file.write_text("x\nx\n")
    await kit.run("edit_file", path="a.py", old="x", new="y", everywhere=True)
    assert file.read_text() == "y\ny\n"


async def test_a_patch_changes_several_files_or_none(kit: Kit) -> None:
    (kit.workspace / "a.txt").write_text("1\n2\n3\n4\n5\n")
    (kit.workspace / "old.txt").write_text("gone\n")
    good = (
        "--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n"
        "--- /dev/null\n+++ b/sub/new.txt\n@@ -0,0 +1,2 @@\n+n1\n+n2\n"
        "--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
    )
    result = await kit.run("apply_patch", patch=good)
    assert result.outcome is Outcome.OK, result.text
    assert (kit.workspace / "a.txt").read_text() == "1\n2\nthree\n4\n5\n"
    assert (kit.workspace / "sub/new.txt").read_text() == "n1\nn2\n"
    assert not (kit.workspace / "old.txt").exists()
    assert result.display["kind"] == "diffs"

    bad = (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+one\n"
        "--- a/sub/new.txt\n+++ b/sub/new.txt\n@@ -1 +1 @@\n-x\n+y\n"
    )
    result = await kit.run("apply_patch", patch=bad)
    assert result.outcome is Outcome.ERROR
    assert "does not fit" in result.text
    assert (kit.workspace / "a.txt").read_text() == "1\n2\nthree\n4\n5\n"


EDIT_A = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n"
MAKE_N = "--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+n\n"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+new\n", "a.txt is there already"),
        ("--- a/b.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-b\n+B\n", "a.txt is there already"),
        ("--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-something else\n", "does not fit"),
        ("--- a/none.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "no file none.txt"),
        ("--- a/c.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", "c.txt has more lines"),
        ("--- a/c.txt\n+++ /dev/null\n", "c.txt has more lines"),
        (f"{EDIT_A}--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+new\n", "a.txt is there already"),
        (f"{EDIT_A}--- a/b.txt\n+++ b/./a.txt\n@@ -1 +1 @@\n-b\n+B\n", "a.txt is there already"),
        (f"{MAKE_N}{MAKE_N}", "n.txt is there already"),
        (f"{MAKE_N}--- a/b.txt\n+++ b/n.txt\n@@ -1 +1 @@\n-b\n+B\n", "n.txt is there already"),
    ],
    ids=[
        "make what is there",
        "rename over another",
        "delete what is other",
        "delete what is not",
        "delete more than it shows",
        "delete and show nothing",
        "make what it edited",
        "rename over what it edited",
        "make twice",
        "rename over what it made",
    ],
)
async def test_a_patch_destroys_nothing_that_it_does_not_show(kit: Kit, patch: str, words: str) -> None:
    (kit.workspace / "a.txt").write_text("a\n")
    (kit.workspace / "b.txt").write_text("b\n")
    (kit.workspace / "c.txt").write_text("1\n2\n")
    result = await kit.run("apply_patch", patch=patch)
    assert (result.outcome, words in result.text) == (Outcome.ERROR, True), result.text
    assert {file.name: file.read_text() for file in kit.workspace.iterdir()} == {
        "a.txt": "a\n",
        "b.txt": "b\n",
        "c.txt": "1\n2\n",
    }


async def test_two_patches_of_one_file_both_count(kit: Kit) -> None:
    (kit.workspace / "a.txt").write_text("1\n2\n3\n")
    first = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+one\n"
    second = "--- a/a.txt\n+++ b/c.txt\n@@ -3 +3 @@\n-3\n+three\n"
    result = await kit.run("apply_patch", patch=first + second)
    assert result.outcome is Outcome.OK, result.text
    assert (kit.workspace / "c.txt").read_text() == "one\n2\nthree\n"
    assert not (kit.workspace / "a.txt").exists()


@pytest.mark.parametrize("other", ["./d/a.txt", "d//a.txt", "d/../d/a.txt", "link/a.txt", "{root}/d/a.txt"])
async def test_two_patches_of_one_file_both_count_by_whatever_name(kit: Kit, other: str) -> None:
    (kit.workspace / "d").mkdir()
    (kit.workspace / "link").symlink_to("d")
    (kit.workspace / "d/a.txt").write_text("1\n2\n3\n")
    other = other.format(root=kit.workspace)
    first = "--- a/d/a.txt\n+++ b/d/a.txt\n@@ -1 +1 @@\n-1\n+one\n"
    second = f"--- {other}\n+++ {other}\n@@ -3 +3 @@\n-3\n+three\n"
    result = await kit.run("apply_patch", patch=first + second)
    assert result.outcome is Outcome.OK, result.text
    assert (kit.workspace / "d/a.txt").read_text() == "one\n2\nthree\n"


async def test_a_patch_can_put_another_file_in_the_place_of_one_it_deletes(kit: Kit) -> None:
    (kit.workspace / "a.txt").write_text("1\n")
    gone = "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
    made = "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file\n"
    result = await kit.run("apply_patch", patch=gone + made)
    assert result.outcome is Outcome.OK, result.text
    assert (kit.workspace / "a.txt").read_text() == "new"


async def test_a_patch_that_fails_half_way_says_what_it_has_changed(kit: Kit) -> None:
    (kit.workspace / "a.txt").write_text("1\n")
    (kit.workspace / "file").write_text("no folder\n")
    first = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+one\n"
    second = "--- /dev/null\n+++ b/file/new.txt\n@@ -0,0 +1 @@\n+x\n"
    result = await kit.run("apply_patch", patch=first + second)
    assert result.outcome is Outcome.ERROR
    assert "file/new.txt could not be changed" in result.text
    assert "Changed already: a.txt." in result.text


async def test_a_name_as_long_as_names_may_be(kit: Kit) -> None:
    name = "é" * 127
    result = await kit.run("write_file", path=name, content="x\n")
    assert result.outcome is Outcome.OK, result.text
    assert [file.name for file in kit.workspace.iterdir()] == [name]


async def test_files_outside_are_refused_by_every_tool(kit: Kit, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("keep")
    os.symlink(tmp_path, kit.workspace / "link")
    patch = "--- a/link/outside.txt\n+++ b/link/outside.txt\n@@ -1 +1 @@\n-keep\n+lost\n"
    for result in (
        await kit.run("read_file", path="link/outside.txt"),
        await kit.run("write_file", path="link/outside.txt", content="lost"),
        await kit.run("write_file", path=str(outside), content="lost"),
        await kit.run("edit_file", path="link/outside.txt", old="keep", new="lost"),
        await kit.run("apply_patch", patch=patch),
        await kit.run("list_files", path="link"),
        await kit.run("search_files", pattern="keep", path="link"),
        await kit.run("list_files", path=".."),
    ):
        assert result.outcome is Outcome.ERROR
        assert "keep" not in result.text
    assert outside.read_text() == "keep"


async def test_an_edit_made_twice_says_that_it_is_done_and_leaves_the_file_alone(kit: Kit) -> None:
    (kit.workspace / "a.txt").write_text("one\n")
    assert (await kit.run("edit_file", path="a.txt", old="one", new="one two")).text == "Edited a.txt: +1 -1."
    before = (kit.workspace / "a.txt").stat()
    again = await kit.run("edit_file", path="a.txt", old="one", new="one two")
    assert again.text == "a.txt has the new text already; nothing was changed."
    assert (kit.workspace / "a.txt").stat() == before


async def test_which_file_tools_can_be_repeated_after_a_crash(kit: Kit) -> None:
    tools = {tool.spec.name: tool.spec for tool in await kit.toolbox.tools(OWNER, SESSION, None)}
    assert tools["edit_file"].is_safe_to_repeat
    assert tools["write_file"].is_safe_to_repeat
    assert not tools["apply_patch"].is_safe_to_repeat
