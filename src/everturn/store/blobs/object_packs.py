"""Packs in object storage that speaks S3.

A pack is stored as objects of a bounded size, ``PREFIX/PACK/0``, ``PREFIX/PACK/1`` and so on, each with one
request that succeeds or leaves nothing. So memory is bounded, and a process that is killed leaves only whole
objects under the name of a pack that has a row: the collector deletes them with it. A multipart upload would
leave parts that only a rule of the storage itself removes.

A small object, the **marker**, shows that this is the storage that the packs were written to. Where it is
missing, the bucket was renamed, emptied or is another one: that is reported as storage that is away, and not
as damage to each file.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from everturn.store.blobs.address import StorageKeys
from everturn.store.blobs.object_storage import MARKER, ObjectStorage
from everturn.store.blobs.packs import PackGone, PackReader, PackWriter, in_thread

OBJECT_BYTES = 8 << 20
_MARKER_TEXT = b"Everturn keeps the bytes of files here. Delete nothing by hand.\n"
_PACK = re.compile(r"pck_[0-9A-Za-z]+")


class ObjectPacks:
    """A path is the pack's id. ``has_packs`` tells whether rows name packs in this place."""

    def __init__(
        self,
        address: str,
        has_packs: Callable[[], Awaitable[bool]],
        find_keys: Callable[[], StorageKeys] = StorageKeys,
    ) -> None:
        self._storage = ObjectStorage(address, find_keys)
        self._has_packs = has_packs
        self._is_marked = False

    def path(self, pack: str) -> str:
        return pack

    async def create(self, path: str) -> PackWriter:
        if not self._is_marked:
            await self._mark()
        return _ObjectWriter(self._storage, path)

    async def _mark(self) -> None:
        if not await self._storage.has_marker():
            if await self._has_packs():
                raise self._storage.not_marked_error()
            await self._storage.put(MARKER, _MARKER_TEXT)
        self._is_marked = True

    async def open(self, path: str) -> PackReader:
        if not _PACK.fullmatch(path):
            raise PackGone(f"{path!r} is not the name of a pack")
        return _ObjectReader(self._storage, path)

    async def delete(self, path: str) -> None:
        objects = await self._list(path)
        await self._storage.delete(tuple(objects))

    async def size(self, path: str) -> int:
        return sum((await self._list(path)).values())

    async def _list(self, path: str) -> dict[str, int]:
        """The sizes of a pack's objects. The name is checked: rows of a restored backup may hold any."""
        if not _PACK.fullmatch(path):
            return {}
        found = await self._storage.list(path)
        if not found:
            await self._storage.require_marker()
        return found

    async def copy_to(self, path: str, backup: Path) -> None:
        """A backup does not hold what is in object storage, which has copies of its own."""


class _ObjectWriter:
    def __init__(self, storage: ObjectStorage, pack: str) -> None:
        self._storage = storage
        self._pack = pack
        self._pending = bytearray()
        self._number = 0

    async def write(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= OBJECT_BYTES:
            await self._put(OBJECT_BYTES)

    async def finish(self) -> None:
        if self._pending:
            await self._put(len(self._pending))

    async def _put(self, size: int) -> None:
        await self._storage.put(f"{self._pack}/{self._number}", bytes(self._pending[:size]))
        self._number += 1
        del self._pending[:size]

    async def discard(self) -> None:
        """Nothing at once: the storage may be the reason."""


class _ObjectReader:
    def __init__(self, storage: ObjectStorage, pack: str) -> None:
        self._storage = storage
        self._pack = pack

    async def read(self, start: int, size: int, check: Callable[[bytes], None]) -> bytes:
        parts = []
        at, end = start, start + size
        while at < end:
            number, first = divmod(at, OBJECT_BYTES)
            length = min(end - at, OBJECT_BYTES - first)
            parts.append(await self._storage.get(f"{self._pack}/{number}", first, length))
            at += length
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        await in_thread(check, data)
        return data

    async def close(self) -> None:
        """Nothing is open."""
