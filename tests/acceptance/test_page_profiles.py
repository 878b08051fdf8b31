"""Profiles on the page: made, tried before they are saved, changed, shared as a file, removed; instructions; and
parameters for one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import FilePayload, Page, ViewportSize, expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import House, Tool, open_house, say
from tests.waiting import until

pytestmark = pytest.mark.anyio
NARROW: ViewportSize = {"width": 390, "height": 844}
WRITER = {"name": "writer", "prompt": "You write.", "tools": ["read_file"], "skills": []}


async def fits(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def system_of(request: dict[str, Any]) -> str:
    return str([one["content"] for one in request["messages"] if one["role"] == "system"])


async def profiles_page(house: House) -> Page:
    page = await house.open()
    await page.goto(f"{house.url}#/settings/profiles")
    await expect(page.get_by_role("heading", name="Profiles", exact=True)).to_be_visible()
    return page


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_profile_is_tried_before_it_is_saved_then_used(data_dir: Path, width: int) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("Greet me", ["Ave!"])
        page = await profiles_page(house)
        await page.set_viewport_size({"width": width, "height": 844})
        await page.get_by_role("button", name="New", exact=True).click()
        await page.get_by_label("Name", exact=False).first.fill("roman")
        await page.get_by_label("Prompt", exact=True).fill("You are a Roman.")
        await page.get_by_role("spinbutton", name="Temperature").fill("0.5")
        await page.get_by_role("switch", name="Memory").click()
        await page.get_by_label("A message to try it with").fill("Greet me")
        await page.get_by_role("button", name="Try", exact=True).click()
        await expect(page.get_by_role("log")).to_contain_text("Ave!")
        tried = house.provider.asked[-1]
        assert "You are a Roman." in system_of(tried)
        assert tried["temperature"] == 0.5
        assert (await house.api("GET", "api/sessions"))["items"] == [], "no list shows a trial"
        assert [one["name"] for one in (await house.api("GET", "api/profiles"))["profiles"]] == [
            "default",
            "pocket",
            "guest",
        ], "nothing is saved yet"
        assert await fits(page)
        assert await serious(page) == []
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_role("heading", name="roman", exact=True)).to_be_visible()
        saved = await house.api("GET", "api/profiles/roman")
        assert (saved["settings"]["temperature"], saved["memory"]) == (0.5, False)
        assert await fits(page)
        assert await serious(page) == []
        session = await house.api("POST", "api/sessions", json={"profile": "roman"})
        await page.goto(f"{house.url}#/s/{session['id']}")
        await say(page, "Greet me")
        await expect(page.locator("body")).to_contain_text("Ave!")
        asked = [one for one in house.provider.asked if "Write a title" not in system_of(one)]
        assert "You are a Roman." in system_of(asked[-1])
        assert len(asked) == 2
        assert house.complaints == []


async def test_a_call_of_a_trial_asks_as_usual(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "Write it",
            [Tool("write_file", {"path": "/etc/everturn-trial", "content": "x"})],
            ["Not written."],
        )
        house.provider.on("Run it", [Tool("terminal", {"command": "curl https://example.com"})], ["Not run."])
        page = await profiles_page(house)
        await page.get_by_role("button", name="New", exact=True).click()
        await page.get_by_label("Name", exact=False).first.fill("open")
        await page.get_by_label("Prompt", exact=True).fill("You run things.")
        await page.get_by_role("switch", name="Sandbox").click()
        await page.get_by_label("A message to try it with").fill("Run it")
        await page.get_by_role("button", name="Try", exact=True).click()
        await page.get_by_role("button", name="Deny").click()
        await expect(page.get_by_role("log")).to_contain_text("Not run.")
        await page.get_by_role("button", name="Discard").click()
        await expect(page.get_by_role("log")).to_have_count(0)


async def test_a_profile_is_changed_and_removed_and_its_sessions_say_so(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("Hello", ["Hi."])
        page = await profiles_page(house)
        await house.api("POST", "api/profiles", json=WRITER)
        session = await house.api("POST", "api/sessions", json={"profile": "writer"})
        await page.reload()
        await page.locator(".it").filter(has_text="writer").get_by_role("button").click()
        await expect(page.locator(".dt")).to_contain_text("One session uses it.")
        await page.get_by_role("button", name="Edit").click()
        await page.get_by_label("Prompt", exact=True).fill("You write well.")
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.locator(".prompt")).to_have_text("You write well.")
        await page.get_by_role("button", name="Remove").click()
        await expect(page.locator(".sure")).to_contain_text("do")
        await page.locator(".sure").get_by_role("button", name="Remove").click()
        await expect(page.locator(".it").filter(has_text="writer")).to_have_count(0)
        await page.goto(f"{house.url}#/s/{session['id']}")
        await say(page, "Hello")
        await expect(page.locator("body")).to_contain_text("There is no profile 'writer'")
        assert house.provider.asked == []


async def test_built_in_profiles_are_only_read_and_copied(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await profiles_page(house)
        await page.locator(".it").filter(has_text="pocket").get_by_role("button").click()
        await expect(page.locator(".dt")).to_contain_text("Built in.")
        await expect(page.locator(".dt").get_by_role("button", name="Edit")).to_have_count(0)
        await page.locator(".dt").get_by_role("button", name="Copy").click()
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_role("heading", name="pocket-copy")).to_be_visible()
        assert (await house.api("GET", "api/profiles/pocket-copy"))["tools"] == []


async def test_an_imported_profile_shows_all_of_itself_before_it_is_taken(data_dir: Path) -> None:
    file = (
        b'[profiles.eager]\nprompt = "You are eager."\ntools = ["read_file"]\nsandbox = false\n'
        b'network = true\nhosts = ["example.com"]\n'
    )
    async with open_house(data_dir) as house:
        page = await profiles_page(house)
        await page.get_by_role("button", name="Import").click()
        field = page.locator("input[type=file][accept*=toml]")
        eager: FilePayload = {"name": "e.toml", "mimeType": "text/plain", "buffer": file}
        await field.set_input_files(eager)
        shown = page.locator(".imp")
        await expect(shown).to_contain_text("You are eager.")
        await expect(shown).to_contain_text("Commands on the machine itself, without the sandbox")
        await expect(shown).to_contain_text("These hosts without asking: example.com")
        assert len((await house.api("GET", "api/profiles"))["profiles"]) == 3, "nothing is taken yet"
        await page.set_viewport_size(NARROW)
        assert await fits(page)
        await page.locator(".imp").get_by_role("button", name="Import").click()
        await expect(page.get_by_role("heading", name="eager", exact=True)).to_be_visible()
        async with page.expect_download() as downloading:
            await page.get_by_role("link", name="Export").click()
        download = await downloading.value
        assert download.suggested_filename == "eager.profile.toml"
        evil: FilePayload = {
            "name": "x.toml",
            "mimeType": "text/plain",
            "buffer": b'[mcp.x]\ncommand = "sh"\n',
        }
        await page.locator(".dt").get_by_role("button", name="Back").click()
        await page.get_by_role("button", name="Import").click()
        await page.locator("input[type=file][accept*=toml]").set_input_files(evil)
        await expect(shown).to_contain_text("This is not a profile.")


@pytest.mark.parametrize("width", [1280, 390])
async def test_instructions_reach_the_model_and_stay(data_dir: Path, width: int) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("Hello", ["Salve."])
        page = await house.open()
        await page.set_viewport_size({"width": width, "height": 844})
        await page.goto(f"{house.url}#/settings/instructions")
        await page.get_by_role("textbox", name="Instructions").fill("Answer in Latin.")
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
        assert await fits(page)
        assert await serious(page) == []
        await page.goto(f"{house.url}#/")
        await say(page, "Hello")
        await expect(page.locator("body")).to_contain_text("Salve.")
        assert "Answer in Latin." in system_of(house.provider.asked[0])
        await page.goto(f"{house.url}#/settings/instructions")
        await expect(page.get_by_role("textbox", name="Instructions")).to_have_value("Answer in Latin.")
        assert house.complaints == []


async def test_parameters_for_one_message_leave_the_session_as_it_is(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("First", ["One."])
        house.provider.on("Second", ["Two."])
        page = await house.open()
        await page.locator(".comp .pick").click()
        await page.get_by_label("For the next message only").check()
        await page.get_by_role("button", name="Parameters").click()
        await page.get_by_role("slider", name="Temperature").fill("4")
        await page.keyboard.press("Escape")
        await say(page, "First")
        await expect(page.locator("body")).to_contain_text("One.")
        assert house.provider.asked[0]["temperature"] == 0.3
        (session,) = (await house.api("GET", "api/sessions"))["items"]
        assert session.get("parameters") is None
        await say(page, "Second")
        await expect(page.locator("body")).to_contain_text("Two.")

        async def has_both() -> bool:
            return any("Second" in str(one["messages"]) for one in house.provider.asked)

        await until("the second message was sent", has_both)
        second = next(one for one in house.provider.asked if "Second" in str(one["messages"]))
        assert "temperature" not in second
        assert house.complaints == []
