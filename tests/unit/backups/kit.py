"""A runner of backups over a test's store."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from everturn.backups import BackupRunner, BackupServices, BackupSettings
from everturn.domain.clock import Clock
from everturn.store import Store

HOUR_S = 3_600
DAILY = BackupSettings(every_h=24)


async def runner_of(
    store: Store, home: Path, clock: Clock, settings: BackupSettings = DAILY, worker: str = "wrk_backups"
) -> BackupRunner:
    await store.workers.register(worker)
    return BackupRunner(BackupServices(store, clock, home, worker, ZoneInfo("UTC")), settings)
