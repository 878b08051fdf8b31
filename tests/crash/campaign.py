"""Long crash campaigns: ``python -m tests.crash.campaign --minutes 30 [--seed 7] [--only power|kill]``.

Runs lives and cuts the power, or kills the process, at random places until the time is over. A failure
prints what is needed to see it again, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from everturn.domain.probe import Moment
from everturn.store import open_store
from tests.crash import store_work
from tests.crash.checking import After
from tests.crash.notes import read_notes
from tests.crash.power import WAYS, check_cut, cuts, live_on
from tests.crash.test_kill import check_engine_life, live_and_die

CUTS_PER_LIFE = 200


async def power(folder: Path, choice: random.Random, until: float) -> tuple[int, int]:
    """One life, many cuts; return how many were tried and how many failed."""
    platter = await live_on(folder / "life")
    tried = failed = 0
    for _ in range(CUTS_PER_LIFE):
        if time.monotonic() > until:
            break
        way = choice.choice(WAYS)
        upto, seed = choice.choice(cuts(platter, way)), choice.randrange(1 << 30)
        found = folder / "found"
        try:
            await check_cut(platter, found, upto, way, seed)
        except Exception:
            failed += 1
            print(f"power: cut after {upto} of {len(platter.log)} operations, {way}, seed {seed}")
            traceback.print_exc()
        shutil.rmtree(found)
        tried += 1
    return tried, failed


async def kill(folder: Path, choice: random.Random, until: float) -> tuple[int, int]:
    """Die several times in one folder, each time at a random moment; check after each death."""
    notes = folder / "notes"
    tried = failed = 0
    while tried < 10 and time.monotonic() < until:
        part = choice.choice(["store", "engine"])
        moment = choice.choice(sorted(store_work.PASSES) if part == "store" else sorted(Moment))
        nth = choice.randrange(1, 40)
        live_and_die(part, "", folder / "data", notes, moment, nth)
        try:
            if part == "engine":
                await check_engine_life("", folder / "data", read_notes(notes))
            else:
                async with open_store(data_dir=folder / "data") as store:
                    await After(store, read_notes(notes)).check()
        except Exception:
            failed += 1
            print(f"kill: {part} at passing {nth} of {moment}, folder {folder}")
            traceback.print_exc()
        tried += 1
    return tried, failed


async def campaign(minutes: float, seed: int, only: str) -> int:
    choice = random.Random(seed)
    until = time.monotonic() + minutes * 60
    ways = {"power": power, "kill": kill}
    chosen = [ways[only]] if only else list(ways.values())
    tried = failed = 0
    while time.monotonic() < until:
        folder = Path(tempfile.mkdtemp(prefix="everturn-crash-"))
        counted = await choice.choice(chosen)(folder, choice, until)
        tried, failed = tried + counted[0], failed + counted[1]
        shutil.rmtree(folder)
    print(f"seed {seed}: {tried} crashes, {failed} failed")
    return 1 if failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--only", choices=["power", "kill"], default="")
    given = parser.parse_args()
    sys.exit(asyncio.run(campaign(given.minutes, given.seed, given.only)))


if __name__ == "__main__":
    main()
