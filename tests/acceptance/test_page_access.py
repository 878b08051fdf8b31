"""Coming into a server without a password from where it cannot know its owner, with what ``everturn open`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.streams.text import TextReceiveStream
from playwright.async_api import expect

from tests.acceptance.command_line import command
from tests.acceptance.paging import PAGE, PATIENCE_S, House, open_house, say

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]
as_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can forward as another user"
)
on_page = pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)")

# What stands between a browser and the server outside WSL, or a port forwarding of another user.
_FORWARD = """
import asyncio, encodings.idna, os, sys
os.setgroups([])
os.setgid(43210)
os.setuid(43210)
async def pump(source, target):
    while piece := await source.read(65536):
        target.write(piece)
        await target.drain()
    target.close()
async def forward(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(pump(reader, there[1]), pump(there[0], writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@asynccontextmanager
async def forwarded(house: House) -> AsyncIterator[str]:
    """The server's address as others reach it: through a process of another user."""
    run = [sys.executable, "-I", "-c", _FORWARD, str(house.port)]
    async with await anyio.open_process(run, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        with anyio.fail_after(PATIENCE_S):
            port = (await TextReceiveStream(child.stdout).receive()).strip()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            child.terminate()


@as_root
@on_page
@pytest.mark.timeout(180)
async def test_the_address_of_everturn_open_lets_a_browser_in_once(data_dir: Path) -> None:
    async with open_house(data_dir) as house, forwarded(house) as address:
        said = await command(data_dir, "open", "--print", "--port", str(house.port))
        assert said.returncode == 0, said.stderr
        carrying = said.stdout.strip()
        assert carrying.startswith(f"{house.url}#access=evc_")
        house.provider.on("hello", ["Hello yourself."])
        context = await house.context()
        page = await context.new_page()
        await page.goto(carrying.replace(house.url, address))
        await page.wait_for_selector("[data-composer]")
        await say(page, "hello")
        await expect(page.get_by_text("Hello yourself.")).to_be_visible()
        assert "access" not in page.url
        await page.reload()
        await expect(page.get_by_text("Hello yourself.")).to_be_visible()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        # A later visitor who finds it in the history gets the question instead.
        late = await (await house.context()).new_page()
        await late.goto(carrying.replace(house.url, address))
        await expect(late.get_by_role("dialog")).to_be_visible()
        assert "access" not in late.url


@as_root
@on_page
@pytest.mark.timeout(180)
async def test_the_page_asks_for_the_token_and_takes_it(data_dir: Path) -> None:
    async with open_house(data_dir) as house, forwarded(house) as address:
        token = (await command(data_dir, "open", "--token")).stdout.strip()
        page = await (await house.context()).new_page()
        await page.goto(address)
        field = page.get_by_label("Access token")
        await expect(field).to_be_visible()
        await field.fill("eva_wrong")
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("Wrong token")
        await field.fill(f" {token}\n")
        await field.press("Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        house.provider.on("hello", ["Hello yourself."])
        await say(page, "hello")
        await expect(page.get_by_text("Hello yourself.")).to_be_visible()
        # The owner's own browser is asked for nothing.
        own = await house.open()
        await expect(own.get_by_role("dialog")).to_have_count(0)


@as_root
@pytest.mark.timeout(180)
async def test_chat_takes_the_token_where_it_is_not_known(data_dir: Path) -> None:
    async with open_house(data_dir) as house, forwarded(house) as address:
        refused = await command(data_dir, "chat", "--server", address)
        assert refused.returncode == 1
        assert "everturn open --token" in refused.stderr
        token = (await command(data_dir, "open", "--token")).stdout.strip()
        taken = await command(data_dir, "chat", "--server", address, EVERTURN_TOKEN=token)
        assert taken.returncode == 0, taken.stderr
        own = await command(data_dir, "chat", "--server", house.url)
        assert own.returncode == 0, own.stderr


async def test_open_says_what_is_missing(tmp_path: Path) -> None:
    said = await command(tmp_path, "open", "--print")
    assert said.returncode == 1
    assert "everturn serve" in said.stderr


@on_page
@pytest.mark.timeout(180)
async def test_a_right_password_waits_for_its_turn(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.extra["EVERTURN_PASSWORD"] = "correct horse battery"
        await house.start()
        async with httpx2.AsyncClient(base_url=house.url, timeout=PATIENCE_S) as guesser:
            for _ in range(5):
                refused = await guesser.post("api/signin", json={"password": "wrong guess"})
                assert refused.status_code == 401
        page = await (await house.context()).new_page()
        await page.goto(house.url)
        await page.get_by_label("Password").fill("correct horse battery")
        await page.get_by_label("Password").press("Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)


@on_page
@pytest.mark.timeout(180)
async def test_signing_in_at_one_tab_opens_the_others_too(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        context = await house.context()
        first = await house.open(context=context)
        await say(first, "hello")
        await expect(first.locator('article[data-state="completed"]')).to_have_count(1)
        second = await house.open(context=context)
        await second.goto(first.url)
        await expect(second.locator("article")).to_have_count(1)
        await house.stop()
        house.extra["EVERTURN_PASSWORD"] = "correct horse battery"
        await house.start()
        drafts = "Your drafts stay where they are."
        for page in (first, second):
            await expect(page.get_by_role("dialog")).to_contain_text(drafts)
        stranger = await (await house.context()).new_page()
        await stranger.goto(house.url)
        await expect(stranger.get_by_label("Password")).to_be_visible()
        await expect(stranger.get_by_text(drafts)).to_have_count(0)
        await first.get_by_label("Password").fill("correct horse battery")
        await first.get_by_label("Password").press("Enter")
        for page in (first, second):
            await expect(page.get_by_role("dialog")).to_have_count(0)
        await say(second, "and again")
        await expect(second.locator('article[data-state="completed"]')).to_have_count(2)
        await expect(stranger.get_by_role("dialog")).to_be_visible()
