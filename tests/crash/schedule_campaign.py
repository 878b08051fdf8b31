"""Two servers settle 1,000 due times of one database and are killed again and again.

``python -m tests.crash.schedule_campaign [COUNT] [DATABASE_URL]`` ends with an error if a time has no fate, two
fates, or two turns. Without an address it uses SQLite in a new folder.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

from everturn.domain.clock import SystemClock
from everturn.domain.probe import Moment
from everturn.store import open_store
from tests.crash.schedule_work import STORE, check, make_schedules
from tests.crash.test_kill import KILLED

MOMENTS = (
    Moment.OCCURRENCE_WRITTEN,
    Moment.OCCURRENCE_COMMITTED,
    Moment.ACCEPT_WRITTEN,
    Moment.CLAIM_COMMITTED,
    Moment.BATCH_WRITTEN,
)
SERVERS = 2


async def serve_and_die(url: str, folder: Path, chance: random.Random, *, nth_max: int) -> int:
    """Start a server until one of them finds nothing to do; how many were killed."""
    kills = 0
    while True:
        moment, nth = chance.choice(MOMENTS), chance.randint(2, nth_max)
        command = [sys.executable, "-m", "tests.crash.schedule_work", url, str(folder), moment, str(nth)]
        server = await asyncio.create_subprocess_exec(*command)
        ended = await server.wait()
        if ended == 0:
            return kills
        assert ended == KILLED, f"a server ended with {ended}"
        kills += 1


async def run(count: int, url: str, folder: Path, seed: int) -> int:
    """Have two servers settle so many times at once, and check all of them; how often one was killed."""
    async with open_store(url, data_dir=folder, settings=STORE) as store:
        await make_schedules(store, count, 1, SystemClock().now_ms())
    nth_max = max(5, count // 12)  # small enough that a server that has half of the work reaches it
    async with asyncio.TaskGroup() as group:
        servers = [
            group.create_task(serve_and_die(url, folder, random.Random(seed + number), nth_max=nth_max))
            for number in range(SERVERS)
        ]
    async with open_store(url, data_dir=folder, settings=STORE) as store:
        await check(store, count, 1)
    return sum(server.result() for server in servers)


async def main(count: int = 1000, url: str = "") -> None:
    seed = random.randrange(10**6)
    with tempfile.TemporaryDirectory(prefix="everturn-schedules-") as name:
        folder = Path(name)
        kills = await run(count, url or f"sqlite://{folder / 'everturn.db'}", folder, seed)
    print(f"{count} times, {kills} kills, seed {seed}: each has one fate and one turn")


if __name__ == "__main__":
    asyncio.run(main(*(int(value) if value.isdigit() else value for value in sys.argv[1:])))  # type: ignore[arg-type]
