"""Talking to the agent in a real browser, against the real server."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Page, Route, expect

from tests.acceptance.paging import PAGE, PATIENCE_S, Gate, House, Think, Tool, attach, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]

ASKING = Tool("terminal", {"command": "$TOOL --version"})  # what cannot be read is asked about


def is_clean(house: House) -> bool:
    assert house.complaints == []
    assert house.elsewhere == []
    return True


async def ended(page: Page, state: str = "completed", count: int = 1) -> None:
    await expect(page.locator(f'article[data-state="{state}"]')).to_have_count(count)


async def as_after_a_reload(page: Page) -> bool:
    """What the events made on the screen is what the transcript makes of it."""

    async def shown() -> str:
        # How long something took is told to the hundredth of a second by two clocks.
        return re.sub(r"[\d.]+\s(s|min)\b", "<time>", await page.locator(".roll").inner_text())

    before = await shown()
    await page.reload()
    await expect(page.locator("article .foot-s").last).to_be_visible()
    after = ""
    # Its parts come one after the other; what it comes to is what counts.
    with anyio.move_on_after(PATIENCE_S):
        while (after := await shown()) != before:
            await page.wait_for_timeout(100)
    assert after == before
    return True


async def test_a_message_is_saved_then_answered_and_the_same_after_a_reload(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "disks", [Think("Look at both."), "Both disks are **healthy**.\n\n- tank\n- vault\n"]
        )
        page = await house.open()
        await say(page, "How are the disks?")
        await expect(page.locator(".you .say")).to_have_text("How are the disks?")
        await expect(page.locator(".you .st")).to_contain_text("Saved")
        await expect(page.locator(".md strong")).to_have_text("healthy")
        await ended(page)
        await expect(page.locator(".side .row.sel")).to_have_text(re.compile("A short title"))
        assert await as_after_a_reload(page)
        assert is_clean(house)


async def name_context(route: Route) -> None:
    """Pass the list of models on with a context size for each, as providers that tell it would give."""
    answer = await route.fetch()
    found = await answer.json()
    models = [{**model, "context_tokens": 128_000} for model in found["models"]]
    await route.fulfill(response=answer, json={**found, "models": models})


async def test_the_meter_shows_tokens_once_a_model_has_counted_them(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("story", ["Once upon a time.", gate])
        context = await house.context()
        await context.route("**/api/models", name_context)
        page = await house.open(context=context)
        meter = page.locator(".meter")
        await say(page, "Tell me a story")
        await expect(page.locator(".md")).to_contain_text("Once upon a time.")
        await expect(meter).to_have_count(0)
        gate.opened.set()
        await expect(meter).to_contain_text("1.3k of 128k tokens")
        assert is_clean(house)


async def test_tools_show_what_they_did_and_edits_their_diff(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "note",
            [Tool("write_file", {"path": "note.txt", "content": "one\ntwo\n"})],
            [Tool("edit_file", {"path": "note.txt", "old": "two", "new": "three"})],
            [Tool("terminal", {"command": "cat note.txt; exit 3"})],
            ["The note says three."],
        )
        page = await house.open()
        await say(page, "Write a note")
        await ended(page)
        await expect(page.locator(".card .head").nth(1)).to_contain_text("Edited")
        await expect(page.locator(".diff .add").last).to_contain_text("three")
        await expect(page.locator(".diff .del")).to_contain_text("two")
        await expect(page.locator(".card.bad")).to_contain_text("exit 3")
        await expect(page.locator(".card.bad .out").last).to_contain_text("three")
        assert await as_after_a_reload(page)
        assert is_clean(house)


async def test_an_approval_is_given_by_key_and_one_is_refused(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("yes", [ASKING], ["It ran."])
        house.provider.on("no", [ASKING], ["It did not run."])
        page = await house.open()
        await say(page, "yes please")
        await expect(page.locator(".card.wait .cmd")).to_have_text("$TOOL --version")
        await expect(page.locator(".side .tagn")).to_have_text("Approve")
        assert await page.evaluate("document.activeElement.matches('[data-composer]')"), "focus stayed"
        await page.locator(".roll").focus()
        await page.keyboard.press("y")
        await expect(page.locator(".md")).to_contain_text("It ran.")
        await expect(page.locator(".line", has_text="You allowed")).to_be_visible()
        await ended(page)
        await say(page, "no thanks")
        await page.locator(".card.wait").wait_for()
        await page.reload()
        await page.locator(".card.wait").wait_for()
        await page.locator(".roll").focus()
        await page.keyboard.press("n")
        await expect(page.locator(".line", has_text="You denied")).to_be_visible()
        await ended(page, count=2)
        await expect(page.locator(".side .tagn")).to_have_count(0)
        assert await as_after_a_reload(page)
        assert is_clean(house)


async def test_a_call_is_changed_before_it_is_allowed(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("tool", [ASKING], ["It said so."])
        page = await house.open()
        await say(page, "which tool?")
        await expect(page.locator(".card.wait .cmd")).to_have_text("$TOOL --version")
        await page.locator(".roll").focus()
        await page.keyboard.press("e")
        area = page.locator(".card.wait textarea")
        await expect(area).to_be_focused()
        await area.fill("echo never")
        await page.keyboard.press("Escape")
        await expect(area).to_have_count(0)
        await expect(page.get_by_role("button", name="Edit")).to_be_focused()
        await expect(page.locator(".card.wait .cmd")).to_have_text("$TOOL --version")
        assert await page.locator("article").get_attribute("data-state") == "waiting", "nothing was stopped"
        await page.get_by_role("button", name="Edit").click()
        await area.fill("echo changed; X=1 $UNKNOWN")
        await page.keyboard.press("Control+Enter")
        await ended(page)
        line = page.locator(".line", has_text="You changed")
        await expect(line).to_contain_text("echo changed")
        told = str(house.provider.asked[1]["messages"][-1])
        assert "The user changed the arguments of this call" in told
        assert "echo changed" in told
        assert await as_after_a_reload(page)
        await page.locator(".line", has_text="Ran").click()
        await expect(page.locator(".card .out").first).to_contain_text("$TOOL --version")
        assert is_clean(house)


async def test_an_invalid_change_is_reported_in_place(data_dir: Path) -> None:
    asking = Tool("terminal", {"command": "$TOOL --version", "timeout_s": 30})
    async with open_house(data_dir) as house:
        house.provider.on("tool", [asking], ["It said so."])
        page = await house.open()
        await say(page, "which tool?")
        await page.get_by_role("button", name="Edit").click()
        seconds = page.get_by_label("timeout_s")
        await seconds.fill("soon")
        await page.get_by_role("button", name="Allow edited call").click()
        wrong = page.locator(".card.wait [role=alert]")
        await expect(wrong).to_have_text("timeout_s is not valid JSON.")
        await seconds.fill('"soon"')
        await page.get_by_role("button", name="Allow edited call").click()
        await expect(wrong).to_contain_text("timeout_s must be of type")
        await expect(seconds).to_have_value('"soon"')
        await seconds.fill("20")
        await expect(wrong).to_have_count(0)
        await page.get_by_role("button", name="Allow edited call").click()
        await ended(page)
        assert '"timeout_s":20' in str(house.provider.asked[1]["messages"][-1])
        house.complaints = [said for said in house.complaints if "422" not in said]
        assert is_clean(house)


async def test_the_queue_is_put_in_order_by_key_and_by_dragging_in_every_tab(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("first", ["Thinking about it", gate, " done."])
        page = await house.open()
        await say(page, "the first")
        await expect(page.locator(".md")).to_contain_text("Thinking about it")
        for text in ("the second", "the third", "the fourth"):
            await say(page, text)
        tray = page.locator(".queue li .t")
        await expect(tray).to_have_text(["the second", "the third", "the fourth"])
        other = await page.context.new_page()
        await other.goto(page.url)
        await expect(other.locator(".queue li .t")).to_have_text(["the second", "the third", "the fourth"])
        await page.locator(".queue .mover").nth(2).focus()
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("ArrowUp")
        moved = ["the fourth", "the second", "the third"]
        await expect(tray).to_have_text(moved)
        await expect(page.locator(".queue .mover").nth(0)).to_be_focused()
        await expect(other.locator(".queue li .t")).to_have_text(moved)
        grip, target = page.locator(".queue .mover").nth(1), page.locator(".queue li").nth(2)
        box, end = await grip.bounding_box(), await target.bounding_box()
        assert box is not None
        assert end is not None
        await page.mouse.move(box["x"] + 5, box["y"] + 5)
        await page.mouse.down()
        await page.mouse.move(box["x"] + 5, end["y"] + end["height"] - 4, steps=4)
        await page.mouse.up()
        moved = ["the fourth", "the third", "the second"]
        await expect(tray).to_have_text(moved)
        await expect(other.locator(".queue li .t")).to_have_text(moved)
        await page.reload()
        await expect(tray).to_have_text(moved)
        gate.opened.set()
        await ended(page, count=4)
        assert (await page.locator(".you .say").all_inner_texts())[1:] == moved
        assert is_clean(house)


async def test_a_question_is_answered_by_number_and_by_typing(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        question = Tool(
            "ask_user", {"question": "Which pool holds the photos?", "choices": ["tank", "vault"]}
        )
        house.provider.on("photos", [question], ["Thank you."])
        page = await house.open()
        await say(page, "Where are the photos?")
        await expect(page.locator(".card.wait")).to_contain_text("Which pool holds the photos?")
        await expect(page.locator(".side .tagn")).to_have_text("Answer")
        await page.locator(".roll").focus()
        await page.keyboard.press("2")
        await ended(page)
        assert "vault" in str(house.provider.asked[-1]) or "vault" in str(house.provider.asked)
        await say(page, "And the other photos?")
        await page.locator(".card.wait").wait_for()
        await say(page, "On the laptop")
        await ended(page, count=2)
        assert "On the laptop" in str(house.provider.asked)
        assert is_clean(house)


async def test_messages_queue_are_edited_removed_and_run_in_order(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("first", ["Thinking about it", gate, " done."])
        page = await house.open()
        await say(page, "the first")
        await expect(page.locator(".md")).to_contain_text("Thinking about it")
        for text in ("the second", "the third", "the fourth"):
            await say(page, text)
        tray = page.locator(".queue li")
        await expect(page.locator(".queue li[data-queued]")).to_have_count(3)
        await tray.nth(0).hover()
        await tray.nth(0).get_by_label("Edit").click()
        await page.locator(".queue input").fill("the changed second")
        await page.locator(".queue input").press("Enter")
        await expect(tray.nth(0)).to_contain_text("the changed second")
        await tray.nth(1).hover()
        await tray.nth(1).get_by_label("Remove").click()
        await expect(tray).to_have_count(2)
        await page.reload()
        await expect(tray).to_have_count(2)
        gate.opened.set()
        await ended(page, count=3)
        said = await page.locator(".you .say").all_inner_texts()
        assert said == ["the first", "the changed second", "the fourth"]
        await expect(tray).to_have_count(0)
        assert is_clean(house)


async def test_steering_goes_into_the_running_turn(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("begin", [gate, Tool("todo", {"steps": []})], ["As you wish."])
        house.provider.on("use vault", ["Using vault."])
        page = await house.open()
        await say(page, "begin")
        await gate.reached.wait()
        await page.fill("[data-composer]", "use vault")
        await page.get_by_role("radio", name="Now").click()
        async with page.expect_response("**/turns"):  # the server has it before the step ends
            await page.press("[data-composer]", "Enter")
        await expect(page.locator(".queue .away")).to_have_count(0)
        gate.opened.set()
        await expect(page.locator(".you.mid .say")).to_have_text("use vault")
        await ended(page)
        assert await page.locator("article").count() == 1
        assert is_clean(house)


async def test_a_queued_message_that_is_steered_is_shown_once(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("begin", [gate, Tool("todo", {"steps": []})], ["As you wish."])
        house.provider.on("use vault", ["Using vault."])
        page = await house.open()
        await say(page, "begin")
        await gate.reached.wait()
        await say(page, "use vault")
        tray = page.locator(".queue li")
        await expect(page.locator(".queue li[data-queued]")).to_have_count(1)
        # It does not arrive: then it stays where it was.
        await page.route("**/turns", lambda route: route.abort())
        await tray.hover()
        await tray.get_by_role("button", name="Send now").click()
        await expect(tray).to_contain_text("Not sent.")
        await expect(tray).to_have_count(1)
        session = page.url.split("/")[-1]
        assert len((await house.api("GET", f"api/sessions/{session}/queue"))["items"]) == 1
        await page.unroute("**/turns")
        await tray.get_by_role("button", name="Send again").click()
        await expect(tray).to_have_count(0)
        gate.opened.set()
        await expect(page.locator(".you.mid .say")).to_have_text("use vault")
        await ended(page)
        assert (await house.api("GET", f"api/sessions/{session}/queue"))["items"] == []
        assert await page.locator("article").count() == 1
        assert is_clean(house)


async def test_escape_stops_the_turn_and_keeps_what_came(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("long", ["The first half is here.", gate, "never"])
        page = await house.open()
        await say(page, "a long story")
        await expect(page.locator(".md")).to_contain_text("The first half is here.")
        await page.keyboard.press("Escape")
        await ended(page, "cancelled")
        await expect(page.locator(".note")).to_contain_text("Stopped. Everything up to here is kept.")
        await expect(page.locator(".md")).to_have_text("The first half is here.")
        assert await as_after_a_reload(page)
        assert is_clean(house)


async def test_retry_edit_versions_undo_redo_and_branch(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("colour", ["Blue."])
        house.provider.on("shade", ["Dark blue."])
        page = await house.open()
        await say(page, "Which colour?")
        await ended(page)
        await page.get_by_label("Retry", exact=True).click()
        await expect(page.locator(".sib")).to_contain_text("2 of 2")
        await page.locator(".you").hover()
        await page.locator("[data-edit]").click()
        await page.locator(".edit textarea").fill("Which shade?")
        await page.locator(".edit textarea").press("Enter")
        await expect(page.locator(".md").last).to_have_text("Dark blue.")
        await expect(page.locator(".sib")).to_contain_text("3 of 3")
        await page.get_by_label("Previous version").click()
        await expect(page.locator(".sib")).to_contain_text("2 of 3")
        await expect(page.locator(".you .say")).to_have_text("Which colour?")
        await page.locator(".roll").focus()
        await page.keyboard.press("]")
        await expect(page.locator(".you .say")).to_have_text("Which shade?")
        await page.locator(".roll").focus()
        await page.keyboard.press("Control+z")
        await expect(page.locator("article")).to_have_count(0)
        await page.locator(".toast .btn").click()
        await expect(page.locator(".you .say")).to_have_text("Which shade?")
        before = page.url
        await page.get_by_label("Branch into a new session").click()
        await page.wait_for_function("was => location.href !== was", arg=before)
        await expect(page.locator(".you .say")).to_have_text("Which shade?")
        await expect(page.locator(".side .row")).to_have_count(2)
        assert is_clean(house)


async def test_a_failed_turn_says_why_and_is_tried_again(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("silence", [""])
        page = await house.open()
        await say(page, "silence please")
        await ended(page, "failed")
        await expect(page.locator(".note.bad")).to_contain_text("Your message is saved.")
        house.provider.on("silence", ["Now I speak."])
        await page.locator(".note .btn").click()
        await expect(page.locator(".md")).to_have_text("Now I speak.")
        assert is_clean(house)


async def test_files_are_pasted_kept_and_sent(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await attach(page, "letter.txt", "hello from a file")
        await page.reload()
        await expect(page.locator(".comp .att")).to_contain_text("letter.txt")
        await say(page, "Read this")
        await ended(page)
        await expect(page.locator(".you .att")).to_contain_text("letter.txt")
        assert "hello from a file" in str(house.provider.asked)
        assert is_clean(house)


async def test_a_very_long_message_is_folded_and_said_whole(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        text = "word " * 4000 + "the end"
        await say(page, text)
        await ended(page)
        bubble = page.locator(".you .say")
        await expect(bubble).not_to_contain_text("the end")
        await page.get_by_role("button", name="Show 14k more characters").click()
        await expect(bubble).to_contain_text("the end")
        assert text in str(house.provider.asked[0]["messages"])
        assert is_clean(house)


async def test_enter_does_not_send_while_an_input_method_composes(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.fill("[data-composer]", "にほん")
        sent = await page.evaluate(
            """() => {
                const area = document.querySelector("[data-composer]");
                const key = new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, isComposing: true });
                area.dispatchEvent(key);
                return key.defaultPrevented;
            }"""
        )
        assert sent is False
        await expect(page.locator("[data-composer]")).to_have_value("にほん")
        await page.press("[data-composer]", "Shift+Enter")
        await expect(page.locator("[data-composer]")).to_have_value("にほん\n")
        assert await page.locator("article").count() == 0
        assert is_clean(house)


async def test_slash_commands_and_what_was_said_before(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "remember this line")
        await ended(page)
        await page.press("[data-composer]", "ArrowUp")
        editor = page.locator(".msg textarea:focus, .you textarea:focus")
        await expect(editor).to_have_value("remember this line")
        await page.keyboard.press("Escape")
        await expect(editor).to_have_count(0)
        await page.type("[data-composer]", "/ren")
        await expect(page.locator(".hints .hi")).to_have_count(1)
        await page.type("[data-composer]", "ame My own name")
        await page.press("[data-composer]", "Enter")
        await expect(page.locator(".bar h1")).to_have_text("My own name")
        assert is_clean(house)


async def test_on_a_phone_a_wide_table_scrolls_and_its_cells_are_not_squeezed(data_dir: Path) -> None:
    note = "slow, as it holds many small files, and the disk reports errors"
    table = (
        "| Folder | Size | Files | Last copied | Note |\n|---|---:|---:|---|---|\n"
        f"| `/srv/mail` | 12 GB | 1,204,881 | yesterday | {note} |\n"
    )
    async with open_house(data_dir) as house:
        house.provider.on("sizes", [table])
        page = await house.open()
        await page.set_viewport_size({"width": 390, "height": 844})
        await say(page, "sizes")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        cell = await page.locator(".md td", has_text="12 GB").bounding_box()
        last = await page.locator(".md td", has_text="slow").bounding_box()
        assert cell
        assert last
        assert last["width"] >= 150, "a line of the note holds a few words"
        assert cell["height"] < 130, "so the row is not many lines high"
        assert await page.locator(".md .table").evaluate("(table) => table.scrollWidth > table.clientWidth")
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_a_footnote_with_a_name_has_a_number_that_leads_to_it_and_back(data_dir: Path) -> None:
    text = "It rains[^why] often.\n\n" + "Filler.\n\n" * 60 + "[^why]: In autumn.\n"
    async with open_house(data_dir) as house:
        house.provider.on("rain", [text])
        page = await house.open()
        await say(page, "rain")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        mark, back = page.locator(".md [data-note]"), page.locator(".md [data-noted]")
        await expect(mark).to_have_text("1")
        await mark.click()
        await expect(page.get_by_text("In autumn.")).to_be_in_viewport()
        await expect(back).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("It rains")).to_be_in_viewport()
        await expect(mark).to_be_focused()
        assert house.complaints == []
