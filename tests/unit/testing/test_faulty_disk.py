"""The disk that forgets: what a power cut leaves of files, names and half-written sectors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from everturn.store.blobs.packs import FolderPacks
from everturn.store.files.disk import write_atomically
from everturn.testing.faulty_disk import FaultyDisk, Platter


@pytest.fixture
def platter(tmp_path: Path) -> Platter:
    (tmp_path / "data").mkdir()
    return Platter(tmp_path / "data")


def found(platter: Platter, target: Path, how: str = "lost", seed: int = 0) -> dict[str, bytes]:
    platter.cut(target, how=how, seed=seed)
    return {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}


def test_bytes_are_lost_that_were_not_synced_and_names_too(platter: Platter, tmp_path: Path) -> None:
    disk = FaultyDisk(platter)
    path = platter.root / "a"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    disk.write(descriptor, b"synced ")
    disk.sync_file(descriptor)
    assert found(platter, tmp_path / "1") == {}, "the folder does not know the name yet"
    disk.sync_folder(platter.root)
    disk.write(descriptor, b"not synced")
    os.close(descriptor)
    assert found(platter, tmp_path / "2") == {"a": b"synced "}
    assert found(platter, tmp_path / "3", "kept") == {"a": b"synced not synced"}
    assert found(platter, tmp_path / "4", "torn") == {"a": b"synced not s"}


def test_a_file_in_a_folder_that_was_never_synced_is_gone(platter: Platter, tmp_path: Path) -> None:
    disk = FaultyDisk(platter)
    (platter.root / "sub").mkdir()
    write_atomically(disk, platter.root / "sub" / "a", b"content")
    assert found(platter, tmp_path / "1") == {}
    disk.sync_folder(platter.root)
    assert found(platter, tmp_path / "2") == {"sub/a": b"content"}


def test_a_rename_is_undone_until_its_folder_is_synced(platter: Platter, tmp_path: Path) -> None:
    disk = FaultyDisk(platter)
    write_atomically(disk, platter.root / "a", b"old")
    length = len(platter.log)
    write_atomically(disk, platter.root / "a", b"new")
    platter.log = platter.log[:-1]
    assert platter.log[-1].kind == "rename"
    assert len(platter.log) > length
    assert found(platter, tmp_path / "1") == {"a": b"old"}


@pytest.mark.anyio
async def test_a_finished_pack_survives(platter: Platter, tmp_path: Path) -> None:
    packs = FolderPacks(platter.root, FaultyDisk(platter))
    for name in ("finished", "unfinished"):
        pack = await packs.create(packs.path(name))
        await pack.write(b"content")
        if name == "finished":
            await pack.finish()
    assert found(platter, tmp_path / "1") == {"blobs/finished": b"content"}


def test_after_a_failed_sync_the_bytes_never_become_durable(platter: Platter, tmp_path: Path) -> None:
    disk = FaultyDisk(platter)
    descriptor = os.open(platter.root / "a", os.O_CREAT | os.O_WRONLY)
    disk.write(descriptor, b"lost")
    platter.fail("sync", errno.EIO, times=1)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_file(descriptor)
    disk.sync_file(descriptor)
    os.close(descriptor)
    disk.sync_folder(platter.root)
    assert found(platter, tmp_path / "1") == {"a": b""}


def test_a_planned_fault_lets_so_many_pass_and_fails_so_many(platter: Platter) -> None:
    disk = FaultyDisk(platter)
    platter.fail("write", errno.ENOSPC, after=1, times=1)
    descriptor = os.open(platter.root / "a", os.O_CREAT | os.O_WRONLY)
    disk.write(descriptor, b"1")
    with pytest.raises(OSError, match="No space"):
        disk.write(descriptor, b"2")
    disk.write(descriptor, b"3")
    os.close(descriptor)
    assert (platter.root / "a").read_bytes() == b"13"


def test_mixed_up_sectors_are_the_same_for_the_same_seed(platter: Platter, tmp_path: Path) -> None:
    disk = FaultyDisk(platter)
    descriptor = os.open(platter.root / "a", os.O_CREAT | os.O_WRONLY)
    disk.sync_file(descriptor)
    disk.sync_folder(platter.root)
    disk.write(descriptor, bytes(range(256)) * 64)
    os.close(descriptor)
    outcomes = [found(platter, tmp_path / str(n), "mixed", seed=n // 2)["a"] for n in range(6)]
    assert outcomes[0] == outcomes[1]
    assert len(set(outcomes)) > 1
