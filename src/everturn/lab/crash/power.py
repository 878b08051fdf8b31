"""One life on a disk that remembers every operation, and the power cut at any of them.

Power that goes takes the process with it, so it is enough to live once: what the disk holds after the
first n operations, and what the world had heard by then, are both in the platter's log.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from everturn.lab.crash.checks import After
from everturn.lab.crash.notes import Note, Notes
from everturn.lab.crash.store_life import Life
from everturn.lab.trial import Trial, failure_of
from everturn.store import Store, open_store
from everturn.testing.faulty_disk import FaultyDisk, FaultyVfs, Platter

CUTS_PER_LIFE = 40
WAYS = ("lost", "torn", "mixed", "kept")


async def live_on(folder: Path) -> Platter:
    """Live through the store on a disk in this folder; return the disk's memory."""
    platter = Platter(folder)
    vfs = FaultyVfs(platter)
    disk = FaultyDisk(platter, vfs.name)

    def reopen() -> AbstractAsyncContextManager[Store]:
        return open_store(data_dir=folder, disk=disk)

    async with reopen() as store:
        await Life(store, Notes(platter.mark), reopen).live()
    vfs.unregister()
    return platter


def cuts(platter: Platter, way: str) -> list[int]:
    """The operations after which a cut can leave something new.

    If all that was not synced is lost, only a sync makes a difference, and a note, which raises what
    must be there. Otherwise every write does.
    """
    if way == "lost":
        wanted = {"sync", "sync_folder", "delete"}
        places = [n for n, operation in enumerate(platter.log, 1) if operation.kind in wanted]
        return sorted({0, *(_last_note(platter, place) for place in places), len(platter.log)})
    return [n for n, operation in enumerate(platter.log, 1) if operation.kind == "write"]


def _last_note(platter: Platter, place: int) -> int:
    """The cut just before the operation that follows the notes: the most was promised, the least done."""
    while place < len(platter.log) and platter.log[place].kind in ("mark", "write"):
        place += 1
    return place


async def check_cut(platter: Platter, folder: Path, upto: int, way: str, seed: int) -> None:
    """Cut the power there, open what is left, and check it."""
    platter.cut(folder, upto, how=way, seed=seed)
    notes: list[Note] = [json.loads(line) for line in platter.marks(upto)]
    async with open_store(data_dir=folder) as store:
        await After(store, notes).check()


async def power_cuts(folder: Path, choice: random.Random) -> AsyncIterator[Trial]:
    """One life, and the power cut at many random operations of it."""
    platter = await live_on(folder / "life")
    for _ in range(CUTS_PER_LIFE):
        way = choice.choice(WAYS)
        upto, seed = choice.choice(cuts(platter, way)), choice.randrange(1 << 30)
        found = folder / "found"
        started = time.monotonic()
        failure = await failure_of(check_cut(platter, found, upto, way, seed))
        shutil.rmtree(found)
        where = f"after {upto} of {len(platter.log)} operations, seed {seed}\n"
        yield Trial("power", f"unsynced {way}", time.monotonic() - started, failure and where + failure)
