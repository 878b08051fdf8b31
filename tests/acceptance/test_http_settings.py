"""Settings over real HTTP, with the real registry, keys and toolbox behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everturn.models import Keys, ModelRegistry
from everturn.models.settings import parse_settings
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.web_server import Running, run_web
from everturn.tools import TOOL_NAMES, EverturnToolbox, parse_profiles

pytestmark = pytest.mark.anyio

PROFILES = """
[profiles.careful]
prompt = "You are careful."
tools = ["read_file"]
"""


@asynccontextmanager
async def running(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    keys = Keys(tmp_path, {})
    profiles = parse_profiles(PROFILES, "config.toml", TOOL_NAMES)
    async with (
        ModelRegistry(
            parse_settings({}), keys, clock, {}, weights_folder=tmp_path / "models", default="pocket"
        ) as models,
        EverturnToolbox(
            tmp_path, records=store.records, search=store.search, clock=clock, profiles=profiles
        ) as toolbox,
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
        assert (await server.http.delete("/api/keys/openai")).status_code == 204
        assert (await server.http.delete("/api/keys/openai")).status_code == 404
        unknown = await server.http.put("/api/keys/nobody", json={"key": secret})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
        for method in ("GET", "POST"):
            assert (await server.http.request(method, "/api/keys/openai", json={})).status_code == 405


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
        assert (await server.http.get("/api/mcp")).json() == {"servers": []}
        assert (await server.http.get("/api/usage")).json()["total"]["turns"] == 0
        listed = (await server.http.get("/v1/models")).json()
        assert listed["data"][0]["id"] == "everturn"


async def test_what_is_preferred_is_used_where_nothing_is_named(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with running(store, tmp_path, clock) as server:
        wrong = await server.http.patch("/api/settings", json={"profile": "nowhere"})
        assert wrong.status_code == 422
        changed = await server.http.patch("/api/settings", json={"profile": "careful", "model": "acme:one"})
        assert (changed.json()["profile"], changed.json()["model"]) == ("careful", "acme:one")
        assert (await server.http.get("/api/models")).json()["default"] == "acme:one"
        assert (await server.new_session())["profile"] == "careful"
        await server.http.patch("/api/settings", json={"profile": None})
        session = await server.new_session()
        assert "profile" not in session
        accepted = await server.send(session["id"])
        assert accepted["turn"]["model"] == "acme:one"
        other = await server.send(session["id"], model="acme:two")
        assert other["turn"]["model"] == "acme:two"


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
        assert (await server.http.get("/api/policy")).json() == {"rules": []}
