"""Schedules in a real browser: one sentence becomes a schedule, which is run, changed, paused and deleted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, open_house

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]


async def test_a_sentence_becomes_a_schedule_that_runs_and_is_changed(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open(timezone_id="Europe/Vienna")
        await page.locator(".side .navrow", has_text="Schedules").click()
        await page.get_by_role("button", name=re.compile("^Every weekday at 8")).click()
        panel = page.get_by_role("complementary", name="New schedule")
        sentence = panel.get_by_label("What and when")
        save = panel.get_by_role("button", name="Save")
        await expect(panel.locator(".read")).to_contain_text("Weekdays at 08:00, Europe/Vienna")
        await expect(panel.locator(".times b")).to_have_count(5)

        # What is not clear is asked, what never comes is said, and neither can be saved.
        await sentence.fill("Every 31st in the evening clean up")
        await expect(panel.locator(".read.unc")).to_contain_text("At what time?")
        await expect(save).to_be_disabled()
        await panel.get_by_role("button", name="18:00").click()
        await expect(panel.locator(".read b")).to_contain_text("18:00")
        await expect(save).to_be_enabled()
        await panel.get_by_role("button", name="Change").click()
        await panel.get_by_role("radio", name="Cron").click()
        await panel.get_by_role("textbox", name="Cron").fill("0 8 30 2 *")
        await expect(panel.get_by_role("alert")).to_contain_text("Nothing was saved.")
        await expect(save).to_be_disabled()
        await panel.get_by_role("textbox", name="Cron").fill("0 8 * * 1-5")
        await expect(panel.locator(".read b")).to_have_text("Weekdays at 08:00, Europe/Vienna")
        assert await serious(page) == []
        await panel.get_by_label("Name").fill("Tidy")
        await panel.get_by_label("Budget per run").select_option("$0.10")
        await panel.get_by_label("Name").press("Control+Enter")
        [made] = (await house.api("GET", "api/schedules"))["items"]
        assert (made["name"], made["text"], made["timezone"]) == ("Tidy", "Clean up", "Europe/Vienna")
        [budget] = (await house.api("GET", "api/budgets"))["items"]
        assert (budget["subject"], budget["amount"]) == (made["id"], 0.1)

        # It is run now, and the list says so by itself.
        panel = page.get_by_role("complementary", name="Tidy")
        await panel.get_by_role("button", name="Run now").click()
        row = page.locator(".sch", has_text="Tidy")
        await expect(row.locator(".fate")).to_have_text(re.compile(r"Ran today \d\d:\d\d · by hand"))
        await panel.get_by_role("radio", name="History").click()
        await expect(panel.locator("li")).to_have_text(re.compile("by hand"))
        await panel.get_by_role("button", name="Pause").click()
        await expect(row.locator(".nx")).to_have_text("Paused")
        await panel.get_by_role("button", name="Resume").click()
        await expect(row.locator(".nx")).to_have_text(re.compile("08:00"))
        assert await serious(page) == []

        # On a phone list and schedule are two pages; what another program changes is shown.
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(row).to_be_hidden()
        box = await panel.get_by_role("button", name="Run now").bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await panel.get_by_role("button", name="Back").click()
        await house.api("PATCH", f"api/schedules/{made['id']}", json={"name": "Tidy up"})
        await expect(row.locator("b")).to_have_text("Tidy up")
        await row.click()
        panel = page.get_by_role("complementary", name="Tidy up")
        await panel.get_by_role("button", name="More actions").click()
        await page.get_by_role("menuitem", name="Delete").click()
        await panel.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("heading", name="No schedules yet")).to_be_visible()
        box = await page.get_by_role("button", name=re.compile("^Every weekday at 8")).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390, "the whole example can be read"
        assert (await house.api("GET", "api/schedules"))["items"] == []
        assert house.complaints == []
