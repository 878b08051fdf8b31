"""The store for several workers and machines: PostgreSQL, with leases, group commit and a spool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.store.files.disk import Disk
from everturn.store.journal.hub import Hub
from everturn.store.postgres.copy import copy_in as restore_postgres
from everturn.store.postgres.database import PostgresDatabase
from everturn.store.postgres.workers import PostgresWorkers
from everturn.store.store import Store, StoreSettings

__all__ = ["PostgresDatabase", "open_postgres", "restore_postgres"]


@asynccontextmanager
async def open_postgres(
    address: str,
    folder: Path,
    *,
    clock: Clock,
    ids: Ids,
    probe: Probe,
    hub: Hub,
    disk: Disk,
    settings: StoreSettings,
) -> AsyncIterator[Store]:
    """Open the store on the database at this address. Raises StoreAway, StoreRefused, StoreTooNew."""
    db = PostgresDatabase(
        address,
        clock=clock,
        ids=ids,
        probe=probe,
        hub=hub,
        lease_s=settings.lease_s,
        direct_address=settings.direct_url,
    )
    await db.open()
    workers = PostgresWorkers(db, folder, disk, lease_s=settings.lease_s)
    try:
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
