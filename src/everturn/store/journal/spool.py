"""The spool: a local file that holds a worker's events while the database is away.

Only the worker that holds the file's OS lock (``workers.WorkerLock``) writes it. A record is a frame: its
length, the CRC of its bytes, its bytes. A record is acknowledged after it is synced, so a torn frame at the
end of the file was never acknowledged and is ignored, like zeros there, which a power cut may leave of a
write. A damaged frame with more behind it is real damage: a copy of the file is set aside for inspection.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from everturn.domain.errors import StoreAway
from everturn.store.files.disk import Disk, make_folder, report_errors, write_atomically

SPOOL_BYTES_MAX = 1 << 30
_FRAME = struct.Struct("<II")
_MAGIC = b"everturn spool 1\n"


class SpoolRecord(msgspec.Struct, frozen=True, array_like=True):
    """Events of one turn as they were appended, numbered from ``first_number``."""

    turn_id: str
    epoch: int
    first_number: int
    at: int
    data: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SpoolRecord)


class Spool:
    """One worker's file. All methods block; call them from a thread."""

    def __init__(self, path: Path, disk: Disk, *, bytes_max: int = SPOOL_BYTES_MAX) -> None:
        self.path = path
        self._disk = disk
        self._bytes_max = bytes_max
        self._end: int | None = None  # where the whole records end; None until the file was read

    @property
    def is_empty(self) -> bool:
        return not self.path.exists() or self.path.stat().st_size <= len(_MAGIC)

    def append(self, records: Sequence[SpoolRecord]) -> None:
        """Add records, durably. A write that fails half-way is cut off again, so that what follows it can
        be read. Raises DiskFull, DiskReadOnly, StoreBroken, StoreAway (the spool has reached its bound)."""
        with report_errors(self.path):
            is_new = not self.path.exists()
            if is_new:
                make_folder(self._disk, self.path.parent)
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                self._add(descriptor, b"".join(map(_frame, records)))
            finally:
                os.close(descriptor)
            if is_new:
                self._disk.sync_folder(self.path.parent)

    def _add(self, descriptor: int, frames: bytes) -> None:
        end = self._whole_end()
        if not end:
            frames = _MAGIC + frames
        if end + len(frames) > self._bytes_max:
            raise StoreAway(
                f"The spool has reached {self._bytes_max:,} bytes and the database is still away.",
                hint="Bring the database back; everything spooled so far is safe.",
            )
        # What follows the whole records was never acknowledged, and would make later records unreadable.
        os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        try:
            self._disk.write(descriptor, frames)
            self._disk.sync_file(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        self._end = end + len(frames)

    def _whole_end(self) -> int:
        if self._end is None:
            self._end = _records(self.path.read_bytes())[1]
        return self._end

    def read(self) -> list[SpoolRecord]:
        """Every whole record, in order. Records before a damaged one are returned and stay in the file until
        it is cleared: they were acknowledged, and the database does not have them yet."""
        if not self.path.exists():
            return []
        with report_errors(self.path):
            content = self.path.read_bytes()
        records, end = _records(content)
        if end < len(content) and not _is_torn_tail(content, end):
            write_atomically(self._disk, self._aside(".damaged"), content)
            write_atomically(self._disk, self.path, content[:end])
            self._end = end
        return records

    def clear(self) -> None:
        """Delete the file, once all of it is in the database."""
        self._end = None
        if not self.path.exists():
            return
        with report_errors(self.path):
            self.path.unlink(missing_ok=True)  # its worker may be slow to die and have delivered it itself
            self._disk.sync_folder(self.path.parent)

    def set_aside(self, records: Sequence[SpoolRecord]) -> None:
        """Keep records that the database refuses beside the spool, for inspection."""
        Spool(self._aside(".refused"), self._disk, bytes_max=self._bytes_max).append(records)

    def _aside(self, suffix: str) -> Path:
        number = 1
        while (path := self.path.with_name(f"{self.path.name}{suffix}-{number}")).exists():
            number += 1
        return path


def _frame(record: SpoolRecord) -> bytes:
    body = _encoder.encode(record)
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _records(content: bytes) -> tuple[list[SpoolRecord], int]:
    """The whole records from the beginning, and where they end."""
    if not content.startswith(_MAGIC):
        return [], 0
    records: list[SpoolRecord] = []
    place = len(_MAGIC)
    while place + _FRAME.size <= len(content):
        length, crc = _FRAME.unpack_from(content, place)
        body = content[place + _FRAME.size : place + _FRAME.size + length]
        if not length or len(body) < length or zlib.crc32(body) != crc:
            break
        records.append(_decoder.decode(body))
        place += _FRAME.size + length
    return records, place


def _is_torn_tail(content: bytes, end: int) -> bool:
    """Whether what follows the last whole record can be one unfinished write."""
    if not content[end:].strip(b"\0"):
        return True
    if end == 0:
        return _MAGIC.startswith(content)
    if len(content) - end < _FRAME.size:
        return True
    length, _ = _FRAME.unpack_from(content, end)
    return bool(end + _FRAME.size + length >= len(content))
