"""What a person in front of the page sees."""

from __future__ import annotations

import anyio
from playwright.async_api import Page

from everturn.testing import within
from tests.acceptance.paging import PATIENCE_S

FRAMES_S = 60.0  # many more than a busy machine needs for a few frames

# How far the end of the newest turn is below what can be seen, and whether the page follows it.
END = """() => {
    const roll = document.querySelector(".roll"), box = document.querySelector(".turnbox.last");
    const seen = roll.getBoundingClientRect().bottom - Math.round(box?.getBoundingClientRect().bottom ?? 1e6);
    return { below: Math.max(0, -seen), follows: !document.querySelector(".pill") };
}"""


async def is_followed(page: Page) -> bool:
    """The end of the newest turn comes into view by itself: nothing has to happen for that but frames."""
    # Asked again and again from here: the page's policy lets nothing be evaluated inside it later.
    with anyio.move_on_after(FRAMES_S):
        while True:
            end = await page.evaluate(END)
            if end["follows"] and not end["below"]:
                return True
            await page.wait_for_timeout(50)
    return False


async def at_rest(page: Page) -> float:
    """Where the conversation is scrolled to, once it has come to rest."""
    return await page.evaluate(
        """async () => {
            const roll = document.querySelector(".roll");
            const rest = () => new Promise((done) => setTimeout(done, 300));
            for (let before = -1; before !== roll.scrollTop; await rest()) before = roll.scrollTop;
            return roll.scrollTop;
        }"""
    )


async def listed(page: Page, count: int) -> set[str]:
    """The addresses of so many sessions, as the sidebar shows them from its top to its end."""
    seen: set[str] = set()
    await page.locator(".side .list").evaluate("(list) => { list.scrollTop = 0; }")
    with within("the list ends", PATIENCE_S):
        while True:
            seen |= set(
                await page.locator(".side .row").evaluate_all(
                    "(rows) => rows.map((row) => row.getAttribute('href'))"
                )
            )
            if len(seen) >= count:
                return seen
            await page.locator(".side .list").evaluate("(list) => { list.scrollTop += 400; }")
            await page.wait_for_timeout(30)
