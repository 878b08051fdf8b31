"""Backups in object storage: ``NAME/backup.tar.00000`` and so on, and ``NAME/sealed.json``, written last.

Each part is one request that either succeeds or leaves nothing. Parts without a list are left from an
interrupted backup. They are deleted after a day without new parts, because a server could still be writing
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from everturn.backups.backup import BackupOptions, fill, in_thread
from everturn.backups.encryption import Key
from everturn.backups.rotation import made_at
from everturn.backups.sealed import LIST, PartFile, SealedList, read_list, seal, unseal
from everturn.backups.shelf import StoredBackup, clear_leftovers
from everturn.backups.unfinished import UnfinishedBackup
from everturn.backups.watch import BackupWatch
from everturn.domain.clock import Clock
from everturn.domain.errors import Stopped
from everturn.store import ObjectStorage, StorageKeys, Store

T = TypeVar("T")
PART_BYTES: Final = 16 << 20
LEFTOVER_MS: Final = 24 * 3_600_000
_CALL_S: Final = 600
_log = logging.getLogger("everturn.backups")


class BucketShelf:
    """``work`` is a folder for the copy that is made before uploading."""

    def __init__(self, address: str, work: Path, find_keys: Callable[[], StorageKeys], clock: Clock) -> None:
        self._storage = ObjectStorage(address, find_keys)
        self._work = work
        self._clock = clock
        self.place = address

    async def prepare(self, *, expects_backups: bool) -> None:
        await asyncio.to_thread(self._work.mkdir, mode=0o700, exist_ok=True)
        await asyncio.to_thread(clear_leftovers, self._work)
        found = await self._objects()
        if expects_backups and not any(LIST in objects for objects in found.values()):
            raise Stopped(
                f"{self.place} is empty, although backups were put there.",
                hint="See whether the bucket was renamed, replaced or emptied. If that was meant, make one: "
                "'everturn backup --now'.",
            )
        for name, objects in found.items():
            age = self._clock.now_ms() - max(objects.values())
            if LIST not in objects and age > LEFTOVER_MS:
                await self._storage.delete([f"{name}/{each}" for each in objects])
                _log.info("cleared %s in %s: an unfinished backup", name, self.place)

    async def put(self, store: Store, home: Path, name: str, options: BackupOptions) -> StoredBackup:
        with UnfinishedBackup(self._work / name) as copy:
            summary = await fill(store, home, copy.inside, options.watch)
            parts = BucketParts(self._storage, name)
            sealed = await in_thread(options.watch, seal, copy.inside, parts, options.lock, options.watch)
        return StoredBackup(summary, sealed.bytes)

    async def names(self) -> Sequence[str]:
        return sorted(name for name, objects in (await self._objects()).items() if LIST in objects)

    async def remove(self, name: str) -> None:
        objects = (await self._objects()).get(name, {})
        if LIST in objects:
            await self._storage.delete([f"{name}/{LIST}"])  # first: the rest no longer counts
        if rest := [f"{name}/{each}" for each in objects if each != LIST]:
            await self._storage.delete(rest)

    async def size(self, name: str) -> int:
        return (await self._list(name)).bytes

    async def is_encrypted(self, name: str) -> bool:
        return (await self._list(name)).is_encrypted

    async def fetch(self, name: str, target: Path, key: Key | None, watch: BackupWatch) -> Path:
        parts = BucketParts(self._storage, name)
        await in_thread(watch, unseal, parts, await self._list(name), key, target, watch)
        return target

    async def _list(self, name: str) -> SealedList:
        return await asyncio.to_thread(read_list, BucketParts(self._storage, name))

    async def _objects(self) -> dict[str, dict[str, int]]:
        """Return the objects of each backup and when they were written."""
        found: dict[str, dict[str, int]] = {}
        for each in await self._storage.walk():
            name, _, part = each.name.partition("/")
            if part and made_at(name) is not None:
                found.setdefault(name, {})[part] = each.changed_at
        return found


class BucketParts:
    """Created on the event loop, where the storage works, and used from a thread."""

    part_bytes = PART_BYTES

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._loop = asyncio.get_running_loop()

    def begin(self, name: str) -> PartFile:
        return _NewObject(lambda data: self._wait(self._storage.put(f"{self._name}/{name}", data)))

    def read(self, name: str, bytes_max: int) -> Iterator[bytes]:
        yield self._wait(self._storage.fetch(f"{self._name}/{name}", bytes_max))

    def _wait(self, call: Coroutine[object, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(_CALL_S)


class _NewObject:
    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._content = bytearray()

    def write(self, data: bytes, /) -> None:
        self._content += data

    def finish(self) -> None:
        self._put(bytes(self._content))
