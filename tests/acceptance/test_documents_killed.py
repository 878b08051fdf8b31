"""A server that is killed while it reads a document, or while Python runs, tells the truth afterwards."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.testing import within
from tests.acceptance.paging import PATIENCE_S, House, Tool, open_house
from tests.office_files import make_xlsx

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]


async def turn_of(house: House, text: str, *attached: str) -> str:
    session = await house.api("POST", "api/sessions", json={})
    body = {"text": text, "attachments": list(attached)}
    made = await house.api(
        "POST", f"api/sessions/{session['id']}/turns", json=body, headers={"Idempotency-Key": "one"}
    )
    return made["turn"]["id"]


async def state_of(house: House, turn: str, *states: str) -> dict:
    with within(f"the turn is {states}", PATIENCE_S):
        while True:
            found = await house.api("GET", f"api/turns/{turn}")
            if found["state"] in states:
                return found
            await anyio.sleep(0.1)


async def test_a_document_that_was_being_read_is_read_again_and_answered_once(
    data_dir: Path, tmp_path: Path
) -> None:
    book = make_xlsx(tmp_path / "book.xlsx", rows=30_000)
    async with open_house(data_dir) as house:
        house.provider.on("Entry 7", ["It was seen."])
        sent = await house.api(
            "POST",
            "api/uploads?name=book.xlsx",
            content=book.read_bytes(),
            headers={"content-type": "application/octet-stream"},
        )
        turn = await turn_of(house, "What is in it?", sent["id"])
        with within("the document is being read", PATIENCE_S):
            while not list((data_dir / "documents").glob("document-*")):
                await anyio.sleep(0.005)
        await house.kill()
        await house.start()
        found = await state_of(house, turn, "completed", "failed")
        assert found["state"] == "completed"
        session = found["session_id"]
        messages = (await house.api("GET", f"api/sessions/{session}/messages"))["messages"]
        assert [message["role"] for message in messages].count("assistant") == 1


async def test_python_that_was_cut_off_is_in_doubt(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        code = "open('begun', 'w').close()\nimport time\ntime.sleep(60)"
        house.provider.on("Compute it", [Tool("python", {"code": code})])
        turn = await turn_of(house, "Compute it")
        with within("the code runs", PATIENCE_S):
            while not list((data_dir / "workspaces").glob("*/begun")):
                await anyio.sleep(0.02)
        await house.kill()
        await house.start()
        await state_of(house, turn, "waiting")
        asks = await house.api("GET", "api/approvals")
        assert "doubt" in str(asks)
