"""What a token of a narrow scope cannot reach: more money, and more rights through a schedule."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.preferences import KIND, NAME
from everturn.store import Store
from everturn.testing.models import Wait
from everturn.testing.web_server import Running, run_web
from everturn.web.access.identity import LOCAL_OWNER

pytestmark = pytest.mark.anyio
NEW: dict[str, Any] = {"name": "Morning", "text": "Hello.", "rule": {"kind": "interval", "every_s": 3600}}
# These change nothing of the agent: a rule is read, a caller leaves, and what an answer needs depends on its question.
_READS = {"/api/schedules/preview", "/api/schedules/read", "/api/questions/{ask}", "/api/signout"}


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@pytest.fixture
async def server(store: Store, data_dir: Path) -> AsyncIterator[Running]:
    async with run_web(store, data_dir, [Wait(anyio.Event())]) as server:
        yield server


async def _token(server: Running, scope: str) -> dict[str, str]:
    made = await server.http.post("/api/tokens", json={"label": scope, "scopes": [scope]})
    return {"authorization": f"Bearer {made.json()['text']}"}


async def test_whoever_may_only_read_changes_nothing(server: Running) -> None:
    endpoints = [one for one in server.web.table.endpoints if one.writes and one.scope == "read"]
    assert {one.path for one in endpoints} == _READS


async def test_only_an_admin_sets_and_removes_budgets(server: Running) -> None:
    kept = (await server.http.put("/api/budgets", json={"scope": "day", "amount": 1})).json()["items"]
    for scope in ("read", "chat", "approve"):
        headers = await _token(server, scope)
        for amount in (1000, None):
            body = {"scope": "day", "amount": amount}
            answer = await server.http.put("/api/budgets", json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing"), scope
    assert (await server.http.get("/api/budgets")).json()["items"] == kept


async def test_a_schedule_gives_a_chat_token_no_profile_of_its_choice(server: Running) -> None:
    chat = await _token(server, "chat")
    asked = await server.http.post("/api/schedules", json=NEW | {"profile": "default"}, headers=chat)
    assert (asked.status_code, asked.json()["code"]) == (403, "scope_missing")

    named = (await server.http.post("/api/schedules", json=NEW | {"profile": "quiet"})).json()
    path = f"/api/schedules/{named['id']}"
    for change in ({"profile": None}, {"profile": "default"}, {"text": "My own words."}):
        refused = await server.http.patch(path, json=change, headers=chat)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing"), change
    assert (await server.http.patch(path, json={"paused": True}, headers=chat)).status_code == 200


async def test_a_schedule_of_a_chat_token_stays_in_the_preferred_profile(server: Running) -> None:
    chat = await _token(server, "chat")
    await server.store.records.put(LOCAL_OWNER, KIND, NAME, {"profile": "quiet"})
    made = (await server.http.post("/api/schedules", json=NEW, headers=chat)).json()
    assert made["profile"] == "quiet"
    session = await server.new_session(profile="tight")
    told = (
        await server.http.post("/api/schedules", json=NEW | {"session_id": session["id"]}, headers=chat)
    ).json()
    assert told["profile"] is None, "its runs have the profile of their session"
    for change in ({"session_id": None}, {"runs_in": "new"}):
        path = f"/api/schedules/{told['id']}"
        changed = (await server.http.patch(path, json=change, headers=chat)).json()
        assert changed["profile"] == "quiet", change
        await server.http.patch(path, json={"profile": None, "runs_in": "one", "session_id": session["id"]})


async def test_a_chat_token_gives_no_words_to_a_turn_whose_profile_was_chosen(server: Running) -> None:
    chat = await _token(server, "chat")
    session_id = (await server.new_session())["id"]
    await server.send(session_id, "one that takes long")
    path = f"/api/sessions/{session_id}/queue/"
    for profile, status in (("quiet", 403), (None, 200)):
        turn = (await server.send(session_id, "next", when_busy="queue", profile=profile))["turn"]
        changed = await server.http.patch(path + turn["id"], json={"text": "My words."}, headers=chat)
        assert changed.status_code == status, profile
        moved = await server.http.patch(path + turn["id"], json={"place": 0}, headers=chat)
        assert moved.status_code == 200
