"""Opens the secrets of a store, and brings those of a data folder into PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.domain.errors import SecretKeyWrong
from everturn.domain.secrets import Secrets
from everturn.store.files.disk import Disk, report_errors
from everturn.store.scripts.queries.records import SECRETS_ALL
from everturn.store.scripts.script import Script, Tx
from everturn.store.secrets.file import SecretsFile
from everturn.store.secrets.key_ring import VARIABLE, KeyRing
from everturn.store.secrets.table import SecretsTable
from everturn.store.store import Store

_log = logging.getLogger("everturn.secrets")


@asynccontextmanager
async def open_secrets(
    store: Store, folder: Path, ring: KeyRing | None, *, follows: bool = True
) -> AsyncIterator[Secrets]:
    """The secrets of this store. ``follows``: keep up with other processes, for one that runs for long.

    Without a key ring, those of PostgreSQL stay in the data folder; with one, the data folder's are imported.
    """
    if store.kind != "postgresql":
        yield SecretsFile(folder)
        return
    if ring is None:
        yield SecretsFile(folder, notice=await _notice_without_key(store))
        return
    table = SecretsTable(store.database, ring)
    await table.refresh()
    await _import_file(table, SecretsFile(folder))
    if not follows:
        yield table
        return
    async with table.follow():
        yield table


async def _notice_without_key(store: Store) -> str:
    count = await store.database.read(_count)
    if not count:
        return (
            "Keys that you save here stay on this machine. To share them with all servers of this database, "
            f"start each server with the same {VARIABLE}."
        )
    return (
        f"This server was started without {VARIABLE}: it cannot use the {count} saved secrets that its "
        "database holds, and keys that you save here stay on this machine."
    )


def _count(tx: Tx) -> Script[int]:
    return len((yield from SECRETS_ALL.all()))


async def _import_file(table: SecretsTable, file: SecretsFile) -> None:
    """Store the file's secrets and rename the file. After a crash in between, doing it again changes nothing.

    A secret that the store has already stays as it is: another server has imported or saved it.
    """
    found = await asyncio.to_thread(file.read)
    texts = {f"{kind}/{own}": text for kind, entries in found.items() for own, text in entries.items()}
    if not await asyncio.to_thread(file.path.exists):
        return
    try:
        differing = await table.add(texts)
    except SecretKeyWrong as error:
        _log.warning("%s was not imported. %s %s", file.path.name, error.message, error.hint)
        return
    target = await asyncio.to_thread(_set_aside, file.path)
    _log.info("%d secrets of %s are in the database now; the file is %s", len(texts), file.path, target.name)
    for name in differing:
        _log.warning("%s: the database had another %s already, which is used", target.name, name)


def _set_aside(path: Path) -> Path:
    target, number = path.with_name(f"{path.name}.imported"), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.imported-{number}")
    with report_errors(path):
        path.rename(target)
        Disk().sync_folder(path.parent)
    return target
