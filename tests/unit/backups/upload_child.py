"""A server that sends a backup to object storage and is killed after its first part: ADDRESS HOME URL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from everturn.backups import BackupSettings, bucket
from everturn.domain.clock import SystemClock
from everturn.store import ObjectStorage, open_store
from tests.unit.backups.kit import runner_of


async def main(address: str, home: str, url: str) -> None:
    bucket.BucketParts.part_bytes = 100_000
    put = ObjectStorage.put

    async def put_and_hold(self: ObjectStorage, name: str, data: bytes) -> None:
        await put(self, name, data)
        print("held", flush=True)
        await asyncio.Event().wait()

    ObjectStorage.put = put_and_hold  # type: ignore[method-assign]
    async with open_store(address, data_dir=home) as store:
        runner = await runner_of(
            store, Path(home), SystemClock(), BackupSettings(every_h=24, url=url), "wrk_killed"
        )
        await runner.look()


asyncio.run(main(*sys.argv[1:]))
