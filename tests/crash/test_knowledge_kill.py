"""A process is killed while it indexes knowledge, keeps an upload or takes in a prompt: the next one completes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from everturn.skills import PromptBook
from everturn.store import open_store
from everturn.testing import FakeClock
from tests.unit.tools.kit import OWNER, open_kit

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "garden.md").write_text("# Garden\nThe walnut grows slowly.")
    (papers / "notes.md").write_text("# House\nThe roof leaks.")
    return papers


async def killed(*words: str) -> None:
    """Start this and kill it when it says that it is there."""
    command = [sys.executable, "-m", *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = await anyio.to_thread.run_sync(child.stdout.readline)
    child.kill()
    _, errors = await anyio.to_thread.run_sync(child.communicate)
    assert said.strip() == "here", errors


async def test_an_index_that_was_cut_off_is_completed(tmp_path: Path, folder: Path) -> None:
    await killed("tests.crash.knowledge_work", str(tmp_path / "home"), str(folder), "folder")
    async with open_kit(tmp_path / "home", has_sandbox=False) as kit:
        library = kit.toolbox.knowledge
        assert library is not None
        [papers] = await library.book.all()
        assert (await library.state(papers)).index.files == 1
        await library.look(papers)
        state = await library.state(papers)
        assert (state.index.files, state.waiting, state.index.errors) == (2, 0, ())
        for word in ("walnut", "roof"):
            found, _ = await library.find(papers, word, 10)
            assert len(found) == 1, word


async def test_an_upload_that_was_cut_off_is_not_there_and_can_be_put_again(
    tmp_path: Path, folder: Path
) -> None:
    await killed("tests.crash.knowledge_work", str(tmp_path / "home"), str(folder), "upload")
    async with open_kit(tmp_path / "home", has_sandbox=False) as kit:
        library = kit.toolbox.knowledge
        assert library is not None
        [papers] = await library.book.all()
        assert await library.book.files(papers) == []
        await library.book.put_file(papers, "notes.md", folder / "notes.md", 1)
        await library.look(papers)
        found, _ = await library.find(papers, "roof", 10)
        assert [one.document.partition("/")[2] for one in found] == ["notes.md"]


async def test_a_prompt_that_was_being_taken_in_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "weekly.md").write_text("Sum up {{team}}.")
    await killed("tests.crash.knowledge_work", str(tmp_path), "", "prompt")
    async with open_store(f"sqlite://{tmp_path / 'everturn.db'}", data_dir=tmp_path) as store:
        book = PromptBook(store.records, FakeClock(), tmp_path, owner=OWNER, machine="machine")
        assert [(one.name, one.text) for one in await book.list(OWNER)] == [("weekly", "Sum up {{team}}.")]
        await book.save(OWNER, "weekly", "Changed on the page.")
        assert (await book.get(OWNER, "weekly")).text == "Changed on the page."
