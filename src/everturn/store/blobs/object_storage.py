"""Object storage that speaks S3: one prefix of a bucket.

obstore is imported when a storage is opened: its package is an extra.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from everturn.domain.errors import StorageAway
from everturn.domain.extras import report_missing
from everturn.store.blobs.address import StorageAddress, StorageKeys, parse_address
from everturn.store.blobs.packs import PackGone

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

MARKER = "everturn-storage"
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REQUEST_S = 60
_CONNECT_S = 5
_RETRY_S = 15  # how long a failing request is repeated before the storage counts as away


class StoredObject(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    changed_at: int  # by the storage's clock


class ObjectStorage:
    """One prefix of a bucket. Every error is PackGone or StorageAway."""

    def __init__(self, address: str, find_keys: Callable[[], StorageKeys]) -> None:
        self.address = address
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
                f"The object storage {self.address} could not write {name}: there is no such bucket.",
                hint="Make the bucket, or correct its address (url) in config.toml.",
            ) from error

    async def get(self, name: str, start: int, size: int) -> bytes:
        """Exactly so many bytes. Raises PackGone if the object is missing or shorter."""
        try:
            async with self._report_errors(f"read {name}"):
                found = await self._obstore.get_range_async(self._store, name, start=start, length=size)
                data: bytes = found.to_bytes()
        except FileNotFoundError as error:
            await self.require_marker()
            raise PackGone(f"{name} is not in {self.address}") from error
        except StorageAway:
            # A range behind the end is refused with an error like any other.
            if await self._size(name) >= start + size:
                raise
            data = b""
        if len(data) != size:
            raise PackGone(f"{name} in {self.address} is shorter than it was")
        return data

    async def list(self, folder: str) -> dict[str, int]:
        """The objects below a name, with their sizes."""
        found: dict[str, int] = {}
        async with self._report_errors(f"list {folder}"):
            async for batch in self._obstore.list(self._store, f"{folder}/"):
                found |= {item["path"]: item["size"] for item in batch}
        return found

    async def fetch(self, name: str, bytes_max: int) -> bytes:
        """A whole object. Raises FileNotFoundError, StorageAway, also if it is larger than that."""
        async with self._report_errors(f"read {name}"):
            found = await self._obstore.get_async(self._store, name)
            if found.meta["size"] > bytes_max:
                raise StorageAway(f"{name} in {self.address} is larger than it should be.")
            data: bytes = (await found.bytes_async()).to_bytes()
        return data

    async def walk(self) -> Sequence[StoredObject]:
        """All objects of the prefix."""
        found = []
        async with self._report_errors("list what is there"):
            async for batch in self._obstore.list(self._store):
                found += [
                    StoredObject(item["path"], item["size"], round(item["last_modified"].timestamp() * 1000))
                    for item in batch
                ]
        return found

    async def delete(self, names: Sequence[str]) -> None:
        async with self._report_errors("delete objects"):
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
            raise self.not_marked_error()

    def not_marked_error(self) -> StorageAway:
        return StorageAway(
            f"{self.address} does not hold the files that were stored there: {MARKER} is missing.",
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
                f"The object storage {self.address} could not {what}: {why}",
                hint="It is tried again with the next request. See whether the storage runs, and whether its "
                "keys (AWS_ACCESS_KEY_ID, or 'everturn secrets put') may read, write, list and delete.",
            ) from error


def _import_obstore() -> ModuleType:
    with report_missing("Object storage", "s3"):
        import obstore
        import obstore.exceptions
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
