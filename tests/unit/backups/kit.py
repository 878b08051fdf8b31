"""A runner of backups over a test's store."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from everturn.backups import BackupRunner, BackupServices, BackupSettings
from everturn.domain.clock import Clock
from everturn.store import Store

HOUR_S = 3_600
DAILY = BackupSettings(every_h=24)


async def runner_of(
    store: Store,
    home: Path,
    clock: Clock,
    settings: BackupSettings = DAILY,
    worker: str = "wrk_backups",
    database: str = "",
) -> BackupRunner:
    """``database``: its address, without which a backup of PostgreSQL is not restored on trial."""
    await store.workers.register(worker)
    if store.kind == "postgresql" and not database:
        settings = msgspec.structs.replace(settings, drill_days=0)
    services = BackupServices(store, clock, home, worker, ZoneInfo("UTC"), database)
    return BackupRunner(services, settings)
