"""The store for several workers and machines: PostgreSQL, with leases, group commit and a spool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.store.blobs.old_files import upload_old_files
from everturn.store.context import StoreContext
from everturn.store.files.machine import read_machine
from everturn.store.postgres.copy import copy_in as restore_postgres
from everturn.store.postgres.database import PostgresDatabase
from everturn.store.postgres.trial_database import trial_database
from everturn.store.postgres.workers import PostgresWorkers
from everturn.store.store import Store

__all__ = ["PostgresDatabase", "open_postgres", "restore_postgres", "trial_database"]


@asynccontextmanager
async def open_postgres(address: str, folder: Path, context: StoreContext) -> AsyncIterator[Store]:
    """Open the store on the database at this address. Raises StoreAway, StoreRefused, StoreTooNew."""
    machine = await asyncio.to_thread(read_machine, folder, context.disk)
    db = PostgresDatabase(address, context, machine)
    await db.open()
    workers = PostgresWorkers(db, folder, context.disk, lease_s=context.settings.lease_s)
    try:
        store = Store(
            db, context, data_dir=folder, machine=machine, workers=workers, copy_database=db.copy_to
        )
        await upload_old_files(db, store.blobs, folder)
        yield store
    finally:
        await db.close()
        workers.close()
