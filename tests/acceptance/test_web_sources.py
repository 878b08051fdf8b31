"""A search of the web: its sources below the answer and in the export, and a kill while it is under way."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from playwright.async_api import expect

from everturn.testing import within
from tests.acceptance.paging import PATIENCE_S, House, Tool, open_house
from tests.acceptance.test_own_tools import ask, results, state_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]
HITS = [
    {"url": "https://one.example/a", "title": "The first page", "content": "Nails."},
    {"url": "https://two.example/b", "title": "The second page", "content": "Screws."},
]


class Engine(ThreadingHTTPServer):
    """Answers as a SearXNG does, once it may."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()


class _Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.may_answer.wait(PATIENCE_S)
        body = json.dumps({"results": HITS}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    thread = threading.Thread(target=engine.serve_forever, daemon=True)
    thread.start()
    yield engine
    engine.may_answer.set()
    engine.shutdown()
    engine.server_close()
    thread.join()


@pytest.fixture
async def house(anyio_backend: str, data_dir: Path, engine: Engine) -> AsyncIterator[House]:
    data_dir.mkdir(exist_ok=True)
    address = f"http://127.0.0.1:{engine.server_address[1]}"
    (data_dir / "config.toml").write_text(f'[search]\nurl = "{address}"\n')
    async with open_house(data_dir) as opened:
        opened.provider.on("find", [Tool("web_search", {"query": "nails"})], ["Here: https://one.example/a."])
        yield opened


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_sources_stand_below_the_answer_and_in_the_export(house: House, width: int) -> None:
    turn = await state_of(house, await ask(house, "find nails"), "completed")
    page = await house.open()
    await page.set_viewport_size({"width": width, "height": 800})
    await page.goto(f"{house.url}#/s/{turn['session_id']}")
    sources = page.get_by_role("navigation", name="Sources")
    link = sources.get_by_role("link")
    await expect(link).to_have_count(1)
    await expect(link).to_have_text("The first page")
    await expect(link).to_have_attribute("href", "https://one.example/a")
    await expect(link).to_have_attribute("rel", "noopener noreferrer")
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.reload()
    await expect(sources).to_contain_text("one.example")
    exported = await page.request.get(f"{house.url}api/sessions/{turn['session_id']}/export?format=html")
    words = await exported.text()
    assert '<a href="https://one.example/a" rel="noopener noreferrer">The first page</a>' in words
    assert house.complaints == []


async def test_a_kill_during_a_search_repeats_it_and_gives_one_result(house: House, engine: Engine) -> None:
    engine.may_answer.clear()
    turn = await ask(house, "find nails")
    with within("the search is under way", PATIENCE_S):
        while not engine.asked:
            await anyio.sleep(0.02)
    await house.kill()
    engine.may_answer.set()
    await house.start()
    await state_of(house, turn, "completed")
    assert engine.asked == 2
    [found] = results(house)
    assert "https://one.example/a" in found
