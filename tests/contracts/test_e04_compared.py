"""E04: versions are compared, a file has a history, and everything can be taken as an archive."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.trees import Entry, Kind, Reason, hash_bytes
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, new_session, start
from everturn.testing.checkpoints import new_checkpoint
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from tests.contracts.test_e04_versions import file, get, link, put_folder, turn_with

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir()
    async with (
        EverturnToolbox(home, ToolServices(store.records, store.search, clock), built_in()) as toolbox,
        run_web(store, home, clock=clock, extras={"toolbox": toolbox}) as server,
    ):
        yield server


def workspace(server: Running, session_id: str) -> Path:
    folder = server.web.settings.home / "workspaces" / session_id
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def diff(server: Running, session_id: str, before: str, after: str, **more: str) -> Any:
    answer = await get(server, session_id, "/diff", **{"from": before, "to": after, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_e04_two_turns_are_compared(store: Store, server: Running) -> None:
    session = await new_session(store)
    one = await turn_with(
        store, session.id, {b"same": b"s", b"edited.txt": b"a\nb\nc\n", b"gone": b"x\n", b"pic": b"\0"}
    )
    two = await turn_with(
        store, session.id, {b"same": b"s", b"edited.txt": b"a\nB\nc\nd\n", b"new": b"1\n2\n", b"pic": b"\1\0"}
    )
    assert await diff(server, session.id, one, two) == {
        "changes": [
            {"path": "edited.txt", "what": "changed", "size": 8, "added": 2, "removed": 1},
            {"path": "gone", "what": "deleted", "added": 0, "removed": 1},
            {"path": "new", "what": "added", "size": 4, "added": 2, "removed": 0},
            {"path": "pic", "what": "changed", "size": 2, "is_binary": True},
        ],
        "total": 4,
    }
    assert (await diff(server, session.id, two, two))["total"] == 0
    back = await diff(server, session.id, two, one)
    assert [change["what"] for change in back["changes"]] == ["changed", "added", "deleted", "changed"]


async def test_e04_one_file_is_compared_line_by_line(store: Store, server: Running) -> None:
    session = await new_session(store)
    one = await turn_with(store, session.id, {b"a.txt": b"a\nb\n", b"pic": b"\0"})
    two = await turn_with(store, session.id, {b"a.txt": b"a\nB\n", b"pic": b"\1\0", b"big": b"x" * 1_000_001})
    assert await diff(server, session.id, one, two, path="a.txt") == {
        "path": "a.txt",
        "text": "@@ -1,2 +1,2 @@\n a\n-b\n+B\n",
        "is_cut": False,
        "is_binary": False,
    }
    assert (await diff(server, session.id, "start", one, path="a.txt"))["text"] == "@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert (await diff(server, session.id, one, two, path="pic"))["is_binary"]
    assert (await diff(server, session.id, one, two, path="big"))["is_cut"]
    answer = await get(server, session.id, "/diff", **{"from": one, "to": two, "path": "nothing"})
    assert answer.status_code == 404


async def test_e04_a_version_is_compared_with_the_folder(store: Store, server: Running) -> None:
    session = await new_session(store)
    (workspace(server, session.id) / "a.txt").write_text("now\n")
    found = await diff(server, session.id, "start", "now")
    assert found["changes"] == [{"path": "a.txt", "what": "added", "size": 4, "added": 1, "removed": 0}]
    found = await diff(server, session.id, "start", "now", path="a.txt")
    assert found["text"] == "@@ -0,0 +1 @@\n+now\n"
    assert await store.checkpoints.of_session(ME, session.id) == []


async def test_e04_the_history_of_a_file_has_the_versions_that_differ(store: Store, server: Running) -> None:
    session = await new_session(store)
    await turn_with(store, session.id, {b"other": b"1"})
    one = await turn_with(store, session.id, {b"a.txt": b"1"}, {b"a.txt": b"22"})
    await turn_with(store, session.id, {b"a.txt": b"22", b"other": b"2"})
    two = await turn_with(store, session.id, {b"other": b"2"})
    three = await turn_with(store, session.id, {b"a.txt": b"333"})
    answer = await get(server, session.id, "/history", path="a.txt")
    found = answer.json()
    assert not found["is_cut"]
    assert [(one["turn_id"], one["what"], one["size"], one["sha256"]) for one in found["versions"]] == [
        (three, "added", 3, hash_bytes(b"333")),
        (two, "deleted", 0, None),
        (one, "changed", 2, hash_bytes(b"22")),
        (one, "added", 1, hash_bytes(b"1")),
    ]
    newest = found["versions"][0]
    assert newest["cause"] == "call"
    read = await get(server, session.id, "/content", path="a.txt", at=newest["checkpoint"])
    assert read.content == b"333"
    assert (await get(server, session.id, "/history", path="never")).json()["versions"] == []


async def test_e04_checkpoints_of_a_session_come_in_pages(store: Store) -> None:
    session = await new_session(store)
    turn = await turn_with(store, session.id, *({b"a": bytes([number])} for number in range(5)))
    made = await store.checkpoints.of_turn(ME, turn)
    first = await store.checkpoints.of_session(ME, session.id, limit=2)
    rest = await store.checkpoints.of_session(ME, session.id, before=first[-1].id)
    assert [*first, *rest] == made[::-1]


async def test_e04_an_archive_has_every_file_of_a_version(store: Store, server: Running) -> None:
    session = await new_session(store)
    large = bytes(range(256)) * 8000
    inner = await put_folder(
        store, await file(store, b"deep.txt", b"deep"), await file(store, b"big.png", large)
    )
    tree = await put_folder(
        store,
        await file(store, b"a.txt", b"first"),
        Entry(b"run.sh", Kind.FILE, 0o755, 4, (await store.blobs.put(b"#!/x")).sha256),
        await link(store, b"to", b"a.txt"),
        Entry(b"sub", Kind.FOLDER, 0o755, 1, inner),
        Entry(b"node_modules", Kind.LEFT_OUT, reason=Reason.DEPENDENCIES),
        Entry(b"lost", Kind.FILE, 0o644, 4, hash_bytes(b"never stored")),
    )
    held = await start(store, session.id, "make files")
    made = await store.checkpoints.put(new_checkpoint(held, tree))
    answer = await get(server, session.id, "/archive", at=made.id)
    assert answer.headers["content-type"] == "application/zip"
    assert f"files-{session.id}.zip" in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names == [
            "a.txt",
            "run.sh",
            "sub/",
            "sub/big.png",
            "sub/deep.txt",
            "to",
            "everturn-left-out.txt",
        ]
        assert archive.read("sub/big.png") == large
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert stat.S_ISLNK(modes["to"])
        assert archive.read("to") == b"a.txt"
        assert modes["run.sh"] & 0o777 == 0o755
        assert archive.read("everturn-left-out.txt").decode().splitlines() == [
            "Not in this archive:",
            "lost: its bytes are damaged",
            "node_modules: dependencies",
        ]
    answer = await get(server, session.id, "/archive", at=made.id, path="sub")
    assert 'filename="sub.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["big.png", "deep.txt"]
    answer = await get(server, session.id, "/archive", at=made.id, path="node_modules")
    assert answer.status_code == 404


async def test_e04_an_archive_of_what_a_turn_changed(store: Store, server: Running) -> None:
    session = await new_session(store)
    first = await turn_with(store, session.id, {b"a": b"1", b"b": b"1"})
    second = await turn_with(store, session.id, {b"a": b"2", b"b": b"1", b"c": b"2"})
    answer = await get(server, session.id, "/archive", at=f"made:{second}", since=f"before:{second}")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"a": b"2", "c": b"2"}
    answer = await get(server, session.id, "/archive", at=f"made:{first}", since="start")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["a", "b"]


async def test_e04_an_archive_does_not_lead_out_of_the_folder_it_is_unpacked_in(
    store: Store, server: Running
) -> None:
    """A link never comes before a file that would be written through it, and no name has a backslash or a
    control character."""
    session = await new_session(store)
    inner = await put_folder(store, await file(store, b"keys", b"mine"))
    tree = await put_folder(
        store,
        await file(store, b"..\\..\\run\x1b.bat", b"run"),
        await link(store, b"A", b"/home"),
        Entry(b"\\xff", Kind.FOLDER, 0o755, 1, inner),
        Entry(b"a", Kind.FOLDER, 0o755, 1, inner),
        await link(store, b"\xff", b"/home"),
    )
    held = await start(store, session.id, "make files")
    made = await store.checkpoints.put(new_checkpoint(held, tree))
    answer = await get(server, session.id, "/archive", at=made.id)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        assert names == [
            ".._.._run_.bat",
            "_xff/",
            "_xff/keys",
            "a/",
            "a/keys",
            "A",
            "everturn-left-out.txt",
        ]
        assert archive.read("everturn-left-out.txt").decode().splitlines() == [
            "Not in this archive:",
            "_xff: another file has this name here",
        ]


async def test_e04_an_archive_of_the_folder_has_also_what_is_too_large_for_checkpoints(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    folder = workspace(server, session.id)
    (folder / "a.txt").write_text("now")
    with (folder / "large.bin").open("wb") as large:
        large.truncate(50_000_001)
    answer = await get(server, session.id, "/archive")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {info.filename: info.file_size for info in archive.infolist()} == {
            "a.txt": 3,
            "large.bin": 50_000_001,
        }


async def test_e04_an_empty_workspace_is_an_empty_archive(store: Store, server: Running) -> None:
    session = await new_session(store)
    answer = await get(server, session.id, "/archive", at="start")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == []


@pytest.mark.parametrize("what", ["/diff?from=start", "/history?path=a", "/archive"])
async def test_e04_only_the_owner_compares_and_takes_archives(
    store: Store, server: Running, what: str
) -> None:
    other = await store.sessions.create("eve")
    answer = await server.http.get(f"/api/sessions/{other.id}/files{what}")
    assert answer.status_code == 404
