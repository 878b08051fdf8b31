"""Keys, focus and dropped files: each does what its label says and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from tests.acceptance.paging import PAGE, Gate, House, open_house, say
from tests.acceptance.seeding import long_session

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'


async def busy(house: House) -> tuple[Page, Gate]:
    gate = Gate()
    house.provider.on("slow", ["It begins.", gate, " It ends."])
    page = await house.open()
    await say(page, "a slow one")
    await expect(page.locator(".md")).to_contain_text("It begins.")
    return page, gate


async def test_escape_closes_a_menu_and_leaves_the_turn_alone(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page, gate = await busy(house)
        menu = page.get_by_role("menu")
        row = page.locator(".side .rowbox").last
        for button in (
            page.locator(".bar").get_by_label("Session menu"),
            row.get_by_role("button"),
        ):
            await button.click()
            await expect(menu).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(menu).to_have_count(0)
            await expect(button).to_be_focused()
        gate.opened.set()
        await expect(page.locator(DONE)).to_have_count(1)
        await expect(page.locator(".md")).to_contain_text("It ends.")
        assert house.complaints == []


async def test_escape_right_after_sending_stops_the_turn(data_dir: Path) -> None:
    """On a busy machine the server answers a second later: Escape counts in between, too."""
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "the first words")
        await expect(page.locator(DONE)).to_have_count(1)
        may_go = anyio.Event()

        async def hold(route: Route) -> None:
            await may_go.wait()
            await route.continue_()

        await page.route(re.compile("/turns$"), hold)
        house.provider.on("slow", ["It begins.", Gate()])
        async with page.expect_request(re.compile("/turns$")):
            await say(page, "a slow one")
        await page.keyboard.press("Escape")
        may_go.set()
        await expect(page.locator('article[data-state="cancelled"]')).to_have_count(1)
        assert house.complaints == []


async def test_escape_in_a_field_of_the_settings_does_not_leave_them(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(f"{house.url}#/settings/memory")
        await page.get_by_role("button", name="New note").click()
        note = page.locator(".sform textarea")
        await expect(note).to_be_focused()
        await page.keyboard.type("half a note")
        await page.keyboard.press("Escape")
        await expect(note).to_have_value("half a note")
        await page.keyboard.press("Escape")
        await expect(page.locator("[data-composer]")).to_be_visible()


async def test_fields_open_with_the_focus_in_them(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "the first words")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.locator(".you").hover()
        await page.locator(".you [data-edit]").click()
        await expect(page.locator(".edit textarea")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("[data-composer]")).to_be_focused()
        await page.goto(f"{house.url}#/settings/models")
        await page.locator(".pane button[aria-expanded]").first.click()
        await page.locator(".mrow", has_text="Anthropic").click()
        await expect(page.locator(".mform input[type=password]")).to_be_focused()
        assert house.complaints == []


DROP = """([selector, name]) => {
    const data = new DataTransfer();
    if (name) data.items.add(new File(["words"], name, { type: "text/plain" }));
    else data.setData("text/uri-list", "http://127.0.0.1:1/elsewhere");
    const target = document.querySelector(selector);
    const fired = ["dragenter", "dragover", "drop"].map((kind) => {
        const event = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
        return target.dispatchEvent(event);
    });
    // What is left to the browser ends in a page of its own.
    return { over: !fired[1], drop: !fired[2] };
}"""


async def test_a_file_dropped_anywhere_is_attached_and_never_opened(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator(DONE)).to_have_count(1)
        for number, place in enumerate((".side .list", ".roll", ".bar", "[data-composer]")):
            kept = await page.evaluate(DROP, [place, f"file-{number}.txt"])
            assert kept == {"over": True, "drop": True}
            await expect(page.locator(".comp .att", has_text=f"file-{number}.txt")).to_have_count(1)
        assert (await page.evaluate(DROP, [".roll", ""]))["drop"], "a link is not followed"
        assert not (await page.evaluate(DROP, ["[data-composer]", ""]))["drop"], "a field takes text"
        await page.goto(f"{house.url}#/settings/models")
        await expect(page.locator(".pane")).to_be_visible()
        assert await page.evaluate(DROP, [".pane", "late.txt"]) == {"over": True, "drop": True}
        assert house.complaints == []


async def test_the_browsers_own_reload_retries_nothing(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator(DONE)).to_have_count(1)
        left_alone = await page.evaluate(
            "document.body.dispatchEvent(new KeyboardEvent('keydown',"
            "{ key: 'R', ctrlKey: true, shiftKey: true, bubbles: true, cancelable: true }))"
        )
        assert left_alone
        await page.reload()
        await expect(page.locator(DONE)).to_have_count(1)
        await expect(page.locator(".sib, .siblings")).to_have_count(0)
        assert [one["messages"][-1]["content"] for one in house.provider.asked].count("hello") == 1


async def test_arrow_up_in_an_empty_composer_edits_the_last_message(data_dir: Path) -> None:
    session = await long_session(data_dir, 30)
    async with open_house(data_dir) as house:
        page = await house.open(f"#/s/{session}")
        await expect(page.locator("article").last).to_be_in_viewport()
        await page.locator(".roll").hover()
        await page.mouse.wheel(0, -4000)
        await expect(page.locator(".pill")).to_be_visible()
        await page.locator("[data-composer]").focus()
        await page.keyboard.press("ArrowUp")
        field = page.locator(".edit textarea")
        await expect(field).to_be_focused()
        await expect(field).to_be_in_viewport()
        await expect(field).to_have_value("Question 29: what about part 29?")
        await page.keyboard.press("Escape")
        await expect(page.locator("[data-composer]")).to_be_focused()
        await page.keyboard.press("ArrowUp")
        await field.fill("Question 29, asked better")
        await page.keyboard.press("Enter")
        last = page.locator(".turnbox.last")
        await expect(last.locator(".say")).to_have_text("Question 29, asked better")
        await expect(last.locator("article")).to_have_attribute("data-state", "completed")
        await expect(last.locator(".md")).to_be_in_viewport()
        told = house.provider.asked[-1]["messages"]
        assert [one for one in told if one["role"] == "user"][-1]["content"] == "Question 29, asked better"
        assert "what about part 29" not in str(told)
        assert house.complaints == []


async def test_arrow_up_edits_the_message_that_was_queued_last(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page, gate = await busy(house)
        await page.keyboard.press("ArrowUp")
        await expect(page.locator(".edit textarea")).to_have_count(0)
        await say(page, "next in line")
        await expect(page.locator(".queue [data-queued]")).to_have_count(1)
        await page.keyboard.press("ArrowUp")
        field = page.locator(".queue input")
        await expect(field).to_be_focused()
        await field.fill("next in line, please")
        await page.keyboard.press("Enter")
        await expect(page.locator(".queue .t")).to_have_text("next in line, please")
        gate.opened.set()
        await expect(page.locator(".turnbox.last .md")).to_contain_text("You said: next in line, please")
        assert house.complaints == []
