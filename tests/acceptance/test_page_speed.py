"""A session of 10,000 messages in the browser, and typing while an answer pours in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, Gate, open_house, say
from tests.acceptance.seeding import long_session

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
TURNS = 2_500
NODES_MAX = 3_000
# The aims of the page. They are wall-clock times, so only a quiet machine can be held to them; a shared one
# is held to what does not depend on its neighbours: the nodes, and that nothing jumps.
IS_QUIET = bool(os.environ.get("EVERTURN_QUIET_MACHINE"))
FRAME_P95_MAX_MS = 34
TASK_MAX_MS = 100


WATCH = """() => {
    window.frames_ms = []; window.tasks_ms = [];
    new PerformanceObserver((list) => list.getEntries().forEach((task) => window.tasks_ms.push(task.duration)))
        .observe({ type: "longtask" });
    let last = performance.now();
    const frame = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
}"""


async def figures(page: Page) -> dict[str, float]:
    return await page.evaluate(
        """() => {
            const frames = [...window.frames_ms].sort((a, b) => a - b);
            return {
                frames: frames.length,
                p50: frames[Math.floor(frames.length * 0.5)],
                p95: frames[Math.floor(frames.length * 0.95)],
                task: Math.max(0, ...window.tasks_ms),
                nodes: document.querySelectorAll('*').length,
            };
        }"""
    )


async def test_ten_thousand_messages_scroll_smoothly_with_few_nodes(data_dir: Path) -> None:
    session = await long_session(data_dir, TURNS)
    async with open_house(data_dir) as house:
        page = await house.open(f"#/s/{session}")
        await expect(page.locator("article").last).to_contain_text(f"Question {TURNS - 1}:")
        await page.locator(".roll").hover()
        await page.evaluate(WATCH)
        most = 0.0
        for _ in range(30):
            await page.mouse.wheel(0, -1800)
            await page.wait_for_timeout(40)
            most = max(most, (await figures(page))["nodes"])
        seen = await figures(page)
        print(f"scrolling: {seen}, most nodes {most}")
        with within("it goes back through older pages", PATIENCE_S):
            while (
                int((await page.locator("article .say").first.inner_text()).split()[1].strip(":"))
                >= TURNS - 60
            ):
                await page.mouse.wheel(0, -900)
                await page.wait_for_timeout(100)
        assert most <= NODES_MAX
        if IS_QUIET:
            assert seen["p50"] <= 50
            assert seen["p95"] <= FRAME_P95_MAX_MS
            assert seen["task"] <= TASK_MAX_MS
        # What is in view stays in view while older pages are put before it.
        turn, before = await page.evaluate(
            "() => { const top = document.querySelectorAll('article')[1]; return [top.dataset.turn, top.getBoundingClientRect().y]; }"
        )
        await page.wait_for_timeout(600)
        box = await page.locator(f'article[data-turn="{turn}"]').bounding_box()
        assert box is not None
        assert abs(box["y"] - before) < 2
        await page.locator(".pill").click()
        await expect(page.locator("article").last).to_contain_text(f"Question {TURNS - 1}:")
        assert house.complaints == []


async def test_typing_stays_quick_while_an_answer_pours_in(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        gate = Gate()
        word = "Some **words** that come fast, with `code` and more of them. "
        house.provider.on("pour", [word * 20 + "\n\n", gate, (word * 3 + "\n\n") * 120])
        page = await house.open()
        await say(page, "pour")
        await expect(page.locator(".md")).to_contain_text("come fast")
        await page.evaluate(
            """() => {
                window.waits = [];
                new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.waits.push(entry.duration)))
                    .observe({ type: "event", durationThreshold: 16 });
            }"""
        )
        gate.opened.set()
        await page.locator("[data-composer]").press_sequentially("typing while it pours in quickly", delay=30)
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator("[data-composer]")).to_have_value("typing while it pours in quickly")
        waits = sorted(await page.evaluate("window.waits")) or [0]
        print(
            f"interaction to next paint: p50 {waits[len(waits) // 2]}, max {waits[-1]} ms over {len(waits)}"
        )
        if IS_QUIET:
            assert waits[-1] <= 100


SLOWED = 6
KEYS = "every key is painted soon, however slow the machine is"


@pytest.mark.timeout(300)
async def test_keys_are_painted_soon_on_a_slow_machine_while_an_answer_streams(data_dir: Path) -> None:
    """The processor is slowed six-fold, and an answer of 45,000 characters comes as fast as the server can send it."""
    async with open_house(data_dir) as house:
        gate = Gate()
        word = "Some **words** that come fast, with `code` and more of them. "
        house.provider.on("pour", [word * 20 + "\n\n", gate, (word * 6 + "\n\n") * 120])
        page = await house.open()
        await say(page, "pour")
        await expect(page.locator(".md")).to_contain_text("come fast")
        await page.evaluate(
            """() => {
                window.waits = [];
                new PerformanceObserver((list) => list.getEntries()
                    .filter((entry) => entry.name === "keydown")
                    .forEach((entry) => window.waits.push(entry.duration)))
                    .observe({ type: "event", durationThreshold: 16 });
            }"""
        )
        browser = await page.context.new_cdp_session(page)
        await browser.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
        gate.opened.set()
        await page.locator("[data-composer]").press_sequentially(KEYS, delay=60)
        during = await page.locator('article[data-state="running"]').count()
        await browser.send("Emulation.setCPUThrottlingRate", {"rate": 1})
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.locator(".md").last).to_contain_text(
            (word * 6).strip().replace("*", "").replace("`", "")
        )
        await expect(page.locator("[data-composer]")).to_have_value(KEYS)
        waits = sorted(await page.evaluate("window.waits")) or [0]
        late = sum(1 for wait in waits if wait > 100)
        print(
            f"key to paint, slowed {SLOWED} times: p50 {waits[len(waits) // 2]}, p95 {waits[int(len(waits) * 0.95)]}, "
            f"max {waits[-1]} ms over {len(waits)} of {len(KEYS)} keys, {late} above 100 ms; still streaming: "
            f"{during}; load {os.getloadavg()[0]:.1f}"
        )
        if IS_QUIET:
            assert waits[-1] <= 100


@pytest.mark.timeout(120)
async def test_a_long_answer_between_short_ones_opens_at_every_width(data_dir: Path) -> None:
    """Turns that were not drawn yet are guessed at; a wrong guess must not keep the page busy for ever."""
    async with open_house(data_dir) as house:
        story = "\n\n".join("A paragraph of a story that goes on and on. " * 6 for _ in range(12))
        house.provider.on("story", [story])
        session = (await house.api("POST", "api/sessions", json={}))["id"]
        for words in ("hello", "a story", "thanks"):
            await house.api("POST", f"api/sessions/{session}/turns", json={"text": words})
        seen = await house.open(f"#/s/{session}")
        await expect(seen.locator('article[data-state="completed"]').last).to_contain_text("You said: thanks")
        for width in (360, 480, 1280):
            page = await (await house.context()).new_page()
            await page.set_viewport_size({"width": width, "height": 740})
            await page.goto(f"{house.url}#/s/{session}")
            await expect(page.locator("article").last).to_contain_text("You said: thanks")
            await expect(page.locator("[data-composer]")).to_be_editable()
            await page.context.close()
        assert house.complaints == []


async def test_a_key_in_a_very_long_line_is_quick(data_dir: Path) -> None:
    """Found anew by the browser with every key, the direction of the text alone took it most of the time."""
    async with open_house(data_dir) as house:
        page = await house.open()
        composer = page.locator("[data-composer]")
        await expect(composer).to_have_attribute("dir", "auto")
        await composer.fill("\u05e9\u05dc\u05d5\u05dd " * 3_000)
        await expect(composer).to_have_attribute("dir", "rtl")
        await composer.fill("x" * 200_000)
        await expect(composer).to_have_attribute("dir", "ltr")
        await page.evaluate(
            """() => {
                window.waits = [];
                new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.waits.push(entry.duration)))
                    .observe({ type: "event", durationThreshold: 16 });
            }"""
        )
        await composer.press_sequentially("keys", delay=50)
        await expect(composer).to_have_value("x" * 200_000 + "keys")
        waits = sorted(await page.evaluate("window.waits")) or [0]
        print(f"key to paint in a line of 200,000: p50 {waits[len(waits) // 2]}, max {waits[-1]} ms")
        if IS_QUIET:
            assert waits[len(waits) // 2] <= 100
