"""A process that sends notifications, to be killed: ``python -m tests.contracts.notify_child URL FOLDER PRIVATE``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from everturn.domain.clock import SystemClock
from everturn.store import open_store
from everturn.testing.harness import open_harness
from tests.notifying import service_of


async def serve(url: str, folder: Path, private: str) -> None:
    clock = SystemClock()
    # The engine notices that the process before it has died.
    async with open_store(url, data_dir=folder) as store, open_harness(store, clock=clock) as here:
        await service_of(store, clock, folder, [private], here.engine.worker).run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
