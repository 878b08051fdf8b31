"""Delegates in a real browser: watched, allowed, taken over, tried again, and left for their own session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, Gate, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]


def task(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "instructions": f"{name} please", **more}


def write(path: str, content: str) -> Tool:
    return Tool("write_file", {"path": path, "content": content})


async def test_delegates_are_watched_allowed_applied_and_folded(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        held = Gate()
        provider = house.provider
        tasks = [task("lists"), task("script"), task("index", model="openai:gone-model"), task("space")]
        provider.on(
            "share the work", [write("a.txt", "one\n"), Tool("delegate", {"tasks": tasks})], ["All in."]
        )
        provider.on("lists please", [write("a.txt", "two\n"), write("b.txt", "new\n")], ["Two files made."])
        provider.on("script please", [Tool("terminal", {"command": "rm -rf old"})], ["Script done."])
        provider.on("space please", [held, "There is room."])
        provider.models.append("gone-model")
        provider.refusals["gone-model"] = (400, {"error": {"message": "No such model."}})
        page = await house.open()
        await say(page, "share the work")
        card = page.locator("[data-delegates]")
        await expect(card).to_contain_text("1 finished, 1 working, 1 waiting for you, 1 failed")
        await expect(card.locator("[data-state=failed]")).to_contain_text("No such model.")
        await expect(page.locator(".side .row")).to_have_count(1)  # delegates are not listed
        assert await serious(page) == []

        # The key answers the first one that asks.
        await expect(card.locator("[data-ask]")).to_contain_text("rm -rf old")
        await page.locator("[role=log]").focus()
        await page.keyboard.press("y")
        await expect(card.locator("[data-state=finished]")).to_have_count(2)

        # The picture has a row for each; a click opens it, and its bar leads back.
        await page.keyboard.press("Control+.")
        await expect(page.locator(".wf .r", has_text="space")).to_be_visible()
        await card.locator("[data-delegate] a", has_text="space").click()
        await expect(page.locator(".bar .chip", has_text="Delegate of")).to_be_visible()
        assert await serious(page) == []
        await page.get_by_role("link", name=re.compile("Back to")).first.click()

        # What was changed here meanwhile is not overwritten without a word.
        session = (await house.api("GET", "api/sessions"))["items"][0]["id"]
        workspace = data_dir / "workspaces" / session
        (workspace / "a.txt").write_text("mine\n")
        made = card.locator("[data-delegate]", has_text="Two files made.")
        await made.get_by_role("button", name="Apply 2 files").click()
        await expect(made).to_contain_text("1 file was changed here meanwhile")
        await expect(made.get_by_role("button", name="Apply 1 file")).to_be_visible()  # ours is kept
        await made.get_by_role("radio", name="Keep both").click()
        await made.get_by_role("button", name="Apply 2 files").click()
        await expect(made).to_contain_text("Changes applied")
        assert (workspace / "b.txt").read_text() == "new\n"
        assert sorted(path.read_text() for path in workspace.glob("a*.txt")) == ["mine\n", "two\n"]

        held.opened.set()
        await expect(page.locator(".turn")).to_contain_text("All in.")
        await card.get_by_role("button", name=re.compile("^4 delegates, ")).click()
        await expect(page.get_by_role("button", name=re.compile("^4 delegates, "))).to_be_visible()
        await page.reload()
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator(".say", has_text="“index” failed")).to_be_visible()
        assert house.complaints == []


async def test_a_delegate_s_budget_is_raised_and_its_files_are_discarded(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        provider = house.provider
        tasks = [task("poor", budget_tokens=500), task("made")]
        provider.on("hand it on", [Tool("delegate", {"tasks": tasks})], ["All in."])
        provider.on("poor please", ["It was enough."])
        provider.on("made please", [write("b.txt", "new\n")], ["One file made."])
        page = await house.open()
        await say(page, "hand it on")
        row = page.locator("[data-delegate]", has_text="poor")
        await expect(row).to_contain_text("does not cover the next model call")

        # In Needs you the name of its session is not cut to a few letters, however long the question is.
        await page.locator(".side .navrow", has_text="Needs you").click()
        place = page.locator(".need .o")
        await expect(place).to_contain_text("delegate poor")
        assert await place.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth")
        await page.go_back()

        raising = row.get_by_role("button", name="Raise")
        await expect(raising).to_have_text(re.compile("^Raise"))
        await raising.click()
        await expect(row).to_contain_text("It was enough.")
        made = page.locator("[data-delegate]", has_text="One file made.")
        await made.get_by_role("button", name="Discard").click()
        await page.get_by_role(
            "button", name=re.compile("^2 delegates, ")
        ).click()  # nothing is left to decide
        await expect(made).to_contain_text("Changes discarded")

        # The whole of it can be read, although there is room for two words only.
        await house.kill()
        says = page.locator(".side .foot .says")
        await expect(says).to_have_text("Server unreachable")
        assert await says.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth")
        assert house.complaints == []
