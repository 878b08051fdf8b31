"""What a person in front of the page sees."""

from __future__ import annotations

from pathlib import Path

import anyio
from playwright.async_api import Page

from everturn.testing import within
from tests.acceptance.paging import PATIENCE_S

AXE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"
FRAMES_S = 60.0  # many more than a busy machine needs for a few frames

# How far the end of the newest turn is below what can be seen, and whether the page follows it.
END = """() => {
    const roll = document.querySelector(".roll"), box = document.querySelector(".turnbox.last");
    if (!roll || !box) return { below: 1e6, follows: false };  // not drawn yet
    const seen = roll.getBoundingClientRect().bottom - Math.round(box.getBoundingClientRect().bottom);
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


# Half way through its fade a text has too little contrast. What turns for ever is not waited for.
STILL = """() => Promise.all(document.getAnimations()
    .filter((one) => one.effect.getComputedTiming().endTime < Infinity)
    .map((one) => one.finished.then(() => null, () => null)))"""


async def serious(page: Page) -> list[str]:
    """What axe finds that keeps people out."""
    await page.evaluate(AXE.read_text())
    await page.evaluate(STILL)
    found = await page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [
        f"{item['id']}: {node['html'][:160]}"
        for item in found
        if item["impact"] in ("serious", "critical")
        for node in item["nodes"]
    ]
