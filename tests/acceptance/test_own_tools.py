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


def hooks_example() -> str:
    return re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)[1]


def diary(home: Path) -> list[dict]:
    file = home / "diary.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def until_written(home: Path, lines: int) -> list[dict]:
    with within(f"the diary has {lines} lines", PATIENCE_S):
        while len(diary(home)) < lines:
            await anyio.sleep(0.05)
    return diary(home)


async def test_the_hooks_of_the_documentation_refuse_and_are_told(house: House, data_dir: Path) -> None:
    paste(data_dir, "rules.py", hooks_example())
    paste(data_dir, "shop.py", example())
    house.provider.on("look at", [Tool("terminal", {"command": "ls accounts"})], ["I may not."])
    house.provider.on("how many", [Tool("stock", {"article": "nails"})], ["Twelve."])
    turn = await ask(house, "look at the accounts")
    await state_of(house, turn, "completed")
    assert "The folder of the accounts is not for the agent." in results(house)[0]
    await state_of(house, await ask(house, "how many nails"), "completed")
    first, second = await until_written(data_dir, 2)
    assert (first["tools"], first["answer"]) == (["terminal"], "I may not.")
    assert (second["tools"], second["answer"]) == (["stock"], "Twelve.")
    page = await house.open()
    found = await house.api("GET", f"api/turns/{turn}")
    await page.goto(f"{house.url}#/s/{found['session_id']}")
    await expect(page.get_by_text("I may not.").first).to_be_visible()
    await page.get_by_text("ls accounts").first.click()
    await expect(page.get_by_text("Refused by the hook tools/rules.py: no_deletion").first).to_be_visible()
    await page.goto(f"{house.url}#/settings/tools")
    row = page.locator(".srow", has_text="tools/rules.py: no_deletion")
    await expect(row).to_contain_text("asked before calls of terminal, python · at most 5 s")
    row = page.locator(".srow", has_text="tools/rules.py: keep_a_diary")
    await expect(row).to_contain_text("called after every completed turn · at most 30 s")
    assert house.complaints == []


SLOW = """
import json
import time
from pathlib import Path

import everturn

HOME = Path(__file__).parents[1]


@everturn.after_turn
def note(turn: everturn.TurnSummary) -> None:
    with (HOME / "diary.jsonl").open("a") as file:
        file.write(json.dumps({"key": turn.key, "repeat": turn.is_repeat}) + "\\n")
    while not (HOME / "go").exists():
        time.sleep(0.02)
    raise ValueError("the diary is full")
"""


async def test_a_killed_hook_is_called_again_with_its_key_and_a_failure_is_shown(
    house: House, data_dir: Path
) -> None:
    paste(data_dir, "slow.py", SLOW)
    house.provider.on("hello", ["Hello."])
    await state_of(house, await ask(house, "hello"), "completed")
    await until_written(data_dir, 1)
    await house.kill()
    (data_dir / "go").touch()
    await house.start()
    first, second = await until_written(data_dir, 2)
    assert first["key"] == second["key"]
    assert (first["repeat"], second["repeat"]) == (False, True)
    with within("the failure is stored", PATIENCE_S):
        while not (await house.api("GET", "api/tools"))["hooks"][0]["problem"]:
            await anyio.sleep(0.05)
    page = await house.open()
    await page.goto(f"{house.url}#/settings/tools")
    row = page.locator(".srow", has_text="tools/slow.py: note")
    await expect(row).to_contain_text("ValueError: the diary is full")
    told = await command(data_dir, "doctor")
    assert told.returncode == 1
    assert "Hook tools/slow.py: note" in told.stdout
    assert "ValueError: the diary is full" in told.stdout
    assert len(diary(data_dir)) == 2
