"""Choosing the folder that a session works in, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.paging import PAGE, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'


@pytest.fixture
def work(data_dir: Path, tmp_path: Path) -> Path:
    """An allowed folder with two folders in it."""
    for name in ("site/pages", "letters"):
        (tmp_path / "work" / name).mkdir(parents=True)
    (data_dir / "config.toml").write_text(f'[files]\nroots = ["{tmp_path / "work"}"]\n')
    return tmp_path / "work"


async def test_a_new_session_works_in_the_folder_that_was_chosen(data_dir: Path, work: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "write", [Tool("write_file", {"path": "index.html", "content": "<p>Hello</p>"})], ["Written."]
        )
        page = await house.open()
        await page.get_by_role("button", name="Folder").click()
        dialog = page.get_by_role("dialog", name="Folder")
        await expect(dialog).to_contain_text("work in its own folder")
        await dialog.get_by_role("button", name=str(work)).click()
        await dialog.get_by_role("button", name="site").click()
        await expect(dialog.get_by_role("button", name="pages")).to_be_visible()
        await dialog.get_by_role("button", name="Use this folder").click()
        await expect(dialog).to_have_count(0)
        # Kept as the words are: a reload changes neither.
        await page.fill("[data-composer]", "write a page")
        await expect(page.get_by_role("button", name="site")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("button", name="site")).to_be_visible()
        await page.press("[data-composer]", "Enter")
        await expect(page.locator(DONE)).to_have_count(1)
        assert (work / "site" / "index.html").read_text() == "<p>Hello</p>"
        await expect(page.locator(".bar").get_by_role("button", name="site")).to_be_visible()
        # The next session begins without it, and the folder is the first that is offered.
        await page.get_by_role("button", name="New session").first.click()
        await page.get_by_role("button", name="Folder").click()
        recent = dialog.get_by_role("button", name=str(work / "site"))
        await expect(recent).to_contain_text("site")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        assert not house.complaints


async def test_a_sessions_folder_is_changed_by_its_menu_and_refusals_are_said(
    data_dir: Path, work: Path
) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("hello", ["Hello."])
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.locator(".bar").get_by_label("Session menu").click()
        await page.get_by_role("menuitem", name="Folder…").click()
        dialog = page.get_by_role("dialog", name="Folder")
        await dialog.get_by_role("button", name=str(work)).click()
        # With the keys alone: down to a folder, into it, and out again.
        await expect(dialog.get_by_role("button", name="letters")).to_be_visible()
        await dialog.get_by_role("button", name="letters").focus()
        await page.keyboard.press("ArrowDown")
        await expect(dialog.get_by_role("button", name="site")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(dialog.get_by_role("button", name="pages")).to_be_visible()
        await page.keyboard.press("ArrowLeft")
        await dialog.get_by_role("button", name="letters").click()
        await expect(dialog).to_contain_text("No folders in here.")
        (work / "letters").rmdir()
        await dialog.get_by_role("button", name="Use this folder").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("is not there")
        (work / "letters").mkdir()
        await dialog.get_by_role("button", name="Use this folder").click()
        await expect(dialog).to_have_count(0)
        chip = page.locator(".bar").get_by_role("button", name="letters")
        await expect(chip).to_be_visible()
        await chip.click()
        await expect(dialog).to_contain_text(f"works in {work / 'letters'}")
        await dialog.get_by_role("button", name="Use its own folder").click()
        await expect(chip).to_have_count(0)
        assert not house.complaints


async def test_without_allowed_folders_the_page_says_so(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.get_by_role("button", name="Folder").click()
        dialog = page.get_by_role("dialog", name="Folder")
        await expect(dialog).to_contain_text("No folders to choose from.")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(dialog).to_have_count(0)
