"""Before the page has loaded: compressed files, a first paint, and nothing that is not known yet."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import httpx2
import pytest
from playwright.async_api import Route, expect

from everturn.testing import within
from tests.acceptance.paging import PAGE, PATIENCE_S, open_house, say
from tests.acceptance.seeding import many_sessions

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]


async def test_the_page_is_sent_compressed(data_dir: Path) -> None:
    async with (
        open_house(data_dir) as house,
        httpx2.AsyncClient(base_url=house.url, timeout=PATIENCE_S) as client,
    ):
        assets = (PAGE.parent / "assets").iterdir()
        script = max((file for file in assets if file.suffix == ".js"), key=lambda file: file.stat().st_size)

        async def sent(accepted: str) -> tuple[str, int]:
            answer = await client.get(f"assets/{script.name}", headers={"accept-encoding": accepted})
            assert answer.headers["vary"] == "accept-encoding"
            return answer.headers.get("content-encoding", ""), int(answer.headers["content-length"])

        whole = script.stat().st_size
        assert await sent("identity") == ("", whole)
        assert await sent("br;q=0, gzip;q=0.0") == ("", whole)
        coding, size = await sent("gzip, deflate")
        assert coding == "gzip"
        assert size < whole / 2.5
        coding, size = await sent("gzip, deflate, br, zstd")
        assert coding == "br"
        assert size < whole / 3


async def test_the_frame_is_painted_while_script_and_styles_are_on_the_way(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        may_go = anyio.Event()

        async def hold(route: Route) -> None:
            await may_go.wait()
            await route.continue_()

        await page.route(re.compile(r"/assets/"), hold)
        await page.goto(house.url, wait_until="commit")
        await expect(page.locator("#shell")).to_be_visible()
        with within("the first paint", PATIENCE_S):
            while not await page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
                await page.wait_for_timeout(20)
        composer = await page.locator("#shell p").bounding_box()
        may_go.set()
        await expect(page.locator("[data-composer]")).to_be_visible()
        await expect(page.locator("#shell")).to_have_count(0)
        real = await page.locator(".comp").bounding_box()
        assert composer is not None
        assert real is not None
        assert abs(composer["x"] - real["x"]) < 4
        assert abs(composer["width"] - real["width"]) < 8
        assert house.complaints == []


async def test_nothing_about_models_is_shown_behind_the_sign_in(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.extra["EVERTURN_PASSWORD"] = "a long enough password"
        await house.start()
        page = await (await house.context()).new_page()
        await page.goto(house.url)
        await expect(page.get_by_role("dialog")).to_be_visible()
        await expect(page.locator(".hello")).to_have_count(1)
        await expect(page.locator(".hello :is(h2, .mrow)")).to_have_count(0)
        await page.get_by_label("Password").fill("a long enough password")
        await page.keyboard.press("Enter")
        await expect(page.locator(".hello h2")).to_be_visible()
        await expect(page.locator(".hello .mrow")).to_have_count(0)
        await expect(page.locator(".comp .pick")).to_contain_text("test-model")


async def test_tab_meets_a_skip_link_and_one_stop_for_all_sessions(data_dir: Path) -> None:
    made = await many_sessions(data_dir, 120)
    async with open_house(data_dir) as house:
        page = await house.open()
        await expect(page.get_by_role("heading", level=1)).to_have_count(1)
        await expect(page.locator(".side .row", has_text="Session 119")).to_be_visible()
        await page.evaluate("document.body.tabIndex = -1; document.body.focus();")
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await expect(page.locator(".skip")).to_be_in_viewport(ratio=1)
        await page.keyboard.press("Enter")
        await expect(page.locator("[data-composer]")).to_be_focused()
        stops = page.locator(".side .list :is(a, button):not([tabindex='-1'])")
        await expect(stops).to_have_count(1)
        await stops.focus()
        await page.keyboard.press("End")
        await expect(page.locator(".side .row:focus")).to_be_in_viewport(ratio=1)
        await page.keyboard.press("Home")
        await expect(page.locator(".side .row:focus")).to_be_in_viewport(ratio=1)
        for _ in range(60):
            await page.keyboard.press("ArrowDown")
        row = page.locator(".side .row:focus")
        await expect(row).to_have_text(re.compile("Session "))
        await expect(row).to_be_in_viewport(ratio=1)
        await expect(stops).to_have_count(1)
        chosen = await row.get_attribute("href")
        assert chosen in {f"#/s/{one}" for one in made}
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("menu")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(row).to_have_attribute("href", chosen)
        await page.keyboard.press("Enter")
        await expect(page.locator(".side .row.sel")).to_have_attribute("href", chosen)
        await page.goto(f"{house.url}#/settings/models")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
        assert house.complaints == []


async def test_a_title_that_is_being_changed_leaves_the_page_its_heading(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await say(page, "hello")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await page.locator(".bar h1").dblclick()
        await expect(page.locator(".bar .title")).to_be_focused()
        await expect(page.get_by_role("heading", level=1)).to_have_count(1)


async def test_parts_that_load_later_are_there_when_the_server_is_away(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        for part in ("Roll", "SignIn", "Keys", "Panel", "Settings"):
            await page.wait_for_function(
                "(part) => performance.getEntriesByType('resource').some((entry) => entry.name.includes(`/${part}-`) && entry.name.endsWith('.js'))",
                arg=part,
            )
        await house.kill()
        await say(page, "written while the server is away")
        await expect(page.locator(".you.failed")).to_have_count(1)
        await page.locator("body").press("Control+k")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.goto(f"{house.url}#/settings/keyboard")
        await expect(page.locator(".keys")).to_be_visible()
        assert house.complaints == []


async def test_a_part_that_could_not_be_loaded_is_asked_for_again(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        session = (await house.api("POST", "api/sessions", json={}))["id"]
        await house.api("POST", f"api/sessions/{session}/turns", json={"text": "hello"})
        page = await (await house.context()).new_page()
        refused = 0

        async def refuse_once(route: Route) -> None:
            nonlocal refused
            refused += 1
            await (route.abort() if refused == 1 else route.continue_())

        await page.route(re.compile(r"/assets/Roll-[\w-]+\.js"), refuse_once)
        await page.goto(f"{house.url}#/s/{session}")
        await expect(page.locator("article")).to_contain_text("You said: hello")
        assert refused > 1
        assert house.complaints == []


async def test_what_is_typed_right_after_the_palettes_key_goes_into_the_palette(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()

        async def never(route: Route) -> None:
            await route.abort()

        # Parts that load later are not there yet: those that the page itself does not name.
        first = [*re.findall(r"assets/([\w.-]+\.js)", PAGE.read_text()), "worker-"]
        await page.route(re.compile(rf"/assets/(?!{'|'.join(map(re.escape, first))})[\w.-]+\.js"), never)
        await page.goto(house.url)
        await page.wait_for_selector("[data-composer]")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("words")
        await expect(page.get_by_role("dialog").locator("input")).to_have_value("words")
        await expect(page.locator("[data-composer]")).to_have_value("")


async def test_a_package_without_the_local_extra_promises_no_model(data_dir: Path) -> None:
    command = "/opt/everturn/bin/python -m pip install 'everturn[local]'"

    async def without_runtime(route: Route) -> None:
        answer = await route.fetch()
        listed = await answer.json()
        line = {
            "name": "pocket:smollm2-135m",
            "provider": "pocket",
            "state": "no_runtime",
            "size": 98362432,
            "is_small": True,
            "note": f"Set a key, start a server such as Ollama, or run: {command}",
        }
        await route.fulfill(response=answer, json={**listed, "default": line["name"], "models": [line]})

    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.route(re.compile(r"/api/models$"), without_runtime)
        await page.goto(house.url)
        await expect(page.get_by_role("heading", name="No model is connected yet.")).to_be_visible()
        await expect(page.locator(".hello code")).to_have_text(command)
        await expect(page.locator(".comp")).not_to_contain_text("Set a key")
