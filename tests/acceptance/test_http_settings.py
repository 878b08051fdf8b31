"""Settings over real HTTP, with the real registry, keys and toolbox behind them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest

from everturn.domain.tool import ToolCall
from everturn.domain.turns import Usage
from everturn.models import Keys, ModelRegistry
from everturn.models.settings import parse_settings
from everturn.models.weights import PipDownload, Shelf
from everturn.store import SecretsFile, Store
from everturn.testing import FakeClock
from everturn.testing.web_server import Running, run_web
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    sse,
    wire_server,
)
from everturn.tools import TOOL_NAMES, EverturnToolbox, ToolServices, parse_profiles
from everturn.tools.policy.judgement import Judgement
from everturn.tools.policy.policy import Policy

pytestmark = pytest.mark.anyio

PROFILES = """
[profiles.careful]
prompt = "You are careful."
tools = ["read_file"]
"""


@asynccontextmanager
async def running(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    keys = Keys(SecretsFile(tmp_path), {})
    profiles = parse_profiles(PROFILES, "config.toml", TOOL_NAMES)
    async with (
        ModelRegistry(
            parse_settings({}), keys, clock, {}, Shelf(tmp_path / "models", PipDownload({})), default="pocket"
        ) as models,
        EverturnToolbox(tmp_path, ToolServices(store.records, store.search, clock), profiles) as toolbox,
        run_web(
            store, tmp_path, clock=clock, models=models, extras={"keys": keys, "toolbox": toolbox}
        ) as server,
    ):
        yield server


async def test_a_key_is_written_and_never_read_back(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with running(store, tmp_path, clock) as server:
        secret = "sk-test-1234567890abcdef"
        assert (await server.http.put("/api/keys/openai", json={"key": secret})).status_code == 204
        settings = await server.http.get("/api/settings")
        state = {key["name"]: key for key in settings.json()["keys"]}
        assert state["openai"] == {"name": "openai", "has_key": True, "source": "file"}
        for path in ("/api/settings", "/api/audit", "/openapi.json", "/metrics"):
            assert secret not in (await server.http.get(path)).text
        audit = (await server.http.get("/api/audit")).json()["items"]
        assert (audit[0]["what"], audit[0]["detail"]) == ("key.set", "openai")
        for broken in ("sk-two\nlines", "sk-end\n", "sk with space", ""):
            refused = await server.http.put("/api/keys/openai", json={"key": broken})
            assert refused.status_code == 422, broken
        assert (await server.http.delete("/api/keys/openai")).status_code == 204
        assert (await server.http.delete("/api/keys/openai")).status_code == 404
        unknown = await server.http.put("/api/keys/unknown", json={"key": secret})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
        for method in ("GET", "POST"):
            assert (await server.http.request(method, "/api/keys/openai", json={})).status_code == 405


# --- the user's own server ---------------------------------------------------------------------------

OWN_KEY = "secret-of-my-own-server"


@pytest.fixture
async def own(anyio_backend: str) -> AsyncIterator[WireServer]:
    async with wire_server() as server:
        server.route("/v1/models", {"object": "list", "data": [{"id": "bear"}, {"id": "ant"}]})
        server.route("/models", {"error": "not here"}, status=404)
        yield server


async def names(server: Running) -> list[str]:
    return [model["name"] for model in (await server.http.get("/api/models")).json()["models"]]


async def test_an_own_server_is_tried_stored_used_and_forgotten(
    store: Store, tmp_path: Path, clock: FakeClock, own: WireServer
) -> None:
    body = {"base_url": f"{own.url}/", "key": OWN_KEY}  # people leave out /v1
    async with running(store, tmp_path, clock) as server:
        trial = (await server.http.post("/api/keys/mine/test", json=body)).json()
        assert trial["ok"], trial
        assert "mine:ant" not in await names(server), "trying stores nothing"
        assert (await server.http.put("/api/keys/mine", json=body)).status_code == 204
        assert own.requests[-1].headers["authorization"] == f"Bearer {OWN_KEY}"
        assert {"mine:ant", "mine:bear"} <= set(await names(server))
    async with running(store, tmp_path, clock) as server:  # after a restart
        assert {"mine:ant", "mine:bear"} <= set(await names(server))
        state = {one["name"]: one for one in (await server.http.get("/api/settings")).json()["keys"]}
        assert state["mine"] == {
            "name": "mine",
            "has_key": True,
            "source": "file",
            "base_url": f"{own.url}/v1",
        }
        own.play(WireAnswer(openai_answer(["Growl."])))
        frames = await server.run((await server.new_session())["id"], "hello", model="mine:bear")
        assert "Growl." in "".join(frame.data for frame in frames if frame.event == "text.delta")
        asked = own.requests[-1]
        assert (asked.path, asked.json["model"]) == ("/v1/chat/completions", "bear")
        assert asked.headers["authorization"] == f"Bearer {OWN_KEY}"
        audit = (await server.http.get("/api/audit")).text
        assert "server.connected" in audit
        assert OWN_KEY not in audit
        assert (await server.http.delete("/api/keys/mine")).status_code == 204
        assert "mine:ant" not in await names(server)
        assert (await server.http.delete("/api/keys/mine")).status_code == 404
    assert OWN_KEY not in (tmp_path / "secrets.toml").read_text()


async def test_a_server_that_does_not_do_is_not_stored(
    store: Store, tmp_path: Path, clock: FakeClock, own: WireServer
) -> None:
    own.route("/locked/v1/models", {"error": "no"}, status=401)
    own.route("/page/models", "<html>", status=200)
    own.route("/page/v1/models", "<html>", status=200)
    own.route("/empty/v1/models", {"data": []})
    async with running(store, tmp_path, clock) as server:
        for path, reason in (
            ("/locked/v1", "model_refused"),
            ("/page", "model_trouble"),
            ("/nothing/v1", "model_trouble"),
            ("/empty/v1", "model_unknown"),
        ):
            refused = await server.http.put("/api/keys/mine", json={"base_url": own.url + path})
            assert (refused.status_code, refused.json()["code"]) == (422, "server_not_usable"), path
            assert refused.json()["reason"] == reason
            assert refused.json()["hint"]
        gone = await server.http.put("/api/keys/mine", json={"base_url": "http://127.0.0.1:9/v1"})
        assert gone.json()["reason"] == "model_dropped"
        assert not (tmp_path / "secrets.toml").exists()


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "ftp://127.0.0.1/v1",
        "file:///etc/passwd",
        "http://",
        "http:///v1",
        "http://ada:secret@127.0.0.1/v1",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1/v1?x=1",
        "http://127.0.0.1/v1#x",
        "http://127.0.0.1/a b",
        "http://[::1/v1",
        "http://exa\nmple.com",
    ],
)
async def test_an_invalid_address_is_refused_with_a_reason(
    store: Store, tmp_path: Path, clock: FakeClock, address: str
) -> None:
    async with running(store, tmp_path, clock) as server:
        for method, path in (("PUT", "/api/keys/mine"), ("POST", "/api/keys/mine/test")):
            refused = await server.http.request(method, path, json={"base_url": address})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
            assert "secret" not in refused.json()["detail"]


async def test_known_names_keep_their_address_and_a_key_never_moves_to_another_one(
    store: Store, tmp_path: Path, clock: FakeClock, own: WireServer
) -> None:
    own.route("/other/v1/models", {"data": [{"id": "cat"}]})
    async with running(store, tmp_path, clock) as server:
        for taken in ("openai", "ollama", "pocket", "everturn"):
            refused = await server.http.put(f"/api/keys/{taken}", json={"base_url": f"{own.url}/v1"})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        nothing = await server.http.put("/api/keys/openai", json={})
        assert (nothing.status_code, nothing.json()["code"]) == (422, "invalid")
        first = {"base_url": f"{own.url}/v1", "key": OWN_KEY}
        assert (await server.http.put("/api/keys/mine", json=first)).status_code == 204
        same = {"base_url": f"{own.url}/v1"}
        assert (await server.http.put("/api/keys/mine", json=same)).status_code == 204
        assert own.requests[-1].headers["authorization"] == f"Bearer {OWN_KEY}"
        seen = len(own.requests)
        other = {"base_url": f"{own.url}/other/v1"}
        await server.http.post("/api/keys/mine/test", json=other)
        assert (await server.http.put("/api/keys/mine", json=other)).status_code == 204
        assert "mine:cat" in await names(server)
        assert [one for one in own.requests[seen:] if "authorization" in one.headers] == []
        assert OWN_KEY not in (tmp_path / "secrets.toml").read_text()


async def test_models_tools_profiles_and_servers_are_listed(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with running(store, tmp_path, clock) as server:
        models = (await server.http.get("/api/models")).json()
        assert models["default"] in [model["name"] for model in models["models"]]
        pocket = next(model for model in models["models"] if model["name"] == models["default"])
        assert pocket["is_small"]
        tools = (await server.http.get("/api/tools")).json()
        assert "terminal" in [tool["name"] for tool in tools["tools"]]
        assert tools["sandbox"]["level"] in ("full", "reduced", "none")
        few = (await server.http.get("/api/tools?profile=careful")).json()
        assert [tool["name"] for tool in few["tools"]] == ["read_file"]
        profiles = (await server.http.get("/api/profiles")).json()["profiles"]
        assert "careful" in [profile["name"] for profile in profiles]
        assert (await server.http.get("/api/mcp")).json() == {"servers": [], "tools_on": 0, "searched": False}
        # What memory costs is spent, but it is no turn.
        await store.ledger.spend("local", "memory", "openai:m", Usage(input_tokens=7, output_tokens=2))
        total = (await server.http.get("/api/usage")).json()["total"]
        assert (total["turns"], total["input_tokens"]) == (0, 7)
        # The same by day: a day begins at midnight of the time zone.
        spent = (await server.http.get("/api/usage?timezone=Pacific/Kiritimati")).json()["by_day"]
        there = datetime.fromtimestamp(clock.now_ms() / 1000, ZoneInfo("Pacific/Kiritimati"))
        assert [day["day"] for day in spent] == [there.date().isoformat()]
        assert spent[0]["models"]["openai:m"]["output_tokens"] == 2
        assert (await server.http.get("/api/usage?timezone=Nowhere")).status_code == 422
        listed = (await server.http.get("/v1/models")).json()
        assert listed["data"][0]["id"] == "everturn"


async def test_who_may_only_read_sees_no_arguments_and_no_output_of_a_server(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with running(store, tmp_path, clock) as server:
        script = "import sys; sys.exit('key-that-it-printed')"
        program = {"command": sys.executable, "args": ["-c", script, "--key=key-in-an-argument"]}
        for body in (
            {"name": "program", **program},
            {"name": "address", "url": "https://mcp.example/mcp?key=key-in-an-address"},
        ):
            assert (await server.http.post("/api/mcp", json=body)).status_code == 201
        assert (await server.http.post("/api/mcp/program/test")).json()["state"] == "failed"
        secrets = ("key-in-an-argument", "key-in-an-address", "key-that-it-printed")
        whole = (await server.http.get("/api/mcp")).text
        assert all(secret in whole for secret in secrets)
        made = await server.http.post("/api/tokens", json={"label": "reader", "scopes": ["read"]})
        reader = {"authorization": f"Bearer {made.json()['text']}"}
        seen = await server.http.get("/api/mcp", headers=reader)
        assert [secret for secret in secrets if secret in seen.text] == []
        shown = {one["name"]: (one["place"], one["state"]) for one in seen.json()["servers"]}
        assert shown == {"program": (sys.executable, "failed"), "address": ("mcp.example", "stopped")}


async def test_what_is_preferred_is_used_where_nothing_is_named(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with running(store, tmp_path, clock) as server:
        wrong = await server.http.patch("/api/settings", json={"profile": "nowhere"})
        assert wrong.status_code == 422
        changed = await server.http.patch("/api/settings", json={"profile": "careful", "model": "ollama:one"})
        assert (changed.json()["profile"], changed.json()["model"]) == ("careful", "ollama:one")
        assert (await server.http.get("/api/models")).json()["default"] == "ollama:one"
        assert (await server.new_session())["profile"] == "careful"
        await server.http.patch("/api/settings", json={"profile": None})
        session = await server.new_session()
        assert "profile" not in session
        accepted = await server.send(session["id"])
        assert accepted["turn"]["model"] == "ollama:one"
        other = await server.send(session["id"], model="ollama:two")
        assert other["turn"]["model"] == "ollama:two"


async def test_a_failed_turn_names_its_remedy(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with running(store, tmp_path, clock) as server:
        session_id = (await server.new_session())["id"]
        without_key = await server.run(session_id, model="openai:gpt-x")
        assert without_key[-1].json["event"]["failure"]["code"] == "model_key_missing"
        assert without_key[-1].json["event"]["failure"]["remedy"] == "open_settings"
        unknown = await server.run(session_id, model="nowhere:gpt-x")
        assert unknown[-1].json["event"]["failure"]["remedy"] == "choose_model"


async def test_rules_are_listed_and_revoked(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with running(store, tmp_path, clock) as server:
        rule = {"key": "net example.com", "tool": "terminal", "label": "curl example.com", "created_at": 1}
        for name in ("a1", "b2"):
            await store.records.put("local", "policy.rule", name, rule)
        rules = (await server.http.get("/api/policy")).json()["rules"]
        assert [one["id"] for one in rules] == ["a1", "b2"]
        assert (await server.http.delete("/api/policy?id=a1")).json() == {"revoked": 1}
        assert (await server.http.delete("/api/policy?id=a1")).status_code == 404
        assert (await server.http.delete("/api/policy")).json() == {"revoked": 1}
        assert (await server.http.get("/api/policy")).json() == {"rules": [], "trusted": []}


async def test_trust_in_a_session_is_listed_and_ended(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with running(store, tmp_path, clock) as server:
        trusted, other = await server.new_session(title="Trusted"), await server.new_session(title="Other")
        policy, judgement = Policy(store.records, clock), Judgement("git push")
        for session, decision in ((trusted, "trust"), (other, "trust"), (trusted, "session")):
            await policy.remember(_call(session["id"], tmp_path), judgement, decision)  # type: ignore[arg-type]  # the word that the API takes
        listed = (await server.http.get("/api/policy")).json()["trusted"]
        assert {one["title"] for one in listed} == {"Trusted", "Other"}

        path = f"/api/policy?session_id={trusted['id']}"
        assert (await server.http.delete(path)).json() == {"revoked": 1}
        listed = (await server.http.get("/api/policy")).json()["trusted"]
        assert listed == [{"id": other["id"], "title": "Other"}]
        assert not await policy.is_trusted("local", trusted["id"])
        assert await policy.is_trusted("local", other["id"])
        audit = (await server.http.get("/api/audit")).json()["items"]
        assert (audit[0]["what"], audit[0]["detail"]) == ("trust.ended", trusted["id"])
        assert (await server.http.delete(path)).json() == {"revoked": 0}
        assert len((await server.http.get("/api/audit")).json()["items"]) == len(audit)

        both = await server.http.delete(f"{path}&id=a1")
        assert (both.status_code, both.json()["code"]) == (422, "invalid")
        unknown = await server.http.delete(f"/api/policy?session_id=ses_{'0' * 26}")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def _call(session_id: str, workspace: Path) -> ToolCall:
    return ToolCall("c1", "terminal", {"command": "git push"}, "local", session_id, "t1", workspace, "k1")


async def test_a_client_can_be_generated_from_the_description(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    """Names a program can bear, none of them twice, no reference to nothing, no schema that is a mere ``false``."""
    async with running(store, tmp_path, clock) as server:
        document = (await server.http.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if not name.isidentifier()] == []
    titles = [schema.get("title", name) for name, schema in schemas.items()]
    assert len(titles) == len(set(titles))
    assert "false" not in [key.strip() for key in _schemas_in(document)]
    assert _references_in(document) <= {f"#/components/schemas/{name}" for name in schemas}
    answers = [
        one["responses"]["200"]
        for path in document["paths"].values()
        for one in path.values()
        if "200" in one["responses"]
    ]
    assert "*/*" not in [media for answer in answers for media in answer.get("content", {})]
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations))


def _references_in(node: object) -> set[str]:
    if isinstance(node, dict):
        found = {value for key, value in node.items() if key == "$ref" and isinstance(value, str)}
        return found.union(*map(_references_in, node.values()))
    return set().union(*map(_references_in, node)) if isinstance(node, list) else set()


def _schemas_in(node: object) -> list[str]:
    """Every value of an ``items``, as text."""
    if isinstance(node, dict):
        own = [json.dumps(value) for key, value in node.items() if key == "items"]
        return own + [one for value in node.values() for one in _schemas_in(value)]
    return [one for value in node for one in _schemas_in(value)] if isinstance(node, list) else []


async def test_a_repeated_creation_is_the_same_session_after_the_preferred_profile_has_changed(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with running(store, tmp_path, clock) as server:
        headers = {"Idempotency-Key": "once"}
        first = await server.http.post("/api/sessions", json={"title": "One"}, headers=headers)
        assert (await server.http.patch("/api/settings", json={"profile": "careful"})).status_code == 200
        again = await server.http.post("/api/sessions", json={"title": "One"}, headers=headers)
        assert again.status_code == first.status_code == 201
        assert again.json()["id"] == first.json()["id"]


# --- title model, fallback chain and limits ----------------------------------------------------------


async def test_models_for_titles_and_as_fallback_and_the_limits_are_chosen_and_given_back(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    chosen = {
        "title_model": "pocket",
        "fallback_models": ["ollama:one", "openai:two"],  # without a key: it may come later
        "steps_max": 5,
        "minutes_max": 2.5,
        "tokens_max": 1000,
        "cost_usd_max": 0.5,
    }
    nothing = dict.fromkeys(chosen)
    async with running(store, tmp_path, clock) as server:
        before = (await server.http.get("/api/settings")).json()
        assert {name: before[name] for name in chosen} == nothing
        assert before["defaults"] == {
            "title_model": None,
            "fallback_models": [],
            "steps_max": 50,
            "minutes_max": 60.0,
            "tokens_max": None,
            "cost_usd_max": None,
        }
        changed = await server.http.patch("/api/settings", json=chosen)
        assert {name: changed.json()[name] for name in chosen} == chosen
        one = await server.http.patch("/api/settings", json={"steps_max": None})
        assert {name: one.json()[name] for name in chosen} == chosen | {"steps_max": None}
        audit = (await server.http.get("/api/audit")).json()["items"]
        assert (audit[0]["what"], audit[0]["detail"]) == ("settings.changed", "steps_max")
    async with running(store, tmp_path, clock) as server:  # after a restart
        after = (await server.http.get("/api/settings")).json()
        assert {name: after[name] for name in chosen} == chosen | {"steps_max": None}
        back = await server.http.patch("/api/settings", json=nothing)
        assert {name: back.json()[name] for name in chosen} == nothing


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "unknown:x"}, "'unknown'"),
        ({"title_model": "unknown:x"}, "'unknown'"),
        ({"fallback_models": ["ollama:one", "unknown:x"]}, "'unknown'"),
        ({"fallback_models": ["ollama:x"] * 9}, "length <= 8"),
        ({"title_model": "ollama:x\n"}, "title_model"),
        ({"title_model": ""}, "title_model"),
        ({"steps_max": 0}, ">= 1"),
        ({"steps_max": 2.5}, "int"),
        ({"minutes_max": 0}, "> 0"),
        ({"tokens_max": -1}, ">= 1"),
        ({"cost_usd_max": "much"}, "float"),
        ({"steps": 3}, "steps"),
    ],
)
async def test_a_choice_that_cannot_be_is_refused_saying_why_and_changes_nothing(
    store: Store, tmp_path: Path, clock: FakeClock, change: dict[str, object], said: str
) -> None:
    async with running(store, tmp_path, clock) as server:
        before = (await server.http.get("/api/settings")).json()
        refused = await server.http.patch("/api/settings", json={"profile": "careful", **change})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        assert said in refused.json()["detail"]
        assert refused.json()["hint"]
        assert (await server.http.get("/api/settings")).json() == before


async def test_two_tabs_that_change_different_things_at_once_both_have_their_way(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    changes: list[dict[str, object]] = [
        {"steps_max": 5},
        {"minutes_max": 7.0},
        {"tokens_max": 9},
        {"title_model": "pocket"},
    ]
    async with running(store, tmp_path, clock) as server:
        async with anyio.create_task_group() as group:
            for change in changes:
                group.start_soon(lambda body: server.http.patch("/api/settings", json=body), change)
        after = (await server.http.get("/api/settings")).json()
        assert [{name: after[name] for name in change} for change in changes] == changes


async def test_a_turn_asks_at_the_chosen_limit(
    store: Store, tmp_path: Path, clock: FakeClock, own: WireServer
) -> None:
    async with running(store, tmp_path, clock) as server:
        await server.http.put("/api/keys/mine", json={"base_url": f"{own.url}/v1"})
        await server.http.patch("/api/settings", json={"steps_max": 1, "model": "mine:bear"})
        wish = openai_call(0, "{}", "call_1", "look")
        own.play(WireAnswer(sse(wish, openai_delta("tool_calls"), b"[DONE]")))
        frames = await server.run((await server.new_session())["id"], "look around")
        asked = [frame.json["event"] for frame in frames if frame.event == "question.asked"]
        assert [(one["topic"], "1 step." in one["text"]) for one in asked] == [("limit", True)]
