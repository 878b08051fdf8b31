"""Stores scheduled backups in a folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from everturn.backups.backup import BackupOptions, BackupSummary, in_thread, make_backup
from everturn.backups.encryption import Key
from everturn.backups.rotation import made_at
from everturn.backups.sealed import LIST, FolderParts, read_list, unseal
from everturn.backups.settings import BackupSettings
from everturn.backups.unfinished import UnfinishedBackup, clear_all
from everturn.backups.watch import BackupWatch, size_of
from everturn.domain.errors import Stopped
from everturn.store import Store

_log = logging.getLogger("everturn.backups")


class StoredBackup(msgspec.Struct, frozen=True):
    summary: BackupSummary
    bytes: int


class BackupShelf(Protocol):
    """Holds backups by name. Raises EverturnError and OSError."""

    place: str

    async def prepare(self, *, expects_backups: bool) -> None:
        """Check the folder or bucket, and remove leftovers of interrupted backups.

        ``expects_backups``: refuse it if it holds no backups.
        """
        ...

    async def put(self, store: Store, home: Path, name: str, options: BackupOptions) -> StoredBackup:
        """Make a backup. Once it has its name it is complete, checked and durable."""
        ...

    async def names(self) -> Sequence[str]:
        """Return the scheduled backups, oldest first."""
        ...

    async def remove(self, name: str) -> None:
        """Remove a backup. From the first step on, the rest counts as a leftover."""
        ...

    async def size(self, name: str) -> int: ...
    async def is_encrypted(self, name: str) -> bool: ...

    async def fetch(self, name: str, target: Path, key: Key | None, watch: BackupWatch) -> Path:
        """Return a backup's folder: as stored, or decrypted and unpacked into ``target``."""
        ...


def clear_leftovers(folder: Path) -> None:
    """Remove leftovers of interrupted backups in a folder."""
    cleared, left = clear_all(folder)
    for leftover in cleared:
        _log.info("cleared %s: an unfinished backup", leftover)
    for leftover, error in left:
        _log.warning("left %s as it is: %s", leftover, error.strerror or error)


class FolderShelf:
    def __init__(self, home: Path, settings: BackupSettings) -> None:
        self._named = settings.named_folder()
        self._folder = self._named or home / "backups"
        self.place = str(self._folder)

    async def prepare(self, *, expects_backups: bool) -> None:
        """Check the folder, but never create a configured one: it is usually a mount point.

        Without its disk, backups would fill the disk that they are meant to survive. An empty folder is
        refused for the same reason.
        """
        await asyncio.to_thread(self._prepare, expects_backups=expects_backups)

    def _prepare(self, *, expects_backups: bool) -> None:
        if self._named is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        elif not self._folder.is_dir():
            raise Stopped(
                f"The folder of backups {self._folder} is not there.",
                hint="Mount it or make it, or set another folder in [backup].",
            )
        elif expects_backups and not any(self._folder.iterdir()):
            raise Stopped(
                f"The folder of backups {self._folder} is empty, although backups were put there.",
                hint="See whether its disk is mounted. If it is meant to be empty, put any file there.",
            )
        clear_leftovers(self._folder)

    async def put(self, store: Store, home: Path, name: str, options: BackupOptions) -> StoredBackup:
        summary = await make_backup(store, home, self._folder / name, options)
        return StoredBackup(summary, await self.size(name))

    async def names(self) -> Sequence[str]:
        return await asyncio.to_thread(self._names)

    def _names(self) -> list[str]:
        """Return the names in the folder, or None if it is gone."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if made_at(path.name) is not None)

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._remove, name)

    def _remove(self, name: str) -> None:
        with UnfinishedBackup(self._folder / name) as leaving:
            (self._folder / name).rename(leaving.inside)

    async def size(self, name: str) -> int:
        return await asyncio.to_thread(size_of, self._folder / name)

    async def is_encrypted(self, name: str) -> bool:
        folder = self._folder / name
        return (folder / LIST).is_file() and read_list(FolderParts(folder)).is_encrypted

    async def fetch(self, name: str, target: Path, key: Key | None, watch: BackupWatch) -> Path:
        folder = self._folder / name
        if not (folder / LIST).is_file():
            return folder
        parts = FolderParts(folder)
        await in_thread(watch, unseal, parts, read_list(parts), key, target, watch)
        return target
