"""The list of many sessions: complete, whatever answer or event comes first."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Route, expect

from tests.acceptance.looking import listed
from tests.acceptance.paging import PAGE, open_house
from tests.acceptance.seeding import many_sessions

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
COUNT = 351
PINNED = (60, 340)  # one is on the first page of the list, one is far down


@pytest.mark.parametrize("held", [r"/api/sessions/ses_\w+$", r"/api/sessions\?limit"])
async def test_no_session_is_lost_whichever_answer_comes_last(data_dir: Path, held: str) -> None:
    made = await many_sessions(data_dir, COUNT, PINNED)
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
        assert await listed(page, COUNT) == {f"#/s/{one}" for one in made}
        await page.locator(".side .list").evaluate("(list) => { list.scrollTop = 0; }")
        await expect(page.locator(".side .grp").first).to_have_text("Pinned")
        pinned = [
            page.locator(".side .row", has_text=f"Session {COUNT - 1 - number}").first for number in PINNED
        ]
        for row in pinned:
            await expect(row).to_be_in_viewport()
        assert house.complaints == []
