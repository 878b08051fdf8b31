"""Prompts: variables, what a person types behind the name, and the files of the data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.errors import Invalid, NotFound
from everturn.skills import MissingValues, Prompt, PromptBook, Variable
from everturn.skills.prompts import fill_from_line
from everturn.store import Store
from everturn.testing import FakeClock

pytestmark = pytest.mark.anyio
OWNER = "ada"
WEEKLY = Prompt("weekly", "Sum up {{team}} for {{ reader = the boss }}, in {{team}}'s words.")


def test_variables_are_found_once_with_their_defaults() -> None:
    assert WEEKLY.variables == (Variable("team"), Variable("reader", "the boss"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("infra", "Sum up infra for the boss, in infra's words."),
        ("team=infra", "Sum up infra for the boss, in infra's words."),
        ('team="the \\"A\\" team" reader=me', 'Sum up the "A" team for me, in the "A" team\'s words.'),
        ("reader=me all of us", "Sum up all of us for me, in all of us's words."),
        ("team=a reader=b and more", "Sum up a for b, in a's words.\n\nand more"),
        ("{{reader}}", "Sum up {{reader}} for the boss, in {{reader}}'s words."),
    ],
)
def test_a_line_fills_them(line: str, text: str) -> None:
    assert fill_from_line(WEEKLY, line) == text


def test_a_missing_value_is_said() -> None:
    with pytest.raises(MissingValues, match="needs team") as caught:
        fill_from_line(WEEKLY, "reader=me")
    assert caught.value.hint == "Write /weekly team=…"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("undo", "x", "is a command"),
        ("A B", "x", "cannot be the name"),
        ("a", "  ", "is empty"),
        ("a", "x" * 40_000, "limit"),
    ],
)
async def test_what_is_wrong_is_refused(
    store: Store, data_dir: Path, clock: FakeClock, name: str, text: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        await PromptBook(store.records, clock, data_dir, owner=OWNER).save(OWNER, name, text)


async def test_files_are_taken_in_and_edits_elsewhere_stay(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    book = PromptBook(store.records, clock, data_dir, owner=OWNER)
    folder = data_dir / "prompts"
    folder.mkdir()
    (folder / "weekly.md").write_text("---\ndescription: The week\n---\nSum up {{team}}.")
    (folder / "undo.md").write_text("x")
    (folder / "out.md").symlink_to("/etc/hostname")
    (found,) = await book.list(OWNER)
    assert (found.name, found.text, found.description) == ("weekly", "Sum up {{team}}.", "The week")
    assert "is a command" in book.problems["undo.md"]
    await book.save(OWNER, "weekly", "Mine.")
    again = PromptBook(store.records, clock, data_dir, owner=OWNER)
    assert [one.text for one in await again.list(OWNER)] == ["Mine."]
    (folder / "weekly.md").write_text("Changed in the file.")
    assert [one.text for one in await again.list(OWNER)] == ["Changed in the file."]
    assert await again.list("guest:bot:1") == []
    await again.remove(OWNER, "weekly")
    with pytest.raises(NotFound):
        await again.get(OWNER, "weekly")
