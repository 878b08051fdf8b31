"""Jobs and budgets in a real browser: what runs, what it prints, what may be spent, and what waits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
# The job goes on when the file "more" is there, and ends with "last": the test decides when.
WATCHER = (
    "echo Local: http://localhost:5173/; echo 10%; "
    "while [ ! -e more ]; do sleep 0.1; done; echo 60%; while [ ! -e last ]; do sleep 0.1; done; exit 3"
)


def background(command: str) -> Tool:
    return Tool("terminal", {"command": command, "background": True, "when_ended": "tell"})


async def test_a_job_is_watched_across_a_kill_changed_and_stopped(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("watch", [background(WATCHER), background("sleep 600")], ["Both run."])
        page = await house.open()
        await say(page, "watch the tests")
        if not (await house.api("GET", "api/settings"))["sandbox"]["is_on"]:
            for _ in range(2):
                await page.get_by_role("button", name="Allow once").first.click()
        line = page.locator(".jline")
        await expect(line).to_contain_text("2 jobs")
        await expect(line).to_contain_text("10\u00a0%")
        await expect(page.locator(".turn")).to_contain_text("Started a job")

        await page.get_by_role("link", name="2 jobs running").click()
        await page.locator("[data-job]", has_text="localhost").click()
        detail = page.locator("article.jdet")
        await expect(detail).to_contain_text("It started a server at http://localhost:5173/.")
        await detail.get_by_role("radio", name="Only record").click()
        await expect(detail.get_by_role("radio", name="Only record")).to_be_checked()
        assert await serious(page) == []

        # The job goes on while no server runs; the page finds it again.
        await house.kill()
        [workspace] = (path for path in (data_dir / "workspaces").iterdir() if path.is_dir())
        (workspace / "more").touch()
        await house.start()
        await expect(detail.locator("pre")).to_contain_text("60%")
        (workspace / "last").touch()
        await expect(detail).to_contain_text("exit 3")
        row = page.locator("[data-job]", has_text="localhost")
        await expect(row).to_contain_text("recorded")

        await page.locator("[data-job]", has_text="sleep 600").click()
        await detail.get_by_role("button", name="Stop", exact=True).click()
        await detail.get_by_role("button", name="Keep running").click()
        await detail.get_by_role("button", name="Stop", exact=True).click()
        await detail.get_by_role("button", name="Stop it").click()
        await expect(detail).to_contain_text("Stopped")
        await expect(page.get_by_role("link", name="1 job running")).to_have_count(0)
        await page.go_back()
        await expect(line).to_have_count(0)
        assert house.complaints == []


async def test_a_budget_is_set_reached_and_raised(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.goto(f"{house.url}#/settings/budgets")
        await page.get_by_role("button", name="Add a budget").click()
        await page.get_by_label("Amount", exact=True).fill("much")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("Enter an amount")
        await page.get_by_label("Amount", exact=True).fill("2000")
        await page.get_by_label("Unit").select_option("tokens")
        await page.get_by_label("Time zone").select_option("Europe/Brussels")
        await page.get_by_role("button", name="Save").click()
        row = page.get_by_role("region", name="Each day")
        await expect(row).to_contain_text("limit 2k tokens")
        assert await serious(page) == []

        await page.goto(f"{house.url}#/")
        await say(page, "How is the weather?")
        card = page.locator("[data-ask]")
        await expect(card).to_contain_text("Today's budget does not cover the next model call.")
        await page.set_viewport_size({"width": 390, "height": 844})
        head = await card.locator("strong").bounding_box()
        assert head is not None
        assert head["x"] + head["width"] <= 390, "the whole of it can be read on a phone"
        await page.set_viewport_size({"width": 1280, "height": 860})
        assert await serious(page) == []
        await card.get_by_role("button", name="Wait until midnight").click()
        await expect(card).to_contain_text("Continues by itself at midnight.")
        await page.goto(f"{house.url}#/settings/budgets")
        await expect(row).to_contain_text("1 answer waits")
        await row.get_by_label("Amount for Each day").fill("90000")
        await page.keyboard.press("Enter")
        await expect(row).to_contain_text("limit 90k tokens")
        await page.go_back()
        await expect(page.locator(".turn")).to_contain_text("You said: How is the weather?")
        await page.keyboard.press("Control+.")
        await expect(page.locator(".panel")).to_contain_text("today, all sessions")
        await page.goto(f"{house.url}#/settings/budgets")
        await page.get_by_label("Remove Each day").click()
        await expect(page.locator(".pane")).to_contain_text("No budget is set.")
        assert house.complaints == []


async def test_a_budget_for_a_schedule_is_added_where_all_budgets_are(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        form = page.locator("form.new")
        await page.goto(f"{house.url}#/settings/budgets")
        await page.get_by_role("button", name="Add a budget").click()
        await page.get_by_label("Amount", exact=True).fill("0.5")
        await form.get_by_label("For").select_option("schedule")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("There are no schedules yet.")
        rule = {"kind": "cron", "expression": "0 8 * * 1-5"}
        for name in ("Morning", "Evening"):
            await house.api("POST", "api/schedules", json={"name": name, "text": "Hello.", "rule": rule})
        await page.reload()
        await page.get_by_role("button", name="Add a budget").click()
        await page.get_by_label("Amount", exact=True).fill("0.5")
        await form.get_by_label("For").select_option("schedule")
        await form.get_by_label("Schedule").select_option(label="Evening")
        await expect(form.get_by_label("Time zone")).to_have_count(0)
        assert await serious(page) == []
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.get_by_role("button", name="Save").click()
        row = page.get_by_role("region", name="Schedule “Evening”")
        await expect(row).to_contain_text("Applies to each run separately")
        assert house.complaints == []


async def test_the_report_that_wakes_the_agent_shows_people_how_the_job_ended(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        building = Tool("terminal", {"command": "exit 3", "background": True, "when_ended": "wake"})
        house.provider.on("build it", [building], ["It runs."])
        page = await house.open()
        await say(page, "build it")
        if not (await house.api("GET", "api/settings"))["sandbox"]["is_on"]:
            await page.get_by_role("button", name="Allow once").first.click()
        report = page.locator(".you").last
        await expect(report).to_contain_text("Job ended with exit code 3 after")
        await expect(report).not_to_contain_text("job_")
        assert house.complaints == []


@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
async def test_beside_a_job_a_phone_still_says_that_all_is_saved(data_dir: Path, locale: str) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("build", [background("sleep 600")], ["It runs."])
        page = await house.open(locale=locale)
        await say(page, "build")
        if not (await house.api("GET", "api/settings"))["sandbox"]["is_on"]:
            await page.locator(".card button", has_text=re.compile("Allow once|Einmal erlauben")).click()
        await expect(page.locator(".jline")).to_be_visible()
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.locator(".bar button").first.click()
        foot = page.locator(".side .foot")
        await expect(foot.locator(".jb")).to_be_visible()
        says = foot.locator(".says")
        assert await says.evaluate("(says) => says.scrollWidth <= says.clientWidth"), await says.inner_text()
        assert await foot.evaluate("(foot) => foot.scrollWidth <= foot.clientWidth")
        # As laid out: the drawer may still be sliding in.
        wide = "(buttons) => buttons.map((button) => button.offsetWidth)"
        assert await foot.locator("button").evaluate_all(wide) == [44, 44, 44, 44]
