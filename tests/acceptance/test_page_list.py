"""The list of many sessions: complete, whatever answer or event comes first."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from everturn.domain.sessions import SessionPatch
from everturn.store import open_store
from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, open_house

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
COUNT = 351
PINNED = (60, 340)  # one is on the first page of the list, one is far down


async def many_sessions(data_dir: Path, count: int) -> list[str]:
    """Newest first."""
    async with open_store(None, data_dir=data_dir) as store:
        made = [
            (await store.sessions.create("local", title=f"Session {number}")).id for number in range(count)
        ]
        made.reverse()
        for number in PINNED:
            if number >= count:
                continue
            await store.sessions.change("local", made[number], SessionPatch(pinned=True))
    return made


async def listed(page: Page) -> set[str]:
    """Every session that the sidebar shows, from its top to its end."""
    seen: set[str] = set()
    await page.locator(".side .list").evaluate("(list) => { list.scrollTop = 0; }")
    with within("the list ends", PATIENCE_S):
        while True:
            seen |= set(
                await page.locator(".side .row").evaluate_all(
                    "(rows) => rows.map((row) => row.getAttribute('href'))"
                )
            )
            if len(seen) >= COUNT:
                return seen
            await page.locator(".side .list").evaluate("(list) => { list.scrollTop += 400; }")
            await page.wait_for_timeout(30)


@pytest.mark.parametrize("held", [r"/api/sessions/ses_\w+$", r"/api/sessions\?limit"])
async def test_no_session_is_lost_whichever_answer_comes_last(data_dir: Path, held: str) -> None:
    made = await many_sessions(data_dir, COUNT)
    async with open_house(data_dir) as house:
        context = await house.context()
        page = await context.new_page()
        may_go = anyio.Event()

        async def hold(route: Route) -> None:
            await may_go.wait()
            await route.continue_()

        await page.route(re.compile(held), hold)
        await page.goto(f"{house.url}#/s/{made[200]}")
        await expect(page.locator(".side .row").first).to_be_visible()
        if "limit" not in held:
            await expect(page.locator(".side .row", has_text="Session 290")).to_be_visible()
        async with page.expect_response(re.compile(held)):
            may_go.set()
        assert await listed(page) == {f"#/s/{one}" for one in made}
        await page.locator(".side .list").evaluate("(list) => { list.scrollTop = 0; }")
        await expect(page.locator(".side .grp").first).to_have_text("Pinned")
        pinned = [
            page.locator(".side .row", has_text=f"Session {COUNT - 1 - number}").first for number in PINNED
        ]
        for row in pinned:
            await expect(row).to_be_in_viewport()
        assert house.complaints == []
