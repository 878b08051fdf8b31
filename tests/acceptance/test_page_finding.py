"""Finding things again: search, palette, list, session menu, settings, the turn's timeline."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Route, expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, Gate, House, Tool, open_house, say
from tests.acceptance.seeding import long_session

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'


async def test_search_finds_a_message_and_jumps_to_it(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        for number in range(8):
            marked = "the heliotrope word" if number == 2 else f"plain words {number}"
            await say(page, f"{marked}\n" + "filler\n" * 12)
            # Only turns near the view are drawn: the newest is what can be waited for.
            await expect(page.locator(".turnbox.last .say")).to_contain_text(marked)
            await expect(page.locator(f".turnbox.last {DONE}")).to_have_count(1)
        await page.locator(".brand").get_by_label("New session").click()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("heliotrope")
        hit = page.locator(".pal .hit").first
        await expect(hit.locator("mark").first).to_have_text("heliotrope")
        await page.keyboard.press("Enter")
        # It glows for a second: looked for in every frame, not every now and then.
        await page.locator(".glow .say", has_text="heliotrope").wait_for()
        await expect(page.locator(".say", has_text="heliotrope")).to_be_in_viewport()
        await expect(page.locator(".pill")).to_be_visible()
        await page.locator(".pill").click()
        await expect(page.locator(".say", has_text="plain words 7")).to_be_in_viewport()
        # Back at the end, a reload stays there.
        assert re.search(r"#/s/ses_\w+$", page.url)
        assert house.complaints == []


async def test_the_palette_runs_commands_and_the_map_shows_keys(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.keyboard.press("Control+k")
        await page.keyboard.type(">dark")
        await page.keyboard.press("Enter")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.locator("[data-composer]").wait_for()
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert house.complaints == []


async def test_a_session_is_renamed_pinned_tagged_archived_and_deleted_with_a_way_back(
    data_dir: Path,
) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "about the network")
        await expect(page.locator(DONE)).to_have_count(1)

        async def choose(name: str) -> None:
            await page.locator(".bar").get_by_label("Session menu").click()
            await page.get_by_role("menuitem", name=name, exact=True).click()

        await choose("Rename")
        await page.fill(".bar .title", "House network")
        await page.press(".bar .title", "Enter")
        await expect(page.locator(".side .row.sel .t")).to_have_text("House network")
        await choose("Tags")
        await page.fill(".bar .title", "homelab #net")
        await page.press(".bar .title", "Enter")
        await expect(page.locator(".bar .chip.tagged")).to_have_count(2)
        await choose("Pin")
        await expect(page.locator(".side .grp").first).to_have_text("Pinned")
        await choose("Archive")
        await expect(page.locator(".side .row")).to_have_count(0)
        await page.locator(".toast", has_text="Session archived").get_by_role("button", name="Undo").click()
        await expect(page.locator(".side .row")).to_have_count(1)
        await choose("Archive")
        await expect(page.locator(".side .row")).to_have_count(0)
        await page.get_by_label("Show archived").click()
        await expect(page.locator(".side .row .t")).to_have_text("House network")
        await choose("Unarchive")
        await expect(page.locator(".side .row")).to_have_count(0)
        await page.get_by_label("Show archived").click()
        await expect(page.locator(".side .row")).to_have_count(1)
        await choose("Delete")
        await expect(page.locator(".side .row")).to_have_count(0)
        await page.locator(".toast", has_text="Session deleted").get_by_role("button", name="Undo").click()
        await expect(page.locator(".side .row")).to_have_count(1)
        await expect(page.locator(".say")).to_have_text("about the network")
        assert house.complaints == []


async def test_a_branch_is_told_apart_and_archived_with_the_keys(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "about the network")
        await expect(page.locator(DONE)).to_have_count(1)
        session = page.url.split("/")[-1]
        title = "A title that is much longer than the sidebar is wide, as some of them are"
        await house.api("PATCH", f"api/sessions/{session}", json={"title": title})
        await house.api("POST", f"api/sessions/{session}/branch", json={}, headers={"Idempotency-Key": "b"})
        copy = page.locator(".side .row", has_text=f"{title} (2)")
        await expect(copy).to_have_count(1)
        number = await copy.get_by_text("(2)", exact=True).bounding_box()
        row = await copy.bounding_box()
        assert number is not None
        assert row is not None
        assert number["x"] + number["width"] <= row["x"] + row["width"]
        await copy.focus()
        await page.keyboard.press("ArrowRight")
        await page.get_by_role("menuitem", name="Archive", exact=True).focus()
        await page.keyboard.press("Enter")
        await expect(copy).to_have_count(0)
        # The row had the focus: the keys go on in the composer.
        await expect(page.locator("[data-composer]")).to_be_focused()
        assert house.complaints == []


async def test_what_finished_elsewhere_is_marked_unread_until_it_is_looked_at(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("slow", [gate, "Done now."])
        page = await house.open()
        await say(page, "a slow one")
        await expect(page.locator(".side .spin")).to_be_visible()
        await page.locator(".brand").get_by_label("New session").click()
        gate.opened.set()
        await expect(page.locator(".side .dot")).to_be_visible()
        assert (await page.title()).startswith("(1)")
        await page.locator(".side .row").first.click()
        await expect(page.locator(".side .dot")).to_have_count(0)
        await page.reload()
        await expect(page.locator(".md")).to_contain_text("Done now.")
        await expect(page.locator(".side .dot")).to_have_count(0)
        assert house.complaints == []


async def test_the_timeline_tells_how_a_turn_went(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("list", [Tool("list_files", {"path": "."})], ["Nothing there."])
        page = await house.open()
        await say(page, "list the files")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.keyboard.press("Control+.")
        panel = page.get_by_role("complementary", name="Answer details")
        await expect(panel.locator(".wf .r")).to_have_count(3)
        await expect(panel.locator(".stats")).to_contain_text("2.6k")
        rows = panel.locator("table tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(0)).to_contain_text("Model call 1")
        await page.keyboard.press("Control+.")
        await expect(panel).to_have_count(0)
        assert house.complaints == []


async def test_settings_show_what_the_server_is_and_take_changes(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.get_by_label("Settings").click()
        await expect(page.locator(".pane h2")).to_have_text("Models")
        await expect(page.locator(".srow", has_text="OpenAI").first).to_contain_text(
            "Key from the environment"
        )
        for name, words in (
            ("Tools", "terminal"),
            ("MCP servers", "No MCP servers yet"),
            ("Approvals", "Nothing is pre-approved"),
            ("Profiles", "default"),
            ("Health", "Version"),
            ("Appearance", "Theme"),
            ("Keyboard", "Next / previous message"),
        ):
            await page.get_by_role("link", name=name, exact=True).click()
            await expect(page.locator(".pane")).to_contain_text(words)
        await page.get_by_role("link", name="Password and tokens").click()
        await page.get_by_label("Name").fill("phone")
        await page.get_by_role("button", name="Create token").click()
        await expect(page.locator(".secret input")).to_have_value(re.compile(r"^evt_"))
        await page.get_by_role("link", name="Memory").click()
        await page.get_by_role("button", name="New note").click()
        await page.locator(".sform textarea").fill("The NAS is nas-01.")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".memo")).to_contain_text("The NAS is nas-01.")
        await page.keyboard.press("Escape")
        await expect(page.locator("[data-composer]")).to_be_visible()
        assert house.complaints == []
        assert house.elsewhere == []


@pytest.mark.timeout(180)
async def test_a_search_is_narrowed_by_who_said_it_when_and_where(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("question about apples", ["Nothing is known of those apples."])
        for number, tags in enumerate((["fruit"], [])):
            session = (await house.api("POST", "api/sessions", json={}))["id"]
            if tags:
                await house.api("PATCH", f"api/sessions/{session}", json={"tags": tags})
            text = f"question about apples {number}"
            await house.api("POST", f"api/sessions/{session}/turns", json={"text": text})
        page = await house.open()
        await expect(page.locator(".side .row")).to_have_count(2)
        await indexed(house, "apples", hits=4)  # two questions and two answers
        await page.keyboard.press("Control+k")
        await page.keyboard.type("apples")
        hits = page.locator(".pal .hit")
        await expect(hits).to_have_count(4)
        await page.get_by_label("Written by").select_option("user")
        await expect(hits).to_have_count(2)
        await page.get_by_label("Tag", exact=True).select_option("fruit")
        await expect(hits).to_have_count(1)
        await page.get_by_label("Tag", exact=True).select_option("")
        await page.get_by_label("When").select_option("between")
        today = await page.evaluate("new Date().toLocaleDateString('sv')")
        before = await page.evaluate("new Date(Date.now() - 864e5).toLocaleDateString('sv')")
        # The last day counts as a whole; what was said today is not of yesterday.
        await page.get_by_label("From", exact=True).fill(before)
        await page.get_by_label("To", exact=True).fill(today)
        await expect(hits).to_have_count(2)
        await page.get_by_label("To", exact=True).fill(before)
        await expect(hits).to_have_count(0)
        assert house.complaints == []


LONG = 200


async def indexed(house: House, words: str, *, hits: int = 1) -> dict[str, str]:
    """The first hit for these words, once there are so many. What was put into the store before the server began is indexed in the background."""
    with within(f"{words} is found", PATIENCE_S):
        while len(items := (await house.api("GET", "api/search", params={"q": words}))["items"]) < hits:
            await anyio.sleep(0.05)
    return items[0]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("width", "numbers"), [(1280, (LONG // 2, 30, LONG // 2 + 31)), (390, (LONG // 2, 0))]
)
async def test_a_hit_far_back_in_a_long_session_is_the_one_in_view(
    data_dir: Path, width: int, numbers: tuple[int, ...]
) -> None:
    session = await long_session(data_dir, LONG, title="")
    async with open_house(data_dir) as house:
        for number in numbers:
            await indexed(house, f"notes-{number}.txt")
        page = await house.open(f"#/s/{session}")
        await page.set_viewport_size({"width": width, "height": 780})
        # Without a title it is called by its first words, and found by them.
        await expect(page).to_have_title(re.compile("Question 0: what about part 0"))
        await page.keyboard.press("Control+k")
        await page.keyboard.type("Question 0: what about part 0")
        await expect(page.locator(".pal .pr:not(.hit)", has_text="part 0?")).to_have_count(1)
        await page.keyboard.press("Escape")
        for number in numbers:
            await page.keyboard.press("Control+k")
            await page.keyboard.type(f"notes-{number}.txt")
            await expect(page.locator(".pal .hit mark").first).to_be_visible()
            await expect(page.locator(".pal .hit").first).to_contain_text(f"notes-{number}.txt")
            await page.keyboard.press("Enter")
            marked = page.locator(".glow", has_text=f"notes-{number}.txt")
            await marked.wait_for()
            await expect(marked).to_be_in_viewport(ratio=1)
            answer = page.locator("article .md", has_text=f"notes-{number}.txt")
            await expect(page.locator(".glow")).to_have_count(0)
            await expect(answer).to_be_in_viewport(ratio=1)
        assert house.complaints == []


async def test_a_hit_is_reached_while_older_messages_are_read_for_the_view(data_dir: Path) -> None:
    session = await long_session(data_dir, LONG)
    async with open_house(data_dir) as house:
        page = await house.open()
        found = await indexed(house, "notes-40.txt")
        held: list[Route] = []

        async def hold(route: Route) -> None:
            held.append(route)

        await page.route(re.compile(r"/messages\?before"), hold, times=1)
        await page.goto(f"{house.url}#/s/{session}")
        await expect(page.locator("article").last).to_be_in_viewport()
        await page.locator(".roll").hover()
        with within("older messages are asked for", PATIENCE_S):
            while not held:
                await page.mouse.wheel(0, -2000)
                await page.wait_for_timeout(50)
        await page.evaluate("(id) => { location.hash += `/${id}`; }", found["message_id"])
        await held[0].continue_()
        await expect(page.locator("article .md", has_text="notes-40.txt")).to_be_in_viewport(ratio=1)
        assert house.complaints == []


async def test_all_hits_of_a_search_can_be_seen(data_dir: Path) -> None:
    await long_session(data_dir, 30)
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("what about part")
        hits, foot = page.locator(".pal .hit"), page.locator(".pal footer")
        await expect(hits).to_have_count(8)
        await expect(foot).to_contain_text("At least 20 hits")
        for _ in range(8):
            await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(hits).to_have_count(30)
        await expect(foot).to_contain_text("30 hits")
        await expect(page.locator(".pal [aria-selected=true]")).to_contain_text("part")
        await page.keyboard.type(" 7")
        await expect(hits.first).to_contain_text("part 7")
        assert await hits.count() <= 8
        assert house.complaints == []
