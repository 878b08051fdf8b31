"""The spool file: what was acknowledged is read back, whatever happened to the end of the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from everturn.domain.errors import DiskFull, StoreAway
from everturn.store.files.disk import Disk
from everturn.store.journal.spool import Spool, SpoolRecord


def record(number: int, size: int = 20) -> SpoolRecord:
    return SpoolRecord("trn_1", 1, number, 1000 + number, [b"x" * size, b'{"kind":"text.delta"}'])


class RecordingDisk(Disk):
    """Records its calls, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.synced: list[Path] = []

    def write(self, descriptor: int, data: bytes) -> None:
        self.calls.append("write")
        super().write(descriptor, data)

    def sync_file(self, descriptor: int) -> None:
        self.calls.append("sync file")
        super().sync_file(descriptor)

    def sync_folder(self, folder: Path) -> None:
        self.calls.append("sync folder")
        self.synced.append(folder)
        super().sync_folder(folder)


class FullDisk(Disk):
    """Takes half of what it is given, then has no room, until it is emptied."""

    is_full = True

    def write(self, descriptor: int, data: bytes) -> None:
        if not self.is_full:
            super().write(descriptor, data)
            return
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left")


def test_records_come_back_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool" / "w.spool", Disk())
    assert spool.is_empty
    assert spool.read() == []
    spool.append([record(1), record(2)])
    spool.append([record(3)])
    assert not spool.is_empty
    assert Spool(spool.path, Disk()).read() == [record(1), record(2), record(3)]


def test_a_record_is_synced_with_its_folder_before_it_is_acknowledged(tmp_path: Path) -> None:
    disk = RecordingDisk()
    spool = Spool(tmp_path / "spool" / "w.spool", disk)
    spool.append([record(1), record(2)])
    assert disk.calls == ["sync folder", "write", "sync file", "sync folder"]
    assert disk.synced == [tmp_path, spool.path.parent], "the new folder, and the new file in it"
    spool.append([record(3)])
    assert disk.calls[4:] == ["write", "sync file"]


def test_a_file_torn_anywhere_gives_every_whole_record_before(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "w.spool", Disk())
    ends = []
    for number in range(1, 4):
        spool.append([record(number)])
        ends.append(spool.path.stat().st_size)
    content = spool.path.read_bytes()
    for cut in range(len(content)):
        torn = Spool(tmp_path / "torn.spool", Disk())
        torn.path.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends)
        assert torn.read() == [record(number) for number in range(1, whole + 1)]
        assert list(tmp_path.glob("*damaged*")) == []
        # The next record goes after the whole ones, not behind the torn one, where it would not be found.
        torn.append([record(9)])
        assert torn.read() == [*(record(number) for number in range(1, whole + 1)), record(9)]
        torn.clear()


def test_damage_before_the_end_sets_the_file_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "w.spool", Disk())
    spool.append([record(1)])
    first_end = spool.path.stat().st_size
    spool.append([record(2), record(3)])
    content = bytearray(spool.path.read_bytes())
    content[first_end + 12] ^= 0xFF
    spool.path.write_bytes(content)
    for _ in range(2):  # the database may go away again before it has what was read
        assert spool.read() == [record(1)]
        assert [path.read_bytes() for path in tmp_path.glob("*damaged*")] == [bytes(content)]
    spool.append([record(4)])
    assert Spool(spool.path, Disk()).read() == [record(1), record(4)]


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_zeros_at_the_end_are_a_write_that_power_cut_off(tmp_path: Path, whole: int) -> None:
    """A file system may have grown the file before its bytes were there."""
    spool = Spool(tmp_path / "w.spool", Disk())
    spool.path.touch()
    for number in range(1, whole + 1):
        spool.append([record(number)])
    with spool.path.open("ab") as file:
        file.write(bytes(5000))
    spool = Spool(spool.path, Disk())
    assert spool.read() == [record(number) for number in range(1, whole + 1)]
    assert list(tmp_path.glob("*damaged*")) == []
    spool.append([record(9)])
    assert Spool(spool.path, Disk()).read() == [
        *(record(number) for number in range(1, whole + 1)),
        record(9),
    ]


def test_a_full_disk_is_reported_and_loses_nothing_before_or_after(tmp_path: Path) -> None:
    disk = FullDisk()
    disk.is_full = False
    spool = Spool(tmp_path / "w.spool", disk)
    spool.append([record(1)])
    disk.is_full = True
    with pytest.raises(DiskFull):
        spool.append([record(2)])
    disk.is_full = False
    spool.append([record(3)])
    assert spool.read() == [record(1), record(3)]


def test_the_spool_has_a_bound(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "w.spool", Disk(), bytes_max=300)
    spool.append([record(1)])
    with pytest.raises(StoreAway, match="300 bytes"):
        spool.append([record(2, size=300)])
    assert spool.read() == [record(1)]


def test_what_no_database_wants_is_kept_beside(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "w.spool", Disk())
    spool.append([record(1)])
    spool.set_aside([record(1)])
    spool.clear()
    [kept] = tmp_path.iterdir()
    assert Spool(kept, Disk()).read() == [record(1)]
