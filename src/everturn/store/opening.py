"""Opening a store by its address: the nouns over the database that the address names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from everturn.domain.clock import Clock, SystemClock
from everturn.domain.errors import StoreRefused
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.store.disk import Disk
from everturn.store.hub import Hub
from everturn.store.nouns import Store, StoreSettings
from everturn.store.sqlite import SqliteDatabase
from everturn.store.workers import Workers


@asynccontextmanager
async def open_store(
    url: str | Path | None = None,
    *,
    data_dir: str | Path,
    clock: Clock | None = None,
    ids: Ids | None = None,
    probe: Probe | None = None,
    disk: Disk | None = None,
    settings: StoreSettings | None = None,
    vfs: str | None = None,
) -> AsyncIterator[Store]:
    """Open the store: SQLite in the data folder, a SQLite file by path, or ``postgresql://…``.

    Raises NotADatabase, StoreTooNew, StoreRefused, DiskReadOnly, StoreAway.
    """
    folder = Path(data_dir)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
    clock = clock or SystemClock()
    ids = ids or Ids(clock)
    probe = probe or Probe()
    disk = disk or Disk()
    settings = settings or StoreSettings()
    hub = Hub()
    address = str(url) if url else ""
    if _is_postgres(address):
        async with _postgres().open_postgres(
            address, folder, clock=clock, ids=ids, probe=probe, hub=hub, disk=disk, settings=settings
        ) as store:
            yield store
        return
    if "://" in address and not address.startswith("sqlite://"):
        raise StoreRefused(f"The address {address.split('://')[0]}://… names no database we know.")
    path = Path(address.removeprefix("sqlite://")) if address else folder / "everturn.db"
    db = SqliteDatabase(path, clock=clock, ids=ids, probe=probe, hub=hub, vfs=vfs)
    workers = Workers(db, path.parent)
    try:
        await db.open()
        yield Store(
            db,
            hub,
            data_dir=folder,
            disk=disk,
            settings=settings,
            workers=workers,
            copy_database=db.copy_to,
        )
    finally:
        await db.close()
        workers.close()


async def restore_database(url: str | Path | None, source: Path) -> None:
    """Fill an empty PostgreSQL from a backup's copy of one. A backup of SQLite needs nothing: the database is
    a file among its files. Raises StoreRefused where backup and address do not fit."""
    has_copy = (source / "postgresql").is_dir()
    if has_copy != _is_postgres(str(url or "")):
        kind = "PostgreSQL" if has_copy else "SQLite"
        raise StoreRefused(
            f"{source.name} is a backup of {kind}, which EVERTURN_DATABASE_URL does not name. Nothing was "
            "restored.",
            hint="Restore it into the same kind of database, or export and import its sessions.",
        )
    if has_copy:
        await _postgres().restore_postgres(str(url), source)


def _is_postgres(address: str) -> bool:
    return address.startswith(("postgresql://", "postgres://"))


def _postgres() -> ModuleType:
    """The driver, loaded only where it is used: its package is an extra."""
    try:
        from everturn.store import postgres
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"PostgreSQL needs the package {error.name}, which is not installed.",
            hint="Install it with: pip install 'everturn[postgresql]'.",
        ) from error
    return postgres
