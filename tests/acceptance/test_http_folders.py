"""Choosing a session's folder over HTTP: the allowed folders, what is in them, the latest first; nothing else."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from everturn.tools.folders import LISTED_MAX
from everturn.web import Scope

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"  # the folders are on disk whatever the store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An allowed folder, and beside it one that is not."""
    for name in ("work/site/pages", "work/.hidden", "work/Archive", "private/letters", "worker"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work" / "notes.txt").write_text("a file")
    (tmp_path / "work" / "out").symlink_to(tmp_path / "private")
    return tmp_path / "work"


@pytest.fixture
async def server(store: Store, tmp_path: Path, work: Path, clock: FakeClock) -> AsyncIterator[Running]:
    async with started(store, tmp_path / "home", clock, (work, tmp_path / "missing")) as server:
        yield server


@asynccontextmanager
async def started(
    store: Store, home: Path, clock: FakeClock, roots: tuple[Path, ...]
) -> AsyncIterator[Running]:
    home.mkdir()
    services = ToolServices(store.records, store.search, clock, roots=roots)
    async with (
        EverturnToolbox(home, services, built_in()) as toolbox,
        run_web(store, home, clock=clock, toolbox=toolbox, extras={"toolbox": toolbox}) as server,
    ):
        yield server


async def folders(server: Running, path: str | Path = "") -> httpx2.Response:
    return await server.http.get("/api/folders", params={"path": str(path)} if path else {})


def names(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [line["name"] for line in answer.json()["folders"]]


async def test_the_allowed_folders_come_first_and_lead_into_themselves(server: Running, work: Path) -> None:
    first = (await folders(server)).json()
    assert first == {
        "path": "",
        "above": None,
        "folders": [{"path": str(work), "name": str(work)}],
        "is_cut": False,
        "recent": [],
    }
    inner = await folders(server, work)
    assert names(inner) == ["Archive", "site"]  # no file, nothing hidden, no link
    assert inner.json()["above"] == ""
    deeper = (await folders(server, work / "site")).json()
    assert (deeper["above"], deeper["folders"]) == (
        str(work),
        [{"path": str(work / "site" / "pages"), "name": "pages"}],
    )
    assert (await folders(server, work / "nowhere")).status_code == 404


async def test_nothing_outside_can_be_listed_or_found_out(
    server: Running, work: Path, tmp_path: Path
) -> None:
    away = (
        tmp_path,
        work.parent / "private",
        work / "out",
        work / ".." / "private",
        tmp_path / "worker",
        "/",
    )
    for path in (*away, tmp_path / "private" / "missing", "/etc/passwd"):
        refused = await folders(server, path)
        assert (refused.status_code, refused.json()["code"]) == (403, "denied"), path
        assert "letters" not in refused.text
    for path in ("site", "~", f"{work}/a\0b", "../private"):
        assert (await folders(server, path)).status_code == 404, path


async def test_a_session_works_in_an_allowed_folder_only(server: Running, work: Path, tmp_path: Path) -> None:
    session_id = (await server.new_session(project=str(work / "site")))["id"]
    for folder in (tmp_path / "private", work / "out", tmp_path / "worker"):
        created = await server.http.post("/api/sessions", json={"project": str(folder)})
        changed = await server.http.patch(f"/api/sessions/{session_id}", json={"project": str(folder)})
        for answer in (created, changed):
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
            assert "is not in one of the folders that are allowed" in answer.json()["detail"]
    moved = await server.http.patch(f"/api/sessions/{session_id}", json={"project": str(work)})
    assert moved.json()["project"] == str(work)


async def test_recent_folders_come_first_once_each_and_only_where_work_is_possible(
    server: Running, work: Path, clock: FakeClock
) -> None:
    (work / "gone").mkdir()
    for name in ("site", "gone", "Archive", "site"):
        await server.new_session(project=str(work / name))
        await clock.advance(1)
    await server.new_session()
    (work / "gone").rmdir()
    recent = (await folders(server)).json()["recent"]
    assert recent == [
        {"path": str(work / "site"), "name": "site"},
        {"path": str(work / "Archive"), "name": "Archive"},
    ]
    assert (await folders(server, work)).json()["recent"] == []


async def test_without_allowed_folders_only_recent_ones_are_shown(
    store: Store, tmp_path: Path, work: Path, clock: FakeClock
) -> None:
    async with started(store, tmp_path / "home", clock, ()) as server:
        assert (await folders(server)).json()["folders"] == []
        assert (await folders(server, work)).status_code == 403
        await server.new_session(project=str(tmp_path / "private"))
        answer = (await folders(server)).json()
        assert answer["recent"] == [{"path": str(tmp_path / "private"), "name": "private"}]


async def test_a_long_list_is_cut_and_a_closed_folder_is_named(server: Running, work: Path) -> None:
    for number in range(LISTED_MAX + 2):
        (work / "site" / f"{number:04}").mkdir()
    answer = await folders(server, work / "site")
    assert (len(names(answer)), answer.json()["is_cut"]) == (LISTED_MAX, True)
    (work / "Archive").chmod(0)
    if os.access(work / "Archive", os.R_OK):
        return  # root reads every folder
    refused = await folders(server, work / "Archive")
    assert (refused.status_code, refused.json()["code"]) == (403, "denied")
    assert "cannot be read" in refused.json()["detail"]


async def test_only_a_caller_who_may_choose_a_folder_sees_folders(server: Running) -> None:
    for scope, status in ((Scope.ADMIN, 200), (Scope.CHAT, 403), (Scope.READ, 403)):
        _, bearer = await server.web.accounts.create_token("local", "test", (scope,))
        answer = await server.http.get("/api/folders", headers={"Authorization": f"Bearer {bearer}"})
        assert answer.status_code == status, scope
