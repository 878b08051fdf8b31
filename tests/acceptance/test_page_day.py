"""A day in the life of the page: 40 turns in one session among 400, on a desk and on a phone.

After each step what a person would look at is in view, and what was seen before is still there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from everturn.testing import within
from tests.acceptance.looking import at_rest, is_followed, listed
from tests.acceptance.paging import IS_LONG, PAGE, PATIENCE_S, Gate, House, open_house, say
from tests.acceptance.seeding import many_sessions

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
SIZES = {1440: 900, 390: 760}
TURNS = 40
EARLIER = 23
OTHERS = 399
COMPOSER = "[data-composer]"
PARAGRAPH = "A few more words, so that the answer has some height on every screen.\n\n"

# Every turn of the conversation from its beginning to its end, as it is drawn.
READ = """async () => {
    const roll = document.querySelector(".roll"), found = new Map();
    const rest = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    for (roll.scrollTop = 0; roll.scrollTop > 0 || roll.querySelector(".older"); roll.scrollTop = 0) await rest();
    for (let top = -1; top !== roll.scrollTop; roll.scrollTop += roll.clientHeight / 2) {
        top = roll.scrollTop;
        await rest();
        for (const one of roll.querySelectorAll("article")) found.set(one.dataset.turn, one.innerText);
        if (roll.scrollTop + roll.clientHeight < roll.scrollHeight - 1) top = -1;
    }
    return [...found.values()];
}"""


class Day:
    """One person at one page: what they do, and what they have seen so far."""

    def __init__(self, house: House, page: Page) -> None:
        self.house = house
        self.page = page
        # For each turn, in order, words that were on the screen.
        self.seen: list[list[str]] = []

    @property
    def last(self) -> int:
        return len(self.seen) - 1

    async def ask(self, *, held: bool = False) -> Gate:
        """Send the next message. A held answer stops after its first half, until its gate is opened."""
        number = len(self.seen)
        gate = Gate()
        first, second = f"Answer {number} begins.\n\n", f"\n\nAnswer {number} ends."
        steps = [first + PARAGRAPH, gate, PARAGRAPH + second] if held else [first + PARAGRAPH * 3 + second]
        self.house.provider.on(f"Turn {number}:", steps)  # type: ignore[arg-type]  # steps of several kinds
        self.seen.append([f"Turn {number}:", f"Answer {number} begins."])
        await say(self.page, f"Turn {number}: " + "please\n" * (number % 5))
        if held:
            with within("the model is asked", PATIENCE_S):
                await gate.reached.wait()
        return gate

    async def is_answered(self) -> None:
        """The newest answer ends, in view."""
        number = self.last
        self.seen[-1].append(f"Answer {number} ends.")
        await self.shows(number, "completed", f"Answer {number} ends.")

    async def shows(self, number: int, state: str, words: str) -> None:
        box = self.page.locator(".turnbox.last")
        await expect(box.locator(".say").first).to_contain_text(f"Turn {number}:")
        await expect(box.locator("article")).to_have_attribute("data-state", state)
        await expect(box).to_contain_text(words)
        assert await is_followed(self.page), f"turn {number} is not in view"
        await expect(box.get_by_text(words).last).to_be_in_viewport()
        # What came just before is still there, too.
        if number:
            await expect(self.page.locator("article", has_text=f"Turn {number - 1}:")).to_have_count(1)

    async def finds_everything(self) -> None:
        """Read the whole conversation: every turn is there once, in order, with what was seen of it."""
        turns = await self.page.evaluate(READ)
        assert [re.findall(r"Turn \d+:", one)[:1] for one in turns] == [words[:1] for words in self.seen]
        for text, words in zip(turns, self.seen, strict=True):
            assert [one for one in words if one not in text] == []
        await self.page.locator(".roll").hover()
        await self.page.mouse.wheel(0, 100_000)
        assert await is_followed(self.page)

    # --- what happens in a day -------------------------------------------------------------------------

    async def earlier(self, count: int) -> None:
        """Turns that were there before: said and answered without the page."""
        session = (await self.house.api("POST", "api/sessions", json={}))["id"]
        for number in range(count):
            words = [f"Turn {number}:", f"Answer {number} begins.", f"Answer {number} ends."]
            self.house.provider.on(words[0], [f"{words[1]}\n\n{PARAGRAPH * 3}{words[2]}"])
            self.seen.append(words)
            await self.house.api("POST", f"api/sessions/{session}/turns", json={"text": words[0]})
        await self.page.goto(f"{self.house.url}#/s/{session}")
        await self.shows(self.last, "completed", f"Answer {self.last} ends.")

    async def plain(self) -> None:
        await self.ask()
        await self.is_answered()

    async def reads_back_while_it_is_answered(self) -> None:
        gate = await self.ask(held=True)
        await self.shows(self.last, "running", f"Answer {self.last} begins.")
        await self.page.locator(".roll").hover()
        await self.page.mouse.wheel(0, -700)
        await expect(self.page.locator(".pill")).to_be_visible()
        before = await at_rest(self.page)
        gate.opened.set()
        await expect(self.page.locator(".turnbox.last article")).to_have_attribute("data-state", "completed")
        assert abs(await at_rest(self.page) - before) < 2, "the reader's place moved"
        await self.page.locator(".pill").click()
        await self.is_answered()

    async def searches(self) -> None:
        wanted = self.last // 2
        await self.page.keyboard.press("Control+k")
        await self.page.keyboard.type(f'"Answer {wanted} begins"')
        await expect(self.page.locator(".pal .hit").first).to_contain_text(f"Answer {wanted} begins")
        await self.page.keyboard.press("Enter")
        await self.page.locator(".glow", has_text=f"Answer {wanted} begins.").wait_for()
        found = self.page.locator("article", has_text=f"Turn {wanted}:")
        await expect(found.get_by_text(f"Answer {wanted} begins.")).to_be_in_viewport()
        await self.plain()

    async def stops(self) -> None:
        await self.ask(held=True)
        await self.shows(self.last, "running", f"Answer {self.last} begins.")
        await self.page.keyboard.press("Escape")
        self.seen[-1].append("Stopped.")
        await self.shows(self.last, "cancelled", "Stopped.")
        await self.reloads()

    async def reloads(self) -> None:
        await self.page.reload()
        await expect(self.page.locator(".turnbox.last .say").first).to_contain_text(f"Turn {self.last}:")
        assert await is_followed(self.page)
        await self.finds_everything()

    async def reloads_in_mid_answer(self) -> None:
        gate = await self.ask(held=True)
        await self.shows(self.last, "running", f"Answer {self.last} begins.")
        await self.page.reload()
        await self.shows(self.last, "running", f"Answer {self.last} begins.")
        gate.opened.set()
        await self.is_answered()

    async def edits(self) -> None:
        """The last message, by arrow key. The new version takes the place of the old one."""
        await self.plain()
        number = self.last
        self.house.provider.on(
            f"Turn {number}: better", [f"Answer {number} begins.\n\nAnswer {number} ends."]
        )
        await self.page.locator(COMPOSER).focus()
        await self.page.keyboard.press("ArrowUp")
        field = self.page.locator(".edit textarea")
        await expect(field).to_be_focused()
        await expect(field).to_be_in_viewport()
        await field.fill(f"Turn {number}: better")
        await self.page.keyboard.press("Enter")
        await expect(self.page.locator(".turnbox.last .say").first).to_have_text(f"Turn {number}: better")
        await self.shows(number, "completed", f"Answer {number} ends.")

    async def loses_the_server_in_mid_answer(self) -> None:
        await self.ask(held=True)
        number = self.last
        begun = f"Answer {number} begins."
        await self.shows(number, "running", begun)
        await self.house.kill()
        await expect(self.page.locator(".turnbox.last").get_by_text(begun)).to_be_in_viewport()
        self.house.provider.on(f"Turn {number}:", [f"\n\nAnswer {number} ends."])
        await self.house.start()
        await self.is_answered()

    async def writes_while_the_server_is_away(self) -> None:
        await self.house.kill()
        await self.ask()
        unsent = self.page.locator(".you.failed", has_text=f"Turn {self.last}:")
        await expect(unsent).to_be_in_viewport()
        await self.house.start()
        await self.is_answered()

    async def visits_another_session(self) -> None:
        await self._open_list()
        await self.page.locator(".side .list").evaluate("(list) => { list.scrollTop = 900; }")
        row = self.page.locator(".side .row").get_by_text(f"Session {OTHERS - 30}", exact=True)
        await row.click()
        await expect(self.page.locator(".bar h1")).to_have_text(f"Session {OTHERS - 30}")
        await expect(self.page.locator(COMPOSER)).to_be_in_viewport()
        await self.page.go_back()
        await expect(self.page.locator(".turnbox.last .say").first).to_contain_text(f"Turn {self.last}:")
        assert await is_followed(self.page)
        await self.plain()

    async def _open_list(self) -> None:
        if await self.page.locator(".bar .nar").is_visible():
            await self.page.locator(".bar .nar").click()
        await expect(self.page.locator(".side .row").first).to_be_in_viewport()

    async def looks_through_the_list(self) -> set[str]:
        await self.page.reload()
        await self._open_list()
        return await listed(self.page, OTHERS + 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("width", SIZES if IS_LONG else [390])
async def test_a_day_in_the_life_of_a_session(data_dir: Path, width: int) -> None:
    others = await many_sessions(data_dir, OTHERS)
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.set_viewport_size({"width": width, "height": SIZES[width]})
        day = Day(house, page)
        await day.earlier(EARLIER)
        plan = {
            24: day.reads_back_while_it_is_answered,
            26: day.searches,
            28: day.stops,
            30: day.edits,
            32: day.loses_the_server_in_mid_answer,
            34: day.visits_another_session,
            36: day.reloads_in_mid_answer,
            38: day.writes_while_the_server_is_away,
        }
        while len(day.seen) < TURNS:
            await plan.get(len(day.seen), day.plain)()
        await day.reloads()
        own = page.url.partition("#")[2]
        assert await day.looks_through_the_list() == {f"#/s/{one}" for one in others} | {f"#{own}"}
        assert house.complaints == []
