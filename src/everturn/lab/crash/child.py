"""The process that is killed: ``python -m everturn.lab.crash.child PART URL FOLDER NOTES MOMENT NTH``."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from everturn.domain.probe import Moment, Probe
from everturn.lab.crash.notes import Notes, notes_in
from everturn.store import Store, open_store
from everturn.testing import KillingProbe

STUCK = 3  # the exit code
_LIFE_S_MAX = 240.0


async def run(part: str, url: str, folder: Path, note: Notes, probe: Probe) -> None:
    def reopen() -> AbstractAsyncContextManager[Store]:
        return open_store(url, data_dir=folder)

    asyncio.get_running_loop().call_later(_LIFE_S_MAX, _print_tasks)
    async with open_store(url, data_dir=folder, probe=probe) as store:
        if part == "store":
            from everturn.lab.crash.store_life import Life

            await Life(store, note, reopen).live()
        else:
            from everturn.lab.crash.engine_life import live

            await live(store, folder, note, probe)


def _print_tasks() -> None:
    """Say where a life that does not end is stuck; then the campaign reports it."""
    for task in asyncio.all_tasks():
        sys.stderr.write(f"{task.get_name()} is stuck here:\n")
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
    os._exit(STUCK)


def main(part: str, url: str, folder: str, notes: str, moment: str, nth: str) -> None:
    probe = KillingProbe(Moment(moment), int(nth)) if moment else Probe()
    asyncio.run(run(part, url, Path(folder), notes_in(Path(notes)), probe))


if __name__ == "__main__":
    main(*sys.argv[1:])
