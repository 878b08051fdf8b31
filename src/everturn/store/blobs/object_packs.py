"""Packs in object storage that speaks S3.

A pack is stored as objects of a bounded size, ``PREFIX/PACK/0``, ``PREFIX/PACK/1`` and so on, each with one
request that succeeds or leaves nothing. So memory is bounded, and a process that is killed leaves only whole
objects under the name of a pack that has a row: the collector deletes them with it. A multipart upload would
leave parts that only a rule of the storage itself removes.

A small object, the **marker**, shows that this is the storage that the packs were written to. Where it is
missing, the bucket was renamed, emptied or is another one: that is reported as storage that is away, and not
as damage to each file.

obstore is imported when a storage is opened: its package is an extra.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from everturn.domain.errors import StorageAway, StoreRefused
from everturn.domain.extras import install_command
from everturn.store.blobs.address import StorageAddress, StorageKeys, parse_address
from everturn.store.blobs.packs import PackGone, PackReader, PackWriter, in_thread

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

OBJECT_BYTES = 8 << 20
MARKER = "everturn-storage"
_MARKER_TEXT = b"Everturn keeps the bytes of files here. Delete nothing by hand.\n"
_PACK = re.compile(r"pck_[0-9A-Za-z]+")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REQUEST_S = 60
_CONNECT_S = 5
_RETRY_S = 15  # how long a failing request is repeated before the storage counts as away


class ObjectPacks:
    """A path is the pack's id. ``has_packs`` tells whether rows name packs in this place."""

    def __init__(
        self,
        address: str,
        has_packs: Callable[[], Awaitable[bool]],
        find_keys: Callable[[], StorageKeys] = StorageKeys,
    ) -> None:
        self._storage = _Storage(address, find_keys)
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
                raise self._storage.unmarked()
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
    def __init__(self, storage: _Storage, pack: str) -> None:
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
    def __init__(self, storage: _Storage, pack: str) -> None:
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


class _Storage:
    """One prefix of a bucket. Every error is PackGone or StorageAway."""

    def __init__(self, address: str, find_keys: Callable[[], StorageKeys]) -> None:
        self._address = address
        self._parsed = parse_address(address)
        self._obstore = _import_obstore()
        self._find_keys = find_keys
        self._keys: StorageKeys | None = None

    @property
    def _store(self) -> S3Store:
        """Opened again when the keys were changed, which needs no restart."""
        keys = self._find_keys()
        if keys != self._keys:
            self._opened = _open_store(self._parsed, keys, os.environ)
            self._keys = keys
        return self._opened

    async def put(self, name: str, data: bytes) -> None:
        try:
            async with self._report_errors(f"write {name}"):
                await self._obstore.put_async(self._store, name, data, use_multipart=False)
        except FileNotFoundError as error:
            raise StorageAway(
                f"The object storage {self._address} could not write {name}: there is no such bucket.",
                hint="Make the bucket, or correct url in [files].",
            ) from error

    async def get(self, name: str, start: int, size: int) -> bytes:
        """Exactly so many bytes. Raises PackGone if the object is missing or shorter."""
        try:
            async with self._report_errors(f"read {name}"):
                found = await self._obstore.get_range_async(self._store, name, start=start, length=size)
                data: bytes = found.to_bytes()
        except FileNotFoundError as error:
            await self.require_marker()
            raise PackGone(f"{name} is not in {self._address}") from error
        except StorageAway:
            # A range behind the end is refused with an error like any other.
            if await self._size(name) >= start + size:
                raise
            data = b""
        if len(data) != size:
            raise PackGone(f"{name} in {self._address} is shorter than it was")
        return data

    async def list(self, folder: str) -> dict[str, int]:
        """The objects below a name, with their sizes."""
        found: dict[str, int] = {}
        async with self._report_errors(f"list {folder}"):
            async for batch in self._obstore.list(self._store, f"{folder}/"):
                found |= {item["path"]: item["size"] for item in batch}
        return found

    async def delete(self, names: Sequence[str]) -> None:
        async with self._report_errors("delete packs"):
            await self._obstore.delete_async(self._store, names)

    async def has_marker(self) -> bool:
        try:
            await self._size(MARKER)
        except FileNotFoundError:
            return False
        return True

    async def require_marker(self) -> None:
        """Raises StorageAway if this is not the storage that packs were written to."""
        if not await self.has_marker():
            raise self.unmarked()

    def unmarked(self) -> StorageAway:
        return StorageAway(
            f"{self._address} does not hold the files that were stored there: {MARKER} is missing.",
            hint="See whether the bucket was renamed, replaced or emptied, and whether [files] url is right.",
        )

    async def _size(self, name: str) -> int:
        async with self._report_errors(f"look for {name}"):
            size: int = (await self._obstore.head_async(self._store, name))["size"]
        return size

    @asynccontextmanager
    async def _report_errors(self, what: str) -> AsyncIterator[None]:
        try:
            yield
        except self._obstore.exceptions.BaseError as error:
            # The first line says what happened; the others are the library's own objects.
            why = str(error).partition("\n")[0][:300]
            raise StorageAway(
                f"The object storage {self._address} could not {what}: {why}",
                hint="It is tried again with the next request. See whether the storage runs, and whether its "
                "keys (AWS_ACCESS_KEY_ID, or 'everturn secrets put') may read, write, list and delete.",
            ) from error


def _import_obstore() -> ModuleType:
    try:
        import obstore
        import obstore.exceptions
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"Object storage needs the package {error.name}, which is not installed.",
            hint=f"Install it with: {install_command('s3')}",
        ) from error
    module: ModuleType = obstore
    return module


def _open_store(address: StorageAddress, keys: StorageKeys, environ: Mapping[str, str]) -> S3Store:
    """What address and keys do not say is read from the environment variables that other S3 clients use."""
    from obstore.store import S3Store

    found = (environ.get(name) for name in _ENDPOINT_VARIABLES)
    endpoint = address.endpoint or next(filter(None, found), None)
    options: S3Config = {}
    if endpoint:
        options["endpoint"] = endpoint
    if address.region:
        options["region"] = address.region
    if keys.access_key_id and keys.secret_access_key:
        options["access_key_id"] = keys.access_key_id
        options["secret_access_key"] = keys.secret_access_key
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=options,
        client_options={
            "allow_http": (endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "timeout": timedelta(seconds=_REQUEST_S),
        },
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=_RETRY_S)},
    )
