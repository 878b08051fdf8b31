"""The endpoints of memory over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.ids import Ids
from everturn.domain.memory import Begun
from everturn.domain.runtime import Runtime
from everturn.memory import BuiltMemory, build_memory
from everturn.store import Store
from everturn.testing import FakeClock, ScriptedModel, ScriptedModels
from everturn.testing.web_server import Running, run_web
from everturn.web.api.memory import MemoryApi
from tests.unit.memory.test_builtin import PASSED, facts

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def server(
    store: Store, home: Path, clock: FakeClock, *script: Any
) -> AsyncIterator[tuple[Running, BuiltMemory]]:
    models = ScriptedModels(ScriptedModel(*script, clock=clock, then="fine"))
    built = build_memory(store, models, home, Runtime(clock, Ids(clock)))
    endpoints = MemoryApi(built.memory, built.notebooks, store.records, clock).endpoints()
    async with run_web(
        store, home, clock=clock, models=models, memory=built.memory, more=endpoints
    ) as running:
        yield running, built


async def test_notes_are_written_read_changed_found_and_forgotten(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with server(store, tmp_path, clock) as (running, _):
        http = running.http
        made = (await http.put("/api/memory", json={"text": "Prefers tea."})).json()
        other = (await http.put("/api/memory", json={"text": "Sings in a choir."})).json()
        assert made["source"] == "you"
        found = (await http.get("/api/memory")).json()
        assert [note["text"] for note in found["notes"]] == ["Sings in a choir.", "Prefers tea."]
        assert (found["owed"], found["sessions"]) == (0, [])
        changed = await http.put("/api/memory", json={"id": made["id"], "text": "Prefers coffee."})
        assert changed.json()["id"] == made["id"]
        hit = (await http.get("/api/memory", params={"q": "coffee"})).json()
        assert [note["id"] for note in hit["notes"]] == [made["id"]]
        gone = await http.delete("/api/memory", params={"id": made["id"]})
        assert gone.status_code == 204
        again = await http.delete("/api/memory", params={"id": made["id"]})
        assert (again.status_code, again.json()["code"]) == (404, "not_found")
        left = (await http.get("/api/memory")).json()
        assert [note["id"] for note in left["notes"]] == [other["id"]]


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("PUT", {"json": {"text": ""}}),
        ("PUT", {"json": {"text": "   "}}),
        ("PUT", {"json": {"text": "x" * 2001}}),
        ("PUT", {"json": {"text": "x", "id": "../../etc"}}),
        ("PUT", {"json": {"text": "x", "owner": "eve"}}),
        ("DELETE", {}),
        ("DELETE", {"params": {"id": "nothing"}}),
        ("GET", {"params": {"limit": "0"}}),
        ("POST", {"json": {"session_id": "nothing"}}),
    ],
)
async def test_what_is_wrong_is_refused_and_nothing_changes(
    store: Store, tmp_path: Path, clock: FakeClock, method: str, given: dict[str, Any]
) -> None:
    async with server(store, tmp_path, clock) as (running, built):
        path = "/api/memory/commit" if method == "POST" else "/api/memory"
        answer = await running.http.request(method, path, **given)
        assert answer.status_code == 422, answer.text
        assert await built.notebooks.notes("local") == []


async def test_notes_come_in_pages(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with server(store, tmp_path, clock) as (running, built):
        for number in range(5):
            await built.notebooks.remember("local", f"Fact {number}.", clock.now_ms())
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 2}
        while True:
            page = (await running.http.get("/api/memory", params=query)).json()
            seen += [note["text"] for note in page["notes"]]
            if not page.get("cursor"):
                break
            query["before"] = page["cursor"]
        assert seen == [f"Fact {number}." for number in (4, 3, 2, 1, 0)]


async def test_what_is_not_remembered_yet_is_seen_and_can_be_remembered_now(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    script = ("hello", PASSED, facts("The user keeps bees."))
    async with server(store, tmp_path, clock, *script) as (running, _):
        session = await running.new_session()
        await running.run(session["id"], "I keep bees")
        before = (await running.http.get("/api/memory")).json()
        assert before["owed"] == 1
        assert before["sessions"][0]["session_id"] == session["id"]
        assert "remembered_at" not in before
        done = await running.http.post("/api/memory/commit", json={})
        assert done.json() == {"turns": 1}
        after = (await running.http.get("/api/memory")).json()
        assert (after["owed"], after["remembered_at"]) == (0, clock.now_ms())
        (note,) = after["notes"]
        assert (note["text"], note["session_id"]) == ("The user keeps bees.", session["id"])


async def test_starting_a_session_over_http_remembers_the_one_it_leaves(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    script = ("hello", PASSED, facts("The user keeps bees."))
    async with server(store, tmp_path, clock, *script) as (running, built):
        session = await running.new_session()
        await running.run(session["id"], "I keep bees")
        await running.new_session(leaving=session["id"])
        # Waits for the commit under way, if it is; the answer is the same either way.
        await built.memory.commit_session("local", session["id"])
        assert [note.text for note in await built.notebooks.notes("local")] == ["The user keeps bees."]


async def test_remembering_now_says_that_another_process_is_at_it(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with server(store, tmp_path, clock, "hello") as (running, _):
        session = await running.new_session()
        await running.run(session["id"], "I keep bees")
        begun = await begun_by(store, session["id"], "mem_other")
        for body in ({"session_id": session["id"]}, {}):
            done = await running.http.post("/api/memory/commit", json=body)
            assert done.json() == {"turns": 0, "errors": ["Another commit of this session is under way."]}
        nothing = await running.http.post(
            "/api/memory/commit", json={"session_id": "ses_00000000000000000000000000"}
        )
        assert nothing.json() == {"turns": 0}
        await store.ledger.settle(begun)


async def begun_by(store: Store, session_id: str, holder: str) -> Begun:
    found = await store.ledger.next("local", session_id, holder)
    assert found is not None
    begun = await store.ledger.begin("local", session_id, found, f"{holder}.1", holder, 60_000)
    assert begun is not None
    return begun
