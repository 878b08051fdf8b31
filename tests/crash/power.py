"""One life on a disk that remembers every operation, and the power cut at any of them.

Power that goes takes the process with it, so it is enough to live once: what the disk holds after the
first n operations, and what the world had heard by then, are both in the platter's log.
"""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from everturn.store import Store, open_store
from everturn.testing.faulty_disk import FaultyDisk, FaultyVfs, Platter
from tests.crash.checking import After
from tests.crash.notes import Note, Notes
from tests.crash.store_work import Life

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
