"""What lies around the conversation, in a real browser: the workspace's files, the user's own server, the
password, and a full disk."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from playwright.async_api import expect

from everturn.domain.clock import SystemClock
from everturn.store import open_store
from everturn.store.files.disk import Disk
from everturn.testing import within
from everturn.testing.faulty_disk import FaultyVfs, Platter
from everturn.testing.forks import run_command
from everturn.testing.web_server import run_web
from everturn.tools.sandbox.landlock import landlock_version
from tests.acceptance.paging import PAGE, PATIENCE_S, Gate, Tool, open_browser, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'


async def test_the_workspace_is_looked_at_and_its_files_are_named_after_an_at(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "write",
            [
                Tool("write_file", {"path": "ops/backup.sh", "content": "restic backup /srv\n"}),
                Tool("write_file", {"path": "house notes.md", "content": "# Notes\n"}),
            ],
            ["Both are written."],
        )
        page = await house.open()
        await say(page, "write two files")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.locator(".bar").get_by_label("Files").click()
        tree = page.get_by_role("treeitem")
        await expect(tree).to_have_count(2)
        await tree.filter(has_text="ops").click()
        await tree.filter(has_text="backup.sh").click()
        await expect(page.locator(".panel .code")).to_contain_text("restic backup /srv")
        await tree.filter(has_text="backup.sh").press("ArrowDown")
        await expect(tree.filter(has_text="house notes.md")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator(".panel .md h1")).to_have_text("Notes")
        composer = page.locator("[data-composer]")
        await composer.press_sequentially("Look at @note")
        await expect(page.locator(".hints .hi")).to_have_count(1)
        await composer.press("Enter")
        await expect(composer).to_have_value('Look at "house notes.md" ')
        await composer.press_sequentially("and @back")
        await expect(page.locator(".hints .hi")).to_contain_text("ops/backup.sh")
        await composer.press("Escape")
        await expect(page.locator(".hints")).to_have_count(0)
        await composer.press("Enter")
        await expect(page.locator(".you .say").last).to_have_text('Look at "house notes.md" and @back')
        assert house.complaints == []


async def test_the_users_own_server_is_tried_before_it_is_stored(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open("#/")
        await page.get_by_label("Settings").click()
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_role("button", name="Your own server").click()
        await page.get_by_label("Address").fill("http://127.0.0.1:9/v1")
        await page.get_by_role("button", name="Test").click()
        await expect(page.locator(".mform [role=alert]")).to_contain_text("The server was not saved.")
        await page.get_by_label("Address").fill(house.provider.url)
        await page.get_by_role("button", name="Test").click()
        await expect(page.locator(".mform .ok")).to_contain_text("Connected")
        await page.get_by_role("button", name="Save and use").click()
        kept = page.locator(".srow", has_text=house.provider.url)
        await expect(kept).to_contain_text("1 model")
        assert (await house.api("GET", "api/settings"))["model"] == "localhost:test-model"
        await kept.get_by_role("button", name="Remove").click()
        await expect(kept).to_have_count(0)
        assert house.complaints == []


async def test_title_model_fallbacks_and_limits_are_chosen_and_given_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        await house.api("PUT", "api/keys/nas", json={"base_url": house.provider.url})
        page = await house.open()
        await page.goto(house.url + "#/settings/models")
        titles = page.get_by_label("Titles and summaries")
        await expect(titles).to_have_value("")
        await titles.select_option("openai:test-model")
        first, second = page.get_by_label("Fallback 1"), page.get_by_label("Fallback 2")
        await first.select_option("nas:test-model")
        await expect(second.locator("option")).to_have_text(["None"])  # nothing is asked twice
        dollars = page.get_by_label("Cost per answer")
        await expect(dollars).to_have_attribute("placeholder", "No limit")
        await dollars.fill("0.5")
        await dollars.press("Enter")
        steps = page.get_by_label("Steps per answer")
        await steps.fill("many")
        await steps.press("Enter")
        await expect(page.locator(".toast")).to_contain_text(
            "Steps per answer must be a whole number above 0."
        )
        await expect(steps).to_have_value("")
        kept = await house.api("GET", "api/settings")
        chosen = (kept["title_model"], kept["fallback_models"], kept["cost_usd_max"], kept["steps_max"])
        assert chosen == ("openai:test-model", ["nas:test-model"], 0.5, None)
        await page.reload()
        await expect(dollars).to_have_value("0.5")
        await expect(first).to_have_value("nas:test-model")
        await first.select_option("")
        await expect(second).to_have_count(0)
        await titles.select_option("")
        await dollars.fill("")
        await dollars.press("Enter")
        await expect(dollars).to_have_value("")
        with within("what was given back is as it was", PATIENCE_S):
            while (kept := await house.api("GET", "api/settings"))["cost_usd_max"] is not None:
                await page.wait_for_timeout(100)
        assert (kept["title_model"], kept["fallback_models"], kept["cost_usd_max"]) == (None, [], None)
        assert house.complaints == []


ELSEWHERE = """() => {
    // The real notifications, kept so that they can be looked at and clicked; and a page that is hidden.
    const Real = window.Notification;
    window.notes = [];
    window.Notification = class extends Real {
        constructor(...given) {
            super(...given);
            window.notes.push(this);
            const count = window.notes.length;
            this.addEventListener("show", () => (document.documentElement.dataset.shown = count));
        }
    };
    Object.defineProperty(document, "visibilityState", { get: () => (window.isAway ? "hidden" : "visible") });
    window.look = (isAway) => {
        window.isAway = isAway;
        document.dispatchEvent(new Event("visibilitychange"));
    };
}"""
NOTES = "() => window.notes.map((note) => [note.title, note.body])"


async def test_a_reader_who_scrolled_away_is_told_and_led_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("slow", ["It takes", gate, " a while."])
        asking = Gate()
        tool = Tool("terminal", {"command": "$TOOL --version"})
        house.provider.on("tool", [asking, tool], ["Done."])
        context = await house.context()
        await context.grant_permissions(["notifications"], origin=house.url)
        page = await house.open("", context)
        await page.evaluate(ELSEWHERE)
        await page.get_by_label("Settings").click()
        await page.get_by_role("link", name="Appearance").click()
        await page.get_by_role("switch", name="Notify me when").click()
        await page.keyboard.press("Escape")
        await say(page, "a slow one")
        await gate.reached.wait()
        await expect(page.locator(".md")).to_contain_text("It takes")
        place = page.url
        await page.locator(".brand").get_by_label("New session").click()
        assert await page.evaluate(NOTES) == []
        await page.evaluate("look(true)")
        gate.opened.set()
        await expect(page.locator("html")).to_have_attribute("data-shown", "1")
        ((who, what),) = await page.evaluate(NOTES)
        # Its title may have come meanwhile.
        assert (who, what in ("a slow one: answer ready", "A short title: answer ready")) == (
            "Everturn",
            True,
        )
        await expect(page).to_have_title(re.compile(r"^\(1\) "))
        await page.evaluate("look(false); notes[0].dispatchEvent(new Event('click'))")
        await expect(page).to_have_url(place)
        await expect(page).to_have_title(re.compile(r"^[^(]"))
        await say(page, "which tool?")
        await asking.reached.wait()
        await page.evaluate("look(true)")
        asking.opened.set()
        await expect(page.locator("html")).to_have_attribute("data-shown", "2")
        assert (await page.evaluate(NOTES))[1][1].endswith(": needs you")
        await page.evaluate("look(false)")
        await page.locator(".card.wait").wait_for()
        assert house.complaints == []


async def test_before_there_is_a_session_an_at_brings_a_file(data_dir: Path, tmp_path: Path) -> None:
    brought = tmp_path / "list.txt"
    brought.write_text("milk")
    async with open_house(data_dir) as house:
        page = await house.open()
        composer = page.locator("[data-composer]")
        await composer.press_sequentially("Look at @")
        await expect(page.locator(".hints .hi")).to_contain_text("Attach a file")
        async with page.expect_file_chooser() as choosing:
            await composer.press("Enter")
        await (await choosing.value).set_files(brought)
        await expect(page.locator(".att")).to_contain_text("list.txt")
        await expect(composer).to_have_value("Look at ")
        await composer.press("Enter")
        await expect(page.locator(DONE)).to_have_count(1)
        assert "milk" in str(house.provider.asked[0])
        assert house.complaints == []


async def test_the_password_is_changed_with_the_old_one(data_dir: Path) -> None:
    environ = dict(os.environ) | {"EVERTURN_HOME": str(data_dir)}
    await anyio.to_thread.run_sync(
        lambda: run_command("password", environ=environ, stdin="correct horse\n" * 2, timeout_s=PATIENCE_S)
    )
    async with open_house(data_dir) as house:
        page = await house.open()
        other = await house.open()
        for tab in (page, other):
            await tab.fill(".dialog input", "correct horse")
            await tab.press(".dialog input", "Enter")
            await expect(tab.locator(".dialog")).to_have_count(0)
        await page.goto(house.url + "#/settings/access")
        await page.get_by_role("button", name="Change password").click()
        await page.get_by_label("Current password").fill("not this one")
        await page.get_by_label("New password").fill("battery staple")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".sform [role=alert]")).to_be_visible()
        await page.get_by_label("Current password").fill("correct horse")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".toast")).to_contain_text("Password changed")
        await page.reload()
        await expect(page.locator(".pane h2")).to_have_text("Password and tokens")
        await expect(page.locator(".dialog")).to_have_count(0)
        await other.reload()
        await expect(other.locator(".dialog h2")).to_have_text("Sign in")
        assert house.complaints == []


@pytest.fixture
def platter(data_dir: Path) -> Platter:
    return Platter(data_dir)


@pytest.fixture
def vfs(platter: Platter) -> Iterator[FaultyVfs]:
    vfs = FaultyVfs(platter)
    yield vfs
    vfs.unregister()


async def test_a_full_disk_is_shown_in_the_sidebar_and_nothing_typed_is_lost(
    platter: Platter, vfs: FaultyVfs, tmp_path: Path
) -> None:
    async with (
        open_store(data_dir=platter.root, disk=Disk(vfs.name)) as store,
        run_web(store, tmp_path, clock=SystemClock(), settings={"page": PAGE.parent}) as server,
        open_browser() as browser,
    ):
        page = await browser.new_page(viewport={"width": 1280, "height": 860})
        await page.goto(server.url)
        foot = page.locator(".side .foot")
        await expect(foot).to_contain_text("All saved")
        platter.fail("write", errno.ENOSPC)
        await say(page, "written to a full disk")
        await expect(foot).to_contain_text("Not saving: disk full")
        await expect(foot.locator(".bad")).to_have_attribute("title", re.compile("disk is full"))
        platter.heal()
        await expect(foot).to_contain_text("All saved")
        await expect(page.locator(".you .say")).to_have_text("written to a full disk")


async def test_usage_is_drawn_model_by_model(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.goto(house.url + "#/settings/usage")
        await expect(page.locator(".chart .oneday i.written").last).to_be_visible()
        await expect(page.locator(".srow", has_text="Total")).to_contain_text("1 answer")


async def test_a_missing_sandbox_is_shown_on_the_page_with_the_command_that_adds_it(
    data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "apt-get").touch(mode=0o755)
    async with open_house(data_dir, starts=False) as house:
        house.extra = {"PATH": str(tmp_path)}
        await house.start()
        page = await house.open()
        await page.goto(house.url + "#/settings/tools")
        if landlock_version():  # the second level, if this kernel has it
            row = page.locator(".srow", has_text="Commands run in a sandbox")
            await expect(page.get_by_text("What this level does not protect")).to_be_visible()
        else:
            row = page.locator(".srow", has_text="Commands run without a sandbox")
            await expect(row).to_contain_text("Each command asks before it runs.")
        await expect(row).to_contain_text("apt-get install bubblewrap")


async def test_the_trust_in_a_session_is_ended_in_the_settings(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("clean up", [Tool("terminal", {"command": "$TOOL --version"})], ["Done."])
        page = await house.open()
        await say(page, "clean up")
        await page.locator(".card.wait").wait_for()
        ask = (await house.api("GET", "api/approvals"))["items"][0]
        await house.api("POST", f"api/approvals/{ask['id']}", json={"decision": "trust"})
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await page.goto(f"{house.url}#/settings/approvals")
        await expect(page.get_by_role("heading", name="Trusted sessions")).to_be_visible()
        await page.get_by_role("button", name="End trust").click()
        await expect(page.get_by_role("heading", name="Trusted sessions")).to_have_count(0)
        assert (await house.api("GET", "api/policy"))["trusted"] == []
        assert house.complaints == []
