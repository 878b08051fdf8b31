"""Tags, folders and many sessions at once on the page; usage over time; the audit log; an answer read aloud."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from everturn.domain.sessions import SessionPatch
from everturn.domain.turns import Usage
from everturn.store import open_store
from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, open_house, say
from tests.acceptance.seeding import many_sessions

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
COUNT = 400
OWNER = "local"


async def tag(data_dir: Path, *sessions: str) -> None:
    async with open_store(data_dir=data_dir) as store:
        for session in sessions:
            await store.sessions.change(OWNER, session, SessionPatch(tags=("garden",)))


async def choose(page: Page, name: str | re.Pattern[str]) -> None:
    await page.get_by_role("button", name="Filter or select sessions").click()
    await page.get_by_role("menuitem", name=name).click()


async def test_a_tag_shows_its_sessions_wherever_they_are_in_the_list(data_dir: Path) -> None:
    made = await many_sessions(data_dir, COUNT)
    await tag(data_dir, made[2], made[399])
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.goto(house.url)
        await expect(page.locator(".side .row").first).to_be_visible()
        await choose(page, re.compile("garden"))
        await expect(page.locator(".side .row")).to_have_count(2)
        await expect(page.locator(".side .narrowed")).to_contain_text("Tagged garden")
        assert await serious(page) == []
        await page.get_by_role("button", name="Show all sessions").click()
        await expect(page.locator(".side .row").nth(5)).to_be_visible()
        assert house.complaints == []


async def test_the_search_finds_tags_and_titles_that_the_list_has_not_read(data_dir: Path) -> None:
    made = await many_sessions(data_dir, COUNT)
    async with open_store(data_dir=data_dir) as store:
        await store.sessions.change(OWNER, made[0], SessionPatch(title="Zeppelin hangar", tags=("garden",)))
        await store.sessions.change(OWNER, made[1], SessionPatch(title="Zeppelin moored", archived=True))
        for at in range(2, 2 + 60):  # the first page of the list shows newer ones
            await store.sessions.change(OWNER, made[COUNT - at], SessionPatch(pinned=False, tags=("newer",)))
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.goto(house.url)
        await expect(page.locator(".side .row").first).to_be_visible()
        await page.get_by_role("button", name="Search").first.click()
        field = page.get_by_role("combobox", name="Search and commands")
        await field.fill("zeppel")
        await expect(page.locator(".pal .pr", has_text="Zeppelin hangar")).to_be_visible()
        await expect(page.locator(".pal .pr", has_text="Zeppelin moored")).to_be_visible()
        await field.fill("garden")
        await expect(page.locator(".pal .pr", has_text="#garden")).to_have_count(1)
        assert await serious(page) == []
        await page.locator(".pal .pr", has_text="Zeppelin hangar").click()
        await expect(page.locator(".bar h1")).to_contain_text("Zeppelin hangar")
        assert house.complaints == []


async def test_the_archive_says_that_it_is_one_and_shows_all_of_it(data_dir: Path) -> None:
    made = await many_sessions(data_dir, COUNT)
    async with open_store(data_dir=data_dir) as store:
        for session in made[:250]:
            await store.sessions.change(OWNER, session, SessionPatch(archived=True))
        await store.sessions.change(OWNER, made[0], SessionPatch(title="The very oldest", archived=True))
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.goto(house.url)
        await page.get_by_role("button", name="Show archived").click()
        await expect(page.locator(".side .narrowed")).to_contain_text("Archive")
        listed = page.locator(".side .list")
        await expect(page.locator(".side .row").first).to_be_visible()
        for _ in range(3):  # each end of what was read brings the next page
            await listed.evaluate("list => list.scrollTo(0, list.scrollHeight)")
            await expect(page.locator(".side .row").last).to_be_visible()
        await expect(listed.locator(".inner")).to_have_attribute("style", re.compile(r"height: 8\d{3}px"))
        await page.get_by_role("button", name="Leave the archive").click()
        await expect(page.locator(".side .narrowed")).to_have_count(0)
        assert house.complaints == []


async def test_several_sessions_are_tagged_archived_exported_deleted_and_brought_back(
    data_dir: Path, tmp_path: Path
) -> None:
    await many_sessions(data_dir, 6)
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.goto(house.url)
        rows = page.locator(".side .row")
        await expect(rows).to_have_count(6)

        async def select(first: int, last: int) -> None:
            await choose(page, "Select several")
            await rows.nth(first).click()
            await rows.nth(last).click(modifiers=["Shift"])
            await expect(page.get_by_text("3 selected")).to_be_visible()

        bar = page.get_by_role("toolbar", name="Selected sessions")
        await select(0, 2)
        await expect(rows.nth(1)).to_have_attribute("aria-checked", "true")
        assert await serious(page) == []
        await bar.get_by_role("button", name="Tag").click()
        await page.get_by_placeholder("Tag to add").fill("garden")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("3 sessions tagged garden")).to_be_visible()
        labels = await house.api("GET", "api/labels")
        assert labels["tags"] == [{"name": "garden", "sessions": 3}]

        await select(0, 2)
        await bar.get_by_role("button", name="Export").click()
        async with page.expect_download() as download:
            await page.get_by_role("menuitem", name="Markdown").click()
        await (await download.value).save_as(tmp_path / "sessions.zip")
        with zipfile.ZipFile(tmp_path / "sessions.zip") as file:
            assert len(file.namelist()) == 3
        await bar.get_by_role("button", name="Archive").click()
        await expect(rows).to_have_count(3)
        await (
            page.locator(".toast", has_text="3 sessions archived").get_by_role("button", name="Undo").click()
        )
        await expect(rows).to_have_count(6)

        await select(3, 5)
        await bar.get_by_role("button", name="Delete").click()
        await expect(rows).to_have_count(3)
        await page.locator(".toast", has_text="3 sessions deleted").get_by_role("button", name="Undo").click()
        await expect(rows).to_have_count(6)
        assert len((await house.api("GET", "api/sessions"))["items"]) == 6
        assert house.complaints == []


async def test_usage_is_drawn_by_day_and_downloaded(data_dir: Path, tmp_path: Path) -> None:
    async with open_store(data_dir=data_dir) as store:
        await store.ledger.spend(OWNER, "memory", "=cmd:m", Usage(input_tokens=700, output_tokens=20))
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.goto(f"{house.url}#/settings/usage")
        await expect(page.locator(".chart .oneday")).to_have_count(30)
        await expect(page.locator(".ends")).to_contain_text(re.compile(r"\d+ [A-Z][a-z]{2} \d{4}"))
        await page.get_by_label("Period").select_option("7")
        await expect(page.locator(".chart .oneday")).to_have_count(7)
        assert await serious(page) == []
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download CSV").click()
        await (await download.value).save_as(tmp_path / "usage.csv")
        head, *lines = (tmp_path / "usage.csv").read_text().split("\n")
        assert head.strip() == "day,model,answers,input_tokens,cached_tokens,output_tokens,cost_usd"
        assert any(",'=cmd:m," in line for line in lines), "no spreadsheet runs it"
        assert house.complaints == []


async def test_the_audit_log_is_shown_and_filtered(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        await house.api("POST", "api/tokens", json={"label": "for the phone"})
        page = await (await house.context()).new_page()
        await page.goto(f"{house.url}#/settings/audit")
        await expect(page.get_by_text("Token created")).to_be_visible()
        await page.get_by_label("Filter").fill("nothing like it")
        await expect(page.get_by_text("Nothing matches.")).to_be_visible()
        await page.get_by_label("Filter").fill("TOKEN CREATED")
        await expect(page.get_by_text("Token created")).to_be_visible()
        await page.get_by_label("Filter").fill("token.created")
        await expect(page.get_by_text("Token created")).to_be_visible()
        assert await serious(page) == []
        assert house.complaints == []


async def test_an_answer_is_read_aloud_and_stopped(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        context = await house.context()
        # No voice is installed here: what the page gives to the browser to say is kept instead.
        await context.add_init_script(
            """(() => {
                window.said = [];
                const synthesis = { speak: (one) => window.said.push(one.text), cancel: () => window.said.push("(stop)") };
                Object.defineProperty(window, "speechSynthesis", { value: synthesis });
            })()"""
        )
        page = await context.new_page()
        await page.goto(house.url)
        await say(page, "hello")
        await page.get_by_role("button", name="Read aloud").click()
        assert await page.evaluate("window.said.length") >= 1
        await page.get_by_role("button", name="Stop reading").click()
        await expect(page.get_by_role("button", name="Read aloud")).to_be_visible()
        assert await page.evaluate("window.said.at(-1)") == "(stop)"
        assert house.complaints == []
