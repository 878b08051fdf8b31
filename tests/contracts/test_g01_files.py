"""G01: what is uploaded through one server is read through every other, and old folders come along."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everturn.domain.errors import FileMissing
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.store import Store, open_store
from everturn.store.scripts.script import Script, Tx, q
from everturn.testing import RecordingProbe
from everturn.testing.acting import ME, new_session
from everturn.testing.blob_conformance import random_bytes
from everturn.testing.web_server import run_web
from tests.blobs import content_of, place_of

pytestmark = pytest.mark.anyio
RAW = {"Content-Type": "application/octet-stream"}
LARGE = random_bytes(2_500_000)


async def test_g01_a_file_uploaded_through_one_server_is_read_through_another(
    postgres_url: str, tmp_path: Path
) -> None:
    async with (
        open_store(postgres_url, data_dir=tmp_path / "one") as first,
        open_store(postgres_url, data_dir=tmp_path / "two") as second,
        run_web(first, tmp_path / "one") as one,
        run_web(second, tmp_path / "two") as two,
    ):
        sent = await one.http.post("/api/uploads?name=data.bin", content=LARGE, headers=RAW)
        address = f"/api/files/{sent.json()['id']}"
        for server in (one, two):
            answer = await server.http.get(address)
            assert (answer.status_code, answer.content) == (200, LARGE)
            assert answer.headers["content-length"] == str(len(LARGE))
    async with open_store(postgres_url, data_dir=tmp_path / "empty") as third:
        assert await third.upkeep.check() == []


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=1048570-1048590", 1048570, 1048591),
        ("bytes=2499990-", 2499990, 2500000),
        ("bytes=-5", 2499995, 2500000),
        ("bytes=2499990-99999999", 2499990, 2500000),
    ],
)
async def test_g01_a_range_of_a_file_is_served(
    store: Store, tmp_path: Path, asked: str, start: int, end: int
) -> None:
    async with run_web(store, tmp_path) as server:
        sent = await server.http.post("/api/uploads?name=data.bin", content=LARGE, headers=RAW)
        answer = await server.http.get(f"/api/files/{sent.json()['id']}", headers={"Range": asked})
        assert (answer.status_code, answer.content) == (206, LARGE[start:end])
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(LARGE)}"


@pytest.mark.parametrize("asked", ["bytes=9999999-", "bytes=5-1", "bytes=0-1,4-5", "lines=1-2", "bytes=-0"])
async def test_g01_a_range_that_is_not_there_gives_the_whole_file(
    store: Store, tmp_path: Path, asked: str
) -> None:
    async with run_web(store, tmp_path) as server:
        sent = await server.http.post("/api/uploads?name=a.bin", content=b"content", headers=RAW)
        answer = await server.http.get(f"/api/files/{sent.json()['id']}", headers={"Range": asked})
        assert (answer.status_code, answer.content) == (200, b"content")


# --- folders from before there were blobs ------------------------------------------------------------------


def _name_file(tx: Tx, file_id: str, content: bytes) -> Script[None]:
    sha256 = hashlib.sha256(content).hexdigest()
    yield q("file_insert", file_id, ME, "upload", "old.txt", "text/plain", len(content), sha256, 1)


async def put_old(store: Store, folder: Path, file_id: str, content: bytes) -> None:
    """A file as servers stored it before: bytes in the data folder, and a row."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / "files" / sha256[:2] / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    await store.database.write(_name_file, file_id, content)


@asynccontextmanager
async def old_servers(url: str, folders: list[Path]) -> AsyncIterator[dict[str, bytes]]:
    """Each server has put two files into its own folder; one file is in both."""
    contents = {}
    async with open_store(url, data_dir=folders[0].parent / "any") as store:
        for number, folder in enumerate(folders):
            for name, content in (("both", b"in both"), (f"own{number}", LARGE[number:])):
                contents[f"fil_{name}{number}"] = content
                await put_old(store, folder, f"fil_{name}{number}", content)
    yield contents


async def test_g01_old_folders_are_uploaded_once_and_every_server_reads_them(
    postgres_url: str, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    async with old_servers(postgres_url, folders) as contents:
        async with open_store(postgres_url, data_dir=folders[0]) as store:
            assert await content_of(store, ME, "fil_own00") == contents["fil_own00"]
            with pytest.raises(FileMissing):  # the other server has not been started yet
                await content_of(store, ME, "fil_own11")
        async with (
            open_store(postgres_url, data_dir=folders[1]),
            open_store(postgres_url, data_dir=tmp_path / "empty") as store,
        ):
            for file_id, content in contents.items():
                assert await content_of(store, ME, file_id) == content
            assert await store.upkeep.check() == []
        for folder in folders:
            assert not (folder / "files").exists()
            assert (folder / "files.uploaded").is_dir()
        probe = RecordingProbe()
        async with open_store(postgres_url, data_dir=folders[0], probe=probe):
            assert Moment.BLOB_WRITTEN not in probe.moments, "nothing is uploaded again"


async def test_g01_an_upload_of_an_old_folder_that_was_cut_off_is_finished_by_the_next_start(
    postgres_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    async with old_servers(postgres_url, [folder]) as contents:
        with pytest.raises(_Killed):
            async with open_store(postgres_url, data_dir=folder, probe=_KillsSecond()):
                pytest.fail("it was not cut off")
        assert (folder / "files").is_dir()
        async with open_store(postgres_url, data_dir=folder) as store:
            for file_id, content in contents.items():
                assert await content_of(store, ME, file_id) == content


class _Killed(Exception):
    pass


class _KillsSecond(RecordingProbe):
    async def reach(self, moment: Moment, subject: str = "") -> None:
        await super().reach(moment, subject)
        if moment is Moment.BLOB_WRITTEN and self.moments.count(moment) == 2:
            raise _Killed


async def test_g01_a_file_of_an_old_sqlite_folder_stays_in_its_place(tmp_path: Path) -> None:
    """As the migration leaves it: a pack of its own, without checksums where it has several chunks."""
    async with open_store(data_dir=tmp_path) as store:
        for file_id, content in (("fil_small", b"small"), ("fil_large", LARGE)):
            await put_old(store, tmp_path, file_id, content)
            await store.database.write(_adopt, content)
            sha256 = hashlib.sha256(content).hexdigest()
            assert await content_of(store, ME, file_id) == content
            assert await place_of(store, sha256) == (f"files/{sha256[:2]}/{sha256}", 0)
        again = await store.files.put(ME, "again", "text/plain", LARGE)
        assert await place_of(store, again.sha256) == (f"files/{again.sha256[:2]}/{again.sha256}", 0)
        session = await new_session(store)
        await store.turns.accept(ME, session.id, Submission(attachments=("fil_large", again.id)))
        backup = await store.upkeep.backup(tmp_path / "backup")
        assert await store.upkeep.check() == []
    async with open_store(data_dir=backup) as copy:
        assert await content_of(copy, ME, "fil_large") == LARGE
        await copy.files.sweep(grace_ms=-60_000, wait_ms=-60_000)
        assert await content_of(copy, ME, "fil_large") == LARGE


def _adopt(tx: Tx, content: bytes) -> Script[None]:
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"files/{sha256[:2]}/{sha256}"
    yield q("pack_insert", f"pck_{sha256}", "folder", path, 1)
    yield q("pack_seal", f"pck_{sha256}", len(content), 1)
    yield q("blob_put", sha256, len(content), f"pck_{sha256}", 0, b"" if len(content) < 1 << 20 else None, 1)
