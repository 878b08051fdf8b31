"""Trial restores: restores a backup into a temporary folder, and checks it as after a real restore."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from everturn.backups.backup import in_thread
from everturn.backups.encryption import Key
from everturn.backups.restore import database_name, put_back
from everturn.backups.shelf import BackupShelf
from everturn.backups.unfinished import UnfinishedBackup
from everturn.backups.watch import BackupWatch
from everturn.domain.backups import BackupEntry, BackupPhase
from everturn.domain.errors import DiskFull, StoreBroken
from everturn.store import (
    StorageKeys,
    Store,
    count_rows,
    is_postgres,
    open_store,
    restore_database,
    trial_database,
)

_SPARE_BYTES: Final = 200 << 20  # left for the server itself
_SHOWN_MAX: Final = 3


class DrillSettings(msgspec.Struct, frozen=True):
    """``address`` is the database's, or empty if it lies in the data folder.

    On PostgreSQL a second database is created beside it.
    """

    home: Path
    address: str
    find_keys: Callable[[], StorageKeys]


async def try_restore(
    shelf: BackupShelf, entry: BackupEntry, key: Key | None, settings: DrillSettings, watch: BackupWatch
) -> Mapping[str, int]:
    """Restore a backup and check it; return its counts.

    Raises StoreBroken, NotADatabase or Invalid if the backup is bad, and another error if the trial could not
    be made. The trial leaves nothing behind; the next one removes leftovers of a killed one.
    """
    size = await shelf.size(entry.name)
    watch.begin(BackupPhase.RESTORING, size)
    rooms = settings.home / "backups"
    await asyncio.to_thread(rooms.mkdir, mode=0o700, exist_ok=True)
    with UnfinishedBackup(rooms / "trial-restore") as room:
        _require_room(rooms, 2 * size + _SPARE_BYTES)
        source = await shelf.fetch(entry.name, room.inside, key, watch)
        home = room.inside.with_name("home")
        counts = await in_thread(watch, count_rows, source)
        if entry.counts and counts != entry.counts:
            raise StoreBroken(f"The backup holds {_words(counts)} instead of {_words(entry.counts)}.")
        async with _database(settings.address, source, home) as address:
            await in_thread(watch, put_back, source, home, address, watch)
            await _check(home, address, counts, settings)
    return counts


@asynccontextmanager
async def _database(address: str, source: Path, home: Path) -> AsyncIterator[str | None]:
    if is_postgres(address):
        async with trial_database(address) as trial:
            await restore_database(trial, source)
            yield trial
    elif address:
        file = str(home / database_name(address))
        await restore_database(file, source)
        yield file
    else:
        yield None


async def _check(home: Path, address: str | None, counts: Mapping[str, int], settings: DrillSettings) -> None:
    async with open_store(address, data_dir=home) as store:
        store.blobs.use_keys(settings.find_keys)
        await _compare(store, counts)
        found = [finding for finding in await store.upkeep.check() if not finding.is_repairable]
    if found:
        shown = "; ".join(f"{finding.what}: {finding.detail}" for finding in found[:_SHOWN_MAX])
        more = f", and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise StoreBroken(
            f"The trial restore has {len(found)} finding(s): {shown}{more}.",
            hint="Run 'everturn doctor' to see whether the data folder has them too.",
        )


async def _compare(store: Store, counts: Mapping[str, int]) -> None:
    stats = await store.upkeep.stats()
    found = {name: int(stats[name]) for name in counts}
    if found != counts:
        raise StoreBroken(f"The trial restore has {_words(found)} instead of {_words(counts)}.")


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _require_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFull(
            f"There is no room for a trial restore: it needs {needed / 1e6:,.0f} MB, and "
            f"{free / 1e6:,.0f} MB are free in {folder}.",
            hint="Free space, or set drill_days = 0 in [backup].",
        )
