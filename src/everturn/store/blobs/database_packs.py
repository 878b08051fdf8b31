"""Packs in PostgreSQL: rows of a mebibyte each, so that no file is ever in memory as a whole.

Each piece is a transaction of its own, which a transaction-mode pooler may send over any connection.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from everturn.store.blobs.packs import CHUNK_BYTES, PackGone, PackReader, PackWriter, in_thread
from everturn.store.scripts.queries.files import PACK_BYTES_SIZE, PACK_PIECES
from everturn.store.scripts.script import Database, Query, Script, Tx, q

_PIECES_AT_ONCE = 4  # in one transaction: each costs a sync of the server's log


class DatabasePacks:
    """A path is the pack's id."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def path(self, pack: str) -> str:
        return pack

    async def create(self, path: str) -> PackWriter:
        return _RowWriter(self._db, path)

    async def open(self, path: str) -> PackReader:
        return _RowReader(self._db, path)

    async def delete(self, path: str) -> None:
        while await self._db.write(_delete_some, path):
            pass

    async def size(self, path: str) -> int:
        return await self._db.read(_size, path)

    async def copy_to(self, path: str, backup: Path) -> None:
        """The copy of the database has it."""


class _RowWriter:
    def __init__(self, db: Database, pack: str) -> None:
        self._db = db
        self._pack = pack
        self._pending = bytearray()
        self._number = 0

    async def write(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) >= _PIECES_AT_ONCE * CHUNK_BYTES:
            await self._flush(len(self._pending) // CHUNK_BYTES * CHUNK_BYTES)

    async def finish(self) -> None:
        await self._flush(len(self._pending))

    async def _flush(self, size: int) -> None:
        pieces = [
            bytes(self._pending[at : min(at + CHUNK_BYTES, size)]) for at in range(0, size, CHUNK_BYTES)
        ]
        if pieces:
            await self._db.write(_add, self._pack, self._number, pieces)
        self._number += len(pieces)
        del self._pending[:size]

    async def discard(self) -> None:
        """Nothing at once: the database may be the reason."""


class _RowReader:
    def __init__(self, db: Database, pack: str) -> None:
        self._db = db
        self._pack = pack

    async def read(self, start: int, size: int, check: Callable[[bytes], None]) -> bytes:
        pieces = await self._db.read(_pieces, self._pack, start, size)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(data) != size:
            raise PackGone(f"{len(data):,} of {size:,} bytes are in the database")
        await in_thread(check, data)
        return data

    async def close(self) -> None:
        """Nothing is open."""


def _add(tx: Tx, pack: str, number: int, pieces: list[bytes]) -> Script[None]:
    yield Query("pack_bytes_add", many=[(pack, number + nth, piece) for nth, piece in enumerate(pieces)])


def _pieces(tx: Tx, pack: str, start: int, size: int) -> Script[list[bytes]]:
    first, last = start // CHUNK_BYTES, (start + size - 1) // CHUNK_BYTES
    return (
        yield from PACK_PIECES.all(
            pack, first, last, start - first * CHUNK_BYTES, start + size - last * CHUNK_BYTES
        )
    )


def _size(tx: Tx, pack: str) -> Script[int]:
    return (yield from PACK_BYTES_SIZE.only(pack))


def _delete_some(tx: Tx, pack: str) -> Script[int]:
    """Some rows at a time: a large pack must not hold a transaction open for long."""
    return len((yield q("pack_bytes_delete", pack, 64)))
