"""Skills and prompts on the page: read before they are trusted, named with a slash, and shown with their version."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import FilePayload, expect

from tests.acceptance.paging import PAGE, House, open_house, say
from tests.unit.skills.kit import skill_text, zip_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
LONG = "\n".join(f"{number}. Look at lock {number}." for number in range(1, 80))


async def make(house: House, body: str, *, trust: bool) -> str:
    files = [{"path": "SKILL.md", "text": skill_text("restic-care", body=body)}]
    made = await house.api("POST", "api/skills", json={"files": files, "trust": trust})
    return str(made["digest"])


async def test_an_imported_skill_is_trusted_only_after_its_end_was_read(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(house.url + "#/settings/skills")
        archive = zip_of({"restic-care/SKILL.md": skill_text("restic-care", body=LONG)})
        given = FilePayload(name="skills.zip", mimeType="application/zip", buffer=archive)
        await page.get_by_label("Import: ZIP file").set_input_files(given)
        trust = page.get_by_role("button", name="Trust this version")
        await expect(trust).to_be_disabled()
        await page.get_by_role("region", name="Read").evaluate("box => (box.scrollTop = box.scrollHeight)")
        await page.get_by_text("79. Look at lock 79.").last.scroll_into_view_if_needed()
        await expect(trust).to_be_enabled()
        await trust.click()
        await expect(page.locator(".sk", has_text="restic-care")).to_contain_text("Trusted")
        await expect(page.get_by_role("switch", name="Use restic-care")).to_be_checked()
        broken = FilePayload(name="bad.zip", mimeType="application/zip", buffer=zip_of({"../x": "y"}))
        await page.get_by_label("Import: ZIP file").set_input_files(broken)
        await expect(page.get_by_role("alert")).to_contain_text("path cannot be used")


async def test_a_skill_that_waits_is_read_from_every_tab(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        await make(house, LONG, trust=False)
        page = await house.open()
        await page.goto(house.url + "#/settings/skills")
        await expect(page.get_by_text("Read to the end to trust it.")).to_be_visible()
        await page.get_by_role("tab", name="Preview").click()
        await expect(page.get_by_role("button", name="Trust this version")).to_have_count(0)
        await page.get_by_role("button", name="Read it", exact=True).click()
        await expect(page.get_by_role("region", name="Read")).to_be_visible()
        await expect(page.get_by_role("button", name="Trust this version")).to_be_disabled()


async def test_a_skill_is_written_changed_and_its_difference_shown(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        await make(house, "1. Ask first.", trust=True)
        page = await house.open()
        await page.goto(house.url + "#/settings/skills")
        await page.get_by_role("tab", name="Edit").click()
        area = page.get_by_label("Text of SKILL.md")
        await area.fill(skill_text("restic-care", body="1. Never ask."))
        await page.keyboard.press("Control+s")
        await expect(page.get_by_role("tab", name="Earlier")).to_be_visible()
        shown = await house.api("GET", "api/skills/user.restic-care")
        assert shown["state"] == "trusted"
        assert "Never ask" in shown["contents"][0]["text"]


async def test_a_skill_and_a_prompt_are_named_with_a_slash(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        digest = await make(house, "1. List the locks.", trust=True)
        await house.api("PUT", "api/prompts/weekly", json={"text": "Sum up {{team}}."})
        house.provider.on("check them", ["They are free."])
        page = await house.open()
        await page.fill("[data-composer]", "/rest")
        await expect(page.get_by_role("option", name="/restic-care")).to_be_visible()
        await page.press("[data-composer]", "Enter")
        await expect(page.locator("[data-composer]")).to_have_value("/restic-care ")
        await say(page, "/restic-care check them")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        version = f"version {digest[:4]}…{digest[-2:]}"
        await expect(page.locator("article")).to_contain_text(version)
        assert "1. List the locks." in str(house.provider.asked[0]["messages"])
        await page.reload()
        await expect(page.locator("article")).to_contain_text(version)
        await page.fill("[data-composer]", "/weekly")
        await expect(page.get_by_role("option", name="/weekly")).to_be_visible()
        await page.press("[data-composer]", "Enter")
        await page.get_by_role("dialog").get_by_label("team").fill("infra")
        await page.get_by_role("button", name="Insert").click()
        await expect(page.locator("[data-composer]")).to_have_value("Sum up infra.")
