"""A message sent while the agent works or waits is shown at once and reaches its target, never silently elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, Gate, House, Tool, attach, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
ASKING = Tool("terminal", {"command": "$TOOL --version"})  # what cannot be read is asked about
COMPOSER = "[data-composer]"


async def steer(page: Page, text: str) -> None:
    await page.fill(COMPOSER, text)
    await page.press(COMPOSER, "Control+Enter")


async def busy(house: House) -> tuple[Page, Gate]:
    gate = Gate()
    house.provider.on("slow", ["It begins.", gate, " It ends."])
    page = await house.open()
    await say(page, "a slow one")
    await expect(page.locator(".md")).to_contain_text("It begins.")
    return page, gate


async def test_steering_is_seen_at_once_and_after_a_reload_and_once_when_it_is_taken(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("slow", ["It begins.", gate, Tool("list_files", {"path": "."})])
        page = await house.open()
        await say(page, "a slow one")
        await expect(page.locator(".md")).to_contain_text("It begins.")
        await steer(page, "look at the north side too")
        waiting = page.locator("[data-steer]")
        await expect(waiting).to_contain_text("look at the north side too")
        await expect(waiting).to_contain_text("after this step")
        await expect(waiting).to_be_in_viewport()
        await page.reload()
        await expect(waiting).to_contain_text("look at the north side too")
        gate.opened.set()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(waiting).to_have_count(0)
        await expect(page.get_by_text("look at the north side too", exact=True)).to_have_count(1)
        assert house.complaints == []


async def test_an_answer_at_a_limit_is_shown_after_a_reload(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        await house.api("PATCH", "api/settings", json={"steps_max": 1})
        house.provider.on("two steps", [Tool("list_files", {"path": "."})], ["Nothing there."])
        page = await house.open()
        await say(page, "do two steps")
        await page.get_by_role("button", name="Continue").click()
        await expect(page.locator(".md")).to_contain_text("Nothing there.")
        answered = page.locator(".line", has_text="Continued")
        await expect(answered).to_contain_text("This turn has used 1 step. Shall it go on?")
        shown = await answered.inner_text()
        await page.reload()
        await expect(page.locator(".md")).to_contain_text("Nothing there.")
        await expect(answered).to_have_count(1)
        assert await answered.inner_text() == shown
        assert house.complaints == []


async def test_steering_that_is_on_its_way_is_seen_in_its_place(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page, gate = await busy(house)
        is_asked, may_go = anyio.Event(), anyio.Event()

        async def hold(route: Route) -> None:
            is_asked.set()
            await may_go.wait()
            await route.continue_()

        await page.route(re.compile(r"/turns$"), hold)
        await steer(page, "this as well")
        await expect(page.locator("[data-steer]")).to_contain_text("this as well")
        await expect(page.locator("[data-steer]")).to_contain_text("Sending")
        with within("it is sent", PATIENCE_S):
            await is_asked.wait()
        may_go.set()
        await expect(page.locator("[data-steer]")).to_contain_text("after this step")
        gate.opened.set()
        await expect(page.locator("[data-steer]")).to_have_count(0)
        assert house.complaints == []


async def at_an_approval(house: House) -> Page:
    house.provider.on("which tool", [ASKING], ["Then not."])
    page = await house.open()
    await say(page, "which tool?")
    await page.locator(".card.wait").wait_for()
    await say(page, "use the other one")
    await expect(page.locator(".choose")).to_contain_text("waits for your decision")
    await expect(page.locator(".queue")).to_have_count(0)
    return page


async def test_a_reply_at_an_approval_denies_it_and_is_read_before_the_turn_continues(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await at_an_approval(house)
        await page.keyboard.press("Escape")
        await expect(page.locator(".choose")).to_have_count(0)
        await expect(page.locator(COMPOSER)).to_be_focused()
        await expect(page.locator(COMPOSER)).to_have_value("use the other one")
        assert await page.locator("article").get_attribute("data-state") == "waiting"
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Deny and send it now").click()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator(".line", has_text="You denied")).to_be_visible()
        assert "use the other one" in str(house.provider.asked[1]["messages"])
        await expect(page.locator(COMPOSER)).to_have_value("")
        assert house.complaints == []


async def test_a_message_at_an_approval_waits_for_the_turn_if_that_is_chosen(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await at_an_approval(house)
        await page.get_by_role("button", name="Send it after this answer").click()
        await expect(page.locator(".queue [data-queued]")).to_contain_text("use the other one")
        assert await page.locator("article").get_attribute("data-state") == "waiting"
        assert house.complaints == []


async def with_a_queue(house: House) -> tuple[Page, Gate]:
    page, gate = await busy(house)
    await say(page, "the next thing")
    await expect(page.locator("[data-queued]")).to_have_count(1)
    await attach(page, "note.txt", "words")
    await say(page, "the last thing")
    await expect(page.locator("[data-queued]")).to_have_count(2)
    await page.keyboard.press("Escape")
    await expect(page.locator(".choose")).to_contain_text("2 messages are waiting")
    assert await page.locator("article").get_attribute("data-state") == "running"
    return page, gate


async def test_stop_asks_about_the_queue_and_continues_with_it(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page, _ = await with_a_queue(house)
        await page.keyboard.press("Escape")
        await expect(page.locator(".choose")).to_have_count(0)
        assert await page.locator("article").get_attribute("data-state") == "running"
        await page.get_by_label("Stop").first.click()
        await page.get_by_role("button", name="Stop and send them").click()
        await expect(page.locator('article[data-state="cancelled"]')).to_have_count(1)
        await expect(page.locator('article[data-state="completed"]')).to_have_count(2)
        assert house.complaints == []


async def test_stop_takes_the_queue_back_into_the_composer(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page, _ = await with_a_queue(house)
        await page.get_by_role("button", name="Stop and take them back").click()
        await expect(page.locator('article[data-state="cancelled"]')).to_have_count(1)
        await expect(page.locator("[data-queued]")).to_have_count(0)
        await expect(page.locator(COMPOSER)).to_have_value("the next thing\n\nthe last thing")
        await expect(page.locator(".comp .att", has_text="note.txt")).to_have_count(1)
        await page.reload()
        await expect(page.locator(COMPOSER)).to_have_value("the next thing\n\nthe last thing")
        await page.press(COMPOSER, "Enter")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator("article").last.locator(".att")).to_contain_text("note.txt")
        assert house.complaints == []


async def test_stop_asks_about_steering_and_takes_it_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page, _ = await busy(house)
        await attach(page, "note.txt", "words")
        await steer(page, "look at the north side too")
        await expect(page.locator("[data-steer]")).to_contain_text("after this step")
        await page.keyboard.press("Escape")
        await expect(page.locator(".choose")).to_contain_text("1 message is waiting")
        assert await page.locator("article").get_attribute("data-state") == "running"
        await page.get_by_role("button", name="Stop and take it back").click()
        await expect(page.locator('article[data-state="cancelled"]')).to_have_count(1)
        await expect(page.locator(COMPOSER)).to_have_value("look at the north side too")
        await expect(page.locator(".comp .att", has_text="note.txt")).to_have_count(1)
        await page.reload()
        await expect(page.locator(COMPOSER)).to_have_value("look at the north side too")
        await expect(page.locator("article")).to_have_count(1)
        await expect(page.locator("[data-steer], [data-queued]")).to_have_count(0)
        assert house.complaints == []


async def test_messages_written_before_the_session_exists_are_one_session(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        may_go = anyio.Event()

        async def hold(route: Route) -> None:
            if route.request.method == "POST":
                await may_go.wait()
            await route.continue_()

        await page.route(re.compile(r"/api/sessions$"), hold)
        await say(page, "first words")
        await say(page, "second words")
        await expect(page.locator(".you")).to_have_count(2)
        may_go.set()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(2)
        await expect(page.locator(".say")).to_have_text(["first words", "second words"])
        await expect(page.locator(".side .row")).to_have_count(1)
        assert len((await house.api("GET", "api/sessions"))["items"]) == 1
        assert house.complaints == []


async def test_messages_written_while_the_server_is_away_are_one_session_after_a_reload(
    data_dir: Path,
) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await house.kill()
        await say(page, "first words")
        await expect(page.locator(".you.failed")).to_have_count(1)
        await say(page, "second words")
        await expect(page.locator(".you.failed")).to_have_count(2)
        await house.start()
        await page.reload()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(2)
        await expect(page.locator(".say")).to_have_text(["first words", "second words"])
        assert len((await house.api("GET", "api/sessions"))["items"]) == 1
