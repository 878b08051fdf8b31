"""Brings the notes of a data folder into PostgreSQL, once."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import unquote

import anyio.to_thread

from everturn.domain.ids import Ids
from everturn.memory.notebook import FileNotebooks, StoredNotebooks
from everturn.store.files.disk import Disk, report_errors

_log = logging.getLogger("everturn.memory")


async def import_folder(notebooks: StoredNotebooks, folder: Path, ids: Ids) -> None:
    """Store all owners' pages, then rename the folder. If it was cut off, doing it again changes nothing.

    Notes that the store has already, from another server's folder, are not added twice.
    """
    owners = await anyio.to_thread.run_sync(_owners, folder)
    if owners is None:
        return
    files = FileNotebooks(folder, ids)
    count = 0
    for owner in owners:
        records = await files.records(owner)  # first: it finishes a write that was cut off
        contents = await files.contents(owner)
        await notebooks.adopt(owner, contents, records)
        count += len(contents)
        for problem in await files.problems(owner):
            _log.warning("notes of %s were not imported: %s", owner, problem)
    target = await anyio.to_thread.run_sync(_set_aside, folder)
    if target is not None:
        _log.info("%d pages of notes are in the database now; their folder is %s", count, target)


def _owners(folder: Path) -> list[str] | None:
    """The owners who have a folder here; None if there are no notes here."""
    if not folder.is_dir():
        return None
    names = [path.name for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    return ["" if name == "%" else unquote(name) for name in names]


def _set_aside(folder: Path) -> Path | None:
    target, number = folder.with_name(f"{folder.name}.imported"), 1
    while target.exists():
        number += 1
        target = folder.with_name(f"{folder.name}.imported-{number}")
    with report_errors(folder):
        try:
            folder.rename(target)
        except FileNotFoundError:
            return None  # another process of this folder was faster
        Disk().sync_folder(folder.parent)
    return target
