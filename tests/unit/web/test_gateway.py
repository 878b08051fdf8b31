"""The endpoints of accounts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import SenderRole, WhenUnknown
from everturn.domain.gateway import AccountSetup, Person
from everturn.gateway.people import People
from everturn.store import SecretsFile, Store
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.web_server import Running, run_web
from tests.auditing import audit_of
from tests.delivering import claim_parts, lease_of, receive, send_to
from tests.gateways import Platforms, running_gateway

pytestmark = pytest.mark.anyio
NEW = {"name": "bot", "platform": "fake", "secrets": {"token": "token-one"}, "allow": ["ada"]}


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@asynccontextmanager
async def serving(store: Store, home: Path, platforms: Platforms) -> AsyncIterator[Running]:
    configured = {"main": AccountSetup(platform="fake")}
    async with (
        open_harness(store, clock=SystemClock()) as harness,
        running_gateway(harness, home, platforms, configured) as gateway,
        run_web(store, home, extras={"gateway": gateway}) as web,
    ):
        yield web


async def test_an_account_is_added_changed_and_removed(store: Store, data_dir: Path) -> None:
    async with serving(store, data_dir, Platforms()) as web:
        added = await web.http.post("/api/gateway", json=NEW)
        assert added.status_code == 201
        assert added.json()["origin"] == "store"
        assert added.json()["settings"]["allow"] == ["ada"]
        assert "token-one" not in added.text
        assert SecretsFile(data_dir).names() == ("gateway/bot/token",)
        again = await web.http.post("/api/gateway", json=NEW)
        assert (again.status_code, again.json()["code"]) == (409, "wrong_state")
        change: dict[str, object] = {
            "allow": ["ada", "ben"],
            "enabled": False,
            "live": True,
            "options": {"region": "us"},
        }
        refused = await web.http.patch("/api/gateway/bot", json=change)
        assert (refused.status_code, refused.json()["key"]) == (422, "region")
        change["secrets"] = {"token": "token-two"}
        changed = (await web.http.patch("/api/gateway/bot", json=change)).json()
        assert changed["settings"]["options"] == {"region": "us"}
        assert (changed["health"]["state"], changed["settings"]["live"]) == ("off", True)
        names = [one["name"] for one in (await web.http.get("/api/gateway")).json()["accounts"]]
        assert names == ["bot", "main"]
        assert (await web.http.delete("/api/gateway/bot")).status_code == 204
        assert (await web.http.get("/api/gateway/bot")).status_code == 404
        assert SecretsFile(data_dir).names() == ()
    assert audit_of(data_dir) == [
        ("gateway.added", "bot (fake)"),
        ("gateway.changed", "bot: enabled, live, allow, options, secret token"),
        ("gateway.removed", "bot"),
    ]


async def test_a_token_that_the_platform_rejects_is_not_stored_and_its_reason_is_told(
    store: Store, data_dir: Path
) -> None:
    platforms = Platforms()
    platforms.refused_tokens = {"token-one"}
    async with serving(store, data_dir, platforms) as web:
        answer = await web.http.post("/api/gateway", json=NEW)
        assert (answer.status_code, answer.json()["code"]) == (422, "account_refused")
        assert "The token is not valid." in answer.json()["detail"]
        assert (await web.http.get("/api/gateway/bot")).status_code == 404
        assert SecretsFile(data_dir).names() == ()


async def test_who_may_talk_can_be_changed_while_the_platform_refuses_the_token(
    store: Store, data_dir: Path
) -> None:
    platforms = Platforms()
    async with serving(store, data_dir, platforms) as web:
        assert (await web.http.post("/api/gateway", json=NEW)).status_code == 201
        platforms.refused_tokens = {"token-one"}
        changed = await web.http.patch("/api/gateway/bot", json={"allow": []})
        assert changed.json()["settings"]["allow"] == []
        moved = await web.http.patch(
            "/api/gateway/bot", json={"options": {"region": "us"}, "secrets": {"token": "token-one"}}
        )
        assert (moved.status_code, moved.json()["code"]) == (422, "account_refused")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "parts"},
        {"platform": "pigeon"},
        {"secrets": {}},
        {"options": {"colour": "red"}},
        {"options": {"region": 5}},
    ],
    ids=["reserved name", "no platform", "no token", "unknown option", "wrong option"],
)
async def test_a_wrong_account_is_refused_and_nothing_is_stored(
    store: Store, data_dir: Path, change: dict[str, object]
) -> None:
    async with serving(store, data_dir, Platforms()) as web:
        answer = await web.http.post("/api/gateway", json=NEW | change)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert [one["name"] for one in (await web.http.get("/api/gateway")).json()["accounts"]] == ["main"]
    assert SecretsFile(data_dir).names() == ()


async def test_of_an_account_of_the_file_only_the_secrets_can_be_changed(
    store: Store, data_dir: Path
) -> None:
    platforms = Platforms()
    async with serving(store, data_dir, platforms) as web:
        for request in (
            web.http.patch("/api/gateway/main", json={"guests": True}),
            web.http.delete("/api/gateway/main"),
        ):
            answer = await request
            assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")
        changed = await web.http.patch("/api/gateway/main", json={"secrets": {"token": "token-two"}})
        assert (changed.status_code, changed.json()["origin"]) == (200, "config")
        assert changed.json()["secrets"] == {"token": True}


async def test_testing_tells_who_the_account_is_and_pairing_gives_a_code(
    store: Store, data_dir: Path
) -> None:
    async with serving(store, data_dir, Platforms()) as web:
        assert (await web.http.post("/api/gateway/main/test")).json()["name"] == "Test bot"
        code = (await web.http.post("/api/gateway/main/pair", json={"role": "member"})).json()
        assert len(code["code"]) == 9
        assert code["role"] == "member"
    assert audit_of(data_dir) == [("gateway.code", "main: member")]


async def test_a_paired_person_gets_another_role(store: Store, data_dir: Path) -> None:
    async with serving(store, data_dir, Platforms()) as web:
        people = People(store.records, OWNER)
        await people.put("main", Person("a/b c", SenderRole.MEMBER, "Ada"))
        url, who = "/api/gateway/main/people", {"sender": "a/b c"}
        changed = await web.http.patch(url, params=who, json={"role": "owner"})
        assert (changed.status_code, changed.json()["role"]) == (200, "owner")
        assert (await web.http.get("/api/gateway/main")).json()["people"][0]["role"] == "owner"
        assert (await web.http.patch(url, params=who, json={"role": "guest"})).status_code == 422
    assert audit_of(data_dir) == [("gateway.role", "main: a/b c: owner")]


async def test_a_person_decides_about_a_message_that_was_not_delivered(store: Store, data_dir: Path) -> None:
    received = await receive(store, "u1", chat_title="Family")
    await send_to(store, received.chat, "note", "hello")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.give_up(lease, part.id, "The chat is gone.")
    async with serving(store, data_dir, Platforms()) as web:
        (shown,) = (await web.http.get("/api/gateway")).json()["undecided"]
        assert (shown["id"], shown["state"], shown["chat_title"]) == (part.id, "undelivered", "Family")
        again = await web.http.post(f"/api/gateway/parts/{part.id}/resend")
        assert again.json()["state"] == "waiting"
        late = await web.http.post(f"/api/gateway/parts/{part.id}/arrived")
        assert (late.status_code, late.json()["code"]) == (409, "wrong_state")
        (second,) = await claim_parts(store, lease)
        await store.delivery.outbox.mark_unknown(lease, second.id, "The connection broke.")
        await store.delivery.outbox.settle_unknown(lease, WhenUnknown.HOLD)
        arrived = await web.http.post(f"/api/gateway/parts/{part.id}/arrived")
        assert arrived.status_code == 200, arrived.text
    assert audit_of(data_dir) == [("gateway.resend", part.id), ("gateway.arrived", part.id)]


@pytest.mark.parametrize("scope", ["read", "chat", "approve"])
async def test_only_a_full_token_sees_and_changes_accounts(store: Store, data_dir: Path, scope: str) -> None:
    async with serving(store, data_dir, Platforms()) as web:
        made = await web.http.post("/api/tokens", json={"label": "x", "scopes": [scope]})
        headers = {"authorization": f"Bearer {made.json()['text']}"}
        for method, path in (
            ("GET", "/api/gateway"),
            ("POST", "/api/gateway/main/pair"),
            ("DELETE", "/api/gateway/main"),
        ):
            answer = await web.http.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
