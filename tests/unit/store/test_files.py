"""Files: what a row names is there, whatever is swept, backed up or uploaded at the same time."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio
import pytest

from everturn.domain.errors import DiskFull, Gone, Invalid, NotFound
from everturn.domain.probe import Moment
from everturn.domain.store_values import FileKind, Submission
from everturn.store import Store, open_store
from everturn.store.blobs.packs import FolderPacks, PackGone
from everturn.store.files.disk import Disk
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, new_session, start
from tests.blobs import content_of, packs_of
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio
TWO_DAYS_S = 2 * 24 * 3600


async def test_a_file_has_its_hash_and_is_given_back(store: Store) -> None:
    file = await store.files.put(ME, "a/b\0c.txt", "text/plain", b"content")
    assert (file.name, file.size, file.sha256) == ("a_b_c.txt", 7, hashlib.sha256(b"content").hexdigest())
    assert await content_of(store, ME, file.id) == b"content"
    assert await store.files.get(ME, file.id) == file
    with pytest.raises(NotFound):
        await store.files.get("somebody else", file.id)


async def test_a_file_is_taken_in_from_a_path(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "big.bin"
    source.write_bytes(b"x" * 3_000_000)
    file = await store.files.put(ME, "big.bin", "application/octet-stream", source)
    assert await content_of(store, ME, file.id) == b"x" * 3_000_000


async def test_an_upload_is_not_swept_away_by_a_sweep_that_found_its_twin_unused(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    """Old row and new upload share their bytes: the sweep must not delete them under the upload."""
    old = await store.files.put(ME, "old.txt", "text/plain", b"the same bytes")
    await clock.advance(TWO_DAYS_S)
    probe.hold(Moment.FILE_SYNCED)
    uploaded = []

    async def upload() -> None:
        uploaded.append(await store.files.put(ME, "new.txt", "text/plain", b"the same bytes"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(upload)
            await probe.reached(Moment.FILE_SYNCED)  # stored, no row names it
            for _ in range(2):
                await store.files.sweep(wait_ms=0)
            probe.release(Moment.FILE_SYNCED)
    assert await content_of(store, ME, uploaded[0].id) == b"the same bytes"
    await store.files.sweep(wait_ms=0)
    assert await content_of(store, ME, uploaded[0].id) == b"the same bytes"
    with pytest.raises(NotFound):
        await store.files.get(ME, old.id)


async def test_a_file_that_a_session_uses_is_never_swept_and_goes_after_its_deletion(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    file = await store.files.put(ME, "a.txt", "text/plain", b"a")
    await store.turns.accept(ME, session.id, Submission(attachments=(file.id,)))
    await clock.advance(TWO_DAYS_S)
    assert await store.files.sweep(wait_ms=0) == 0
    assert await content_of(store, ME, file.id) == b"a"
    await store.sessions.delete(ME, session.id)
    assert await store.files.sweep(wait_ms=0) == 1
    assert await packs_of(store) == []


async def test_the_bytes_of_a_sweep_that_was_killed_go_with_the_next_one(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    await store.files.put(ME, "lost.txt", "text/plain", b"unreferenced")
    await store.files.put(ME, "again.txt", "text/plain", b"wanted again")
    await clock.advance(TWO_DAYS_S)
    probe.hold(Moment.SWEEP_COMMITTED)
    async with anyio.create_task_group() as group:
        group.start_soon(store.files.sweep)
        await probe.reached(Moment.SWEEP_COMMITTED)
        group.cancel_scope.cancel()  # the process ends here: no row names the bytes, which are there
    probe.release(Moment.SWEEP_COMMITTED)
    assert len(await packs_of(store)) == 2
    kept = await store.files.put(ME, "kept.txt", "text/plain", b"wanted again")
    assert await store.files.sweep(wait_ms=0) == 0
    assert await packs_of(store) == [(path, 12) for path, size in await packs_of(store) if size == 12]
    assert await content_of(store, ME, kept.id) == b"wanted again"


async def test_a_backup_holds_the_bytes_of_every_file_and_nothing_that_is_coming_in(
    store: Store, data_dir: Path, tmp_path: Path, probe: HoldingProbe
) -> None:
    await store.files.put(ME, "a.txt", "text/plain", b"a")
    probe.hold(Moment.BLOB_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(store.files.put, ME, "b.txt", "text/plain", b"coming in")
        await probe.reached(Moment.BLOB_WRITTEN)
        target = await store.upkeep.backup(tmp_path / "backup")
        probe.release(Moment.BLOB_WRITTEN)
    if store.kind == "sqlite":
        assert [path.read_bytes() for path in (target / "blobs").iterdir()] == [b"a"]
    else:
        assert [path.name for path in target.iterdir()] == ["postgresql"]


async def test_g02_bytes_are_not_deleted_while_a_backup_is_made(
    store: Store, open_another: OpenAnother, clock: FakeClock
) -> None:
    sweeper = await open_another(probe=HoldingProbe())
    await store.files.put(ME, "a.txt", "text/plain", b"a")
    await clock.advance(TWO_DAYS_S)
    async with store.blobs.hold():
        await sweeper.files.sweep(wait_ms=0)
        assert len(await packs_of(store)) == 1
    await sweeper.files.sweep(wait_ms=0)
    assert await packs_of(store) == []


async def test_a_file_of_a_deleted_session_is_refused(store: Store) -> None:
    session = await new_session(store)
    await start(store, session.id, "hello")
    await store.sessions.delete(ME, session.id)
    with pytest.raises(Gone):
        await store.files.put(ME, "a.txt", "text/plain", b"a", kind=FileKind.ARTIFACT, session_id=session.id)


async def test_an_unknown_kind_is_refused_before_anything_is_written(store: Store, data_dir: Path) -> None:
    with pytest.raises(Invalid, match="kind is 'picture'"):
        await store.files.put(ME, "a.txt", "text/plain", b"a", kind="picture")  # type: ignore[arg-type]
    assert not (data_dir / "blobs").exists()


class _FullDisk(Disk):
    def write(self, descriptor: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")


async def test_a_full_disk_refuses_the_upload_and_leaves_nothing_open_or_lying_about(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 2_000_000)
    async with open_store(data_dir=tmp_path / "data", disk=_FullDisk()) as store:
        with pytest.raises(DiskFull) as refused:
            await store.files.put(ME, "a.bin", "application/octet-stream", source)
        assert refused.value.hint
    assert [path for path in (tmp_path / "data" / "blobs").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "path", ["../outside", "outside", "blobs/../../outside", "/outside", "blobs/", "files/ab/x"]
)
async def test_a_pack_is_only_read_and_deleted_under_the_name_of_a_pack(tmp_path: Path, path: str) -> None:
    """Rows of a restored backup may name any path, and the collector deletes what they name."""
    data_dir, outside = tmp_path / "data", tmp_path / "outside"
    for file in (outside, data_dir / "outside", data_dir / "files" / "ab" / "x"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    packs = FolderPacks(data_dir, Disk())
    path = path.replace("/outside", str(outside)) if path.startswith("/") else path
    await packs.delete(path)
    assert await packs.size(path) == 0
    with pytest.raises(PackGone):
        await packs.open(path)
    await packs.copy_to(path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    for file in (outside, data_dir / "outside", data_dir / "files" / "ab" / "x"):
        assert file.read_text() == "mine"
