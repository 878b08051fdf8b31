"""E02, E06 over HTTP: a plan before a move, conflicts with their list, and restoring what a plan showed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from everturn.store import Store
from everturn.testing import FakeClock, FakeTool, FakeToolbox, ScriptedModel, ScriptedModels
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from everturn.web import Scope
from everturn.workspace import FilesSettings, Recorder
from tests.file_sessions import files_in, put_files, write, writing
from tests.trees import QuickDisk

pytestmark = pytest.mark.anyio


class Client:
    """A served store whose turns write files."""

    def __init__(self, running: Running, model: ScriptedModel, home: Path) -> None:
        self.running = running
        self._model = model
        self._home = home
        self._key = 0

    async def session(self, **body: Any) -> str:
        return str((await self.running.new_session(**body))["id"])

    def folder(self, session: str) -> Path:
        return self._home / "workspaces" / session

    async def turn(self, session: str, **files: str | None) -> str:
        self._model.add(writing(**files), "done")
        await self.running.run(session)
        return str((await self.running.http.get(f"/api/sessions/{session}")).json()["head"])

    async def plan(self, session: str, **query: str) -> httpx2.Response:
        return await self.running.http.get(f"/api/sessions/{session}/files/plan", params=query)

    async def post(self, session: str, what: str, **body: Any) -> httpx2.Response:
        self._key += 1
        headers = {"Idempotency-Key": f"key-{self._key}"}
        return await self.running.http.post(f"/api/sessions/{session}/{what}", json=body, headers=headers)


@pytest.fixture
async def c(
    store: Store, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    monkeypatch.setattr("everturn.workspace.restore.DiskSync", QuickDisk)
    home = tmp_path.resolve() / "home"
    (home / "workspaces").mkdir(parents=True)
    model = ScriptedModel(clock=clock)
    recorder = Recorder(store, home / "indexes", FilesSettings())
    tools = FakeToolbox(FakeTool("write", write), workspaces=home / "workspaces")
    async with (
        EverturnToolbox(home, ToolServices(store.records, store.search, clock), built_in()) as toolbox,
        run_web(
            store,
            home,
            clock=clock,
            models=ScriptedModels(model),
            toolbox=tools,
            recorder=recorder,
            extras={"toolbox": toolbox, "recorder": recorder},
        ) as running,
    ):
        yield Client(running, model, home)


async def test_e02_a_plan_a_conflict_and_the_choice(c: Client) -> None:
    session = await c.session()
    await c.turn(session, a_txt="one\n")
    await c.turn(session, a_txt="two\n", b_txt="two\n")
    put_files(c.folder(session), {"a.txt": "mine\nmine\n"})
    plan = (await c.plan(session, action="undo")).json()
    assert plan["changes"] == [
        {"path": "a.txt", "what": "changed", "size": 4, "added": 1, "removed": 2},
        {"path": "b.txt", "what": "deleted", "added": 0, "removed": 1},
    ]
    assert plan["total"] == 2
    assert plan["conflicts"] == [{"path": "a.txt", "what": "changed", "size": 10}]
    refused = await c.post(session, "undo")
    assert (refused.status_code, refused.json()["code"]) == (409, "files_conflict")
    assert refused.json()["conflicts"] == plan["conflicts"]
    done = await c.post(session, "undo", choices={"a.txt": "both"})
    assert done.status_code == 200, done.text
    assert "is_conversation_only" not in done.json()
    assert files_in(c.folder(session)) == {"a.txt": "one\n", "a (mine).txt": "mine\nmine\n"}
    redone = await c.post(session, "redo", files="restore")
    assert redone.status_code == 200, redone.text
    assert files_in(c.folder(session)) == {"a.txt": "mine\nmine\n", "b.txt": "two\n"}


async def test_e02_bad_choices_and_actions_are_refused(c: Client) -> None:
    session = await c.session()
    await c.turn(session, a_txt="one")
    assert (await c.post(session, "undo", files="burn")).status_code == 422
    assert (await c.plan(session, action="explode")).status_code == 422
    assert (await c.plan(session, action="restore")).status_code == 422
    assert (await c.plan(session, action="restore", at="chk_00000000000000000000000000")).status_code == 404
    for path in ("../outside", "/etc/passwd", "a//b", "nul\0"):
        answer = await c.plan(session, action="restore", at="start", path=path)
        assert answer.status_code == 422, path
    empty = await c.session()
    assert (await c.plan(empty, action="undo")).status_code == 409


async def test_e02_a_project_moves_its_conversation_only_and_says_so(c: Client, tmp_path: Path) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    session = await c.session(project=str(project))
    first = await c.turn(session, a_txt="one\n")
    await c.turn(session, a_txt="two\n")
    plan = (await c.plan(session, action="undo")).json()
    assert (plan["is_project"], plan["changes"], plan["total"]) == (True, [], 0)
    moved = await c.post(session, "undo")
    assert moved.json()["is_conversation_only"] is True
    assert files_in(project) == {"a.txt": "two\n"}
    plan = (await c.plan(session, action="restore", at=first)).json()
    assert [change["path"] for change in plan["changes"]] == ["a.txt"]
    done = await c.post(session, "files/restore", at=first, digest=plan["digest"])
    assert done.status_code == 200, done.text
    assert done.json()["total"] == 1
    assert files_in(project) == {"a.txt": "one\n"}


async def test_e06_what_programs_run_is_restored_by_one_who_may_approve(c: Client, tmp_path: Path) -> None:
    """Tools ask before they write it in a project; a token that may only chat could not answer."""
    project = tmp_path.resolve() / "project"
    project.mkdir()
    session = await c.session(project=str(project))
    first = await c.turn(session, a_txt="one", _envrc="run this")
    await c.turn(session, a_txt="two", _envrc=None)
    _, text = await c.running.web.accounts.create_token("local", "test", (Scope.CHAT,))
    chat = {"Authorization": f"Bearer {text}"}
    path = f"/api/sessions/{session}/files/restore"
    plan = (await c.plan(session, action="restore", at=first)).json()
    body = {"at": first, "digest": plan["digest"]}
    refused = await c.running.http.post(path, json=body, headers=chat)
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert files_in(project) == {"a.txt": "two"}
    plan = (await c.plan(session, action="restore", at=first, path="a.txt")).json()
    one = {"at": first, "digest": plan["digest"], "paths": ["a.txt"]}
    assert (await c.running.http.post(path, json=one, headers=chat)).status_code == 200
    assert files_in(project) == {"a.txt": "one"}
    plan = (await c.plan(session, action="restore", at=first)).json()
    assert (await c.post(session, "files/restore", at=first, digest=plan["digest"])).status_code == 200
    assert files_in(project) == {"a.txt": "one", ".envrc": "run this"}


async def test_e06_a_repository_in_pieces_is_restored_by_one_who_may_approve(
    c: Client, tmp_path: Path
) -> None:
    """No file of it runs anything by itself; together they are a repository with settings for Git."""
    project = tmp_path.resolve() / "project"
    project.mkdir()
    session = await c.session(project=str(project))
    first = await c.turn(session, a_txt="one")
    files = {f"x/{name}": "1" for name in ("HEAD", "config", "objects/a", "refs/b")}
    put_files(project, files)
    second = await c.turn(session, a_txt="two")
    put_files(project, dict.fromkeys(files))
    _, text = await c.running.web.accounts.create_token("local", "test", (Scope.CHAT,))
    chat, path = {"Authorization": f"Bearer {text}"}, f"/api/sessions/{session}/files/restore"
    plan = (await c.plan(session, action="restore", at=second)).json()
    refused = await c.running.http.post(path, json={"at": second, "digest": plan["digest"]}, headers=chat)
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    plan = (await c.plan(session, action="restore", at=first, path="a.txt")).json()
    body = {"at": first, "digest": plan["digest"], "paths": ["a.txt"]}
    assert (await c.running.http.post(path, json=body, headers=chat)).status_code == 200


async def test_e06_a_profile_that_only_reads_restores_nothing_in_a_project(c: Client, tmp_path: Path) -> None:
    """As with a save. Its own folder is not the user's: there files are restored as ever."""
    project = tmp_path.resolve() / "project"
    project.mkdir()
    for session in (await c.session(project=str(project)), await c.session()):
        first = await c.turn(session, a_txt="one")
        await c.turn(session, a_txt="two")
        await c.running.http.patch(f"/api/sessions/{session}", json={"profile": "pocket"})
        plan = (await c.plan(session, action="restore", at=first)).json()
        answer = await c.post(session, "files/restore", at=first, digest=plan["digest"])
        if plan["is_project"]:
            assert (answer.status_code, answer.json()["code"]) == (403, "denied")
            assert "Nothing was restored: the profile pocket only reads" in answer.json()["detail"]
            assert files_in(project) == {"a.txt": "two"}
        else:
            assert answer.status_code == 200, answer.text
            assert files_in(c.folder(session)) == {"a.txt": "one"}


async def test_e04_an_imported_session_is_undone_redone_and_restored(c: Client) -> None:
    session = await c.session()
    await c.turn(session, a_txt="one")
    await c.turn(session, a_txt="two", b_txt="two")
    http = c.running.http
    archive = await http.get(f"/api/sessions/{session}/export", params={"format": "archive"})
    raw = {"content-type": "application/octet-stream"}
    made = await http.post("/api/sessions/import/archive", content=archive.content, headers=raw)
    copy = str(made.json()["id"])
    assert (await c.post(copy, "undo")).status_code == 200
    assert files_in(c.folder(copy)) == {"a.txt": "one"}
    first = (await http.get(f"/api/sessions/{copy}")).json()["head"]
    assert (await c.post(copy, "redo")).status_code == 200
    assert files_in(c.folder(copy)) == {"a.txt": "two", "b.txt": "two"}
    plan = (await c.plan(copy, action="restore", at=first)).json()
    assert (await c.post(copy, "files/restore", at=first, digest=plan["digest"])).status_code == 200
    assert files_in(c.folder(copy)) == {"a.txt": "one"}
    assert files_in(c.folder(session)) == {"a.txt": "two", "b.txt": "two"}


async def test_e03_a_branch_that_was_not_used_yet_is_not_being_restored(c: Client) -> None:
    session = await c.session()
    first = await c.turn(session, a_txt="one")
    await c.turn(session, a_txt="two")
    branch = (await c.post(session, "branch", turn_id=first)).json()["id"]
    listed = (await c.running.http.get(f"/api/sessions/{branch}/files")).json()
    assert [one["path"] for one in listed["files"]] == ["a.txt"]
    assert not listed["is_restoring"]


async def test_e04_a_browser_asks_again_for_an_old_version(c: Client) -> None:
    """Its session may have been deleted meanwhile. A path may be longer than most names are."""
    session = await c.session()
    await c.turn(session, a_txt="one")
    path = f"/api/sessions/{session}/files"
    made = (await c.running.http.get(f"{path}/history?path=a.txt")).json()["versions"][0]["checkpoint"]
    answer = await c.running.http.get(f"{path}/content?path=a.txt&at={made}")
    assert (answer.text, answer.headers["cache-control"]) == ("one", "private, no-cache")
    long = await c.running.http.get(f"{path}/content", params={"path": "é/" * 1000, "at": made})
    assert long.status_code == 404, long.text


async def test_e06_only_what_was_shown_is_restored(c: Client) -> None:
    session = await c.session()
    first = await c.turn(session, a_txt="one", b_txt="one")
    await c.turn(session, a_txt="two", b_txt="two", c_txt="two")
    plan = (await c.plan(session, action="restore", at=first, path="a.txt")).json()
    body = {"at": first, "paths": ["a.txt"], "digest": plan["digest"]}
    put_files(c.folder(session), {"a.txt": "mine"})
    refused = await c.post(session, "files/restore", **body)
    assert (refused.status_code, refused.json()["code"]) == (409, "files_conflict")
    assert files_in(c.folder(session))["a.txt"] == "mine"
    plan = (await c.plan(session, action="restore", at=first, path="a.txt")).json()
    assert [conflict["path"] for conflict in plan["conflicts"]] == ["a.txt"]
    done = await c.post(session, "files/restore", **{**body, "digest": plan["digest"]})
    assert done.status_code == 200, done.text
    assert files_in(c.folder(session)) == {"a.txt": "one", "b.txt": "two", "c.txt": "two"}
    head = (await c.running.http.get(f"/api/sessions/{session}")).json()["head"]
    assert head != first, "the conversation stays where it is"
    events = await c.running.store.journal.after("local", session, 0, limit=1000)
    assert [event.kind for event in events].count("files.restored") == 1
    again = await c.plan(session, action="restore", at=first, path="a.txt")
    assert again.json()["total"] == 0


async def test_e06_restored_files_are_part_of_the_history(c: Client) -> None:
    session = await c.session()
    first = await c.turn(session, a_txt="one")
    await c.turn(session, a_txt="two")
    plan = (await c.plan(session, action="restore", at=first)).json()
    await c.post(session, "files/restore", at=first, digest=plan["digest"])
    history = await c.running.http.get(f"/api/sessions/{session}/files/history", params={"path": "a.txt"})
    assert [one["cause"] for one in history.json()["versions"]] == ["restored", "call", "call"]
    await c.post(session, "undo")
    assert files_in(c.folder(session)) == {"a.txt": "one"}
    await c.post(session, "redo")
    assert files_in(c.folder(session)) == {"a.txt": "one"}


async def test_e03_a_file_is_saved_in_a_branch_that_was_not_used_yet(c: Client) -> None:
    session = await c.session()
    await c.turn(session, a_txt="one")
    copy = str((await c.post(session, "branch")).json()["id"])
    listed = await c.running.http.get(f"/api/sessions/{copy}/files")
    assert [one["path"] for one in listed.json()["files"]] == ["a.txt"]
    saved = await c.running.http.put(
        f"/api/sessions/{copy}/files/content",
        params={"path": "b.txt"},
        content=b"mine",
        headers={"If-None-Match": "*"},
    )
    assert saved.status_code == 200, saved.text
    assert files_in(c.folder(copy)) == {"a.txt": "one", "b.txt": "mine"}
    assert files_in(c.folder(session)) == {"a.txt": "one"}
