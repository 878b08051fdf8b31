"""What a client says about a session is refused at the door: a folder that no session may work in, and names with
control characters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everturn.store import Store
from everturn.testing.clock import FakeClock
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir()
    async with (
        EverturnToolbox(home, ToolServices(store.records, store.search, clock), built_in()) as toolbox,
        run_web(store, home, clock=clock, toolbox=toolbox) as server,
    ):
        yield server


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    (tmp_path / "link").symlink_to(home)
    return {
        "the root": "/",
        "around the data": str(tmp_path),
        "the data": str(home),
        "in the data": str(home / "workspaces"),
        "a link to the data": str(tmp_path / "link"),
        "missing": str(tmp_path / "missing"),
        "relative": "project",
        "nothing": "",
        "a NUL": f"{tmp_path}/a\0b",
    }


async def test_a_folder_that_no_session_may_work_in_is_refused_at_once(
    server: Running, folders: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    good = str(tmp_path / "project")
    session_id = (await server.new_session(project=good))["id"]
    for name, folder in folders.items():
        created = await server.http.post("/api/sessions", json={"project": folder})
        changed = await server.http.patch(f"/api/sessions/{session_id}", json={"project": folder})
        for answer in (created, changed):
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), name
            assert "data folder" in answer.json()["detail"] or "is not there" in answer.json()["detail"], name
    listed = (await server.http.get("/api/sessions")).json()["items"]
    assert [(row["id"], row["project"]) for row in listed] == [(session_id, good)]


async def test_a_document_brings_no_folder(server: Running) -> None:
    document = await _exported(server)
    document["session"]["project"] = "/"
    taken = await server.http.post("/api/sessions/import", json=document)
    assert taken.status_code == 201
    assert "project" not in taken.json()


async def test_the_command_line_refuses_such_a_folder_too(data_dir: Path) -> None:
    for folder in ("/", str(data_dir)):
        done = await command(data_dir, "run", "--project", folder, "Hello", EVERTURN_MODEL="pocket")
        assert done.returncode == 1
        assert "data folder" in done.stderr
        assert "Traceback" not in done.stderr


CONTROL = ["\0", "\x1b[2J", "\r", "\n", "\x7f", "\x9b"]


@pytest.mark.parametrize("bad", CONTROL, ids=[repr(one) for one in CONTROL])
async def test_names_with_control_characters_are_refused(server: Running, bad: str) -> None:
    document = await _exported(server)
    session_id = document["session"]["id"]
    words = f"a{bad}b"
    for field, value in (("title", words), ("key", words), ("tags", ["good", words]), ("model", words)):
        changed = {**document, "session": {**document["session"], field: value}}
        answers = [await server.http.post("/api/sessions/import", json=changed)]
        if field != "tags":
            answers.append(await server.http.post("/api/sessions", json={field: value}))
        if field != "key":
            answers.append(await server.http.patch(f"/api/sessions/{session_id}", json={field: value}))
        if field == "title" and bad.isspace():
            assert {answer.json()["title"] for answer in answers} == {"a b"}
            continue
        for answer in answers:
            assert answer.status_code == 422, (field, answer.text)
            assert f"U+{ord(bad[0]):04X}" in answer.json()["detail"], field
    made = 3 if bad.isspace() else 1
    assert len((await server.http.get("/api/sessions")).json()["items"]) == made


async def test_names_in_every_script_are_taken(server: Running) -> None:
    for title in ("日本語", "نمی‌خواهم", "👨‍👩‍👧", "naïve café"):
        assert (await server.new_session(title=title))["title"] == title


async def _exported(server: Running) -> dict[str, Any]:
    made = await server.new_session(title="Small")
    found: dict[str, Any] = (await server.http.get(f"/api/sessions/{made['id']}/export")).json()
    return found
