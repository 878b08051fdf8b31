"""The drill by command: ``scripts/fleet --sessions 200``. Prints its report as Markdown."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from tests.fleet.cluster import cluster
from tests.fleet.database import Database, wheel_database
from tests.fleet.drill import Drill, DrillPlan
from tests.fleet.former import before_newest_schema, describe, former_source
from tests.fleet.programs import INSTALL, missing
from tests.fleet.report import report
from tests.s3_server import KEYS, S3Server

_OF_WORKERS = ("kill", "freeze", "drain")
_OF_DATABASE = ("primary", "replica")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fleet", description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument(
        "--rest", type=float, default=20.0, help="seconds between an answer and the next message"
    )
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two words of the model")
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds before and after each fault")
    parser.add_argument("--lease", type=float, default=15.0, help="store.lease_s")
    parser.add_argument(
        "--small",
        action="store_true",
        help="our own balancer and one PostgreSQL from the wheel: needs no package, and has no database faults",
    )
    parser.add_argument(
        "--former",
        help="the commit that the workers are upgraded from; default: the one before the newest schema",
    )
    parser.add_argument(
        "--fault",
        action="append",
        choices=(*_OF_WORKERS, *_OF_DATABASE, "upgrade"),
        help="default: all, in this order",
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


async def run(given: argparse.Namespace, folder: Path) -> None:
    faults = given.fault or [*_OF_WORKERS, *(() if given.small else _OF_DATABASE), "upgrade"]
    async with AsyncExitStack() as stack:
        database: Database = await stack.enter_async_context(wheel_database() if given.small else cluster())
        storage = stack.enter_context(S3Server())
        former, described = None, ""
        if "upgrade" in faults:
            ref = given.former or before_newest_schema()
            former, described = stack.enter_context(former_source(ref)), describe(ref)
        plan = DrillPlan(
            faults=faults,
            sessions=given.sessions,
            rest_s=given.rest,
            pause_s=given.pause,
            quiet_s=given.quiet,
            lease_s=given.lease,
            balancer="small" if given.small else "haproxy",
            files_url=storage.make_bucket(),
            seed=given.seed,
            former=described,
        )
        drill = Drill(plan, folder, database, lambda line: print(line, file=sys.stderr, flush=True), former)
        await drill.run()
    print(report(drill))


def main() -> None:
    given = arguments()
    if not given.small and (lacks := missing()):
        sys.exit(
            f"The full drill needs {', '.join(lacks)}. On Debian: {INSTALL}\n"
            "Stop the services that these packages start; the drill starts its own. Or use --small."
        )
    logging.disable(logging.INFO)
    os.environ |= KEYS  # of the object storage, for the workers
    folder = Path(tempfile.mkdtemp(prefix="everturn-fleet-"))
    print(f"Logs and data folders: {folder}", file=sys.stderr)
    anyio.run(run, given, folder)
    shutil.rmtree(folder)  # that of a failure is kept, to be looked at


if __name__ == "__main__":
    main()
