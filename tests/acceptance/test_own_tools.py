"""Own tools, as docs/tools.md shows them: pasted, used, killed, and seen on the page."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from playwright.async_api import expect

from everturn.testing import within
from tests.acceptance.command_line import command
from tests.acceptance.paging import PATIENCE_S, House, Tool, open_house

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]
DOCS = Path(__file__).parents[2] / "docs/tools.md"

ONCE = '''
import time
from pathlib import Path

import everturn


def leave_mark(call: everturn.ToolCall) -> None:
    with Path(call.workspace, "marks").open("a") as file:
        file.write("x")
    while not Path(call.workspace, "go").exists():
        time.sleep(0.02)


@everturn.tool(asks=False)
def pay(call: everturn.ToolCall) -> str:
    """Pay."""
    leave_mark(call)
    return "paid"


@everturn.tool(asks=False, is_safe_to_repeat=True)
def look(call: everturn.ToolCall) -> str:
    """Look."""
    leave_mark(call)
    return "looked"
'''


def example() -> str:
    [text] = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)[:1]
    return text


def paste(home: Path, name: str, text: str) -> None:
    (home / "tools").mkdir(parents=True, exist_ok=True)
    (home / "tools" / name).write_text(text)


async def ask(house: House, text: str) -> str:
    session = await house.api("POST", "api/sessions", json={})
    made = await house.api(
        "POST",
        f"api/sessions/{session['id']}/turns",
        json={"text": text},
        headers={"Idempotency-Key": text.replace(" ", "-")},
    )
    return made["turn"]["id"]


async def state_of(house: House, turn: str, *states: str) -> dict:
    with within(f"the turn is {states}", PATIENCE_S):
        while True:
            found = await house.api("GET", f"api/turns/{turn}")
            if found["state"] in states:
                return found
            await anyio.sleep(0.05)


def results(house: House) -> list[str]:
    """What the tools returned to the model, as the last request with such results has it."""
    found = [
        [m["content"] for m in asked["messages"] if m["role"] == "tool"] for asked in house.provider.asked
    ]
    return next(texts for texts in reversed(found) if texts)


@pytest.fixture
async def house(anyio_backend: str, data_dir: Path) -> AsyncIterator[House]:
    async with open_house(data_dir) as opened:
        yield opened


async def test_the_example_of_the_documentation_works_as_soon_as_it_is_pasted(
    house: House, data_dir: Path
) -> None:
    house.provider.on("how many", [Tool("stock", {"article": "nails"})], ["Twelve."])
    house.provider.on("order some", [Tool("order", {"article": "nails", "count": 3})], ["Done."])
    paste(data_dir, "shop.py", example())
    await state_of(house, await ask(house, "how many nails"), "completed")
    assert '"nails": 12' in results(house)[0]
    turn = await ask(house, "order some nails")
    await state_of(house, turn, "waiting")
    page = await house.open()
    await page.goto(f"{house.url}#/needs")
    await expect(page.get_by_text("uns your own tool order (tools/shop.py)").first).to_be_visible()
    [approval] = (await house.api("GET", "api/approvals"))["items"]
    await house.api("POST", f"api/approvals/{approval['id']}", json={"decision": "once"})
    await state_of(house, turn, "completed")
    [orders] = (data_dir / "workspaces").glob("*/orders.jsonl")
    assert [json.loads(line)["count"] for line in orders.read_text().splitlines()] == [3]
    assert house.complaints == []


@pytest.mark.parametrize(("tool", "times"), [("pay", 1), ("look", 2)])
async def test_a_killed_call_is_in_doubt_unless_it_is_safe_to_repeat(
    house: House, data_dir: Path, tool: str, times: int
) -> None:
    paste(data_dir, "once.py", ONCE)
    house.provider.on("do it", [Tool(tool, {})], ["Done."])
    turn = await ask(house, "do it")
    with within("the function runs", PATIENCE_S):
        while not (marks := list((data_dir / "workspaces").glob("*/marks"))) or not marks[0].read_text():
            await anyio.sleep(0.02)
    await house.kill()
    (marks[0].parent / "go").touch()
    await house.start()
    await state_of(house, turn, "waiting" if times == 1 else "completed")
    assert marks[0].read_text() == "x" * times
    if times == 1:
        [doubt] = (await house.api("GET", "api/approvals"))["items"]
        assert doubt["topic"] == "doubt"
        await house.api("POST", f"api/questions/{doubt['id']}", json={"answer": "check"})
        await state_of(house, turn, "completed")
        assert marks[0].read_text() == "x"
        assert "Outcome unknown" in results(house)[0]


async def test_a_mistake_is_shown_on_the_page_and_by_the_doctor_while_the_rest_works(
    house: House, data_dir: Path
) -> None:
    paste(data_dir, "shop.py", example())
    paste(data_dir, "broken.py", "import everturn\n\n@everturn.tool\ndef x(:\n")
    page = await house.open()
    await page.goto(f"{house.url}#/settings/tools")
    await expect(page.get_by_role("heading", name="Your own tools")).to_be_visible()
    row = page.locator(".srow", has_text="tools/broken.py")
    await expect(row).to_contain_text("Line 4: invalid syntax.")
    order = page.locator(".srow", has_text="Order an article from the supplier.")
    await expect(order).to_contain_text(
        "tools/shop.py · asks before it runs · never repeated by itself · at most 120 s"
    )
    assert house.complaints == []
    told = await command(data_dir, "doctor")
    assert told.returncode == 1
    assert "Own tools: tools/broken.py" in told.stdout
    assert "Line 4: invalid syntax." in told.stdout
