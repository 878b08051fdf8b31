"""After a send the page follows: your message and the growing answer are in view, whatever the timing."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from everturn.testing import within
from tests.acceptance.looking import END, at_rest, is_followed
from tests.acceptance.paging import IS_LONG, PAGE, PATIENCE_S, Gate, House, open_house, say
from tests.acceptance.seeding import long_session

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
SIZES = {1440: 900, 390: 760}
# A page that does not follow loses about every second send: so many leave one chance in a thousand to miss it.
SENDS = 10
SLOW_DOWN = 6


async def throttled(house: House, session: str, width: int) -> Page:
    context = await house.context()
    page = await context.new_page()
    await page.set_viewport_size({"width": width, "height": SIZES[width]})
    await page.goto(f"{house.url}#/s/{session}")
    await page.wait_for_selector("[data-composer]")
    await expect(page.locator("article").last).to_be_in_viewport()
    cdp = await context.new_cdp_session(page)
    await cdp.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_DOWN})
    return page


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", SIZES if IS_LONG else [1440])
async def test_every_send_on_a_slow_machine_is_followed_to_the_end_of_its_answer(
    data_dir: Path, width: int
) -> None:
    session = await long_session(data_dir, 12)
    async with open_house(data_dir) as house:
        page = await throttled(house, session, width)
        lost = []
        for number in range(SENDS):
            gate = Gate()
            part = f"Some words of answer {number}.\n\n" * 4
            house.provider.on(f"Ask {number}.", [part, gate, part])
            await say(page, f"Ask {number}.\n" + "More words.\n" * (number % 4))
            with within("the model answers", PATIENCE_S):
                await gate.reached.wait()
            last = page.locator(".turnbox.last")
            await expect(last.locator(".say")).to_contain_text(f"Ask {number}.")
            await expect(last.locator(".md")).to_contain_text(f"answer {number}")
            if not await is_followed(page):
                lost.append(f"{number} while it grew: {await page.evaluate(END)}")
            await expect(last.locator(".say")).to_be_in_viewport()
            gate.opened.set()
            await expect(last.locator("article")).to_have_attribute("data-state", "completed")
            if not await is_followed(page):
                lost.append(f"{number} when it was done: {await page.evaluate(END)}")
        assert lost == []
        assert house.complaints == []


async def opened(house: House, session: str) -> Page:
    page = await house.open(f"#/s/{session}")
    assert await is_followed(page)
    return page


async def test_what_shrinks_and_grows_between_two_frames_is_still_followed(data_dir: Path) -> None:
    """The browser moves the view up when its content shrinks, and says so later, when it has grown again."""
    session = await long_session(data_dir, 12)
    async with open_house(data_dir) as house:
        page = await opened(house, session)
        await page.evaluate(
            """async () => {
                const frame = () => new Promise((done) => requestAnimationFrame(done));
                const roll = document.querySelector(".roll"), column = roll.querySelector(".col");
                const spare = document.createElement("div");
                spare.style.height = "300px";
                column.append(spare);
                await frame(); await frame();
                spare.style.height = "0";
                // After the frame is drawn, before the next one begins: that one says that the view moved up.
                await new Promise((done) => {
                    const channel = new MessageChannel();
                    channel.port1.onmessage = done;
                    channel.port2.postMessage(null);
                });
                spare.style.height = "500px";
                await frame(); await frame();
            }"""
        )
        with within("the end is in view", PATIENCE_S):
            while await page.locator(".roll").evaluate(
                "(roll) => roll.scrollHeight - roll.scrollTop - roll.clientHeight > 1"
            ):
                await page.wait_for_timeout(50)
        await expect(page.locator(".pill")).to_have_count(0)


async def test_a_growing_composer_does_not_cover_the_end(data_dir: Path) -> None:
    session = await long_session(data_dir, 12)
    async with open_house(data_dir) as house:
        page = await opened(house, session)
        await page.fill("[data-composer]", "a line\n" * 12)
        assert await is_followed(page)
        await page.fill("[data-composer]", "")
        assert await is_followed(page)


@pytest.mark.parametrize("way", ["wheel", "key", "scrollbar", "touch"])
async def test_a_reader_who_scrolls_away_stays_there_until_the_next_send(data_dir: Path, way: str) -> None:
    session = await long_session(data_dir, 12)
    async with open_house(data_dir) as house:
        gate = Gate()
        paragraph = "Some words of a long answer.\n\n"
        house.provider.on("Go on", [paragraph * 20, gate, paragraph * 40])
        page = await house.open(f"#/s/{session}", has_touch=True)
        await say(page, "Go on")
        with within("the model answers", PATIENCE_S):
            await gate.reached.wait()
        await expect(page.locator(".turnbox.last .md")).to_contain_text("long answer")
        assert await is_followed(page)
        await scroll_up(page, way)
        await expect(page.locator(".pill")).to_be_visible()
        before = await at_rest(page)
        gate.opened.set()
        await expect(page.locator(".turnbox.last article")).to_have_attribute("data-state", "completed")
        assert abs(await at_rest(page) - before) < 2
        await say(page, "And now this")
        await expect(page.locator(".turnbox.last .md")).to_contain_text("You said: And now this")
        assert await is_followed(page)


async def scroll_up(page: Page, way: str) -> None:
    await page.locator(".roll").hover()
    if way == "wheel":
        await page.mouse.wheel(0, -500)
    elif way == "key":
        await page.locator(".roll").focus()
        await page.keyboard.press("PageUp")
    elif way == "scrollbar":
        # A headless browser draws no scrollbar: this is what one that is dragged does.
        await page.evaluate("document.querySelector('.roll').scrollTop -= 500")
    else:
        cdp = await page.context.new_cdp_session(page)
        box = await page.locator(".roll").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + 100
        for moved in range(0, 400, 20):
            kind = "touchMove" if moved else "touchStart"
            await cdp.send(
                "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y + moved}]}
            )
        await cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


async def test_a_reader_who_comes_back_to_the_end_follows_again(data_dir: Path) -> None:
    session = await long_session(data_dir, 12)
    async with open_house(data_dir) as house:
        page = await opened(house, session)
        await scroll_up(page, "wheel")
        await expect(page.locator(".pill")).to_be_visible()
        await page.mouse.wheel(0, 2000)
        await expect(page.locator(".pill")).to_have_count(0)
        assert await is_followed(page)
        # Within 80 px of the end nothing jumps, and the next words are followed all the same.
        before = await at_rest(page)
        await page.mouse.wheel(0, -40)
        with within("the wheel moves the view", PATIENCE_S):
            while await at_rest(page) >= before:
                pass
        await expect(page.locator(".pill")).to_have_count(0)
        await page.set_viewport_size({"width": 1280, "height": 700})
        assert await is_followed(page)
        # The event of the last scrolling may come after the session was left.
        view = await page.get_by_role("log").element_handle()
        await page.locator(".brand").get_by_label("New session").click()
        await expect(page.get_by_role("log")).to_have_count(0)
        await view.evaluate("node => node.dispatchEvent(new Event('scroll'))")
        assert house.complaints == []
