"""The drill by command: ``scripts/fleet --sessions 200``. Prints its report as Markdown."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from tests.fleet.database import wheel_database
from tests.fleet.drill import Drill, DrillPlan
from tests.fleet.report import report

_FAULTS = ("kill", "freeze", "drain")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fleet", description=__doc__)
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument(
        "--rest", type=float, default=4.0, help="seconds between an answer and the next message"
    )
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two words of the model")
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds before and after each fault")
    parser.add_argument("--lease", type=float, default=15.0, help="store.lease_s")
    parser.add_argument("--balancer", choices=("haproxy", "small"), default="haproxy")
    parser.add_argument("--fault", action="append", choices=_FAULTS, help="default: all, in this order")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


async def run(given: argparse.Namespace, folder: Path) -> None:
    plan = DrillPlan(
        faults=given.fault or _FAULTS,
        sessions=given.sessions,
        rest_s=given.rest,
        pause_s=given.pause,
        quiet_s=given.quiet,
        lease_s=given.lease,
        balancer=given.balancer,
        seed=given.seed,
    )
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(wheel_database())
        drill = Drill(plan, folder, database, lambda line: print(line, file=sys.stderr, flush=True))
        await drill.run()
    print(report(drill))


def main() -> None:
    logging.disable(logging.INFO)
    folder = Path(tempfile.mkdtemp(prefix="everturn-fleet-"))
    print(f"Logs and data folders: {folder}", file=sys.stderr)
    anyio.run(run, arguments(), folder)
    shutil.rmtree(folder)  # that of a failure is kept, to be looked at


if __name__ == "__main__":
    main()
