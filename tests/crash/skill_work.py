"""The process that is killed: ``python -m tests.crash.skill_work URL FOLDER WHAT MOMENT``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.probe import Moment, Probe
from everturn.domain.runtime import Runtime
from everturn.skills import BuiltSkills, SkillScope, build_skills
from everturn.store import Store, open_store
from everturn.testing import KillingProbe
from tests.unit.skills.kit import OWNER, content_of

OLD = content_of("photos", {"a.sh": b"old"})
NEW = content_of("photos", {"a.sh": b"new"})
OTHER = content_of("receipts", {"b.txt": b"other"})


def built(store: Store, folder: Path, probe: Probe) -> BuiltSkills:
    clock = SystemClock()
    return build_skills(store, folder, Runtime(clock, Ids(clock), probe), owner=OWNER)


async def work(store: Store, folder: Path, what: str, probe: Probe) -> None:
    book = built(store, folder, probe).book
    if what == "import":
        await book.add(OWNER, [NEW, OTHER], SkillScope.USER, "import")
    else:
        await book.trust(OWNER, "user.photos", NEW.digest)


async def main(url: str, folder: str, what: str, moment: str) -> None:
    probe = KillingProbe(Moment(moment), 2 if what == "import" else 1)
    # The store's own moments count as well: between the bytes and the record that names them.
    async with open_store(url, data_dir=Path(folder), probe=probe) as store:
        await work(store, Path(folder), what, probe)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
