"""Stores and reads blobs: rows in the database, bytes in packs.

A put first touches the rows of bytes that are stored already. What is missing is written to a new pack: its
row, then its bytes, synced, then one transaction that seals the pack and points the blobs' rows to it. A row
that is marked for collection, or whose bytes are damaged, counts as missing: its bytes are written to a new
place.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from everturn.domain.blobs import Blob, Collected, Roots, Source
from everturn.domain.errors import BlobDamaged, BlobMissing, Retry
from everturn.domain.probe import Moment
from everturn.store.blobs.address import SCHEME, StorageKeys
from everturn.store.blobs.collector import GRACE_MS, WAIT_MS, Collector, delete_hold, move_each, put_hold
from everturn.store.blobs.packs import CHUNK_BYTES, PackGone, PackReader, PackWriter, in_thread
from everturn.store.blobs.places import Places
from everturn.store.blobs.small import read_small
from everturn.store.blobs.sources import Digest, Loaded, checksum, load_group, open_source, read_chunk
from everturn.store.scripts.queries.files import (
    BLOB_PLACE,
    BLOBS_FIND,
    BLOBS_IN_PACK,
    PACKS_ALL,
    BlobPlace,
    FilePlace,
    FoundBlob,
    PackColumns,
)
from everturn.store.scripts.script import Database, Query, Script, Tx, encode_list, q

PACK_BYTES = 32 << 20  # a pack of small blobs is sealed when it is so large
TOUCH_EVERY_MS = 3600 * 1000  # a row that was touched since then is not written again
_HASHES_AT_ONCE = 1_000
_READ_BYTES = (
    4 * CHUNK_BYTES
)  # read and verified together: each step to a thread and back costs as much as a chunk


class StoredBlobs:
    def __init__(self, db: Database, places: Places) -> None:
        self._db = db
        self._places = places
        self._roots: list[Roots] = []

    def use_keys(self, find_keys: Callable[[], StorageKeys]) -> None:
        """Sign requests to object storage with these keys. The secrets that hold them are opened after the
        store."""
        self._places.find_keys = find_keys

    async def put(self, source: Source) -> Blob:
        return (await self.put_many([source]))[0]

    async def put_many(self, sources: Sequence[Source]) -> list[Blob]:
        put = _Put(self._db, self._places)
        stored: list[Blob] = []
        try:
            while len(stored) < len(sources):
                stored += await put.store(await in_thread(load_group, sources, len(stored)))
            await put.finish()
        except BaseException:
            await put.discard()
            raise
        return stored

    async def find(self, hashes: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for at in range(0, len(hashes), _HASHES_AT_ONCE):
            found |= await find(self._db, hashes[at : at + _HASHES_AT_ONCE])
        return found

    async def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        place = await self._find_place(sha256)
        end = place.size if end is None else min(end, place.size)
        at = max(0, start)
        while at < end:
            # Once more where the bytes have moved to another pack meanwhile.
            async with aclosing(self._read_from(sha256, place, at, end)) as pieces:
                try:
                    async for piece in pieces:
                        at += len(piece)
                        yield piece
                except _Damaged as damage:
                    place = await self._find_again(sha256, place, damage)

    async def read_small(self, hashes: Sequence[str]) -> dict[str, bytes]:
        return await read_small(self._db, self._places, hashes)

    def add_roots(self, roots: Roots) -> None:
        self._roots.append(roots)

    async def collect(self, *, grace_ms: int = GRACE_MS, wait_ms: int = WAIT_MS) -> Collected:
        collector = Collector(self._db, self._places, self._move, grace_ms=grace_ms, wait_ms=wait_ms)
        return await collector.run(self._roots)

    async def _move(self, hashes: Sequence[str]) -> None:
        """Copy blobs to a new pack and point their rows there."""
        put = _Put(self._db, self._places)

        async def move(sha256: str) -> None:
            place = await self._find_place(sha256)
            async with aclosing(self.read(sha256)) as chunks:
                try:
                    await put.copy(Blob(sha256, place.size), place, chunks)
                except BlobDamaged:
                    await put.discard_large()
                    raise

        try:
            await move_each(hashes, move)
            await put.finish()
        except BaseException:
            await put.discard()
            raise

    # --- backups and checks ----------------------------------------------------------------------------

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """No worker deletes bytes until this is left; if this process is killed, for a day."""
        name = self._db.ids.make("hld")
        await self._db.write(put_hold, name)
        try:
            yield
        finally:
            await self._db.write(delete_hold, name)

    async def copy_to(self, backup: Path) -> None:
        """Copy every pack into a backup that the copy of its database does not hold."""
        for pack in await self._db.read(_packs):
            await self._places.find(pack.place).copy_to(pack.path, backup)

    async def stored_elsewhere(self) -> dict[str, int]:
        """How many bytes are in each object storage. A backup does not hold them."""
        sizes: dict[str, int] = {}
        for pack in await self._db.read(_packs):
            if pack.place.startswith(SCHEME):
                sizes[pack.place] = sizes.get(pack.place, 0) + pack.size
        return sizes

    async def has_pack(self, file: FilePlace) -> bool:
        """True if the pack that holds a file's bytes has its full size."""
        if file.place is None or file.path is None or file.pack_size is None:
            return False
        return await self._places.find(file.place).size(file.path) >= file.pack_size

    # --- reading -------------------------------------------------------------------------------------

    async def _find_place(self, sha256: str) -> BlobPlace:
        place = await self._db.read(_place, sha256)
        if place is None:
            raise BlobMissing(sha256)
        if place.checksums is None and place.size > CHUNK_BYTES:
            await self._learn_checksums(sha256, place)
            return await self._find_place(sha256)
        return place

    async def _find_again(self, sha256: str, place: BlobPlace, damage: _Damaged) -> BlobPlace:
        """Where the bytes are now. Raises BlobDamaged if they have not moved."""
        now = await self._find_place(sha256)
        if now.pack == place.pack:  # guard: g02 always postgresql
            await self._db.write(_note_damage, sha256, place.pack)
            raise BlobDamaged(sha256, str(damage)) from damage
        return now

    async def _read_from(
        self, sha256: str, place: BlobPlace, start: int, end: int
    ) -> AsyncGenerator[bytes, None]:
        check = _Check(sha256, place.checksums or b"")
        last = min(place.size, -(-end // CHUNK_BYTES) * CHUNK_BYTES)
        async with self._open(place) as pack:
            for first in range(start // CHUNK_BYTES * CHUNK_BYTES, last, _READ_BYTES):
                check.number = first // CHUNK_BYTES
                try:
                    chunks = await pack.read(place.start + first, min(_READ_BYTES, last - first), check)
                except PackGone as error:
                    raise _Damaged(str(error)) from error
                yield chunks[max(0, start - first) : end - first]

    @asynccontextmanager
    async def _open(self, place: BlobPlace) -> AsyncIterator[PackReader]:
        try:
            pack = await self._places.find(place.place).open(place.path)
        except PackGone as error:
            raise _Damaged(str(error)) from error
        try:
            yield pack
        finally:
            await pack.close()

    async def _learn_checksums(self, sha256: str, place: BlobPlace) -> None:
        """Read bytes that were stored before there were checksums, verify them by their hash, and keep the
        checksums of their chunks."""
        digest = Digest()
        try:
            async with self._open(place) as pack:
                for first in range(0, place.size, CHUNK_BYTES):
                    await pack.read(place.start + first, min(CHUNK_BYTES, place.size - first), digest.add)
        except (PackGone, _Damaged) as error:
            await self._db.write(_note_damage, sha256, place.pack)
            raise BlobDamaged(sha256, str(error)) from error
        if digest.blob.sha256 != sha256:
            await self._db.write(_note_damage, sha256, place.pack)
            raise BlobDamaged(sha256, "they do not have their hash")
        await self._db.write(_keep_checksums, sha256, digest.checksums)


class _Damaged(Exception):
    """Bytes are missing or differ from their checksum."""


class _Check:
    """Compares chunks, from ``number`` on, with their checksums, or the only one with the hash."""

    def __init__(self, sha256: str, checksums: bytes) -> None:
        self._sha256 = sha256
        self._checksums = checksums
        self.number = 0

    def __call__(self, chunks: bytes) -> None:
        view = memoryview(chunks)
        for at in range(0, len(view), CHUNK_BYTES):
            number = self.number + at // CHUNK_BYTES
            if not self._is_whole(number, view[at : at + CHUNK_BYTES]):
                raise _Damaged(f"chunk {number} is not what was stored")

    def _is_whole(self, number: int, chunk: memoryview) -> bool:
        if self._checksums:
            return checksum(chunk) == self._checksums[number * 4 : number * 4 + 4]
        return hashlib.sha256(chunk).hexdigest() == self._sha256


class _Entry(msgspec.Struct, frozen=True):
    """A blob in a pack. ``moved_from``: the pack that has held it so far, if it is a copy."""

    blob: Blob
    start: int
    checksums: bytes = b""
    moved_from: str | None = None


class _OpenPack(msgspec.Struct):
    """A pack that is being written."""

    id: str
    path: str
    writer: PackWriter
    size: int = 0
    entries: list[_Entry] = []


class _Put:
    """One call of ``put_many``."""

    def __init__(self, db: Database, places: Places) -> None:
        self._db = db
        self._place = places.current
        self._packs = places.find(places.current)
        self._written: set[str] = set()
        self._pack: _OpenPack | None = None
        self._large: _OpenPack | None = None

    async def store(self, group: Sequence[Loaded]) -> list[Blob]:
        known = await find(self._db, list({item.blob.sha256 for item in group} - self._written))
        self._written |= known.keys()
        small: list[tuple[Blob, bytes]] = []
        blobs = []
        for item in group:
            blob = item.blob
            if blob.sha256 not in self._written:
                self._written.add(blob.sha256)
                if item.data is None:
                    blob = await self._write_large(item.source)
                else:
                    small.append((blob, item.data))
            blobs.append(blob)
        if small:
            await self._write_small(small)
        return blobs

    async def finish(self) -> None:
        pack, self._pack = self._pack, None
        if pack is not None:
            await self._seal(pack)

    async def discard(self) -> None:
        """Give up the packs that are not sealed."""
        await self.discard_large()
        if self._pack is not None:
            await self._pack.writer.discard()

    async def discard_large(self) -> None:
        pack, self._large = self._large, None
        if pack is not None:
            await pack.writer.discard()

    async def _write_small(self, items: Sequence[tuple[Blob, bytes]]) -> None:
        pack = self._pack = self._pack or await self._create()
        for blob, data in items:
            pack.entries.append(_Entry(blob, pack.size))
            pack.size += len(data)
        await pack.writer.write(b"".join(data for _, data in items))
        if pack.size >= PACK_BYTES:
            await self.finish()

    async def _write_large(self, source: Source) -> Blob:
        """Write it to a pack of its own, which can be deleted as soon as nothing names it."""
        pack = self._large = await self._create()
        digest = Digest()
        stream = await in_thread(open_source, source)
        try:
            while chunk := await in_thread(_read_and_add, stream, digest):
                await pack.writer.write(chunk)
        finally:
            stream.close()
        pack.size = digest.blob.size
        pack.entries.append(_Entry(digest.blob, 0, digest.checksums))
        self._large = None
        await self._seal(pack)
        return digest.blob

    async def copy(self, blob: Blob, place: BlobPlace, chunks: AsyncIterator[bytes]) -> None:
        """Write a stored blob again. Its row is pointed here unless another pack has it by then."""
        if blob.size <= CHUNK_BYTES:
            pack = self._pack = self._pack or await self._create()
        else:
            pack = self._large = await self._create()
        entry = _Entry(blob, pack.size, place.checksums or b"", place.pack)
        async for chunk in chunks:
            await pack.writer.write(chunk)
            pack.size += len(chunk)
        pack.entries.append(entry)
        if pack is self._large:
            self._large = None
            await self._seal(pack)
        elif pack.size >= PACK_BYTES:
            await self.finish()

    async def _create(self) -> _OpenPack:
        pack = self._db.ids.make("pck")
        path = self._packs.path(pack)
        await self._db.write(_add_pack, pack, self._place, path)
        return _OpenPack(pack, path, await self._packs.create(path))

    async def _seal(self, pack: _OpenPack) -> None:
        try:
            await pack.writer.finish()
        except BaseException:
            await pack.writer.discard()
            raise
        await self._db.probe.reach(Moment.BLOB_WRITTEN, pack.id)
        if not await self._db.write(_seal, pack.id, pack.size, pack.entries):
            # Another put stored the same bytes meanwhile.
            await self._packs.delete(pack.path)
            await self._db.write(_forget_pack, pack.id)


def _read_and_add(stream: BinaryIO, digest: Digest) -> bytes:
    chunk = read_chunk(stream)
    if chunk:
        digest.add(chunk)
    return chunk


async def find(db: Database, hashes: Sequence[str]) -> dict[str, int]:
    """Sizes of stored blobs, whose rows are touched if that is long ago."""
    if not hashes:
        return {}
    rows = await db.read(_find, hashes)
    before = db.clock.now_ms() - TOUCH_EVERY_MS
    stale = sorted(row.sha256 for row in rows if row.touched_at < before)
    # A row may be marked between the two: then it is not touched, and counts as missing.
    gone = set(stale) - set(await db.write(_touch, stale)) if stale else set()
    return {row.sha256: row.size for row in rows if row.sha256 not in gone}


def _find(tx: Tx, hashes: Sequence[str]) -> Script[list[FoundBlob]]:
    return (yield from BLOBS_FIND.all(encode_list(hashes)))


def _touch(tx: Tx, hashes: Sequence[str]) -> Script[list[str]]:
    return [row[0] for row in (yield q("blobs_touch", encode_list(hashes), tx.now))]


def _place(tx: Tx, sha256: str) -> Script[BlobPlace | None]:
    return (yield from BLOB_PLACE.first(sha256))


def _packs(tx: Tx) -> Script[list[PackColumns]]:
    return (yield from PACKS_ALL.all())


def _note_damage(tx: Tx, sha256: str, pack: str) -> Script[None]:
    yield q("blob_damaged", sha256, pack, tx.now)


def _keep_checksums(tx: Tx, sha256: str, checksums: bytes) -> Script[None]:
    yield q("blob_checksums", sha256, checksums)


def _add_pack(tx: Tx, pack: str, place: str, path: str) -> Script[None]:
    yield q("pack_insert", pack, place, path, tx.now)


def _seal(tx: Tx, pack: str, size: int, entries: Sequence[_Entry]) -> Script[int]:
    """Point the blobs to the pack; return how many were."""
    if not (yield q("pack_seal", pack, size, tx.now)):
        raise Retry("Storing the files took longer than a day, and what was written is being collected.")
    new = [entry for entry in entries if entry.moved_from is None]
    yield Query(
        "blob_put",
        many=[(e.blob.sha256, e.blob.size, pack, e.start, e.checksums, tx.now) for e in new],
    )
    moved = [entry for entry in entries if entry.moved_from is not None]
    yield Query("blob_move", many=[(e.blob.sha256, e.moved_from, pack, e.start) for e in moved])
    yield Query("pack_age", many=[(pack, origin) for origin in {e.moved_from for e in moved}])  # guard: g02
    return (yield from BLOBS_IN_PACK.only(pack))


def _forget_pack(tx: Tx, pack: str) -> Script[None]:
    yield q("pack_delete", pack)
