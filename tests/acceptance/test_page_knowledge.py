"""The page's knowledge view in a real browser: a folder and uploads become searchable, and a session finds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, open_house
from tests.office_files import make_docx, make_encrypted_pdf, make_pptx

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]


async def test_a_folder_and_uploads_are_made_searchable_and_shown_with_their_state(
    data_dir: Path, tmp_path: Path
) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    make_docx(papers / "report.docx")
    make_encrypted_pdf(papers / "locked.pdf")
    (papers / "locked.plain").unlink()
    (data_dir / "config.toml").write_text(f'[files]\nroots = ["{tmp_path}"]\n')
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(house.url + "#/settings/knowledge")
        pane = page.locator(".pane")
        await expect(pane).to_contain_text("No knowledge yet")
        await page.get_by_role("button", name="Add knowledge").click()
        await page.get_by_role("button", name="Choose a folder").click()
        sheet = page.get_by_role("dialog")
        await sheet.get_by_text(tmp_path.name).click()
        await sheet.get_by_text("papers", exact=True).click()
        await sheet.get_by_role("button", name="Use this folder").click()
        await expect(page.get_by_label("Name", exact=True)).to_have_value("papers")
        await page.get_by_role("button", name="Add", exact=True).click()
        await expect(pane).to_contain_text("2 files, 3 sections, up to date")
        await expect(pane).to_contain_text("1 file could not be read")
        await expect(pane).to_contain_text("needs a password")
        await expect(pane).to_contain_text("No session can search it yet.")
        await page.get_by_role("button", name="default", exact=True).click()
        await expect(pane).to_contain_text("Used by default")
        # A new file is found without anybody asking for it.
        make_pptx(papers / "deck.pptx")
        await page.get_by_role("button", name="Add knowledge").click()
        await page.get_by_label("What it is").select_option("uploads")
        await page.get_by_label("Name", exact=True).fill("Recipes")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.locator('input[type="file"]').set_input_files(papers / "report.docx")
        await expect(pane).to_contain_text("1 file, 3 sections, up to date")
        await expect(pane).to_contain_text("3 files, 6 sections, up to date")
        await page.get_by_role("switch", name="All sessions").click()
        await expect(pane).to_contain_text("Used by all sessions")
        if shots := os.environ.get("EVERTURN_SHOTS"):
            for width, height in ((1280, 900), (390, 844)):
                await page.set_viewport_size({"width": width, "height": height})
                await page.wait_for_timeout(400)
                await page.screenshot(path=f"{shots}/knowledge-{width}.png")
                await page.get_by_role("button", name="papers").first.click()
                await page.wait_for_timeout(300)
                await page.screenshot(path=f"{shots}/knowledge-open-{width}.png")
            await page.set_viewport_size({"width": 1280, "height": 900})
        await page.get_by_role("button", name="Delete Recipes").click()
        await page.get_by_role("alert").get_by_role("button", name="Delete").click()
        await expect(pane).not_to_contain_text("Recipes")
        with within("the index of what was deleted is gone", PATIENCE_S):
            while len(list((data_dir / "knowledge").glob("kno_*.db"))) != 1:
                await page.wait_for_timeout(100)
        assert house.complaints == []
