"""Undo, redo and retry of turns that changed files, in a real browser: what will change is shown before."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, House, Tool, open_house, say
from tests.waiting import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
    pytest.mark.timeout(300),
]
DONE = 'article[data-state="completed"]'


def write(path: str, content: str) -> Tool:
    return Tool("write_file", {"path": path, "content": content})


async def worked(house: House) -> Page:
    """A session of two turns that changed files."""
    first = [write("backup.sh", "restic backup /srv\n"), write("skip.txt", "thumbs\n")]
    second = [write("backup.sh", "restic backup /srv /etc\n"), write("skip.txt", "thumbs\ncache\n")]
    house.provider.on("first", first, ["The first is done."])
    house.provider.on("second", [*second, write("use.csv", "week,gb\n1,2\n")], ["The second is done."])
    page = await house.open()
    for number, text in enumerate(("first", "second"), 1):
        await say(page, text)
        await expect(page.locator(DONE)).to_have_count(number)
    return page


def workspace(house: House) -> Path:
    [folder] = (house.home / "workspaces").iterdir()
    return folder


async def holds(folder: Path, files: dict[str, str | None]) -> None:
    """Wait until the folder holds these texts: it follows the conversation. None: no such file."""

    def is_so() -> bool:
        return all(text(folder / name) == wanted for name, wanted in files.items())

    await until("the folder has followed", is_so)


def text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


async def undo(page: Page) -> None:
    await page.locator(".bar h1").click()
    await page.keyboard.press("Control+z")


async def test_an_undo_shows_the_files_first_and_redo_brings_them_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await worked(house)
        folder = workspace(house)
        dialog = page.get_by_role("dialog")
        await undo(page)
        await expect(dialog).to_contain_text("Undo turn 2?")
        await expect(dialog).to_contain_text("3 files will change")
        await dialog.get_by_role("button", name="backup.sh").click()
        await expect(dialog.locator(".diff")).to_contain_text("restic backup /srv /etc")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        assert (folder / "use.csv").exists()
        await undo(page)
        await expect(dialog.get_by_role("button", name="Undo and restore 3 files")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator(DONE)).to_have_count(1)
        await holds(folder, {"backup.sh": "restic backup /srv\n", "use.csv": None})
        await page.get_by_role("button", name="Redo").click()
        await expect(dialog).to_contain_text("Redo this turn?")
        await page.keyboard.press("Enter")
        await expect(page.locator(DONE)).to_have_count(2)
        await holds(folder, {"backup.sh": "restic backup /srv /etc\n", "use.csv": "week,gb\n1,2\n"})
        assert not house.complaints


async def test_an_undo_is_decided_while_a_difference_is_still_being_loaded(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await worked(house)
        dialog = page.get_by_role("dialog")
        asked, may_answer = anyio.Event(), anyio.Event()

        async def hold(route: Route) -> None:
            asked.set()
            await may_answer.wait()
            await route.continue_()

        await page.route(re.compile(r"/files/diff\?.*path="), hold)
        await undo(page)
        await dialog.get_by_role("button", name="backup.sh").click()
        with within("the difference is asked for", PATIENCE_S):
            await asked.wait()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        async with page.expect_response(re.compile(r"/files/diff\?")) as answered:
            may_answer.set()
        await (await answered.value).finished()
        await page.evaluate("new Promise((done) => setTimeout(done))")  # after what the answer causes
        assert not house.complaints


async def test_a_file_that_the_user_changed_is_kept_unless_they_choose_otherwise(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await worked(house)
        folder = workspace(house)
        (folder / "skip.txt").write_text("mine\n")
        dialog = page.get_by_role("dialog")
        await undo(page)
        conflict = dialog.get_by_role("radiogroup", name="Conflict in skip.txt")
        await expect(conflict.get_by_role("radio", checked=True)).to_contain_text("Keep mine")
        await expect(dialog.get_by_role("button", name="Undo and restore 2 files")).to_be_focused()
        await page.keyboard.press("2")
        await expect(conflict.get_by_role("radio", checked=True)).to_contain_text("Take the old one")
        await expect(dialog.get_by_role("button", name="Undo and restore 3 files")).to_be_visible()
        await page.keyboard.press("3")
        await expect(conflict.get_by_role("radio", checked=True)).to_contain_text("skip (mine).txt")
        await page.keyboard.press("1")
        await expect(conflict.get_by_role("radio", checked=True)).to_contain_text("Keep mine")
        await page.keyboard.press("3")
        await page.keyboard.press("Enter")
        await expect(page.locator(DONE)).to_have_count(1)
        await holds(folder, {"skip.txt": "thumbs\n", "skip (mine).txt": "mine\n"})
        assert not house.complaints


async def test_a_file_that_an_undo_kept_stays_in_view(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await worked(house)
        session = workspace(house).name
        path, new = f"api/sessions/{session}/files/content?path=mine.txt", {"if-none-match": "*"}
        await house.api("PUT", path, content=b"all mine", headers=new)
        await page.locator(".bar").get_by_label("Files").click()
        await page.locator('[data-path="mine.txt"]').click()
        shown = page.locator(".pv .code code")
        await expect(shown).to_have_text("all mine")
        await undo(page)
        await expect(page.get_by_role("radiogroup", name="Conflict in mine.txt")).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page.locator(DONE)).to_have_count(1)
        await holds(workspace(house), {"use.csv": None, "mine.txt": "all mine"})
        # While the folder follows, its files are those of the store, where this one is not.
        await expect(page.locator('[data-path="use.csv"]')).to_have_count(0)
        await expect(shown).to_have_text("all mine")
        assert not house.complaints


async def test_the_conversation_alone_can_go_back_and_no_files_means_no_question(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("hello", ["Hello."])
        page = await worked(house)
        folder = workspace(house)
        dialog = page.get_by_role("dialog")
        await say(page, "hello")
        await expect(page.locator(DONE)).to_have_count(3)
        await undo(page)
        await expect(page.locator(DONE)).to_have_count(2)
        await expect(dialog).to_have_count(0)
        await undo(page)
        await dialog.get_by_role("button", name="Undo conversation only").click()
        await expect(page.locator(DONE)).to_have_count(1)
        assert (folder / "use.csv").exists()
        assert not house.complaints


async def test_a_retry_asks_where_files_would_go_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await worked(house)
        dialog = page.get_by_role("dialog")
        await page.locator(DONE).last.get_by_role("button", name="Retry", exact=True).click()
        await expect(dialog).to_contain_text("Retry this answer?")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".sib")).to_have_count(0)
        await page.locator(DONE).last.get_by_role("button", name="Retry", exact=True).click()
        await dialog.get_by_role("button", name="Restore 3 files and retry").click()
        await expect(page.locator(".sib")).to_contain_text("2 of 2")
        await expect(page.locator(DONE)).to_have_count(2)
        assert not house.complaints


async def test_a_projects_files_stay_and_the_page_says_so(data_dir: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with open_house(data_dir) as house:
        made = await house.api("POST", "api/sessions", json={"project": str(project)})
        house.provider.on("write", [write("a.txt", "one\n")], ["Written."])
        page = await house.open(f"#/s/{made['id']}")
        await say(page, "write")
        await expect(page.locator(DONE)).to_have_count(1)
        await undo(page)
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Files in this folder stay as they are.")
        await dialog.get_by_role("button", name="Undo conversation only").click()
        await expect(page.locator(DONE)).to_have_count(0)
        assert (project / "a.txt").read_text() == "one\n"
        assert not house.complaints


async def test_an_older_version_of_a_file_is_restored_after_its_difference_was_seen(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await worked(house)
        folder = workspace(house)
        (folder / "skip.txt").write_text("mine\n")
        await page.locator(".bar").get_by_label("Files").click()
        await page.get_by_role("treeitem").filter(has_text="skip.txt").click()
        preview = page.get_by_role("region", name="skip.txt")
        await preview.get_by_role("button", name="Restore turn 1").click()
        dialog = page.get_by_role("dialog", name="Restore skip.txt?")
        await expect(dialog.locator(".diff")).to_contain_text("mine")
        # It changes while the user looks: what is there now is shown, and nothing was restored.
        (folder / "skip.txt").write_text("mine, changed\n")
        await dialog.get_by_role("button", name="Restore").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("Files have changed meanwhile.")
        await expect(dialog.locator(".diff")).to_contain_text("mine, changed")
        assert (folder / "skip.txt").read_text() == "mine, changed\n"
        await dialog.get_by_role("button", name="Restore").click()
        await expect(dialog).to_have_count(0)
        await holds(folder, {"skip.txt": "thumbs\n", "backup.sh": "restic backup /srv /etc\n"})
        # What the user had written is not lost: it is a version of its own.
        path = f"api/sessions/{folder.name}/files/history?path=skip.txt"
        versions = (await house.api("GET", path))["versions"]
        assert [version["size"] for version in versions] == [7, 14, 13, 7], versions
        assert not house.complaints


async def test_a_call_in_doubt_shows_what_it_changed_and_can_be_taken_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        command = "echo two >> list.txt; echo made > new.txt; echo ready; sleep 600"
        house.provider.on("write", [write("list.txt", "one\n")], ["Written."])
        house.provider.on("sort", [Tool("terminal", {"command": command})], ["I will look."])
        page = await house.open()
        await say(page, "write")
        await expect(page.locator(DONE)).to_have_count(1)
        await say(page, "sort")
        allow = page.get_by_role("button", name="Allow once")
        live = page.locator(".out.live")
        await expect(allow.or_(live).first).to_be_visible()
        if await allow.is_visible():
            await allow.click()
        await expect(live).to_contain_text("ready")
        await house.kill()
        await house.start()
        card = page.locator(".card.doubt[data-ask]")
        for _ in range(2):
            await expect(card).to_contain_text("2 files, saved as they are now")
            await expect(card.locator(".diff")).to_have_count(1)
            await expect(card.locator(".diff")).to_contain_text("two")
            await page.reload()
        await expect(card.get_by_role("button", name="Keep and continue")).to_be_visible()
        await expect(card.get_by_role("button", name="Go back and run again")).to_contain_text("2")
        await card.get_by_role("button", name="Treat as not run").click()
        await expect(page.locator(DONE)).to_have_count(2)
        await holds(workspace(house), {"list.txt": "one\n", "new.txt": None})
        assert not house.complaints
