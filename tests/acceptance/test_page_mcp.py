"""MCP servers on the page: added, tested, trusted, signed in to, and asked about in a session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.paging import House, Tool, open_house, say
from tests.mcp_service import serve_mcp
from tests.waiting import until

pytestmark = pytest.mark.anyio
MCP_EXAMPLE = Path(__file__).parents[1] / "unit/tools/mcp_example.py"


async def test_what_an_mcp_server_says_is_read_and_accepted_in_the_settings(data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "config.toml").write_text(
        f'[mcp.sums]\ncommand = "{sys.executable}"\nargs = ["{MCP_EXAMPLE}"]\n'
        f'read = ["{MCP_EXAMPLE.parent}", "{sys.prefix}", "{sys.base_prefix}"]\n'
    )
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(f"{house.url}#/settings/mcp")
        await page.get_by_role("button", name="Test").click()
        await expect(page.locator(".said .cmd")).to_contain_text("Add two numbers.")
        accept = page.get_by_role("button", name="Accept and use these tools")
        if await accept.is_disabled():
            await page.get_by_role("button", name="Go to the end").click()
        await accept.click()
        await expect(page.locator(".said")).to_have_count(0)
        server = (await house.api("GET", "api/mcp"))["servers"][0]
        assert server["untrusted"] == []
        assert "sums" in str(server["tools"])
        await page.get_by_label("May the agent call add?").select_option("allow")

        async def is_allowed() -> bool:
            rules = (await house.api("GET", "api/policy"))["rules"]
            return [rule["tool"] for rule in rules] == ["sums__add"]

        await until("the tool is allowed", is_allowed)
        assert house.complaints == []


async def test_a_server_is_added_changed_and_removed(data_dir: Path) -> None:
    with serve_mcp() as service:
        async with open_house(data_dir) as house:
            page = await house.open()
            await page.goto(f"{house.url}#/settings/mcp")
            await page.get_by_role("button", name="Add").click()
            await page.get_by_label("Name").fill("shelf")
            await page.get_by_label("Address or command").fill(service.url)
            await page.get_by_role("button", name="Save and test").click()
            await expect(page.locator(".it")).to_contain_text("7 new tools to trust")
            await expect(page.get_by_role("tab", name="Prompts 1")).to_be_visible()
            await page.get_by_role("switch", name="shelf").click()
            await expect(page.locator(".it")).to_contain_text("Off")
            await page.get_by_role("button", name="Remove").click()
            await page.locator(".sure").get_by_role("button", name="Remove").click()
            await expect(page.locator(".ls")).to_contain_text("No MCP servers yet.")
            assert (await house.api("GET", "api/mcp"))["servers"] == []
            assert house.complaints == []


async def test_the_user_signs_in_in_another_tab(data_dir: Path) -> None:
    with serve_mcp(has_sign_in=True) as service:
        async with open_house(data_dir) as house:
            page = await house.open()
            await house.api("POST", "api/mcp", json={"name": "shelf", "url": service.url})
            await page.goto(f"{house.url}#/settings/mcp")
            await page.get_by_role("button", name="Test").click()
            await expect(page.locator(".it")).to_contain_text("Sign-in needed")
            await _sign_in(page)
            await page.get_by_role("button", name="Test").click()
            await expect(page.locator(".meta")).to_contain_text("signed in")
            await expect(page.locator(".it")).to_contain_text("7 new tools to trust")
            assert len(service.oauth.access) == 1


async def test_an_answer_waits_for_the_sign_in_and_goes_on_after_it(data_dir: Path) -> None:
    with serve_mcp(has_sign_in=True) as service:
        async with open_house(data_dir) as house:
            house.provider.on("Put Emma", [Tool("shelf__put", {"book": "Emma"})], ["It is there."])
            house.provider.on("Show me", [Tool("shelf__picture", {})], ["A shelf."])
            page = await house.open()
            await _trust_shelf(house, page, service.url)
            service.oauth.end_all()
            await page.goto(f"{house.url}#/")
            await say(page, "Put Emma on the shelf")
            await expect(page.locator(".card.wait")).to_contain_text("shelf wants you to sign in")
            assert service.effects == []
            await page.locator(".card.wait").get_by_role("link", name="Sign in").click()
            await _sign_in(page)
            await page.go_back()
            await expect(page.locator("body")).to_contain_text("It is there.")
            assert service.effects == ["Emma"]
            await say(page, "Show me the shelf")
            await page.get_by_role("button", name="Allow once").click()  # it holds text from outside by now
            await expect(page.locator(".pictures img")).to_have_js_property("naturalWidth", 1)
            assert house.complaints == []


async def test_an_answer_that_waits_for_the_sign_in_goes_on_without_it(data_dir: Path) -> None:
    with serve_mcp(has_sign_in=True) as service:
        async with open_house(data_dir) as house:
            house.provider.on("Put Emma", [Tool("shelf__put", {"book": "Emma"})], ["It is not there."])
            page = await house.open()
            await _trust_shelf(house, page, service.url)
            service.oauth.end_all()
            await page.goto(f"{house.url}#/")
            await say(page, "Put Emma on the shelf")
            await page.locator(".card.wait").get_by_role("link", name="Sign in").click()
            await page.locator(".sign").get_by_role("button", name="Go on without it").click()
            await page.go_back()
            await expect(page.locator("body")).to_contain_text("It is not there.")
            assert service.effects == []
            assert house.complaints == []


async def _trust_shelf(house: House, page: Page, url: str) -> None:
    """Add the server, sign in, and allow two of its tools."""
    await house.api("POST", "api/mcp", json={"name": "shelf", "url": url})
    await page.goto(f"{house.url}#/settings/mcp")
    await page.get_by_role("button", name="Test").click()
    await _sign_in(page)
    await page.get_by_role("button", name="Test").click()
    await page.get_by_role("button", name="Go to the end").click()
    await page.get_by_role("button", name="Accept and use these tools").click()
    for tool in ("put", "picture"):
        await page.get_by_label(f"May the agent call {tool}?").select_option("allow")


async def _sign_in(page: Page) -> None:
    async with page.expect_popup() as opened:
        await page.get_by_role("button", name="Sign in").click()
    tab = await opened.value
    await expect(tab.locator("h1")).to_have_text("Signed in")
    await tab.close()
