"""Frees bytes that nothing names, while any worker may be storing the same bytes (contract G02).

A collection reads all roots, then **marks** blobs that none of them gave and that were not touched for a day.
A mark says that the bytes in this place will be deleted, and is never taken back: a put that meets one writes
the bytes to a new pack and points the row there. A pack is marked when no blob without a mark is in it. After
a **wait**, for readers and backups that looked before, the bytes of the pack are deleted, and then its rows
and those of the blobs that are still in it.

A pack that is mostly unused is emptied first: the blobs that are still used are moved to another one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from everturn.domain.blobs import Collected, Roots
from everturn.domain.errors import BlobDamaged, StorageAway
from everturn.domain.probe import Moment
from everturn.store.blobs.places import Places
from everturn.store.scripts.queries.files import (
    BLOBS_MARKED,
    BLOBS_OF_PACK,
    BLOBS_TO_MARK,
    BLOBS_TO_MOVE,
    PACKS_TO_DELETE,
    PackColumns,
    PackedBlob,
)
from everturn.store.scripts.queries.records import RECORDS
from everturn.store.scripts.script import Database, Script, Tx, encode_list, q

GRACE_MS = 24 * 3600 * 1000  # since the last touch: time to name what was stored
WAIT_MS = 3600 * 1000  # from the mark to the deletion
HOLD_MS = 24 * 3600 * 1000  # how long a hold is heeded
_HOLDS = ("", "blob_hold")  # owner and kind of the records that keep packs from being deleted
_BATCH = 1_000
_log = logging.getLogger("everturn.store.blobs")

Move = Callable[[Sequence[str]], Awaitable[None]]


class Collector:
    """One collection. ``move`` copies blobs to a new pack and points their rows there, marked or not."""

    def __init__(self, db: Database, places: Places, move: Move, *, grace_ms: int, wait_ms: int) -> None:
        self._db = db
        self._places = places
        self._move = move
        self._now = db.clock.now_ms()
        self._touched_before = self._now - grace_ms
        self._marked_before = self._now - wait_ms

    async def run(self, roots: Iterable[Roots]) -> Collected:
        live: set[bytes] = set()
        for read in roots:
            async for hashes in read():
                live.update(map(bytes.fromhex, hashes))
        marked = await self._mark(live)
        if marked:
            await self._db.probe.reach(Moment.BLOBS_MARKED)
        await self._move_used(live)
        if await self._db.read(_has_packs_to_mark, self._touched_before, self._marked_before):
            await self._db.write(_mark_packs, self._touched_before, self._marked_before, self._now)
        return await self._delete(live, marked)

    async def _mark(self, live: set[bytes]) -> int:
        count, after = 0, ""
        while found := await self._db.read(_to_mark, after, self._touched_before):
            after = found[-1]
            unused = [sha256 for sha256 in found if bytes.fromhex(sha256) not in live]
            if unused:
                count += await self._db.write(_mark, unused, self._touched_before, self._now)
        return count

    async def _move_used(self, live: set[bytes]) -> None:
        """Move what must stay out of packs that are marked, or that are mostly unused.

        A marked blob that is in use was named without having been found or put before. That is against the
        rules, and it must not cost anyone their bytes."""
        named, after = [], ""
        while found := await self._db.read(_find_marked, after):
            after = found[-1]
            named += [sha256 for sha256 in found if bytes.fromhex(sha256) in live]
        wanted = named + await self._db.read(_to_move, self._marked_before)
        for at in range(0, len(wanted), _BATCH):
            try:
                await self._move(wanted[at : at + _BATCH])
            except StorageAway as error:
                # What was not moved is not deleted either. The next collection tries again.
                _log.warning("not moved: %s", error.message)
                return

    async def _delete(self, live: set[bytes], marked: int) -> Collected:
        deleted = freed = 0
        away: set[str] = set()
        for pack in await self._db.read(_to_delete, self._marked_before):
            if pack.place in away:
                continue
            if await self._db.read(_is_held, self._now - HOLD_MS):  # guard: g02
                break
            blobs = await self._db.read(_blobs_of, pack.id)
            if any(bytes.fromhex(blob.sha256) in live for blob in blobs):  # guard: g02
                continue  # it could not be moved, because it is damaged
            try:
                await self._places.find(pack.place).delete(pack.path)
            except StorageAway as error:
                away.add(pack.place)  # a later collection deletes it
                _log.warning("not deleted: %s", error.message)
                continue
            await self._db.probe.reach(Moment.PACK_DELETED, pack.id)
            await self._db.write(_forget, pack.id)
            deleted += len(blobs)
            freed += pack.size
        return Collected(marked, deleted, freed)


async def move_each(hashes: Sequence[str], move: Callable[[str], Awaitable[None]]) -> None:
    """Move blobs one by one. One that is damaged stays where it is."""
    for sha256 in hashes:
        try:
            await move(sha256)
        except BlobDamaged as error:
            _log.warning("not moved: %s", error.message)


def put_hold(tx: Tx, name: str) -> Script[None]:
    yield q("record_put", *_HOLDS, name, msgspec.json.encode({"at": tx.now}).decode(), tx.now)


def delete_hold(tx: Tx, name: str) -> Script[None]:
    yield q("record_delete", *_HOLDS, name)


def _is_held(tx: Tx, since: int) -> Script[bool]:
    return any(
        msgspec.json.decode(record.value)["at"] > since for record in (yield from RECORDS.all(*_HOLDS))
    )


def _to_mark(tx: Tx, after: str, before: int) -> Script[list[str]]:
    return (yield from BLOBS_TO_MARK.all(after, before, _BATCH))


def _mark(tx: Tx, hashes: Sequence[str], before: int, now: int) -> Script[int]:
    return len((yield q("blobs_mark", encode_list(hashes), before, now)))


def _find_marked(tx: Tx, after: str) -> Script[list[str]]:
    return (yield from BLOBS_MARKED.all(after, _BATCH))


def _to_move(tx: Tx, before: int) -> Script[list[str]]:
    return (yield from BLOBS_TO_MOVE.all(before))


def _has_packs_to_mark(tx: Tx, created_before: int, sealed_before: int) -> Script[bool]:
    return bool((yield q("packs_to_mark", created_before, sealed_before)))


def _mark_packs(tx: Tx, created_before: int, sealed_before: int, now: int) -> Script[None]:
    """Two statements, because the second must not take for empty a pack that is sealed at this moment."""
    yield q("packs_mark_unsealed", created_before, now)
    yield q("packs_mark_unused", sealed_before, now)


def _to_delete(tx: Tx, before: int) -> Script[list[PackColumns]]:
    return (yield from PACKS_TO_DELETE.all(before))


def _blobs_of(tx: Tx, pack: str) -> Script[list[PackedBlob]]:
    return (yield from BLOBS_OF_PACK.all(pack))


def _forget(tx: Tx, pack: str) -> Script[None]:
    yield q("blobs_forget", pack)
    yield q("pack_delete", pack)
