"""E04, E01: a user saves a file. It is written whole, over the version it is based on, and has a checkpoint."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from everturn.domain.checkpoints import Cause
from everturn.domain.errors import StorageAway
from everturn.domain.trees import hash_bytes
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answered, new_session, start
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from everturn.tools.temporary_files import write_name
from tests.contracts.test_e04_versions import get

pytestmark = pytest.mark.anyio
NEW = {"if-none-match": "*"}


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir()
    async with (
        EverturnToolbox(home, ToolServices(store.records, store.search, clock), built_in()) as toolbox,
        run_web(store, home, clock=clock, extras={"toolbox": toolbox}) as server,
    ):
        yield server


def folder_of(server: Running, session_id: str) -> Path:
    folder = server.web.settings.home / "workspaces" / session_id
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def put(
    server: Running, session_id: str, path: str, data: bytes, headers: dict[str, str]
) -> httpx2.Response:
    return await server.http.put(
        f"/api/sessions/{session_id}/files/content", params={"path": path}, content=data, headers=headers
    )


def over(data: bytes) -> dict[str, str]:
    return {"if-match": f'"{hash_bytes(data)}"'}


async def test_e04_a_file_is_saved_and_has_a_checkpoint_of_the_last_turn(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    turn = (await answered(store, session.id, "hello", "good morning")).turn.id
    answer = await put(server, session.id, "notes/a.txt", b"one", NEW)
    assert answer.status_code == 200, answer.text
    (made,) = await store.checkpoints.of_session(ME, session.id)
    assert answer.json() == {
        "path": "notes/a.txt",
        "size": 3,
        "sha256": hash_bytes(b"one"),
        "checkpoint": made.id,
    }
    assert (made.turn_id, made.cause, made.epoch) == (turn, Cause.SAVED, 0)
    assert [change.path for change in made.changes.changed] == ["notes/a.txt"]
    assert (folder_of(server, session.id) / "notes" / "a.txt").read_bytes() == b"one"
    answer = await put(server, session.id, "notes/a.txt", b"two", over(b"one"))
    assert answer.status_code == 200
    read = await get(server, session.id, "/content", path="notes/a.txt", at=made.id)
    assert read.content == b"one"
    read = await get(server, session.id, "/content", path="notes/a.txt", at=turn)
    assert read.content == b"two"


async def test_e04_what_is_saved_during_a_turn_belongs_to_it(store: Store, server: Running) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "work")
    assert (await put(server, session.id, "a.txt", b"one", NEW)).status_code == 200
    (made,) = await store.checkpoints.of_session(ME, session.id)
    assert made.turn_id == held.turn.id


async def test_e04_a_file_that_was_changed_meanwhile_is_not_overwritten(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    file = folder_of(server, session.id) / "a.txt"
    file.write_bytes(b"theirs")
    for headers in (over(b"mine"), NEW):
        answer = await put(server, session.id, "a.txt", b"new", headers)
        assert (answer.status_code, answer.json()["code"]) == (412, "stale_file")
        assert answer.json()["sha256"] == hash_bytes(b"theirs")
    assert file.read_bytes() == b"theirs"
    file.unlink()
    answer = await put(server, session.id, "a.txt", b"new", over(b"theirs"))
    assert (answer.status_code, answer.json()["sha256"]) == (412, None)
    assert not file.exists()
    answer = await put(server, session.id, "a.txt", b"new", {})
    assert (answer.status_code, answer.json()["code"]) == (428, "file_tag_needed")


async def test_e04_mode_and_links_stay_as_they_are(store: Store, server: Running) -> None:
    session = await new_session(store)
    folder = folder_of(server, session.id)
    (folder / "run.sh").write_bytes(b"old")
    (folder / "run.sh").chmod(0o755)
    assert (await put(server, session.id, "run.sh", b"new", over(b"old"))).status_code == 200
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o755
    (folder / "to").symlink_to("run.sh")
    assert (await put(server, session.id, "to", b"x", over(b"new"))).status_code == 422
    assert os.readlink(folder / "to") == "run.sh"


BAD = [
    ("../out.txt", 403),
    ("/etc/out.txt", 403),
    ("sub/../../out.txt", 403),
    ("out/x", 403),
    ("a\0b", 403),
    (".", 422),
    ("file/x", 404),
    ("n" * 300, 422),
    ("n/" * 240 + "x" * 300, 422),
]


@pytest.mark.parametrize(("path", "status"), BAD, ids=[repr(path)[:20] for path, _ in BAD])
async def test_e04_a_path_that_leads_out_or_cannot_be_is_refused(
    store: Store, server: Running, tmp_path: Path, path: str, status: int
) -> None:
    session = await new_session(store)
    folder = folder_of(server, session.id)
    (folder / "out").symlink_to(tmp_path)
    (folder / "file").write_bytes(b"")
    before = sorted(tmp_path.iterdir())
    answer = await put(server, session.id, path, b"x", NEW)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    assert sorted(tmp_path.iterdir()) == before
    assert await store.checkpoints.of_session(ME, session.id) == []


async def test_e04_what_programs_of_the_user_run_is_not_saved_into_a_project(
    store: Store, server: Running, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (project / "hooks").symlink_to(".git/hooks")
    session = await server.new_session(project=str(project))
    for path in (".git/hooks/post-commit", "hooks/post-commit", ".vscode/tasks.json", ".envrc"):
        answer = await put(server, session["id"], path, b"#!/bin/sh", NEW)
        assert (answer.status_code, answer.json()["code"]) == (403, "denied"), path
    assert list((project / ".git" / "hooks").iterdir()) == []
    assert (await put(server, session["id"], "main.py", b"print()", NEW)).status_code == 200


async def test_e04_a_profile_that_only_reads_saves_nothing_into_a_project(
    server: Running, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    reader = await server.new_session(project=str(project), profile="pocket")
    answer = await put(server, reader["id"], "main.py", b"print()", NEW)
    assert (answer.status_code, answer.json()["code"]) == (403, "denied")
    assert "the profile pocket only reads" in answer.json()["detail"]
    assert list(project.iterdir()) == []
    own = await server.new_session(profile="pocket")
    assert (await put(server, own["id"], "main.py", b"print()", NEW)).status_code == 200


async def test_e04_a_file_is_saved_also_while_the_storage_is_away(
    store: Store, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(sources: Any) -> Any:
        raise StorageAway("The storage cannot be reached.")

    session = await new_session(store)
    with monkeypatch.context() as patched:
        patched.setattr(store.blobs, "put_many", away)
        answer = await put(server, session.id, "a.txt", b"one", NEW)
    assert (answer.status_code, answer.json()["checkpoint"]) == (200, None)
    assert (folder_of(server, session.id) / "a.txt").read_bytes() == b"one"


async def test_e04_only_the_owner_saves(store: Store, server: Running) -> None:
    other = await store.sessions.create("eve")
    assert (await put(server, other.id, "a.txt", b"x", NEW)).status_code == 404


async def test_e04_a_save_that_was_killed_leaves_nothing_that_is_shown_or_stored(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    (folder_of(server, session.id) / write_name()).write_text("half of it")
    saved = await put(server, session.id, "notes.txt", b"hello", NEW)
    assert saved.status_code == 200
    listed = await get(server, session.id)
    assert [one["path"] for one in listed.json()["files"]] == ["notes.txt"]
    (made,) = await store.checkpoints.of_session(ME, session.id)
    assert [change.path for change in made.changes.changed] == ["notes.txt"]
    assert made.changes.left_out_total == 0
