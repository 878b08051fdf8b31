"""Talking to the agent in a real browser, against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.paging import PAGE, Gate, Hang, Think, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]


async def test_a_message_is_saved_then_answered_and_still_there_after_a_reload(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("disks", [Think("Look at both."), "Both disks are **healthy**.\n\n- tank\n- vault\n"])
        page = await house.open()
        await say(page, "How are the disks?")
        await expect(page.locator(".you .say")).to_have_text("How are the disks?")
        await expect(page.locator(".you .st")).to_contain_text("Saved")
        await expect(page.locator(".md strong")).to_have_text("healthy")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        before = await page.locator("article").inner_text()
        await page.reload()
        await expect(page.locator(".md li")).to_have_count(2)
        assert await page.locator("article").inner_text() == before
        assert house.complaints == []
        assert house.elsewhere == []
