"""``python -m tests.reach [--messages 1000] [--kills 30] [--servers 2] [--database-url URL] [--postgres]``

Ends with an error if a message was lost, answered twice unmarked, or overtaken. Prints its seed first.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from everturn.testing.postgres_server import PostgresServer
from tests.reach.campaign import Campaign, Figures, Plan


def show(figures: Figures, seconds: float) -> None:
    kills = ", ".join(f"{count} {moment}" for moment, count in sorted(figures.kills.items()))
    print(f"{figures.turns} messages in {seconds:.0f} s; kills: {kills or 'none'}")
    print(f"faults: {sum(figures.faults.values())}")
    for name, count in sorted(figures.faults.items()):
        print(f"  {count:4} {name}")
    print(
        f"{figures.turns} turns, {figures.late} marked as late; {figures.once} answered once, "
        f"{figures.repeated} sent as a possible repeat, {figures.open} left to a person"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own")
    parser.add_argument("--live", action="store_true", help="with live messages")
    parser.add_argument("--per-second", type=float, default=5.0, help="how fast people write")
    parser.add_argument("--home", type=Path, help="a new data folder, which is kept")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers are stopped as well
    with ExitStack() as stack:
        if options.home is None:
            options.home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everturn-reach-")))
        options.home.mkdir(exist_ok=True)
        url = ""
        if options.postgres:
            url = stack.enter_context(PostgresServer()).address()
        plan = Plan(
            messages=options.messages,
            kills=options.kills,
            chats=max(3, options.messages // 50),
            per_s=options.per_second,
            servers=options.servers,
            seed=options.seed,
            database_url=url,
            live=options.live,
            longest_s=3600.0,
        )
        started = time.monotonic()

        def say(text: str) -> None:
            print(f"{time.monotonic() - started:5.0f} s  {text}", flush=True)

        show(asyncio.run(Campaign(options.home, plan, say).run()), time.monotonic() - started)


if __name__ == "__main__":
    main()
