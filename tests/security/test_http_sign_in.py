"""Who gets in: no sign-in on loopback only, passwords, cookies, tokens, throttling, the audit log."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from everturn.domain.asks import Ask, AskTopic
from everturn.domain.tool import Tool, Verdict
from everturn.engine import Preferences, write_preferences
from everturn.models import Keys, ModelRegistry
from everturn.models.settings import parse_settings
from everturn.models.weights import PipDownload, Shelf
from everturn.store import SecretsFile, Store
from everturn.testing import CallTool, FakeClock, FakeTool, FakeToolbox
from everturn.testing.web_server import PATIENCE_S, Running, StreamFrame, run_web, web_settings
from everturn.tools import EverturnToolbox, ToolServices, parse_profiles
from everturn.web import LOCAL_OWNER, Scope, StartRefused, open_accounts
from everturn.web.access.passwords import Passwords
from everturn.web.access.visitor import FORWARDING
from everturn.web.server import check_start
from tests.endpoint_paths import path_of

pytestmark = pytest.mark.anyio

PASSWORD = "correct horse battery"
LOCKED = {"password": PASSWORD}
_DAY_S = 86_400.0

# Most of this is the edge's business, and one kind of store is enough; what rests on records runs on both.
on_both = pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


async def sign_in(server: Running, password: str = PASSWORD, **headers: str) -> httpx2.Response:
    answer = await server.http.post("/api/signin", json={"password": password}, headers=headers)
    server.http.cookies.clear()  # each test says itself which cookie it sends
    return answer


def jar_of(answer: httpx2.Response) -> dict[str, str]:
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def cookies_of(answer: httpx2.Response) -> dict[str, str]:
    """Each cookie of an answer as a client sends it back, by its name."""
    given = [value.partition(";")[0] for value in answer.headers.get_list("set-cookie")]
    return {one.partition("=")[0]: one for one in given}


async def token(server: Running, *scopes: str, owner: str = LOCAL_OWNER) -> dict[str, str]:
    _, text = await server.web.accounts.create_token(owner, "test", tuple(map(Scope, scopes)))
    return {"Authorization": f"Bearer {text}"}


# --- without sign-in ---------------------------------------------------------------------------------


async def test_on_loopback_no_sign_in_is_needed(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        me = (await server.http.get("/api/me")).json()
        assert (me["owner"], me["way"]) == (LOCAL_OWNER, "open")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "everturn.example"])
async def test_any_other_address_without_sign_in_is_refused_saying_how(
    store: Store, tmp_path: Path, host: str
) -> None:
    async with run_web(store, tmp_path) as server:
        server.web.settings = web_settings(tmp_path, host=host)
        with pytest.raises(StartRefused) as refused:
            await check_start(server.web)
        assert "everturn password" in refused.value.hint
        await server.web.accounts.set_password(PASSWORD)
        await check_start(server.web)


@pytest.mark.parametrize(
    "header",
    [
        *(name.rstrip("-") + "-x" if name.endswith("-") else name for name in FORWARDING),
        "X-Forwarded-For",
        "X_Forwarded_For",
        "X-Forwarded-Host",
        "X-Forwarded-Ssl",
        "X-Original-Forwarded-For",
        "CF-Connecting-IP",
        "CF-Visitor",
        "Fly-Forwarded-Proto",
        "Tailscale-Funnel-Request",
        "X-Envoy-External-Address",
    ],
)
async def test_without_sign_in_a_forwarded_request_is_refused(
    store: Store, tmp_path: Path, header: str
) -> None:
    async with run_web(store, tmp_path, settings={"trusted_proxies": ("127.0.0.1",)}) as server:
        for path in ("/api/sessions", "/", "/healthz", "/v1/models"):
            answer = await server.http.get(path, headers={header: "203.0.113.9"})
            assert (answer.status_code, answer.json()["code"]) == (403, "sign_in_is_off")


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "192.168.1.5:8420",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "[::1]evil.com",
        "localhost:80evil.com",
        "",
    ],
)
async def test_without_sign_in_a_host_that_is_not_loopback_is_refused(
    store: Store, tmp_path: Path, host: str
) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await server.http.get("/api/sessions", headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (403, "sign_in_is_off")


@pytest.mark.parametrize(
    "host", ["localhost:8420", "127.0.0.1", "127.9.9.9:1", "[::1]:8420", "everturn.localhost"]
)
async def test_every_loopback_name_is_taken(store: Store, tmp_path: Path, host: str) -> None:
    async with run_web(store, tmp_path) as server:
        assert (await server.http.get("/api/sessions", headers={"Host": host})).status_code == 200


# --- with a password ---------------------------------------------------------------------------------


async def test_with_a_password_everything_but_health_and_the_page_wants_a_sign_in(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        guarded = 0
        for endpoint in server.web.table.endpoints:
            path = path_of(endpoint)
            body: dict[str, Any] = {"json": {}} if endpoint.writes and not endpoint.takes else {}
            answer = await server.http.request(endpoint.method, path, **body)
            if endpoint.scope is None:
                assert answer.status_code != 401 or answer.json()["code"] == "wrong_password"
            else:
                assert answer.status_code == 401, endpoint.path
                assert answer.json()["code"] == "sign_in_needed"
                assert answer.headers["www-authenticate"].startswith("Bearer")
                guarded += 1
        open_paths = {e.path for e in server.web.table.endpoints if e.scope is None}
        assert open_paths == {"/api/signin", "/api/access", "/healthz", "/readyz", "/openapi.json", "/docs"}
        assert guarded > 40


async def test_the_password_is_kept_only_as_argon2id(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    accounts = open_accounts(store, clock)  # with the costs of production
    await accounts.set_password(PASSWORD)
    kept = (await store.records.get("system", "password", LOCAL_OWNER))["hash"]
    assert kept.startswith("$argon2id$v=19$m=65536,t=3")
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(PASSWORD.encode() in content for content in files)


@on_both
async def test_the_admin_owns_what_was_made_before_sign_in(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        session = await server.new_session(title="From before")
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        jar = jar_of(await sign_in(server))
        answer = await server.http.get(f"/api/sessions/{session['id']}", headers=jar)
        assert answer.json()["title"] == "From before"


async def test_a_cookie_is_http_only_strict_and_secure_by_scheme(store: Store, tmp_path: Path) -> None:
    settings = {**LOCKED, "trusted_proxies": ("127.0.0.0/8",), "hosts": ("agent.example",)}
    async with run_web(store, tmp_path, settings=settings) as server:
        plain = (await sign_in(server)).headers["set-cookie"]
        assert "HttpOnly" in plain
        assert "SameSite=Strict" in plain
        assert "Secure" not in plain
        forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "agent.example"}
        secure = (await sign_in(server, **forwarded)).headers["set-cookie"]
        assert secure.startswith("__Host-everturn=")
        assert "; Secure" in secure
        assert "Path=/;" in secure


@on_both
async def test_over_tls_a_cookie_that_a_neighbour_could_have_planted_is_not_looked_at(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings={**LOCKED, "trusted_proxies": ("127.0.0.1",)}) as server:
        plain = jar_of(await sign_in(server))
        assert (await server.http.get("/api/me", headers=plain)).status_code == 200
        tls = {"X-Forwarded-Proto": "https"}
        assert (await server.http.get("/api/me", headers=plain | tls)).status_code == 401
        safe = jar_of(await sign_in(server, **tls))
        both = {"Cookie": f"everturn=sin_planted.x; {safe['Cookie']}"}
        assert (await server.http.get("/api/me", headers=both | tls)).status_code == 200
        assert (await server.http.get("/api/me", headers=safe)).status_code == 401


async def test_each_sign_in_makes_a_new_id_and_ends_the_one_presented(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        first = jar_of(await sign_in(server))
        second = jar_of(await sign_in(server, **first))
        assert first != second
        assert (await server.http.get("/api/me", headers=first)).status_code == 401
        assert (await server.http.get("/api/me", headers=second)).status_code == 200
        forged = {"Cookie": second["Cookie"][:-4] + "0000"}
        assert (await server.http.get("/api/me", headers=forged)).status_code == 401


@on_both
async def test_a_sign_in_ends_after_7_idle_days_and_30_in_all(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        idle, used = jar_of(await sign_in(server)), jar_of(await sign_in(server))
        clock.stand_still(6.9 * _DAY_S)
        assert (await server.http.get("/api/me", headers=used)).status_code == 200
        clock.stand_still(0.2 * _DAY_S)
        assert (await server.http.get("/api/me", headers=idle)).status_code == 401
        for _ in range(3):
            clock.stand_still(6.5 * _DAY_S)
            assert (await server.http.get("/api/me", headers=used)).status_code == 200
        clock.stand_still(4 * _DAY_S)
        assert (await server.http.get("/api/me", headers=used)).status_code == 401


@on_both
async def test_signing_out_here_and_everywhere(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        jars = [jar_of(await sign_in(server)) for _ in range(3)]
        bearer = await token(server, "chat")
        out = await server.http.post("/api/signout", headers=jars[0])
        assert out.status_code == 204
        assert "Max-Age=0" in out.headers["set-cookie"]
        codes = [(await server.http.get("/api/me", headers=jar)).status_code for jar in jars]
        assert codes == [401, 200, 200]
        await server.http.post("/api/signout", json={"everywhere": True}, headers=jars[1])
        codes = [(await server.http.get("/api/me", headers=jar)).status_code for jar in jars]
        assert codes == [401, 401, 401]
        assert (await server.http.get("/api/me", headers=bearer)).status_code == 200


@on_both
async def test_a_new_password_ends_every_sign_in_and_a_restart_with_the_same_one_none(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        jar = jar_of(await sign_in(server))
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        assert (await server.http.get("/api/me", headers=jar)).status_code == 200
        await server.web.accounts.set_password("another good one")
        assert (await server.http.get("/api/me", headers=jar)).status_code == 401
        assert (await sign_in(server)).status_code == 401
        assert (await sign_in(server, "another good one")).status_code == 200


async def test_guessing_is_slowed_down_per_address(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    settings = {**LOCKED, "trusted_proxies": ("127.0.0.1",)}
    async with run_web(store, tmp_path, settings=settings, clock=clock) as server:
        here = {"X-Forwarded-For": "203.0.113.9"}
        for _ in range(5):
            assert (await sign_in(server, "wrong guess", **here)).status_code == 401
        slow = await sign_in(server, PASSWORD, **here)
        assert (slow.status_code, slow.json()["code"]) == (429, "too_many_attempts")
        assert int(slow.headers["retry-after"]) == 2
        assert (await sign_in(server, PASSWORD, **{"X-Forwarded-For": "203.0.113.10"})).status_code == 200
        await clock.advance(2.5)
        assert (await sign_in(server, "wrong guess", **here)).status_code == 401
        await clock.advance(2.5)
        assert (await sign_in(server, PASSWORD, **here)).status_code == 429
        await clock.advance(2)
        assert (await sign_in(server, PASSWORD, **here)).status_code == 200


async def test_an_untrusted_client_cannot_choose_the_address_it_is_throttled_by(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        codes = [
            (await sign_in(server, "wrong guess", **{"X-Forwarded-For": f"203.0.113.{n}"})).status_code
            for n in range(6)
        ]
        assert codes == [401] * 5 + [429]


@on_both
async def test_wrong_guesses_do_not_lock_out_a_browser_that_signed_in_before(
    store: Store, tmp_path: Path
) -> None:
    """From the same address, which a proxy, a home and a machine's loopback are for many."""
    clock = FakeClock()
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        first = await sign_in(server)
        browser = {"Cookie": cookies_of(first)["everturn-browser"]}
        for _ in range(9):
            await sign_in(server, "wrong guess")
            await clock.advance(2.0)
        assert (await sign_in(server)).status_code == 429
        assert (await sign_in(server, **browser)).status_code == 200
        forged = {"Cookie": browser["Cookie"][:-1] + ("0" if browser["Cookie"][-1] != "0" else "1")}
        assert (await sign_in(server, **forged)).status_code == 429
        # It is no sign-in, and it buys five guesses, not more.
        assert (await server.http.get("/api/me", headers=browser)).status_code == 401
        codes = [(await sign_in(server, "wrong guess", **browser)).status_code for _ in range(6)]
        assert codes == [401] * 5 + [429]


async def test_after_a_new_password_no_browser_is_known(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        browser = {"Cookie": cookies_of(await sign_in(server))["everturn-browser"]}
        await server.web.accounts.set_password(PASSWORD)
        for _ in range(5):
            await sign_in(server, "wrong guess")
        assert (await sign_in(server, **browser)).status_code == 429


async def test_guesses_that_are_sent_at_once_are_counted_before_they_are_looked_at(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        codes: list[int] = []

        async def guess() -> None:
            codes.append((await sign_in(server, "wrong guess")).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(guess)
        assert sorted(codes) == [401] * 5 + [429] * 15


# --- changing the password ---------------------------------------------------------------------------

NEW = "staple of another kind"


async def change(
    server: Running, jar: dict[str, str], old: str = PASSWORD, new: str = NEW
) -> httpx2.Response:
    answer = await server.http.put("/api/password", json={"old": old, "new": new}, headers=jar)
    server.http.cookies.clear()
    return answer


@on_both
async def test_a_new_password_ends_every_sign_in_but_the_one_that_set_it(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        await server.web.accounts.set_password(PASSWORD)
        mine, other = jar_of(await sign_in(server)), jar_of(await sign_in(server))
        bearer = await token(server, "chat")
        changed = await change(server, mine)
        assert changed.status_code == 204
        fresh = jar_of(changed)
        assert fresh != mine
        for jar, status in ((mine, 401), (other, 401), (fresh, 200), (bearer, 200)):
            assert (await server.http.get("/api/me", headers=jar)).status_code == status
        assert (await sign_in(server)).status_code == 401
        assert (await sign_in(server, NEW)).status_code == 200
        entries = (await server.http.get("/api/audit", headers=fresh)).json()["items"]
        assert "password.changed" in [entry["what"] for entry in entries]
        assert NEW not in str(entries)


async def test_the_old_password_cannot_be_guessed_with_a_cookie(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        await server.web.accounts.set_password(PASSWORD)
        jar = jar_of(await sign_in(server))
        tries = [await change(server, jar, old=f"guess {n}") for n in range(6)]
        assert [one.status_code for one in tries] == [403] * 5 + [429]
        assert tries[0].json()["code"] == "wrong_password"
        assert (await change(server, jar)).status_code == 429, "the right one waits too"
        assert (await server.http.get("/api/me", headers=jar)).status_code == 200
        await clock.advance(60.0)
        assert (await change(server, jar, new="short")).status_code == 422
        entries = (await server.http.get("/api/audit", headers=jar)).json()["items"]
        assert [entry["what"] for entry in entries].count("password.failed") == 7
        assert (await change(server, jar)).status_code == 204


async def test_a_password_that_is_not_there_not_ours_or_not_theirs_is_not_changed(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await change(server, {})
        assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")
        await server.web.accounts.set_password(PASSWORD)
        chat = await token(server, "chat", "approve")
        assert (await change(server, chat)).status_code == 403
        admin = await change(server, await token(server, "admin"))
        assert (admin.status_code, "set-cookie" in admin.headers) == (204, False)
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        answer = await change(server, jar_of(await sign_in(server)))
        assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")
        assert "EVERTURN_PASSWORD" in answer.json()["detail"]


# --- tokens ------------------------------------------------------------------------------------------


@on_both
async def test_a_token_is_long_stored_hashed_dated_and_revocable(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        jar = jar_of(await sign_in(server))
        made = await server.http.post("/api/tokens", json={"label": "ci", "scopes": ["chat"]}, headers=jar)
        assert made.status_code == 201
        text, ident = made.json()["text"], made.json()["token"]["id"]
        secret = text.rsplit("_", 1)[1]
        assert len(bytes.fromhex(secret)) * 8 >= 128
        kept = await store.records.get("system", "token", ident)
        assert secret not in str(kept)
        assert not any(secret.encode() in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
        bearer = {"Authorization": f"Bearer {text}"}
        assert (await server.http.get("/api/sessions", headers=bearer)).status_code == 200
        (listed,) = (await server.http.get("/api/tokens", headers=jar)).json()["items"]
        assert listed["used_at"] == clock.now_ms()
        assert "text" not in listed
        assert (await server.http.delete(f"/api/tokens/{ident}", headers=jar)).status_code == 204
        assert (await server.http.get("/api/sessions", headers=bearer)).status_code == 401


@on_both
@pytest.mark.parametrize("label", ["", "  ", "two\nlines", "\x1b[31mred"])
async def test_a_token_has_a_label_that_can_be_read(store: Store, tmp_path: Path, label: str) -> None:
    async with run_web(store, tmp_path) as server:
        answer = await server.http.post("/api/tokens", json={"label": label})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert await server.web.accounts.tokens(LOCAL_OWNER) == []


async def test_an_expired_or_altered_token_is_refused(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        _, text = await server.web.accounts.create_token(LOCAL_OWNER, "t", (Scope.CHAT,), days=1)
        for wrong in (text[:-1], text[:-1] + ("0" if text[-1] != "0" else "1"), "evt_x_y", "x"):
            answer = await server.http.get("/api/me", headers={"Authorization": f"Bearer {wrong}"})
            assert answer.status_code == 401
        clock.stand_still(_DAY_S)
        expired = await server.http.get("/api/me", headers={"Authorization": f"Bearer {text}"})
        assert expired.status_code == 401


async def test_a_wrong_credential_is_refused_even_where_none_is_needed(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        ghost = {"Authorization": "Bearer evt_00000000000000000000000000_00"}
        assert (await server.http.get("/api/me", headers=ghost)).status_code == 401


@on_both
async def test_a_chat_token_cannot_approve_or_touch_keys_settings_tokens_or_policy(
    store: Store, tmp_path: Path
) -> None:
    tool = FakeTool("deploy")
    script = ([CallTool("deploy", {})], "Done.")
    async with run_web(
        store, tmp_path, *script, settings=LOCKED, tools=[tool], rules={"deploy": Verdict.ASK}
    ) as server:
        chat = await token(server, "chat")
        server.http.headers.update(chat)
        session_id = (await server.new_session())["id"]
        await server.run(session_id)
        (ask,) = (await server.http.get("/api/approvals")).json()["items"]
        refused = await server.http.post(f"/api/approvals/{ask['id']}", json={"decision": "once"})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        assert refused.json()["scope"] == "approve"
        assert "the scope 'approve'." in refused.json()["detail"]
        admin = [e for e in server.web.table.endpoints if e.scope is Scope.ADMIN]
        assert {"/api/tokens", "/api/audit"} <= {e.path for e in admin}
        for endpoint in admin:
            path = re.sub(r"{\w+}", "tok_" + "0" * 26, endpoint.path)
            body: dict[str, Any] = {"json": {}} if endpoint.writes else {}
            answer = await server.http.request(endpoint.method, path, **body)
            assert answer.status_code in (403, 422), endpoint.path
            assert answer.status_code == 403 or answer.json()["code"] in ("invalid", "invalid_id")
        for body in ({"project": "/"}, {"profile": "unsafe"}):
            assert (await server.http.post("/api/sessions", json=body)).status_code == 403
            answer = await server.http.patch(f"/api/sessions/{session_id}", json=body)
            assert answer.status_code == 403
        assert tool.calls == []
        approver = await token(server, "approve")
        answer = await server.http.post(
            f"/api/approvals/{ask['id']}", json={"decision": "once"}, headers=approver
        )
        assert answer.status_code == 200


async def test_a_chat_token_may_answer_questions_but_not_those_about_effects(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        server.http.headers.update(await token(server, "chat"))

        async def get(owner: str, ask_id: str) -> Ask:
            return Ask(ask_id, "ses_x", "trn_x", AskTopic.DOUBT, 0)

        server.store.asks.get = get  # type: ignore[method-assign]  # a stand-in
        answer = await server.http.post(f"/api/questions/ask_{'0' * 26}", json={"answer": "rerun"})
        assert (answer.status_code, answer.json()["scope"]) == (403, "approve")


async def test_only_an_admin_ends_the_sign_ins_of_others(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        jar = jar_of(await sign_in(server))
        for scope in ("read", "chat", "approve"):
            answer = await server.http.post(
                "/api/signout", json={"everywhere": True}, headers=await token(server, scope)
            )
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
        assert (await server.http.get("/api/me", headers=jar)).status_code == 200
        await server.http.post(
            "/api/signout", json={"everywhere": True}, headers=await token(server, "admin")
        )
        assert (await server.http.get("/api/me", headers=jar)).status_code == 401


async def test_a_read_token_does_not_get_files_with_an_export(store: Store, tmp_path: Path) -> None:
    """It may read none of them alone either; the conversation is what it may read."""
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        read, chat = await token(server, "read"), await token(server, "chat")
        made = (await server.http.post("/api/sessions", json={}, headers=chat)).json()
        path = f"/api/sessions/{made['id']}/export"
        refused = await server.http.get(path, params={"format": "archive"}, headers=read)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        assert refused.json()["scope"] == "chat"
        for wanted, headers in (("json", read), ("md", read), ("html", read), ("archive", chat)):
            answer = await server.http.get(path, params={"format": wanted}, headers=headers)
            assert answer.status_code == 200, wanted


async def test_a_chat_token_cannot_bring_rules_in_with_a_document(store: Store, tmp_path: Path) -> None:
    """Under which profile a session works is the admin's business, however the session came to be."""
    async with run_web(store, tmp_path, "hello", settings=LOCKED) as server:
        chat, admin = await token(server, "chat"), await token(server, "admin")
        made = (await server.http.post("/api/sessions", json={}, headers=chat)).json()
        turn = (
            await server.http.post(f"/api/sessions/{made['id']}/turns", json={"text": "x"}, headers=chat)
        ).json()["turn"]
        with anyio.fail_after(PATIENCE_S):
            async for batch in server.engine.follow(LOCAL_OWNER, made["id"], 0):
                if batch[-1].kind == "turn.completed":
                    break
        path = f"/api/sessions/{made['id']}/export?format=json"
        good = (await server.http.get(path, headers=chat)).json()
        assert (await server.http.post("/api/sessions/import", json=good, headers=chat)).status_code == 201
        for rules in (
            good | {"session": good["session"] | {"profile": "careless"}},
            good | {"turns": [{**one, "profile": "careless"} for one in good["turns"]]},
        ):
            assert turn["id"] in str(rules)
            refused = await server.http.post("/api/sessions/import", json=rules, headers=chat)
            assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
            taken = await server.http.post("/api/sessions/import", json=rules, headers=admin)
            assert taken.status_code == 201


@pytest.mark.parametrize("change", [{"profile": None}, {"project": None}, {"profile": None, "title": "x"}])
async def test_a_chat_token_cannot_leave_the_profile_or_the_folder_of_a_session(
    store: Store, tmp_path: Path, change: dict[str, object]
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        chat, admin = await token(server, "chat"), await token(server, "admin")
        body: dict[str, Any] = {"profile": "careful", "project": str(tmp_path)}
        made = (await server.http.post("/api/sessions", json=body, headers=admin)).json()
        path = f"/api/sessions/{made['id']}"
        refused = await server.http.patch(path, json=change, headers=chat)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        found = (await server.http.get(path, headers=chat)).json()
        assert (found["profile"], found["project"], found.get("title")) == ("careful", str(tmp_path), None)
        renamed = await server.http.patch(path, json={"title": "x", "model": None}, headers=chat)
        assert renamed.status_code == 200
        assert (await server.http.patch(path, json=change, headers=admin)).status_code == 200


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_chat_token_puts_no_words_under_the_profile_of_a_turn(
    store: Store, tmp_path: Path, is_named: bool
) -> None:
    async with run_web(store, tmp_path, "a", "b", "c", settings=LOCKED) as server:
        chat = await token(server, "chat")
        server.http.headers.update(await token(server, "admin"))
        session = (await server.new_session())["id"]
        await server.run(session)
        path = f"/api/sessions/{session}"
        first = (await server.http.get(path)).json()["head"]
        await server.run(session, profile="careful")
        last = (await server.http.get(path)).json()["head"]
        body: dict[str, Any] = {"text": "mine", **({"turn_id": last} if is_named else {})}
        refused = await server.http.post(f"{path}/edit", json=body, headers={**chat, "idempotency-key": "a"})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        body = {"text": "mine", "turn_id": first}
        taken = await server.http.post(f"{path}/edit", json=body, headers={**chat, "idempotency-key": "b"})
        assert taken.status_code == 202


async def test_a_chat_token_cannot_leave_the_preferred_profile(store: Store, tmp_path: Path) -> None:
    """Neither through /v1, with a named session or without one, nor with a document that names none."""
    used: list[str | None] = []

    async def tools(
        owner: str, session_id: str, profile: str | None, only: Collection[str] | None = None
    ) -> list[Tool]:
        used.append(profile)
        return []

    toolbox = FakeToolbox()
    toolbox.tools = tools  # type: ignore[method-assign]  # a stand-in
    async with run_web(store, tmp_path, "a", "b", "c", settings=LOCKED, toolbox=toolbox) as server:
        server.http.headers.update(await token(server, "chat"))
        document = (
            await server.http.get(f"/api/sessions/{(await server.new_session())['id']}/export")
        ).json()
        await write_preferences(store.records, LOCAL_OWNER, Preferences(profile="careful"))
        asked = {"model": "everturn", "messages": [{"role": "user", "content": "hello"}]}
        for headers in ({}, {"X-Everturn-Session": "mine"}):
            answer = await server.http.post("/v1/chat/completions", json=asked, headers=headers)
            assert answer.status_code == 200, answer.text
        assert used
        assert set(used) == {"careful"}
        document["session"].pop("profile", None)
        imported = await server.http.post("/api/sessions/import", json=document)
        assert imported.json()["profile"] == "careful"


async def test_a_read_token_cannot_write_anything(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        reader = await token(server, "read")
        assert (await server.http.get("/api/sessions", headers=reader)).status_code == 200
        assert (await server.http.post("/api/sessions", json={}, headers=reader)).status_code == 403
        answer = await server.http.post(
            "/v1/chat/completions",
            json={"model": "everturn", "messages": [{"role": "user", "content": "x"}]},
            headers=reader,
        )
        assert answer.status_code == 403


async def test_looking_at_the_tools_starts_no_server(store: Store, tmp_path: Path) -> None:
    """A read token, or a page that is merely open, must not make a program run."""
    text = "[profiles.with]\nmcp = ['one']\n[mcp.one]\ncommand = 'false'"
    clock, keys = FakeClock(), Keys(SecretsFile(tmp_path), {})
    profiles = parse_profiles(text, "config.toml", frozenset())
    async with (
        ModelRegistry(
            parse_settings({}), keys, clock, {}, Shelf(tmp_path / "models", PipDownload({})), default="pocket"
        ) as models,
        EverturnToolbox(tmp_path, ToolServices(store.records, store.search, clock), profiles) as toolbox,
        run_web(
            store,
            tmp_path,
            settings=LOCKED,
            clock=clock,
            models=models,
            extras={"keys": keys, "toolbox": toolbox},
        ) as server,
    ):
        server.http.headers.update(await token(server, "read"))
        shown = await server.http.get("/api/tools?profile=with")
        assert shown.status_code == 200
        assert "read_file" in {tool["name"] for tool in shown.json()["tools"]}
        (one,) = (await server.http.get("/api/mcp")).json()["servers"]
        assert one["state"] == "stopped"
        assert not (tmp_path / "workspaces" / "settings").exists()
        await toolbox.tools(LOCAL_OWNER, "ses_x", "with")  # as a turn does
        assert (await server.http.get("/api/mcp")).json()["servers"][0]["state"] == "failed"


@on_both
async def test_one_owner_sees_nothing_of_another(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Secret answer.", settings=LOCKED) as server:
        mine, other = await token(server, "admin"), await token(server, "admin", owner="guest")
        server.http.headers.update(mine)
        upload = await server.http.post(
            "/api/uploads", content=b"my file", headers={"Content-Type": "application/octet-stream"}
        )
        session_id = (await server.new_session())["id"]
        frames = await server.run(session_id)
        turn_id = frames[0].json["turn_id"]
        for path in (
            f"/api/sessions/{session_id}",
            f"/api/sessions/{session_id}/messages",
            f"/api/sessions/{session_id}/events?follow=0",
            f"/api/sessions/{session_id}/export",
            f"/api/turns/{turn_id}",
            f"/api/files/{upload.json()['id']}",
        ):
            assert (await server.http.get(path)).status_code == 200
            assert (await server.http.get(path, headers=other)).status_code == 404, path
        assert (await server.http.get("/api/sessions", headers=other)).json()["items"] == []
        assert (await server.http.get("/api/tokens", headers=other)).json()["items"][0]["label"] == "test"
        again = await server.http.post(
            "/api/uploads",
            content=b"my file",
            headers={"Content-Type": "application/octet-stream", **other},
        )
        assert again.json()["id"] != upload.json()["id"]  # the same bytes: a hash gives no way in


@on_both
async def test_a_stream_ends_when_its_credential_is_revoked(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        server.http.headers.update(await token(server, "chat"))
        session_id = (await server.new_session())["id"]
        (info,) = await server.web.accounts.tokens(LOCAL_OWNER)
        with anyio.fail_after(PATIENCE_S):
            async with server.frames(f"/api/sessions/{session_id}/events") as frames:
                await server.web.accounts.revoke_token(LOCAL_OWNER, info.id)
                await clock.advance(16)
                assert (await anext(frames)).json == {"reason": "signed_out"}


async def test_signing_out_and_revoking_end_the_streams_at_once(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    """The clock stands still: no stream waits for a heartbeat."""
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        admin, chat = await token(server, "admin"), await token(server, "chat")
        jar, other = jar_of(await sign_in(server)), jar_of(await sign_in(server))
        end = {"reason": "signed_out"}
        with anyio.fail_after(PATIENCE_S):
            async with (
                _news(server, jar) as signed_in,
                _news(server, other) as elsewhere,
                _news(server, chat) as by_token,
            ):
                await server.http.post("/api/signout", json={}, headers=jar)
                assert (await _last(signed_in)) == end
                await server.http.post("/api/signout", json={"everywhere": True}, headers=admin)
                assert (await _last(elsewhere)) == end
                listed = (await server.http.get("/api/tokens", headers=admin)).json()["items"]
                (known,) = [one["id"] for one in listed if one["scopes"] == ["chat"]]
                await server.http.delete(f"/api/tokens/{known}", headers=admin)
                assert (await _last(by_token)) == end


def _news(
    server: Running, credential: dict[str, str]
) -> AbstractAsyncContextManager[AsyncIterator[StreamFrame]]:
    return server.frames("/api/events", headers=credential)


async def _last(frames: AsyncIterator[StreamFrame]) -> object:
    return [frame.json async for frame in frames][-1]


# --- the audit log -----------------------------------------------------------------------------------


async def test_sign_ins_and_failures_are_in_the_audit_log_without_secrets(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        await sign_in(server, "a wrong guess")
        jar = jar_of(await sign_in(server))
        made = await server.http.post("/api/tokens", json={"label": "x"}, headers=jar)
        await server.http.post("/api/signout", headers=jar)
        log = (tmp_path / "audit.jsonl").read_text()
        kinds = re.findall(r'"what":"([^"]+)"', log)
        assert kinds == ["signin.failed", "signin", "token.created", "signout"]
        for secret in ("a wrong guess", PASSWORD, made.json()["text"], jar["Cookie"].partition("=")[2]):
            assert secret not in log
        assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0


async def test_strangers_cannot_flood_the_audit_log(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with run_web(store, tmp_path, settings=LOCKED, clock=clock) as server:
        for _ in range(30):
            await sign_in(server, "wrong guess")
        noted = (tmp_path / "audit.jsonl").read_text().splitlines()
        assert len(noted) == 6, "five guesses, and once that the next had to wait"
        await clock.advance(3)
        for _ in range(30):
            await sign_in(server, "wrong guess")
        assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 8


async def test_nothing_secret_reaches_the_log(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with run_web(store, tmp_path, settings=LOCKED) as server:
        await sign_in(server, "a wrong guess")
        jar = jar_of(await sign_in(server))
        bearer = await token(server, "chat")
        await server.http.get("/api/sessions?q=private-words", headers=bearer)
        ours = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("everturn"))
        assert "POST /api/signin 401" in ours
        for secret in ("a wrong guess", PASSWORD, bearer["Authorization"], jar["Cookie"], "private-words"):
            assert secret not in ours


async def test_many_sign_ins_at_once_are_refused_before_they_fill_the_memory() -> None:
    from everturn.domain.errors import Overloaded

    passwords = Passwords(memory_kib=64, rounds=1)
    known = await passwords.hash_password(PASSWORD)
    refused = 0

    async def verify() -> None:
        nonlocal refused
        try:
            assert await passwords.verify(known, PASSWORD)
        except Overloaded:
            refused += 1

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(verify)
    assert refused == 100 - 32
