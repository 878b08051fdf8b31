"""What a person in front of the page sees."""

from __future__ import annotations

from playwright.async_api import Error, Page

from everturn.testing import within
from tests.acceptance.paging import PATIENCE_S

# How far the end of the newest turn is below what can be seen, and whether the page follows it.
END = """() => {
    const roll = document.querySelector(".roll"), box = document.querySelector(".turnbox.last");
    const seen = roll.getBoundingClientRect().bottom - Math.round(box?.getBoundingClientRect().bottom ?? 1e6);
    return { below: Math.max(0, -seen), follows: !document.querySelector(".pill") };
}"""


async def is_followed(page: Page) -> bool:
    """The end of the newest turn comes into view; nothing has to happen for that but frames."""
    try:
        await page.wait_for_function(f"({END})().below === 0 && ({END})().follows", timeout=10_000)
    except Error:
        return False
    return True


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
