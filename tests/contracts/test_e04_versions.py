"""E04: every stored version of a file can be listed and read as of a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from everturn.domain.checkpoints import Changes, parse_at
from everturn.domain.errors import Invalid, InvalidId, NotFound
from everturn.domain.store_values import Claim
from everturn.domain.trees import EMPTY_TREE, Entry, Kind, Reason, Tree, encode_tree, hash_bytes
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answer, append, complete, new_session, start
from everturn.testing.checkpoints import new_checkpoint, put_tree
from everturn.testing.web_server import Running, run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir()
    async with (
        EverturnToolbox(home, ToolServices(store.records, store.search, clock), built_in()) as toolbox,
        run_web(store, home, clock=clock, extras={"toolbox": toolbox}) as server,
    ):
        yield server


async def ended(store: Store, held: Claim) -> str:
    await complete(store, held, await append(store, held, answer("done")))
    return held.turn.id


async def turn_with(store: Store, session_id: str, *versions: Mapping[bytes, bytes]) -> str:
    """A turn whose calls left these versions of the workspace, one after the other."""
    held = await start(store, session_id, "make files")
    for number, files in enumerate(versions):
        tree, _ = await put_tree(store, files)
        last = await store.checkpoints.last(ME, session_id)
        before = EMPTY_TREE if last is None else last.tree
        new = new_checkpoint(held, tree, f"call_{number}", before)
        # The changed files are counted and not listed, so they are found by comparing the trees.
        await store.checkpoints.put(msgspec.structs.replace(new, changes=Changes((), 1)))
    return await ended(store, held)


async def put_folder(store: Store, *entries: Entry) -> str:
    tree = encode_tree(Tree(tuple(sorted(entries, key=lambda entry: entry.name))))
    return (await store.blobs.put(tree)).sha256


async def file(store: Store, name: bytes, data: bytes) -> Entry:
    await store.blobs.put(data)
    return Entry(name, Kind.FILE, 0o644, len(data), hash_bytes(data))


async def link(store: Store, name: bytes, target: bytes) -> Entry:
    await store.blobs.put(target)
    return Entry(name, Kind.LINK, 0, len(target), hash_bytes(target))


async def tree_at(store: Store, session_id: str, at: str) -> str:
    point = parse_at(at)
    assert point is not None
    return await store.checkpoints.tree_at(ME, session_id, point)


async def test_e04_files_of_a_turn_are_its_last_checkpoint_or_its_nearest_ancestors(store: Store) -> None:
    session = await new_session(store)
    before = await turn_with(store, session.id)
    first = await turn_with(store, session.id, {b"a": b"1"}, {b"a": b"2"})
    second = await turn_with(store, session.id)
    third = await turn_with(store, session.id, {b"a": b"3"})
    one, two, three = [(await put_tree(store, {b"a": text}))[0] for text in (b"1", b"2", b"3")]
    assert await tree_at(store, session.id, "start") == EMPTY_TREE
    assert await tree_at(store, session.id, before) == EMPTY_TREE
    assert await tree_at(store, session.id, f"before:{first}") == EMPTY_TREE
    assert await tree_at(store, session.id, first) == two
    assert await tree_at(store, session.id, second) == two
    assert await tree_at(store, session.id, f"before:{third}") == two
    assert await tree_at(store, session.id, third) == three
    made, _ = await store.checkpoints.of_turn(ME, first)
    assert await tree_at(store, session.id, made.id) == one


async def test_e04_points_of_other_sessions_and_owners_are_not_found(store: Store) -> None:
    session, other = await new_session(store), await new_session(store)
    turn = await turn_with(store, session.id, {b"a": b"1"})
    (made,) = await store.checkpoints.of_turn(ME, turn)
    for at in (turn, f"before:{turn}", f"made:{turn}", made.id):
        with pytest.raises(NotFound):
            await tree_at(store, other.id, at)
    for at in (turn, f"before:{turn}", f"made:{turn}"):
        point = parse_at(at)
        assert point is not None
        with pytest.raises(NotFound):
            await store.checkpoints.tree_at("eve", session.id, point)


@pytest.mark.parametrize(
    "text", ["yesterday", "before:now", "ses_1", "before:before:trn_1", "after:trn_1", "trn", "chk"]
)
def test_e04_what_is_no_point_in_history_is_refused(text: str) -> None:
    with pytest.raises((Invalid, InvalidId)):
        parse_at(text)


async def get(server: Running, session_id: str, what: str = "", **query: Any) -> httpx2.Response:
    """With headers of the request as ``headers``."""
    headers = query.pop("headers", {})
    return await server.http.get(f"/api/sessions/{session_id}/files{what}", params=query, headers=headers)


async def test_e04_a_folder_is_listed_as_it_was(store: Store, server: Running) -> None:
    session = await new_session(store)
    inner = await put_folder(store, await file(store, b"deep.py", b"print()\n"))
    tree = await put_folder(
        store,
        await file(store, b"b.txt", b"four"),
        await file(store, b"A.txt", b""),
        await link(store, b"to", b"b.txt"),
        Entry(b"src", Kind.FOLDER, 0o755, 1, inner),
        Entry(b"node_modules", Kind.LEFT_OUT, reason=Reason.DEPENDENCIES),
    )
    held = await start(store, session.id, "make files")
    await store.checkpoints.put(new_checkpoint(held, tree))
    turn = await ended(store, held)
    found = (await get(server, session.id, at=turn)).json()
    assert (found["path"], found["at"], found["is_cut"]) == (".", turn, False)
    assert [(one["path"], one["kind"], one["size"]) for one in found["files"]] == [
        ("src", "folder", 0),
        ("A.txt", "file", 0),
        ("b.txt", "file", 4),
        ("node_modules", "left_out", 0),
        ("to", "link", 5),
    ]
    assert found["files"][2]["sha256"] == hash_bytes(b"four")
    assert found["files"][3]["reason"] == "dependencies"
    found = (await get(server, session.id, at=turn, path="src")).json()
    assert [one["path"] for one in found["files"]] == ["src/deep.py"]
    found = (await get(server, session.id, at=turn, q="dee")).json()
    assert [one["path"] for one in found["files"]] == ["src/deep.py"]
    assert (await get(server, session.id, at=f"before:{turn}")).json()["files"] == []
    assert (await get(server, session.id, at=turn, path="b.txt")).status_code == 404


async def test_e04_a_file_is_read_as_it_was_whole_and_in_part(store: Store, server: Running) -> None:
    session = await new_session(store)
    first = await turn_with(store, session.id, {b"a.txt": b"the first"})
    second = await turn_with(store, session.id, {b"a.txt": b"the second"})
    answer = await get(server, session.id, "/content", path="a.txt", at=first)
    assert (answer.status_code, answer.content) == (200, b"the first")
    assert answer.headers["etag"] == f'"{hash_bytes(b"the first")}"'
    assert answer.headers["content-disposition"].startswith('attachment; filename="a.txt"')
    answer = await get(server, session.id, "/content", path="a.txt", at=f"before:{second}")
    assert answer.content == b"the first"
    answer = await get(
        server, session.id, "/content", path="a.txt", at=second, headers={"range": "bytes=4-9"}
    )
    assert (answer.status_code, answer.content) == (206, b"second")
    assert answer.headers["content-range"] == "bytes 4-9/10"
    same = {"if-none-match": answer.headers["etag"]}
    assert (
        await get(server, session.id, "/content", path="a.txt", at=second, headers=same)
    ).status_code == 304
    assert (await get(server, session.id, "/content", path="b.txt", at=second)).status_code == 404
    assert (await get(server, session.id, "/content", path="a.txt", at="start")).status_code == 404


async def test_e04_links_inside_a_version_are_followed_and_none_leads_out(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    inner = await put_folder(
        store, await link(store, b"up", b"../a.txt"), await link(store, b"far", b"../../x")
    )
    tree = await put_folder(
        store,
        await file(store, b"a.txt", b"inside"),
        await link(store, b"etc", b"/etc/passwd"),
        await link(store, b"round", b"round"),
        Entry(b"sub", Kind.FOLDER, 0o755, 1, inner),
        Entry(b"big", Kind.LEFT_OUT, reason=Reason.TOO_LARGE),
    )
    held = await start(store, session.id, "make files")
    made = await store.checkpoints.put(new_checkpoint(held, tree))

    async def read(path: str) -> tuple[int, bytes]:
        answer = await get(server, session.id, "/content", path=path, at=made.id)
        return answer.status_code, answer.content if answer.status_code == 200 else b""

    assert await read("sub/up") == (200, b"inside")
    assert await read("sub/../a.txt") == (200, b"inside")
    for path in ("etc", "sub/far", "../a.txt", "/a.txt", "a\0b"):
        assert (await read(path))[0] == 403, path
    for path in ("round", "big", "a.txt/b", "nothing"):
        assert (await read(path))[0] == 404, path
    assert (await read("sub"))[0] == 422


async def test_e04_a_name_that_is_not_utf8_is_opened_as_it_is_shown(store: Store, server: Running) -> None:
    session = await new_session(store)
    turn = await turn_with(store, session.id, {b"caf\xe9": b"latin", b"caf\\xe9x": b"plain"})
    (odd, plain) = (await get(server, session.id, at=turn)).json()["files"]
    assert (odd["path"], plain["path"]) == ("caf\\xe9", "caf\\xe9x")
    assert (await get(server, session.id, "/content", path=odd["path"], at=turn)).content == b"latin"


VIEWED = {
    "page.html": (b"<h1>hello</h1>", "text/html; charset=utf-8", "sandbox"),
    "drawing.svg": (b"<svg></svg>", "image/svg+xml; charset=utf-8", "sandbox"),
    "code.js": (b"alert(1)", "text/plain; charset=utf-8", "sandbox"),
    "data.json": (b"{}", "text/plain; charset=utf-8", "sandbox"),
    "picture.png": (PNG, "image/png", "sandbox"),
    "paper.pdf": (b"%PDF-1.7 x", "application/pdf", "default-src"),
}


async def test_e04_a_file_to_be_shown_has_its_type_and_can_do_nothing(store: Store, server: Running) -> None:
    session = await new_session(store)
    turn = await turn_with(store, session.id, {name.encode(): data for name, (data, _, _) in VIEWED.items()})
    folder = server.web.settings.home / "workspaces" / session.id
    folder.mkdir(parents=True)
    for name, (data, media, policy) in VIEWED.items():
        (folder / name).write_bytes(data)
        for at in (turn, "now"):
            answer = await get(server, session.id, "/content", path=name, at=at, view="true")
            assert (answer.status_code, answer.content) == (200, data)
            assert answer.headers["content-type"] == media
            assert answer.headers["content-security-policy"].startswith(policy)
            assert "script-src" not in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "SAMEORIGIN"
            assert answer.headers["content-disposition"].startswith("inline")


async def test_e04_bytes_of_an_unknown_kind_are_a_download_also_to_a_viewer(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    turn = await turn_with(store, session.id, {b"program": b"\x7fELF\0\0", b"blob": b"\0\1\2"})
    for path in ("program", "blob"):
        answer = await get(server, session.id, "/content", path=path, at=turn, view="true")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-frame-options"] == "DENY"


async def test_e04_a_version_whose_bytes_are_damaged_is_refused_and_the_others_are_read(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    missing = Entry(b"lost.txt", Kind.FILE, 0o644, 4, hash_bytes(b"never stored"))
    tree = await put_folder(store, missing, await file(store, b"fine.txt", b"fine"))
    held = await start(store, session.id, "make files")
    made = await store.checkpoints.put(new_checkpoint(held, tree))
    answer = await get(server, session.id, "/content", path="lost.txt", at=made.id)
    assert (answer.status_code, answer.json()["code"]) == (404, "blob_missing")
    assert (await get(server, session.id, "/content", path="fine.txt", at=made.id)).content == b"fine"


async def test_e04_the_folder_itself_is_read_now(store: Store, server: Running, tmp_path: Path) -> None:
    session = await new_session(store)
    folder = server.web.settings.home / "workspaces" / session.id
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("as it is")
    (tmp_path / "secret").write_text("outside")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "in").symlink_to("a.txt")
    answer = await get(server, session.id, "/content", path="a.txt")
    assert (answer.content, answer.headers["etag"]) == (b"as it is", f'"{hash_bytes(b"as it is")}"')
    assert (await get(server, session.id, "/content", path="in")).content == b"as it is"
    part = await get(server, session.id, "/content", path="a.txt", headers={"range": "bytes=-2"})
    assert (part.status_code, part.content) == (206, b"is")
    for path, status in (("out", 403), ("../secret", 403), ("none", 404), (".", 422), ("/etc/passwd", 403)):
        assert (await get(server, session.id, "/content", path=path)).status_code == status, path


async def test_e04_a_large_file_of_the_folder_is_read_without_being_hashed(
    store: Store, server: Running
) -> None:
    session = await new_session(store)
    folder = server.web.settings.home / "workspaces" / session.id
    folder.mkdir(parents=True)
    with (folder / "large.bin").open("wb") as large:
        large.truncate(20 << 20)
        large.seek(-3, 2)
        large.write(b"end")
    answer = await get(server, session.id, "/content", path="large.bin", headers={"range": "bytes=-3"})
    assert (answer.status_code, answer.content) == (206, b"end")
    before = answer.headers["etag"]
    (folder / "large.bin").write_bytes(b"another")
    answer = await get(server, session.id, "/content", path="large.bin", headers={"if-none-match": before})
    assert (answer.status_code, answer.content) == (200, b"another")


async def test_e04_only_the_owner_reads_versions(store: Store, server: Running) -> None:
    other = await store.sessions.create("eve")
    for what, query in (("", {}), ("/content", {"path": "a"}), ("", {"at": "start"})):
        assert (await get(server, other.id, what, **query)).status_code == 404
