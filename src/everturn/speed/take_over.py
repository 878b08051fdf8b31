"""How soon the turns of a machine that is gone continue on another: ``python -m everturn.speed.take_over``.

Two data folders stand for two machines: all that they share is PostgreSQL, so only the lease says that the
first is gone. The workers look as often as an engine does. The figure is the time from the last sign of life
until the other machine has released all of the turns, and until it has claimed them, beyond the lease.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from everturn.domain import events as ev
from everturn.engine import EngineSettings
from everturn.speed.figures import Report
from everturn.speed.postgres import make_tables
from everturn.speed.store import DELTA, claims
from everturn.store import StoreSettings, open_store
from everturn.testing.postgres_server import PostgresServer


async def measure(report: Report, address: str, turns: int) -> None:
    lease_s, look_s = StoreSettings().lease_s, EngineSettings().take_over_s
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        async with (
            open_store(address, data_dir=Path(first)) as gone,
            open_store(address, data_dir=Path(second)) as other,
        ):
            await gone.workers.register("wrk_bench")
            held = await claims(gone, turns)
            payloads = [ev.StepStarted(1, "m"), *[DELTA] * 20]
            await asyncio.gather(*(gone.journal.append(c.turn.id, c.epoch, 2, payloads) for c in held))
            await other.workers.register("wrk_next")
            await gone.workers.heartbeat("wrk_bench")
            started = time.monotonic()
            released = claimed = 0
            released_s = 0.0
            while claimed < turns:
                await asyncio.sleep(look_s)
                await other.workers.heartbeat("wrk_next")
                released += await other.workers.take_over("wrk_next")
                if released == turns and not released_s:
                    released_s = time.monotonic() - started
                claimed += len(await other.turns.claim("wrk_next", limit=turns))
            claimed_s = time.monotonic() - started
    report.say("the lease of a worker", lease_s, "s")
    name = f"{turns:,} turns of another machine"
    report.say("between two looks", look_s, "s")
    report.at_most(f"{name}: released, beyond the lease", released_s - lease_s, "s", 2)
    report.say(f"{name}: all claimed, beyond the lease", claimed_s - lease_s, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 turns instead of 1,000")
    turns = 10 if parser.parse_args().quick else 1_000
    report = Report("Take-over of another machine's turns")
    with PostgresServer() as server:
        server.make_template(make_tables)
        with server.database() as address:
            asyncio.run(measure(report, address, turns))
    report.close()


if __name__ == "__main__":
    main()
