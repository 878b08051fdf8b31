"""The page's memory view in a real browser: what is remembered, from where, and how to change it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]

NOOR = (
    "The user is called Noor.",
    "The user lives in Lisbon.",
    "The user is allergic to walnuts.",
    "The user has a bakery with her sister Lena.",
)


def facts(*texts: str) -> str:
    return json.dumps({"facts": [{"text": text, "turn": 1} for text in texts]})


async def test_a_new_session_lets_the_left_one_be_remembered_and_the_note_leads_back_to_it(
    data_dir: Path,
) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("[1] User: Hi, I'm Noor", [facts(*NOOR)])
        house.provider.on("[1] User: I sing", [facts("The user sings in a choir on Tuesdays.")])
        page = await house.open()
        await say(page, "I sing in a choir")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        left = page.url.split("/")[-1]
        async with page.expect_request(
            lambda request: request.method == "POST" and request.url.endswith("/api/sessions")
        ) as made:
            await page.goto(house.url + "#/")
            await say(page, "Something else")
        assert json.loads((await made.value).post_data or "") == {"leaving": left}
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await page.goto(house.url + "#/settings/memory")
        # The commit does not delay the new session: the view may be there first, and is looked at again.
        await expect(page.locator(".pane")).to_contain_text("1 answer not yet in memory")
        with within("the session that was left is remembered", PATIENCE_S):
            while await page.locator(".memo").count() == 0:
                await page.reload()
                await expect(page.locator(".pane")).to_contain_text("New note")
        await expect(page.locator(".memo")).to_contain_text("The user sings in a choir on Tuesdays.")
        await page.set_viewport_size({"width": 360, "height": 740})
        boxes = [await page.get_by_role("button", name=name).bounding_box() for name in ("Edit", "Delete")]
        assert all(box is not None and box["height"] < 30 for box in boxes), "each is one line"
        await page.get_by_role("link", name="from a session").click()
        await expect(page).to_have_url(re.compile(f"#/s/{left}$"))
        assert house.complaints == []


async def test_notes_put_into_the_folder_by_hand_are_shown_and_unread_ones_are_reported(
    data_dir: Path,
) -> None:
    folder = data_dir / "memory" / "local"
    folder.mkdir(parents=True)
    mine = "# About me\n\n- I prefer *tea*\n- <b>bold</b>\n- two lines\n  of one note\n"
    (folder / "mine.md").write_text(mine)
    (folder / "copy.md").write_text(mine)
    (folder / "away.md").symlink_to(data_dir / "elsewhere.md")
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(house.url + "#/settings/memory")
        await expect(page.locator(".memo")).to_have_count(3)
        await expect(page.locator(".memo", has_text="<b>bold</b>")).to_have_count(1)
        await expect(page.locator(".pane")).to_contain_text("away.md is not a plain file; it is not read.")
        assert house.complaints == []


async def test_a_note_that_cannot_be_saved_stays_in_its_form_and_a_forgotten_one_can_be_brought_back(
    data_dir: Path,
) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(house.url + "#/settings/memory")
        await page.get_by_role("button", name="New note").click()
        await page.locator(".sform textarea").fill("The NAS is nas-01.")
        await house.kill()
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".toast")).to_be_visible()
        await expect(page.locator(".sform textarea")).to_have_value("The NAS is nas-01.")
        await house.start()
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".memo")).to_contain_text("The NAS is nas-01.")
        await expect(page.locator(".sform")).to_have_count(0)
        await page.get_by_role("button", name="Delete").click()
        await expect(page.locator(".memo")).to_have_count(0)
        await page.get_by_role("button", name="Undo").click()
        await expect(page.locator(".memo")).to_contain_text("The NAS is nas-01.")


async def test_older_notes_are_there_when_they_are_asked_for(data_dir: Path) -> None:
    folder = data_dir / "memory" / "local"
    folder.mkdir(parents=True)
    (folder / "many.md").write_text("".join(f"- fact {number}\n" for number in range(250)))
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(house.url + "#/settings/memory")
        await expect(page.locator(".memo")).to_have_count(200)
        await page.get_by_role("button", name="Older notes").click()
        await expect(page.locator(".memo")).to_have_count(250)
        await expect(page.get_by_role("button", name="Older notes")).to_have_count(0)
        await expect(page.locator(".memo").last).to_contain_text("fact 0")
