"""An archive can come from anywhere: what is not an exported session is refused, and nothing of it stays."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.errors import EverturnError
from everturn.domain.media import describe_file
from everturn.domain.trees import Entry, Kind, Tree, encode_tree, hash_bytes
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, new_session
from everturn.testing.blob_conformance import collect_all
from everturn.workspace import SessionArchive, import_archive, open_archive, session_import
from tests.blobs import packs_of
from tests.contracts.test_e04_versions import turn_with

pytestmark = pytest.mark.anyio
Members = dict[str, bytes]


@pytest.fixture
def store_kind() -> str:
    return "sqlite"  # nothing reaches a database


async def members_of(store: Store) -> Members:
    """A whole archive."""
    session = await new_session(store)
    await turn_with(store, session.id, {b"a.txt": b"text"})
    pieces = [piece async for piece in SessionArchive(store).pieces(ME, session.id)]
    await store.sessions.delete(ME, session.id)
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: Members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


async def check_refused(store: Store, clock: FakeClock, path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(EverturnError) as raised:
        archive = open_archive(path)
        try:
            await import_archive(store, ME, archive, archive.document, describe_file)
        finally:
            archive.close()
    assert raised.value.status == 422
    assert (await store.sessions.list(ME)).items == ()
    await collect_all(store.blobs, clock)
    assert await packs_of(store) == [], "bytes of a refused archive are freed"
    return raised.value.message


def with_tree(members: Members, *entries: Entry, blobs: tuple[bytes, ...] = ()) -> Members:
    """The archive, whose checkpoint names a folder of these entries."""
    tree = encode_tree(Tree(entries))
    return with_root(members, hash_bytes(tree), (tree, *blobs))


def with_root(members: Members, root: str, blobs: tuple[bytes, ...]) -> Members:
    listed = json.loads(members["checkpoints.json"])
    listed["files"]["checkpoints"][0]["tree"] = root
    changed = {**members, "checkpoints.json": json.dumps(listed).encode()}
    return changed | {f"blobs/{hash_bytes(data)}": data for data in blobs}


def text(name: bytes, data: bytes = b"text", **more: Any) -> Entry:
    return Entry(name, Kind.FILE, **{"mode": 0o644, "size": len(data), "sha256": hash_bytes(data), **more})


@pytest.mark.parametrize(
    "entries",
    [
        (text(b"../outside"),),
        (text(b".."),),
        (text(b"."),),
        (text(b""),),
        (text(b"/etc/passwd"),),
        (text(b"a\0b"),),
        (text(b"x" * 256),),
        (text(b"a"), text(b"a")),
        (text(b"b"), text(b"a")),
        (text(b"a", mode=0o4755),),
        (text(b"a", size=5),),
        (text(b"a", size=-1),),
        (text(b"a", sha256=hash_bytes(b"of another user")),),
        (Entry(b"a", Kind.FOLDER, 0o755, 0, hash_bytes(b"of another user")),),
        (Entry(b"a", Kind.FOLDER, 0o755, 0, hash_bytes(b"text")),),
        (Entry(b"a", Kind.LINK, 0, 4, hash_bytes(b"none")),),
    ],
)
async def test_a_tree_that_leads_elsewhere_is_refused(
    store: Store, clock: FakeClock, tmp_path: Path, entries: tuple[Entry, ...]
) -> None:
    members = await members_of(store)
    await store.blobs.put(b"of another user")
    await check_refused(store, clock, tmp_path / "bad.zip", packed(with_tree(members, *entries)))


async def test_a_folder_that_names_itself_many_times_over_is_refused(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    """Twelve small trees that a restoration would turn into 10^12 files."""
    members = await members_of(store)
    trees = [encode_tree(Tree((text(b"a"),)))]
    for _ in range(12):
        inner = hash_bytes(trees[-1])
        entries = tuple(Entry(b"%d" % number, Kind.FOLDER, 0o755, 0, inner) for number in range(10))
        trees.append(encode_tree(Tree(entries)))
    bad = with_root(members, hash_bytes(trees[-1]), tuple(trees))
    assert "too many" in await check_refused(store, clock, tmp_path / "bad.zip", packed(bad))


async def test_folders_in_folders_without_end_are_refused(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    members = await members_of(store)
    trees = [encode_tree(Tree())]
    for _ in range(300):
        trees.append(encode_tree(Tree((Entry(b"d", Kind.FOLDER, 0o755, 0, hash_bytes(trees[-1])),))))
    bad = with_root(members, hash_bytes(trees[-1]), tuple(trees))
    assert "deep" in await check_refused(store, clock, tmp_path / "bad.zip", packed(bad))


def _without(name: str) -> Callable[[Members], Members]:
    return lambda members: {key: data for key, data in members.items() if key != name}


def _listed(**changes: Any) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        listed = json.loads(members["checkpoints.json"])
        listed["files"]["checkpoints"][0] |= changes
        return {**members, "checkpoints.json": json.dumps(listed).encode()}

    return change


@pytest.mark.parametrize(
    "change",
    [
        _without("session.json"),
        _without("checkpoints.json"),
        lambda members: {**members, "session.json": b"{}"},
        lambda members: {**members, "checkpoints.json": b"[]"},
        lambda members: {**members, "../../outside": b"x"},
        lambda members: {**members, "/etc/cron.d/x": b"x"},
        lambda members: {**members, "blobs/short": b"x"},
        lambda members: {**members, "blobs/../x": b"x"},
        lambda members: {**members, f"blobs/{hash_bytes(b'x')}": b"y"},
        lambda members: {key: data for key, data in members.items() if not key.startswith("blobs/")},
        _listed(turn_id="trn_" + "0" * 26),
        _listed(id="chk_1"),
        _listed(id="../x"),
        _listed(created_at=-1),
        _listed(epoch=1 << 40),
        _listed(cause="magic"),
        _listed(tree="../../etc"),
        _listed(before=hash_bytes(b"of another user")),
        _listed(call_id="a\0b"),
        _listed(call_id="x" * 10_000),
        _listed(changes={"changed": [{"path": "p", "what": "magic", "size": 1}], "changed_total": 1}),
        _listed(changes={"changed": [{"path": "p", "what": "added", "size": -1}], "changed_total": 1}),
        _listed(changes={"changed": [{"path": "p", "what": "added"}] * 500, "changed_total": 500}),
    ],
)
async def test_what_is_no_exported_session_is_refused(
    store: Store, clock: FakeClock, tmp_path: Path, change: Callable[[Members], Members]
) -> None:
    bad = packed(change(await members_of(store)))
    await check_refused(store, clock, tmp_path / "bad.zip", bad)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["bad.zip"]


async def test_a_bomb_is_refused_before_it_is_unpacked(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    zeros = b"\0" * 30_000_000
    bad = packed({**await members_of(store), f"blobs/{hash_bytes(zeros)}": zeros})
    assert len(bad) < 200_000
    assert "would become" in await check_refused(store, clock, tmp_path / "bad.zip", bad)


async def test_an_archive_with_too_many_members_is_refused_before_they_are_read(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_import, "DIRECTORY_BYTES_MAX", 100)
    bad = packed(await members_of(store))
    assert "too many members" in await check_refused(store, clock, tmp_path / "bad.zip", bad)


async def test_members_that_share_their_bytes_are_refused(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    """The table of members names one of them again and again: a bomb without compression."""
    data = bytes(range(256)) * 4000
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (await members_of(store)).items():
            archive.writestr(name, content)
        archive.writestr(f"blobs/{hash_bytes(data)}", data)
        (first,) = [info for info in archive.filelist if info.file_size == len(data)]
        for number in range(50):
            again = zipfile.ZipInfo(f"blobs/{number:064x}")
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.file_size = again.compress_size = len(data)
            archive.filelist.append(again)
            archive._didModify = True  # type: ignore[attr-defined]  # zipfile makes no such file by itself
    await check_refused(store, clock, tmp_path / "bad.zip", file.getvalue())


async def test_a_member_that_is_there_twice_is_refused(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    file = io.BytesIO(packed(await members_of(store)))
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("session.json", b"{}")
    assert "twice" in await check_refused(store, clock, tmp_path / "bad.zip", file.getvalue())


async def test_an_archive_that_is_cut_or_damaged_anywhere_is_refused(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    whole = packed(await members_of(store))
    for size in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        await check_refused(store, clock, tmp_path / "bad.zip", whole[:size])
    first = zipfile.ZipFile(io.BytesIO(whole)).infolist()
    for info in first:
        at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
        bad = bytearray(whole)
        bad[at] ^= 0xFF
        await check_refused(store, clock, tmp_path / "bad.zip", bytes(bad))
