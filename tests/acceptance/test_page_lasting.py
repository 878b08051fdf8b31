"""Nothing is lost, visibly: kills, reloads, tabs, a network that is away, a sign-in that ran out."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import httpx2
import pytest
from playwright.async_api import Page, Route, expect

from tests.acceptance.paging import PAGE, PATIENCE_S, Gate, Tool, attach, open_house, say

COMMAND = "echo compiled 40 of 100; sleep 60"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]


async def test_the_server_is_killed_in_mid_answer_and_the_text_continues(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("story", ["Once upon a time there was a server.", gate])
        page = await house.open()
        await say(page, "Tell me a story")
        await expect(page.locator(".md")).to_contain_text("Once upon a time there was a server.")
        await page.fill("[data-composer]", "half a thought")
        await house.kill()
        await expect(page.locator(".bar .chip", has_text="Reconnecting")).to_be_visible()
        await expect(page.locator(".side .foot")).to_contain_text("Server unreachable")
        await expect(page.locator("article")).to_contain_text("Once upon a time there was a server.")
        house.provider.on("story", ["It came back and carried on."])
        await house.start()
        await expect(page.locator(".md")).to_contain_text("It came back and carried on.")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator("[data-seam]")).to_contain_text("came back")
        await expect(page.locator(".bar .chip", has_text="Reconnecting")).to_have_count(0)
        await expect(page.locator(".side .foot")).to_contain_text("All saved")
        await expect(page.locator("[data-composer]")).to_have_value("half a thought")
        text = await page.locator("article").inner_text()
        assert text.count("Once upon a time there was a server.") == 1
        assert text.count("It came back and carried on.") == 1
        await page.reload()
        await expect(page.locator("[data-seam]")).to_be_visible()
        again = await page.locator("article").inner_text()
        assert again.count("Once upon a time there was a server.") == 1
        assert again.index("Once upon a time") < again.index("came back") < again.index("carried on")
        assert house.complaints == []


async def test_a_reload_in_mid_answer_shows_the_same_and_continues(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("count", ["one two three", gate, " four five."])
        page = await house.open()
        await say(page, "count")
        await expect(page.locator(".md")).to_contain_text("one two three")
        await page.reload()
        await expect(page.locator(".md")).to_have_text("one two three\n")
        await expect(page.locator(".md.live")).to_have_count(1)
        gate.opened.set()
        await expect(page.locator(".md")).to_have_text(re.compile(r"^one two three four five\.\s*$"))
        assert house.complaints == []


async def test_a_message_written_while_the_server_is_away_is_sent_once_it_is_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "first")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await house.kill()
        await say(page, "written in the dark")
        await expect(page.locator(".you.failed")).to_contain_text("Not sent. Saved in this browser.")
        await expect(page.locator(".side .foot")).to_contain_text("1 not sent")
        await page.close()
        await house.start()
        # Another visit of the same browser finds it and sends it, under the key it had.
        context = house.browser.contexts[0]
        page = await house.open(context=context)
        await page.locator(".side .row").first.click()
        await expect(page.locator(".you .say", has_text="written in the dark")).to_have_count(1)
        await expect(page.locator('article[data-state="completed"]')).to_have_count(2)
        await expect(page.locator(".side .foot")).to_contain_text("All saved")
        sessions = await house.api("GET", "api/sessions")
        messages = await house.api("GET", f"api/sessions/{sessions['items'][0]['id']}/messages")
        texts = [
            part["text"] for one in messages["messages"] if one["role"] == "user" for part in one["parts"]
        ]
        assert texts == ["first", "written in the dark"]


async def test_a_draft_survives_a_browser_that_dies(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await page.type("[data-composer]", "a draft for this session")
        await page.wait_for_function(
            "() => Object.keys(localStorage).some(key => localStorage[key].includes('a draft for'))"
        )
        address = page.url
        await page.close(run_before_unload=False)
        page = await house.browser.contexts[0].new_page()
        await page.goto(address)
        await expect(page.locator("[data-composer]")).to_have_value("a draft for this session")
        await page.locator(".brand").get_by_label("New session").click()
        await expect(page.locator("[data-composer]")).to_have_value("")


async def test_tabs_share_a_draft_and_one_that_is_left_behind_takes_nothing_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        context = await house.context()
        first = await house.open(context=context)
        second = await house.open(context=context)
        one, other = first.locator("[data-composer]"), second.locator("[data-composer]")
        await one.fill("begun in the first")
        await expect(other).to_have_value("begun in the first")
        await other.press_sequentially(" and gone on with")
        await expect(one).to_have_value("begun in the first and gone on with")
        # The first was never typed into again: as it goes, it must not write what it last wrote.
        await first.evaluate("document.querySelector('[data-composer]').value = 'what it showed long ago'")
        await first.close(run_before_unload=True)
        await second.reload()
        await expect(other).to_have_value("begun in the first and gone on with")
        assert house.complaints == []


async def test_a_draft_in_a_session_that_is_deleted_elsewhere_comes_along(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        session = page.url.split("/")[-1]
        await page.fill("[data-composer]", "not lost with it")
        await house.api("DELETE", f"api/sessions/{session}")
        await expect(page.locator(".hello")).to_be_visible()
        await expect(page.locator("[data-composer]")).to_have_value("not lost with it")
        await page.reload()
        await expect(page.locator("[data-composer]")).to_have_value("not lost with it")
        # The new session leaves nothing behind that is no longer there.
        await page.press("[data-composer]", "Enter")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        assert house.complaints == []


async def test_a_draft_for_a_new_session_stays_there_when_another_is_opened(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await page.locator(".brand").get_by_label("New session").click()
        await expect(page.locator(".hello")).to_be_visible()
        await page.fill("[data-composer]", "for another session")
        await page.locator(".side .row").first.click()
        await expect(page.locator("article")).to_have_count(1)
        await expect(page.locator("[data-composer]")).to_have_value("")
        await page.locator(".brand").get_by_label("New session").click()
        await expect(page.locator("[data-composer]")).to_have_value("for another session")
        # What is given along with a command for a new session is for that one, too.
        await page.locator(".side .row").first.click()
        await expect(page.locator("[data-composer]")).to_have_value("")
        await say(page, "/new and more words")
        await expect(page.locator("[data-composer]")).to_have_value("and more words\n\nfor another session")
        await page.locator(".side .row").first.click()
        await expect(page.locator("[data-composer]")).to_have_value("")
        assert house.complaints == []


async def test_what_is_written_while_the_session_is_made_comes_along(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        asked, may = anyio.Event(), anyio.Event()

        async def hold(route: Route) -> None:
            if route.request.method == "POST":
                asked.set()
                await may.wait()
            await route.continue_()

        await page.route(house.url + "api/sessions", hold)
        await say(page, "hello")
        await asked.wait()
        await page.fill("[data-composer]", "and one more thing")
        may.set()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator("[data-composer]")).to_have_value("and one more thing")
        await page.locator(".brand").get_by_label("New session").click()
        await expect(page.locator("[data-composer]")).to_have_value("")
        assert house.complaints == []


async def test_a_message_that_could_not_be_sent_is_taken_back_with_its_file(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        house.provider.on("half a thought", ["Both are read."])
        await page.route("**/api/uploads", lambda route: route.abort())
        await attach(page, "letter.txt", "hello from a file")
        await say(page, "word " * 1500 + "the end")
        failed = page.locator(".you.failed")
        await expect(failed).to_contain_text("Not sent.")
        await expect(failed.locator(".say")).not_to_contain_text("the end")
        await failed.get_by_role("button", name="Show 1.5k more characters").click()
        await expect(failed.locator(".say")).to_contain_text("the end")
        await attach(page, "photo.txt", "and from another")
        await page.fill("[data-composer]", "half a thought")
        await failed.get_by_role("button", name="Edit").click()
        await expect(failed).to_have_count(0)
        await page.reload()
        composer = page.locator("[data-composer]")
        await expect(composer).to_have_value(re.compile(r"^word .*the end\n\nhalf a thought$", re.S))
        await expect(page.locator(".comp .att")).to_contain_text(["letter.txt", "photo.txt"])
        await page.unroute("**/api/uploads")
        await composer.press("Enter")
        # The first turn may be too far off to be drawn.
        await expect(page.locator(".md").last).to_have_text("Both are read.\n")
        assert "hello from a file" in str(house.provider.asked)
        assert "and from another" in str(house.provider.asked)
        assert house.complaints == []


async def test_a_message_whose_session_was_deleted_meanwhile_begins_another(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        gone = page.url.split("/")[-1]
        await page.route("**/turns", lambda route: route.abort())
        await say(page, "not lost with it")
        failed = page.locator(".you.failed")
        await expect(failed).to_contain_text("not lost with it")
        await house.api("DELETE", f"api/sessions/{gone}")
        await expect(page).not_to_have_url(re.compile(gone))
        await expect(failed).to_contain_text("not lost with it")
        await page.goto(house.url + f"#/s/{gone}")
        await expect(page.locator(".hello")).to_contain_text("This session was deleted.")
        await expect(failed).to_contain_text("not lost with it")
        await page.unroute("**/turns")
        await failed.get_by_role("button", name="Send again").click()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator(".you .say")).to_have_text("not lost with it")
        await expect(page.locator(".side .foot")).to_contain_text("All saved")
        assert gone not in page.url
        assert house.complaints == []


KEPT = """() => new Promise((resolve, reject) => {
    const opening = indexedDB.open("everturn");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
        const counting = opening.result.transaction("outbox").objectStore("outbox").count();
        counting.onsuccess = () => resolve(counting.result);
    };
})"""


async def test_a_message_that_another_tab_has_sent_is_neither_lost_nor_put_back(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        context = await house.context()
        # As on plain HTTP: tabs cannot wait for each other.
        await context.add_init_script("delete Navigator.prototype.locks")
        first = await house.open(context=context)
        uploading, may = anyio.Event(), anyio.Event()

        async def hold(route: Route) -> None:
            uploading.set()
            await may.wait()
            await route.continue_()

        await first.route("**/api/uploads", hold)
        await first.route("**/turns", lambda route: route.abort())
        await attach(first, "letter.txt", "hello from a file")
        await say(first, "read this")
        await uploading.wait()
        # Another one finds it on the disk and sends it.
        second = await house.open(context=context)
        await second.locator(".side .row").first.click()
        await expect(second.locator('article[data-state="completed"]')).to_have_count(1)
        while await second.evaluate(KEPT):
            await second.wait_for_timeout(100)
        async with first.expect_event("requestfailed", lambda request: request.url.endswith("/turns")):
            may.set()
        assert await first.evaluate(KEPT) == 0
        await first.reload()
        await expect(first.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(first.locator(".side .foot")).to_contain_text("All saved")
        await expect(first.locator(".you")).to_have_count(1)
        assert house.complaints == []


async def test_where_a_session_was_another_one_can_be_begun(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gone = (await house.api("POST", "api/sessions", json={}))["id"]
        await house.api("DELETE", f"api/sessions/{gone}")
        page = await house.open(f"#/s/{gone}")
        await expect(page.locator(".hello")).to_contain_text("This session was deleted.")
        await say(page, "then a new one")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        assert gone not in page.url
        assert house.complaints == []


KEEPS_NOTHING = """
    const refuse = () => { throw new DOMException("refused", "SecurityError"); };
    IDBFactory.prototype.open = refuse;
    Storage.prototype.getItem = Storage.prototype.setItem = Storage.prototype.removeItem = refuse;
"""


async def test_a_browser_that_keeps_nothing_says_so_and_still_sends(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        context = await house.context()
        await context.add_init_script(KEEPS_NOTHING)
        page = await house.open(context=context)
        await say(page, "kept by the server")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator(".side .foot")).to_contain_text("Drafts can't be saved")
        await house.kill()
        await say(page, "in the dark")
        await expect(page.locator(".you.failed")).to_contain_text("keep this page open")
        await house.start()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(2)
        await expect(page.locator(".you .say").last).to_have_text("in the dark")
        assert house.complaints == []


async def test_many_tabs_share_one_connection_and_stay_in_step(data_dir: Path) -> None:
    """One tab more than a browser opens connections to a server over HTTP/1.1."""
    async with open_house(data_dir) as house:
        gate = Gate()
        house.provider.on("everyone", ["Hello to", gate, " all of you."])
        context = await house.context()
        first = await house.open(context=context)
        await say(first, "hello everyone")
        await expect(first.locator(".md")).to_contain_text("Hello to")
        tabs = [first] + [await house.open(first.url.split("/", 3)[3], context=context) for _ in range(6)]
        for tab in tabs:
            await expect(tab.locator(".md")).to_contain_text("Hello to")
        # With each tab the one connection was made anew; the server may not have noticed yet that the last is gone.
        streams = 0.0
        with anyio.move_on_after(PATIENCE_S):
            while (streams := (await metrics_of(house.url))["everturn_streams_open"]) != 1:
                await first.wait_for_timeout(100)
        assert streams == 1
        gate.opened.set()
        for tab in tabs:
            await expect(tab.locator(".md")).to_have_text(re.compile(r"^Hello to all of you\.\s*$"))
        await say(tabs[6], "another")
        for tab in tabs:
            await expect(tab.locator('article[data-state="completed"]')).to_have_count(2)
        await tabs[3].evaluate("document.dispatchEvent(new CustomEvent('everturn:rename'))")
        await tabs[3].fill(".bar .title", "Named in tab three")
        await tabs[3].press(".bar .title", "Enter")
        for tab in tabs:
            await expect(tab.locator(".bar h1")).to_have_text("Named in tab three")
        assert house.complaints == []


async def metrics_of(url: str) -> dict[str, float]:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        text = (await client.get(url + "metrics")).text
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in rows}


async def test_without_a_shared_worker_a_tab_follows_on_its_own(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        context = await house.context()
        await context.add_init_script("delete globalThis.SharedWorker")
        page = await house.open(context=context)
        await say(page, "alone")
        await expect(page.locator(".md")).to_contain_text("You said: alone")
        await house.kill()
        await expect(page.locator(".bar .chip", has_text="Reconnecting")).to_be_visible()
        await house.start()
        await expect(page.locator(".bar .chip", has_text="Reconnecting")).to_have_count(0)
        await say(page, "again")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(2)
        assert house.complaints == []


async def test_an_expired_sign_in_overlays_and_loses_no_draft(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.extra["EVERTURN_PASSWORD"] = "correct horse"
        await house.start()
        page = await house.open()
        await page.fill(".dialog input", "wrong")
        await page.press(".dialog input", "Enter")
        await expect(page.locator(".dialog [role=alert]")).to_be_visible()
        await page.fill(".dialog input", "correct horse")
        await page.press(".dialog input", "Enter")
        await expect(page.locator(".dialog")).to_have_count(0)
        await page.fill("[data-composer]", "typed before it ran out")
        await page.context.clear_cookies()
        await page.press("[data-composer]", "Enter")
        await expect(page.locator(".dialog h2")).to_have_text("Sign in")
        await page.fill(".dialog input", "correct horse")
        await page.press(".dialog input", "Enter")
        await expect(page.locator(".you .say")).to_have_text("typed before it ran out")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)


async def test_an_old_tab_offers_to_reload_after_an_upgrade(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "before")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)

        async def newer(route: object) -> None:
            body = '<!doctype html><script type="module" src="./assets/index-newer000.js"></script>'
            await route.fulfill(body=body, content_type="text/html")  # type: ignore[attr-defined]  # a Playwright route

        await page.route(lambda url: url.rstrip("/") == house.url.rstrip("/"), newer)
        await house.kill()
        await house.start()
        await expect(page.locator(".chip", has_text="Everturn was updated")).to_be_visible()


async def test_a_waiting_approval_survives_the_server_and_the_browser(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("risky", [Tool("terminal", {"command": "$TOOL"})], ["Not done."])
        page = await house.open()
        await say(page, "something risky")
        await expect(page.locator(".card.wait .cmd")).to_have_text("$TOOL")
        await house.kill()
        await page.close()
        await house.start()
        page = await house.open()
        await expect(page.locator(".side .tagn")).to_have_text("Approve")
        await page.keyboard.press("Escape")
        await page.evaluate("document.activeElement.blur()")
        card = page.locator(".card.wait .cmd")
        with anyio.move_on_after(PATIENCE_S):
            # Two keys within two seconds, which a busy machine may not manage the first time.
            while not await card.is_visible():
                await page.keyboard.press("g")
                await page.keyboard.press("i")
                await page.wait_for_timeout(200)
        await expect(card).to_have_text("$TOOL")
        await page.get_by_role("button", name=re.compile("^Deny")).click()
        await expect(page.locator(".md")).to_contain_text("Not done.")


async def allowed(page: Page) -> None:
    """The call runs, allowed where that is asked."""
    allow = page.get_by_role("button", name="Allow once")
    await expect(allow.or_(page.locator(".out.live")).first).to_be_visible()
    if await allow.is_visible():
        await allow.click()


async def test_what_a_command_printed_is_there_after_stop_and_reload(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("build", [Tool("terminal", {"command": COMMAND})])
        page = await house.open()
        await say(page, "build it")
        await allowed(page)
        await expect(page.locator(".out.live")).to_contain_text("compiled 40 of 100")
        await page.locator(".card.run").get_by_role("button", name="Stop").click()
        for _ in range(2):
            await expect(page.locator('article[data-state="cancelled"] .out')).to_contain_text(
                "compiled 40 of 100"
            )
            await expect(page.locator(".card.doubt .under")).to_contain_text(
                "You stopped it while it was running"
            )
            await page.reload()
        assert house.complaints == []


async def test_a_stopped_command_that_printed_nothing_reads_the_same_after_a_reload(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("wait", [Tool("terminal", {"command": "sleep 600"})])
        page = await house.open()
        await say(page, "wait a while")
        allow = page.get_by_role("button", name="Allow once")
        stop = page.locator(".card.run").get_by_role("button", name="Stop")
        await expect(allow.or_(stop).first).to_be_visible()
        if await allow.is_visible():
            await allow.click()
        await stop.click()
        for _ in range(2):
            card = page.locator('article[data-state="cancelled"] .card.doubt')
            await expect(card).to_contain_text("You stopped it while it was running")
            await expect(card).not_to_contain_text("never reported back")
            await page.reload()


async def test_the_card_of_a_call_in_doubt_shows_what_it_had_printed(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on("build", [Tool("terminal", {"command": COMMAND})], ["I will look."])
        page = await house.open()
        await say(page, "build it")
        await allowed(page)
        await expect(page.locator(".out.live")).to_contain_text("compiled 40 of 100")
        await house.kill()
        await house.start()
        card = page.locator(".card.doubt[data-ask]")
        for _ in range(2):
            await expect(card.locator(".out")).to_contain_text("compiled 40 of 100")
            await page.reload()
        await card.get_by_role("button").first.click()
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        for _ in range(2):
            await expect(page.locator("article .card.doubt .out")).to_contain_text("compiled 40 of 100")
            await page.reload()
        assert house.complaints == []
