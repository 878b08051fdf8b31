"""Finds the backup that a user names: a folder, an archive in a folder, or one in object storage."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from everturn.backups.backup import in_thread
from everturn.backups.bucket import BucketParts, BucketShelf
from everturn.backups.encryption import Key
from everturn.backups.rotation import made_at
from everturn.backups.sealed import (
    KEY_FILE,
    LIST,
    FolderParts,
    Parts,
    SealedList,
    read_key_file,
    read_list,
    unseal,
)
from everturn.backups.watch import BackupWatch
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.store import ObjectStorage, StorageKeys

_SCHEME = "s3://"


class SealedSource:
    """A backup that is an archive. ``folder`` is None in object storage.

    ``open_parts`` is called on an event loop.
    """

    def __init__(self, label: str, open_parts: Callable[[], Parts], folder: Path | None = None) -> None:
        self.label = label
        self.folder = folder
        self.sealed = SealedList(is_encrypted=False, parts=())
        self.key_file = b""
        self._open_parts = open_parts

    async def read(self) -> None:
        """Read the list of its parts. Raises NotADatabase, FileNotFoundError, StorageAway."""
        parts = self._open_parts()
        self.sealed = await asyncio.to_thread(read_list, parts)
        if self.sealed.has_key_file:
            self.key_file = await asyncio.to_thread(read_key_file, parts)

    async def unpack(self, target: Path, key: Key | None, watch: BackupWatch) -> None:
        await in_thread(watch, unseal, self._open_parts(), self.sealed, key, target, watch)


async def find_source(text: str) -> Path | SealedSource:
    """Return a backup's folder, or the archive to unpack. Raises Invalid if there is neither."""
    found = await _find_in_storage(text) if text.startswith(_SCHEME) else _find_in_folder(Path(text))
    if isinstance(found, SealedSource):
        try:
            await found.read()
        except FileNotFoundError as error:
            raise Invalid(
                f"There is no backup {found.label}, or not all of it: {LIST} or {KEY_FILE} is missing.",
                hint="Name another one.",
            ) from error
    return found


def _find_in_folder(folder: Path) -> Path | SealedSource:
    if not folder.is_dir():
        raise Invalid(
            f"{folder} is not a folder.", hint="Name the folder of a backup, or s3://BUCKET/PREFIX/NAME."
        )
    if (folder / LIST).is_file():
        return SealedSource(str(folder), lambda: FolderParts(folder), folder.resolve())
    return folder


async def _find_in_storage(text: str) -> SealedSource:
    address, _, options = text.partition("?")
    options = options and f"?{options}"
    parent, _, name = address.rstrip("/").rpartition("/")
    if made_at(name) is None:
        place = f"{address.rstrip('/')}{options}"
        name = await _newest(place)
    else:
        place = f"{parent}{options}"
    storage = ObjectStorage(place, StorageKeys)
    return SealedSource(f"{name} in {place}", lambda: BucketParts(storage, name))


async def _newest(place: str) -> str:
    names = await BucketShelf(place, Path(os.devnull), StorageKeys, SystemClock()).names()
    if not names:
        raise Invalid(f"There is no backup in {place}.", hint="Name where [backup] url puts them.")
    return names[-1]
