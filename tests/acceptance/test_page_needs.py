"""Needs you in a real browser: what waits for a person is answered there, by mouse and by keys."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, House, Tool, open_house
from tests.acceptance.seeding import schedules_with_a_past

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
LINES = [f"setting_{number} = on" for number in range(32)]
LONG = "sudo tee /etc/site.conf <<'END'\n" + "\n".join(LINES) + "\nEND"


async def ask_for(house: House, title: str, words: str) -> str:
    session = await house.api("POST", "api/sessions", json={"title": title})
    await house.api("POST", f"api/sessions/{session['id']}/turns", json={"text": words})
    return session["id"]


async def test_what_waits_for_a_person_is_answered_in_one_place(data_dir: Path) -> None:
    await schedules_with_a_past(data_dir, round(time.time() * 1000) - 2 * 3_600_000)
    async with open_house(data_dir) as house:
        house.provider.on("write the settings", [Tool("terminal", {"command": LONG})], ["Written."])
        question = {"question": "Which volume?", "choices": ["/mnt/tank", "/mnt/cold"]}
        house.provider.on("move the photos", [Tool("ask_user", question)], ["Moved."])
        page = await house.open()
        place = page.locator(".side .navrow", has_text="Needs you")
        await expect(place.locator(".cnt")).to_have_text("2")
        await ask_for(house, "Site", "write the settings")
        await expect(place.locator(".cnt")).to_have_text("3")
        photos = await ask_for(house, "Photos", "move the photos")
        await expect(place.locator(".cnt")).to_have_text("4")
        await expect(page).to_have_title(re.compile(r"^\(4\) "))
        await expect(page.locator("link[rel=icon]")).to_have_attribute("href", "./icon-waiting.svg")
        await place.click()
        rows = page.locator(".need")
        await expect(rows).to_have_count(4)
        assert await serious(page) == []

        # Nothing is allowed before the whole call was shown: neither by a button nor by its key.
        call = page.get_by_role("article", name="Approve this command")
        await expect(call.get_by_role("button", name="Allow once")).to_have_count(0)
        await page.keyboard.press("y")
        await expect(call.get_by_role("button", name="Allow once")).to_be_visible()
        await expect(call.locator(".cmd")).to_contain_text("setting_31 = on")
        assert {one["topic"] for one in (await house.api("GET", "api/needs"))["asks"]} == {
            "approval",
            "question",
        }
        await page.keyboard.press("y")
        await expect(rows.first).to_have_text(re.compile(r"Allowed at \d\d:\d\d: .*site\.conf"))
        await expect(rows).to_have_count(4)

        # A key acts on the row that the user has moved to, and digits choose.
        await page.keyboard.press("1")
        await page.keyboard.press("j")
        await expect(page.get_by_role("article", name="Which volume?")).to_be_focused()
        await page.keyboard.press("2")
        await expect(rows.nth(1)).to_contain_text("Answered “/mnt/cold”")
        await page.keyboard.press("j")
        await (
            page.get_by_role("article", name="Schedule failed: Watch the release page")
            .get_by_role("button", name="Dismiss")
            .click()
        )
        await (
            page.get_by_role("article", name=re.compile("Job lost"))
            .get_by_role("button", name="Dismiss")
            .click()
        )
        await expect(place.locator(".cnt")).to_have_count(0)
        await expect(rows).to_have_count(4)
        assert (await house.api("GET", "api/needs"))["total"] == 0

        # What was done is gone with the next visit, and can still be looked up.
        for key in ("k", "k", "k", "j", "Enter"):
            await page.keyboard.press(key)
        await expect(page).to_have_url(re.compile(photos))
        await expect(page.locator(".md").last).to_contain_text("Moved.")
        await page.go_back()
        await expect(page.get_by_role("heading", name="Nothing needs you")).to_be_visible()
        await page.get_by_role("button", name="Answered today").click()
        await expect(page.locator(".past")).to_have_count(2)
        await expect(page.locator("link[rel=icon]")).to_have_attribute("href", "./icon.svg")

        # On a phone, and answered elsewhere: the row folds where it is.
        await page.set_viewport_size({"width": 390, "height": 844})
        await ask_for(house, "Photos again", "move the photos")
        choice = page.get_by_role("button", name="/mnt/tank")
        await expect(choice).to_be_visible()
        box = await choice.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        [asked] = (await house.api("GET", "api/needs"))["asks"]
        await house.api("POST", f"api/questions/{asked['id']}", json={"answer": "/mnt/tank"})
        await expect(rows).to_contain_text(["Answered “/mnt/tank”"])
        assert house.complaints == []
