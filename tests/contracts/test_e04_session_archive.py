"""E04: a session is exported with the files of every kept checkpoint, and imported whole."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.domain.blobs import Blob
from everturn.domain.errors import NotFound
from everturn.domain.media import describe_file
from everturn.domain.trees import Entry, Kind, hash_bytes
from everturn.store import Store, open_store
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.sessions.documents import export_document
from everturn.testing import FakeClock
from everturn.testing.acting import ME, new_session, start
from everturn.testing.blob_conformance import LARGE, collect_all, random_bytes
from everturn.testing.checkpoints import new_checkpoint
from everturn.testing.web_server import Running, run_web
from everturn.workspace import SessionArchive, Versions, import_archive, open_archive
from tests.blobs import place_of
from tests.contracts.test_e04_versions import ended, file, link, put_folder, turn_with

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(store: Store, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Running]:
    # The limit of documents, which are held in memory, is not that of archives.
    async with run_web(store, tmp_path / "home", clock=clock, settings={"import_bytes_max": 10}) as server:
        yield server


async def session_with_files(store: Store) -> tuple[str, list[str]]:
    """A session of three turns, and what they left."""
    session = await new_session(store)
    held = await start(store, session.id, "make files")
    inner = await put_folder(
        store, await file(store, b"large.bin", random_bytes(LARGE)), await link(store, b"up", b"../a.txt")
    )
    folder = Entry(b"folder", Kind.FOLDER, 0o755, 0, inner)
    tree = await put_folder(store, await file(store, b"a.txt", b"one"), folder)
    await store.checkpoints.put(new_checkpoint(held, tree))
    turns = [await ended(store, held)]
    turns += [await turn_with(store, session.id, {b"a.txt": b"two", b"empty": b""})]
    turns += [await turn_with(store, session.id, {})]
    return session.id, turns


async def export(store: Store, session_id: str, path: Path) -> Path:
    path.write_bytes(b"".join([piece async for piece in SessionArchive(store).pieces(ME, session_id)]))
    return path


async def bring_in(store: Store, path: Path) -> str:
    archive = open_archive(path)
    try:
        return (await import_archive(store, ME, archive, archive.document, describe_file)).id
    finally:
        archive.close()


async def contents(store: Store, session_id: str) -> list[tuple[str, str, dict[bytes, bytes]]]:
    """Cause, tree and files of each checkpoint."""
    versions = Versions(store.blobs)
    return [
        (
            made.cause.value,
            made.tree,
            {
                path: await versions.bytes_of(entry.sha256)
                async for path, entry in versions.walk(made.tree)
                if entry.kind in (Kind.FILE, Kind.LINK)
            },
        )
        for made in await store.checkpoints.list_kept(ME, session_id)
    ]


async def test_e04_an_archive_gives_back_an_equal_session_elsewhere(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    session_id, turns = await session_with_files(store)
    path = await export(store, session_id, tmp_path / "session.zip")
    async with open_store(data_dir=tmp_path / "elsewhere", clock=clock) as other:
        assert await bring_in(other, path) == session_id
        assert await contents(other, session_id) == await contents(store, session_id)
        assert await other.checkpoints.list_kept(ME, session_id) == await store.checkpoints.list_kept(
            ME, session_id
        )
        documents = [await export_document(one, ME, session_id) for one in (other, store)]
        assert documents[0].messages == documents[1].messages
        assert [made.id for made in await other.checkpoints.of_turn(ME, turns[1])] == [
            made.id for made in await store.checkpoints.of_turn(ME, turns[1])
        ]
        again = await export(other, session_id, tmp_path / "again.zip")
        with zipfile.ZipFile(path) as first, zipfile.ZipFile(again) as second:
            assert first.namelist() == second.namelist()
            assert first.read("checkpoints.json") == second.read("checkpoints.json")
        await collect_all(other.blobs, clock)
        assert await contents(other, session_id) == await contents(store, session_id), "nothing is collected"


async def test_e04_a_copy_beside_the_original_outlives_it(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    session_id, _ = await session_with_files(store)
    before = await contents(store, session_id)
    path = await export(store, session_id, tmp_path / "session.zip")
    copy = await bring_in(store, path)
    assert copy != session_id
    ids = [{made.id for made in await store.checkpoints.list_kept(ME, one)} for one in (session_id, copy)]
    assert not ids[0] & ids[1]
    await store.sessions.delete(ME, session_id)
    await collect_all(store.blobs, clock)
    assert await contents(store, copy) == before


async def test_e04_the_folder_of_an_imported_session_has_to_hold_its_current_files(
    store: Store, tmp_path: Path
) -> None:
    session = await new_session(store)
    await turn_with(store, session.id, {b"a": b"1"}, {b"a": b"2"})
    copy = await bring_in(store, await export(store, session.id, tmp_path / "session.zip"))
    last = await store.checkpoints.last(ME, copy)
    assert last is not None
    found = await Versions(store.blobs).find(last.tree, "a")
    assert found.entry.sha256 == hash_bytes(b"2")
    assert (await store.working_copies.get(ME, copy)).wanted == last.tree


async def test_e04_checkpoints_with_damaged_bytes_are_left_out_and_counted(
    store: Store, tmp_path: Path
) -> None:
    session = await new_session(store)
    await turn_with(store, session.id, {b"a": b"whole"})
    await turn_with(store, session.id, {b"a": random_bytes(LARGE)})
    sha256 = hash_bytes(random_bytes(LARGE))
    await store.database.write(_note_damage, sha256, (await place_of(store, sha256))[0])
    path = await export(store, session.id, tmp_path / "session.zip")
    with zipfile.ZipFile(path) as archive:
        assert "1 checkpoint" in archive.read("everturn-left-out.txt").decode()
        assert f"blobs/{sha256}" not in archive.namelist()
    copy = await bring_in(store, path)
    assert [files for _, _, files in await contents(store, copy)] == [{b"a": b"whole"}]


def _note_damage(tx: Tx, sha256: str, pack: str) -> Script[None]:
    yield q("blob_damaged", sha256, pack.removeprefix("blobs/"), tx.now)


async def test_e04_over_http(store: Store, server: Running) -> None:
    session_id, _ = await session_with_files(store)
    answer = await server.http.get(f"/api/sessions/{session_id}/export", params={"format": "archive"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{session_id}.zip"')
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {"session.json", "checkpoints.json"} < set(archive.namelist())
        assert archive.testzip() is None
    made = await server.http.post(
        "/api/sessions/import/archive",
        content=answer.content,
        headers={"content-type": "application/octet-stream"},
    )
    assert made.status_code == 201, made.text
    copy = made.json()["id"]
    assert await contents(store, copy) == await contents(store, session_id)
    for what, status in ((answer.content[:-30], 422), (b"{}", 422), (b"", 422)):
        refused = await server.http.post(
            "/api/sessions/import/archive",
            content=what,
            headers={"content-type": "application/octet-stream"},
        )
        assert refused.status_code == status
        assert refused.json()["code"] == "bad_import"
    listed = (await server.http.get("/api/sessions")).json()["items"]
    assert {item["id"] for item in listed} == {session_id, copy}
    missing = await server.http.get("/api/sessions/ses_" + "0" * 26 + "/export?format=archive")
    assert missing.status_code == 404


async def test_e04_a_session_without_files_has_an_archive_too(store: Store, tmp_path: Path) -> None:
    session = await new_session(store)
    await turn_with(store, session.id)
    copy = await bring_in(store, await export(store, session.id, tmp_path / "session.zip"))
    assert await store.checkpoints.list_kept(ME, copy) == []
    with pytest.raises(NotFound):
        await export(store, "ses_" + "0" * 26, tmp_path / "none.zip")
    assert await store.blobs.put(b"") == Blob(hash_bytes(b""), 0)
