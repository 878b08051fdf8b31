"""A disk that fails at a random operation of a life, and what is found on it afterwards."""

from __future__ import annotations

import errno
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from everturn.domain.errors import EverturnError
from everturn.lab.crash.checks import After
from everturn.lab.crash.notes import Notes
from everturn.lab.crash.store_life import Life
from everturn.lab.trial import Trial, consists_of, failure_of
from everturn.store import Store, open_store
from everturn.testing.faulty_disk import FaultyDisk, FaultyVfs, Platter

# Operation, error, how the disk may be found: after a failed sync only synced bytes count.
FAULTS = {
    "disk full": ("write", errno.ENOSPC, ("kept", "lost")),
    "write error": ("write", errno.EIO, ("kept", "lost")),
    "failed sync": ("sync", errno.EIO, ("lost",)),
}
_OPERATIONS_MAX = {"write": 700, "sync": 160}


async def disk_fault(folder: Path, choice: random.Random) -> AsyncIterator[Trial]:
    """One life on a disk of which one operation, or every one from then on, fails."""
    name = choice.choice(sorted(FAULTS))
    kind, code, ways = FAULTS[name]
    after = choice.randrange(_OPERATIONS_MAX[kind])
    times = choice.choice([1, 1 << 60])
    way = choice.choice(ways)
    platter = Platter(folder / "life")
    platter.root.mkdir()
    platter.fail(kind, code, after=after, times=times)
    started = time.monotonic()
    is_refused = await _live_until_refused(platter)
    platter.cut(folder / "found", how=way, seed=after)
    failure = await failure_of(_check(platter, folder / "found"))
    if is_refused or failure:
        lasting = "once" if times == 1 else "for good"
        yield Trial("disk", f"{name} {lasting}", time.monotonic() - started, failure)


async def _live_until_refused(platter: Platter) -> bool:
    """Live on this disk until an act is refused. False if the fault came too late to be met."""
    vfs = FaultyVfs(platter)
    disk = FaultyDisk(platter, vfs.name)

    def reopen() -> AbstractAsyncContextManager[Store]:
        return open_store(data_dir=platter.root, disk=disk)

    try:
        async with reopen() as store:
            await Life(store, Notes(platter.mark), reopen).live()
    except (EverturnError, BaseExceptionGroup, OSError) as error:
        if not consists_of(error, EverturnError, OSError):
            raise
        return True
    finally:
        platter.heal()
        vfs.unregister()
    return False


async def _check(platter: Platter, found: Path) -> None:
    notes = [json.loads(line) for line in platter.marks(len(platter.log))]
    async with open_store(data_dir=found) as store:
        await After(store, notes).check()
