"""Profiles over real HTTP: made, changed, removed, shared as files and tried, with the real toolbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everturn.app import read_turn_profiles
from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.models import Keys, ModelRegistry
from everturn.models.settings import parse_settings
from everturn.models.weights import PipDownload, Shelf
from everturn.store import SecretsFile, Store
from everturn.testing.web_server import Running, run_web
from everturn.testing.wires import WireAnswer, WireServer, openai_answer, wire_server
from everturn.tools import TOOL_NAMES, EverturnToolbox, McpServer, ToolServices, parse_profiles
from everturn.tools.knowledge.book import Knowledge
from everturn.web import LOCAL_OWNER

pytestmark = pytest.mark.anyio

CONFIGURED = """
[profiles.careful]
prompt = "You are careful."
tools = ["read_file"]
"""
WRITER = {"name": "writer", "prompt": "You write.", "tools": ["read_file"], "skills": []}


class House(Running):
    """A server with its toolbox and the service that its model speaks to."""

    def __init__(self, server: Running, toolbox: EverturnToolbox, wires: WireServer) -> None:
        super().__init__(server.url, server.web, server.engine, server.store, server.http)
        self.toolbox = toolbox
        self.wires = wires

    async def call(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = await self.http.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def audited(self) -> list[str]:
        entries = (await self.call("GET", "/api/audit"))["items"]
        return [f"{one['what']} {one['detail']}" for one in entries]


@asynccontextmanager
async def running(store: Store, tmp_path: Path) -> AsyncIterator[House]:
    clock = SystemClock()
    keys = Keys(SecretsFile(tmp_path), {})
    profiles = parse_profiles(CONFIGURED, "config.toml", TOOL_NAMES)
    shelf = Shelf(tmp_path / "models", PipDownload({}))
    async with wire_server() as wires:
        environ = {"OPENAI_BASE_URL": f"{wires.url}/v1", "OPENAI_API_KEY": "sk-test-000000000000"}
        services = ToolServices(store.records, store.search, clock, blobs=store.blobs, files=store.files)
        async with (
            ModelRegistry(parse_settings({}), keys, clock, environ, shelf, default="openai:test") as models,
            EverturnToolbox(tmp_path, services, profiles) as toolbox,
            run_web(
                store,
                tmp_path,
                clock=clock,
                models=models,
                toolbox=toolbox,
                profiles=lambda: read_turn_profiles(toolbox.profile_book),
                extras={"keys": keys, "toolbox": toolbox},
            ) as server,
        ):
            yield House(server, toolbox, wires)


async def test_a_profile_is_made_changed_and_removed(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        made = await house.http.post("/api/profiles", json=WRITER)
        assert (made.status_code, made.headers["etag"]) == (201, '"1"')
        assert made.json()["settings"]["prompt"] == "You write."
        assert made.json()["grants"] == [{"what": "tools", "names": ["read_file"]}]
        path, first = "/api/profiles/writer", {"If-Match": '"1"'}
        body = {"prompt": "You write well.", "tools": ["read_file"], "network": True, "memory": False}
        changed = await house.call("PUT", path, json=body, headers=first)
        assert (changed["revision"], changed["network"], changed["memory"]) == (2, True, False)
        late = await house.call("PUT", path, 409, json=body, headers=first)
        assert "changed meanwhile" in late["detail"]
        assert (await house.call("PUT", path, 428, json=body))["code"] == "precondition_needed"
        assert (await house.call("DELETE", path, 428))["code"] == "precondition_needed"
        await house.call("DELETE", path, 409, headers=first)
        assert (await house.call("GET", path))["revision"] == 2
        await house.call("DELETE", path, 204, headers={"If-Match": "2"})
        await house.call("GET", path, 404)
        await house.call("DELETE", path, 404, headers={"If-Match": "2"})
        assert await house.audited() == [
            "profile.removed writer",
            "profile.changed writer: network, tools, all_skills",
            "profile.added writer: tools",
        ]


async def test_those_of_the_file_are_shown_and_stay(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        listed = (await house.call("GET", "/api/profiles"))["profiles"]
        assert {one["name"]: one["origin"] for one in listed} == {
            "careful": "config",
            "default": "built_in",
            "guest": "built_in",
            "pocket": "built_in",
        }
        careful = await house.call("GET", "/api/profiles/careful")
        assert (careful["revision"], careful["settings"]["tools"]) == (None, ["read_file"])
        for name in ("careful", "default"):
            refused = await house.call("POST", "/api/profiles", 409, json={**WRITER, "name": name})
            assert "set up in config.toml" in refused["detail"]
            some = {"If-Match": "1"}
            await house.call("PUT", f"/api/profiles/{name}", 409, json={"prompt": "x"}, headers=some)
            await house.call("DELETE", f"/api/profiles/{name}", 409, headers=some)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "../up"}, "cannot be a profile's name"),
        ({"name": "~prf_1"}, "cannot be a profile's name"),
        ({"tools": ["no_such"]}, "There is no tool 'no_such'"),
        ({"mcp": ["no_such"]}, "There is no MCP server 'no_such'"),
        ({"model": "nobody:model"}, "nobody"),
        ({"temperature": 9}, "temperature"),
        ({"effort": "enormous"}, "effort"),
        ({"budget_usd": 0}, "budget_usd"),
        ({"prompt": " "}, "prompt"),
        ({"prompt": "x" * 40_000}, "prompt"),
        ({"hosts": ["*"]}, "hosts"),
        ({"host_network": True}, "host_network"),
        ({"knowledge": ["kno_00000000000000000000000000"]}, "knowledge"),
    ],
)
async def test_a_wrong_profile_is_refused_and_nothing_is_kept(
    store: Store, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    async with running(store, tmp_path) as house:
        answer = await house.http.post("/api/profiles", json={**WRITER, **change})
        assert answer.status_code in (404, 422), answer.text
        assert why in answer.text
        assert len((await house.call("GET", "/api/profiles"))["profiles"]) == 4


async def test_only_the_admin_changes_reads_and_tries_profiles(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        await house.call("POST", "/api/profiles", 201, json=WRITER)
        for scope in ("read", "chat"):
            made = await house.call("POST", "/api/tokens", 201, json={"label": scope, "scopes": [scope]})
            token = {"authorization": f"Bearer {made['text']}", "If-Match": "1"}
            for method, path, body in (
                ("POST", "/api/profiles", {**WRITER, "name": "mine"}),
                ("GET", "/api/profiles/writer", None),
                ("PUT", "/api/profiles/writer", {"prompt": "Obey."}),
                ("DELETE", "/api/profiles/writer", None),
                ("GET", "/api/profiles/writer/file", None),
                ("POST", "/api/profile-files", {"text": "x"}),
                ("POST", "/api/profile-trials", {**WRITER, "text": "Hi"}),
                ("DELETE", "/api/profile-trials/ses_00000000000000000000000000", None),
                ("PATCH", "/api/settings", {"instructions": "Obey."}),
            ):
                answer = await house.http.request(method, path, json=body, headers=token)
                assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing"), (method, path)
            listed = await house.http.get("/api/profiles", headers=token)
            assert "You write." in listed.text
        assert (await house.call("GET", "/api/profiles/writer"))["revision"] == 1


async def test_sessions_of_a_removed_profile_do_not_get_the_next_one_of_its_name_unasked(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path) as house:
        await house.call("POST", "/api/profiles", 201, json=WRITER)
        session = await house.new_session(profile="writer")
        await house.call("DELETE", "/api/profiles/writer", 204, headers={"If-Match": "1"})
        house.wires.play(WireAnswer(openai_answer(["Hello"])))
        frames = await house.run(session["id"])
        assert frames[-1].event == "turn.failed"
        assert "There is no profile 'writer'" in frames[-1].data
        assert house.wires.requests == []
        wider = {**WRITER, "tools": None, "sandbox": False}
        refused = await house.call("POST", "/api/profiles", 409, json=wider)
        assert (refused["sessions"], refused["code"]) == (1, "wrong_state")
        await house.call("POST", "/api/profiles", 201, json={**wider, "takes_sessions": True})


async def test_the_profile_of_new_sessions_is_not_removed(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        await house.call("POST", "/api/profiles", 201, json=WRITER)
        await house.call("PATCH", "/api/settings", json={"profile": "writer"})
        refused = await house.call("DELETE", "/api/profiles/writer", 409, headers={"If-Match": "1"})
        assert "New sessions use the profile" in refused["detail"]


async def test_what_named_a_removed_profile_is_not_given_to_the_next_one(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path) as house:
        assert house.toolbox.knowledge is not None
        book = house.toolbox.knowledge.book
        notes = await book.add(Ids(SystemClock()), Knowledge("", LOCAL_OWNER, "notes", 1))
        made = await house.call("POST", "/api/profiles", 201, json={**WRITER, "knowledge": [notes.id]})
        assert made["knowledge"] == [notes.id]
        assert (await book.get(LOCAL_OWNER, notes.id)).profiles == ("writer",)
        await house.toolbox.mcp.book.add(McpServer("shelf", url="http://127.0.0.1:9/", profiles=("writer",)))
        assert (await house.call("GET", "/api/profiles/writer"))["servers"] == ["shelf"]
        stays = {"prompt": "You write.", "tools": []}
        kept = await house.call("PUT", "/api/profiles/writer", json=stays, headers={"If-Match": "1"})
        assert kept["knowledge"] == [notes.id], "it was left out"
        await house.call("DELETE", "/api/profiles/writer", 204, headers={"If-Match": "2"})
        assert (await book.get(LOCAL_OWNER, notes.id)).profiles == ()
        again = await house.call("POST", "/api/profiles", 201, json=WRITER)
        assert (again["knowledge"], again["servers"]) == ([], [])


async def test_a_profile_is_shared_as_a_file_and_shown_before_it_is_taken(
    store: Store, tmp_path: Path
) -> None:
    async with running(store, tmp_path) as house:
        await house.call("POST", "/api/profiles", 201, json={**WRITER, "temperature": 0.5})
        file = await house.http.get("/api/profiles/writer/file")
        assert file.headers["content-disposition"] == 'attachment; filename="writer.profile.toml"'
        assert "temperature = 0.5" in file.text
        read = await house.call("POST", "/api/profile-files", json={"text": file.text})
        assert (read["name"], read["revision"], read["grants"], read["missing"]) == ("writer", 1, [], [])
        wider = file.text.replace('["read_file"]', '["read_file", "terminal", "robot"]')
        wider += 'sandbox = false\nmcp = ["shelf"]\n'
        read = await house.call("POST", "/api/profile-files", json={"text": wider})
        assert [one["what"] for one in read["grants"]] == ["no_sandbox", "tools", "mcp"]
        assert read["grants"][1]["names"] == ["terminal", "robot"]
        assert read["missing"] == ["robot", "shelf"]
        other = await house.call("POST", "/api/profile-files", json={"text": file.text, "name": "second"})
        assert (other["name"], other["origin"]) == ("second", None)
        refused = await house.call("POST", "/api/profile-files", 422, json={"text": "[mcp.x]\ncommand='sh'"})
        assert "not a profile" in refused["detail"]
        assert (await house.call("GET", "/api/profiles/writer"))["revision"] == 1


async def test_settings_are_tried_in_a_session_of_which_nothing_is_kept(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        house.wires.play(WireAnswer(openai_answer(["Arma virumque cano"])))
        body = {**WRITER, "prompt": "You are Virgil.", "temperature": 0.25, "tools": []}
        begun = await house.call("POST", "/api/profile-trials", 202, json={**body, "text": "Sing"})
        path = f"/api/sessions/{begun['session_id']}"
        frames = await house.read_until(f"{path}/events?after={begun['cursor']}", "turn.completed")
        assert "cano" in "".join(frame.data for frame in frames)
        (request,) = house.wires.requests
        assert "You are Virgil." in request.body.decode()
        assert (await house.call("GET", "/api/sessions"))["items"] == []
        listed = (await house.call("GET", "/api/profiles"))["profiles"]
        assert sorted(one["name"] for one in listed) == [
            "careful",
            "default",
            "guest",
            "pocket",
        ], "a trial is no profile"
        await house.call("DELETE", f"/api/profile-trials/{begun['session_id']}", 204)
        assert (await house.http.get(path)).status_code in (404, 410)
        assert await store.records.list("system", "profile_trial") == {}


async def test_only_a_trial_is_ended_as_one(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        session = await house.new_session()
        await house.call("DELETE", f"/api/profile-trials/{session['id']}", 404)
        assert (await house.call("GET", f"/api/sessions/{session['id']}"))["id"] == session["id"]


async def test_instructions_are_kept_and_bounded(store: Store, tmp_path: Path) -> None:
    async with running(store, tmp_path) as house:
        assert (await house.call("GET", "/api/settings"))["instructions"] == ""
        kept = await house.call("PATCH", "/api/settings", json={"instructions": "Answer in Latin."})
        assert kept["instructions"] == "Answer in Latin."
        await house.call("PATCH", "/api/settings", 422, json={"instructions": "x" * 8_001})
        assert (await house.call("GET", "/api/settings"))["instructions"] == "Answer in Latin."
