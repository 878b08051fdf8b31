"""The process that is killed: ``python -m tests.crash.knowledge_work HOME FOLDER WHAT``.

It says a word when it is where it is to be killed, and stays there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.skills import PromptBook
from everturn.store import open_store
from everturn.tools.knowledge.book import Knowledge
from everturn.tools.knowledge.index import KnowledgeIndex
from tests.unit.tools.kit import OWNER, SESSION, open_kit


def stay(*_: Any) -> None:
    print("here", flush=True)
    time.sleep(600)


async def take_in_a_prompt(home: Path) -> None:
    """The prompt is stored; that its file was taken in is not."""
    async with open_store(f"sqlite://{home / 'everturn.db'}", data_dir=home) as store:
        put = store.records.put

        async def put_and_stay(*args: Any) -> None:
            await put(*args)
            stay()

        store.records.put = put_and_stay  # type: ignore[assignment, method-assign]
        await PromptBook(store.records, SystemClock(), home, owner=OWNER, machine="machine").list(OWNER)


async def main(home: str, folder: str, what: str) -> None:
    if what == "prompt":
        await take_in_a_prompt(Path(home))
    async with open_kit(Path(home), has_sandbox=False) as kit:
        library = kit.toolbox.knowledge
        assert library is not None
        place = folder if what == "folder" else None
        given = Knowledge("", OWNER, "Papers", 1, place, sessions=(SESSION,))
        papers = await library.book.add(Ids(SystemClock()), given)
        if what == "folder":  # one file is indexed, the next one is about to be
            put = KnowledgeIndex.put
            count = 0

            def counted(self: KnowledgeIndex, *args: Any) -> None:
                nonlocal count
                count += 1
                stay() if count == 2 else put(self, *args)

            KnowledgeIndex.put = counted  # type: ignore[assignment, method-assign]
            await library.look(papers)
        else:  # the bytes of an upload are stored, its name is not
            library.book._records.put = stay  # type: ignore[assignment, method-assign]
            await library.book.put_file(papers, "notes.md", Path(folder, "notes.md"), 1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
