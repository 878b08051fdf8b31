"""A server that makes a backup and is killed when it has copied the database: ADDRESS HOME FOLDER."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from everturn.backups import BackupSettings, backup
from everturn.backups.watch import BackupWatch
from everturn.domain.clock import SystemClock
from everturn.store import open_store
from tests.unit.backups.kit import runner_of


def hold(home: Path, folder: Path, watch: BackupWatch) -> list[str]:
    print("held", flush=True)
    sys.stdin.readline()
    return []


async def main(address: str, home: str, folder: str) -> None:
    backup.copy_memory = hold
    async with open_store(address, data_dir=home) as store:
        settings = BackupSettings(every_h=24, folder=folder)
        runner = await runner_of(store, Path(home), SystemClock(), settings, "wrk_killed")
        await runner.look()


asyncio.run(main(*sys.argv[1:]))
