"""A session's workspace over HTTP: what is there, found by name, read; and nothing that lies outside."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from everturn.web import Scope

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"  # the files are on disk whatever the store


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir()
    async with (
        EverturnToolbox(home, ToolServices(store.records, store.search, clock), built_in()) as toolbox,
        run_web(store, home, clock=clock, extras={"toolbox": toolbox}) as server,
    ):
        yield server


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("not for you")
    return folder


async def opened(server: Running, **body: Any) -> tuple[str, Path]:
    """A session and the folder it works in."""
    session_id = (await server.new_session(**body))["id"]
    folder = server.web.settings.home / "workspaces" / session_id
    folder.mkdir(parents=True)
    return session_id, folder


async def files(server: Running, session_id: str, **query: str) -> httpx2.Response:
    return await server.http.get(f"/api/sessions/{session_id}/files", params=query)


async def content(server: Running, session_id: str, path: str) -> httpx2.Response:
    return await server.http.get(f"/api/sessions/{session_id}/files/content", params={"path": path})


def paths(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["path"] for one in answer.json()["files"]]


async def test_a_folder_is_listed_folders_first_with_sizes_and_times(server: Running) -> None:
    session_id, folder = await opened(server)
    assert (await files(server, session_id)).json() == {
        "path": ".",
        "at": "now",
        "is_project": False,
        "is_restoring": False,
        "files": [],
        "is_cut": False,
    }
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("print()\n")
    (folder / "b.txt").write_text("four")
    os.utime(folder / "b.txt", (1_700_000_000, 1_700_000_000))
    (folder / "A.txt").write_text("")
    assert paths(await files(server, session_id)) == ["src", "A.txt", "b.txt"]
    last = (await files(server, session_id)).json()["files"][-1]
    assert last == {
        "path": "b.txt",
        "name": "b.txt",
        "kind": "file",
        "size": 4,
        "modified_at": 1_700_000_000_000,
    }
    assert paths(await files(server, session_id, path="src")) == ["src/deep", "src/main.py"]
    for missing in ("nowhere", "src/main.py", "src/main.py/x"):
        answer = await files(server, session_id, path=missing)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_names_are_found_in_every_folder_best_first(server: Running) -> None:
    session_id, folder = await opened(server)
    for name in ("main.py", "src/domain.py", "src/mainly/x.py", ".git/main", "build/main.o"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".gitignore").write_text("build/\n")
    found = paths(await files(server, session_id, q="MAIN"))
    assert found == ["main.py", "src/mainly", "src/domain.py", "src/mainly/x.py"]
    assert paths(await files(server, session_id, path="src", q="x.p")) == ["src/mainly/x.py"]
    assert paths(await files(server, session_id, q="nothing like it")) == []


async def test_what_is_no_file_is_not_read(server: Running) -> None:
    session_id, folder = await opened(server)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    for name in ("folder", "pipe", "nul\0"):
        refused = await content(server, session_id, name)
        assert refused.status_code in (403, 422), name
    assert (await content(server, session_id, "nowhere.txt")).status_code == 404


async def test_nothing_outside_the_workspace_is_shown(server: Running, outside: Path) -> None:
    session_id, folder = await opened(server)
    (folder / "inside.txt").write_text("yours")
    (folder / "to-file").symlink_to(outside / "secret.txt")
    (folder / "to-folder").symlink_to(outside)
    (folder / "to-inside").symlink_to("inside.txt")
    (folder / "up").symlink_to("../../..")
    listed = (await files(server, session_id)).json()["files"]
    assert {one["path"]: one["kind"] for one in listed} == {
        "inside.txt": "file",
        "to-file": "link",
        "to-folder": "link",
        "to-inside": "link",
        "up": "link",
    }
    assert (await content(server, session_id, "to-inside")).text == "yours"
    away = (
        "to-file",
        "to-folder/secret.txt",
        str(outside / "secret.txt"),
        "../../outside/secret.txt",
        "up/x",
    )
    for path in away:
        refused = await content(server, session_id, path)
        assert (refused.status_code, refused.json()["code"]) == (403, "denied"), path
        assert "not for you" not in refused.text
    for path in ("to-folder", "..", "/", str(outside), "up"):
        refused = await files(server, session_id, path=path)
        assert (refused.status_code, refused.json()["code"]) == (403, "denied"), path
    assert paths(await files(server, session_id, q="secret")) == []


async def test_a_project_is_shown_instead_of_the_sessions_own_folder(server: Running, outside: Path) -> None:
    session_id = (await server.new_session(project=str(outside)))["id"]
    assert paths(await files(server, session_id)) == ["secret.txt"]
    assert (await content(server, session_id, "secret.txt")).text == "not for you"


async def test_only_its_owner_with_a_token_that_may_chat_sees_a_workspace(server: Running) -> None:
    session_id, folder = await opened(server)
    (folder / "a.txt").write_text("mine")
    asked = f"/api/sessions/{session_id}"
    for owner, scope, status in (("local", "chat", 200), ("local", "read", 403), ("eve", "chat", 404)):
        _, bearer = await server.web.accounts.create_token(owner, "test", (Scope(scope),))
        for path in ("files", "files/content?path=a.txt"):
            answer = await server.http.get(f"{asked}/{path}", headers={"Authorization": f"Bearer {bearer}"})
            assert answer.status_code == status, (owner, scope)
    await server.http.delete(asked)
    assert (await files(server, session_id)).status_code == 410
