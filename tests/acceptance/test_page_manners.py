"""What a user notices in an hour of use: their own words stay in view, and no notice outlives its cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.paging import PAGE, Gate, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'
SIZES = pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["desktop", "phone"])


@SIZES
async def test_what_was_answered_to_a_question_stays_in_view(data_dir: Path, size: tuple[int, int]) -> None:
    async with open_house(data_dir) as house:
        question = "Which city should I plan for, now that the ferry to the islands is cancelled?"
        asking = Tool("ask_user", {"question": question, "choices": ["Lisbon", "Porto"]})
        house.provider.on("trip", [asking], ["I'll plan for that."])
        page = await house.open()
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        await say(page, "Plan my trip")
        await page.locator(".card.wait").wait_for()
        await say(page, "Braga, but only if it's dry")
        await expect(page.locator(DONE)).to_have_count(1)
        for _ in range(2):
            answered = page.locator("article .say", has_text="Braga, but only if it's dry")
            await expect(answered).to_be_in_viewport(ratio=1)
            asked = page.get_by_text(question)
            await expect(asked).to_be_in_viewport(ratio=1)
            assert await asked.evaluate("it => it.scrollWidth <= it.clientWidth"), "the question is cut"
            await page.reload()


async def test_a_stop_left_undecided_is_not_asked_of_the_next_answer(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gates = [Gate(), Gate()]
        house.provider.on("first", ["One", gates[0], "."])
        house.provider.on("third", ["Three", gates[1], "."])
        page = await house.open()
        await say(page, "the first")
        await expect(page.locator(".md")).to_contain_text("One")
        await say(page, "the second")
        await expect(page.locator(".queue li[data-queued]")).to_have_count(1)
        await page.keyboard.press("Escape")
        await page.locator(".choose").wait_for()
        gates[0].opened.set()
        await expect(page.locator(DONE)).to_have_count(2)

        await say(page, "the third")
        await expect(page.locator(".md").last).to_contain_text("Three")
        await say(page, "the fourth")
        await expect(page.locator(".queue li[data-queued]")).to_have_count(1)
        await expect(page.locator("[data-composer]")).to_be_focused()
        await expect(page.locator(".choose")).to_have_count(0)
        gates[1].opened.set()
        await expect(page.locator(DONE)).to_have_count(4)


async def test_the_note_of_an_undo_goes_once_it_has_nothing_to_redo(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "the first")
        await expect(page.locator(DONE)).to_have_count(1)
        await say(page, "the second")
        await expect(page.locator(DONE)).to_have_count(2)
        note = page.locator(".toast", has_text="Undone")

        async def choose(name: str) -> None:
            await page.get_by_role("button", name="Session menu", exact=True).click()
            await page.get_by_role("menuitem", name=name).click()

        await choose("Undo last message")
        await note.wait_for()
        await choose("Redo")
        await expect(page.locator(DONE)).to_have_count(2)
        await expect(note).to_have_count(0, timeout=6000)

        await choose("Undo last message")
        await note.wait_for()
        await say(page, "something else")
        await expect(page.locator(DONE)).to_have_count(2)
        await expect(note).to_have_count(0, timeout=6000)


async def test_a_table_on_a_phone_breaks_no_figure(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        rows = "| Pump | Flow (l/min) | Head (m) | Price |\n|---|---:|---:|---:|\n"
        rows += "| Scala with integrated controller | 45 | 42 | €612.50 |\n"
        house.provider.on("pumps", [rows])
        page = await house.open()
        await page.set_viewport_size({"width": 390, "height": 844})
        await say(page, "pumps")
        await expect(page.locator(DONE)).to_have_count(1)
        price = page.locator(".md td", has_text="€612.50")
        lines = await price.evaluate(
            "it => { const r = document.createRange(); r.selectNodeContents(it); return r.getClientRects().length }"
        )
        assert lines == 1
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_every_way_to_decide_is_on_one_line_of_the_desktop(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("tidy", [Tool("terminal", {"command": "rm -rf build"})], ["As you wish."])
        page = await house.open()
        await page.set_viewport_size({"width": 1440, "height": 900})
        await say(page, "tidy")
        card = page.locator(".card.wait")
        await expect(card.locator(".why")).to_contain_text(
            "If allowed for this session or always, the agent may then run exactly rm -rf build."
        )
        tops = await card.locator(".acts .btn").evaluate_all("all => all.map(it => it.offsetTop)")
        assert len(tops) == 6
        assert len(set(tops)) == 1
        await page.locator(".roll").focus()
        await page.keyboard.press("n")
        await expect(page.locator(DONE)).to_have_count(1)
