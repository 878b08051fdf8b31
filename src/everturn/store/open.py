"""Opens a store by the address of its database; restores one from a backup."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from everturn.domain.clock import Clock, SystemClock
from everturn.domain.errors import StoreRefused
from everturn.domain.extras import report_missing
from everturn.domain.ids import Ids
from everturn.domain.machine import Machine
from everturn.domain.probe import Probe
from everturn.store.context import StoreContext
from everturn.store.files.backup_contents import is_sqlite
from everturn.store.files.disk import Disk, explain_error, make_folder, report_errors
from everturn.store.journal.hub import Hub
from everturn.store.settings import StoreSettings
from everturn.store.sqlite import SqliteDatabase
from everturn.store.store import Store
from everturn.store.turns.workers import Workers


@asynccontextmanager
async def open_store(
    url: str | Path | None = None,
    *,
    data_dir: str | Path,
    clock: Clock | None = None,
    probe: Probe | None = None,
    disk: Disk | None = None,
    settings: StoreSettings | None = None,
) -> AsyncIterator[Store]:
    """Open the store: SQLite in the data folder, a SQLite file by path, or ``postgresql://…``.

    Raises NotADatabase, StoreTooNew, StoreRefused, StoreBroken, DiskFull, DiskReadOnly, StoreAway.
    """
    folder = Path(data_dir)
    disk = disk or Disk()
    await asyncio.to_thread(_make_data_folder, disk, folder)
    clock = clock or SystemClock()
    context = StoreContext(
        clock=clock,
        ids=Ids(clock),
        probe=probe or Probe(),
        disk=disk,
        hub=Hub(),
        settings=settings or StoreSettings(),
    )
    address = str(url) if url else ""
    if is_postgres(address):
        async with _postgres().open_postgres(address, folder, context) as store:
            yield store
        return
    if "://" in address and not address.startswith("sqlite://"):
        raise StoreRefused(f"The address {address.split('://')[0]}://… names no database we know.")
    path = _file_of(address, folder)
    db = SqliteDatabase(path, context)
    workers = Workers(db, path.parent)
    try:
        await db.open()
        machine = Machine("", socket.gethostname())
        yield Store(db, context, data_dir=folder, machine=machine, workers=workers, copy_database=db.copy_to)
    finally:
        await db.close()
        workers.close()


def _make_data_folder(disk: Disk, folder: Path) -> None:
    try:
        make_folder(disk, folder)
    except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        raise StoreRefused(
            f"The data folder {folder} could not be made: {error.strerror}.",
            hint="Choose another folder with --home or EVERTURN_HOME.",
        ) from error
    except OSError as error:
        kind = type(explain_error(error, folder))
        raise kind(f"The data folder {folder} could not be made: {error.strerror}.") from error


def has_store(url: str | Path | None, data_dir: Path) -> bool:
    """Whether there is a store to open. A PostgreSQL address counts as one: only opening it would show."""
    address = str(url or "")
    return is_postgres(address) or _file_of(address, data_dir).is_file()


async def restore_database(url: str | Path | None, source: Path) -> None:
    """Fill an empty PostgreSQL from a backup's copy of one, or put SQLite's file where the address says. With
    no address it needs nothing: the database is a file among the backup's files.

    Raises StoreRefused for what is no backup, or where it and the address do not fit.
    """
    await asyncio.to_thread(check_backup, url, source)
    if is_postgres(str(url or "")):
        await _postgres().restore_postgres(str(url), source)
    elif url:
        await asyncio.to_thread(_restore_sqlite, source, _file_of(str(url), source))


@asynccontextmanager
async def trial_database(address: str) -> AsyncIterator[str]:
    """The address of an empty PostgreSQL database beside this one, which is dropped at the end.

    Raises Stopped if the role may not make one, StoreAway.
    """
    async with _postgres().trial_database(address) as trial:
        yield trial


def check_backup(url: str | Path | None, source: Path) -> None:
    """Raises StoreRefused for what is no backup, or one of another kind of database than the address."""
    has_copy = (source / "postgresql" / "manifest.json").is_file()
    if not has_copy and not _has_sqlite(source):
        raise StoreRefused(
            f"{source} is not a backup of Everturn: there is no database in it. Nothing was restored.",
            hint="Name the folder that 'everturn backup' made.",
        )
    if has_copy != is_postgres(str(url or "")):
        kind = "PostgreSQL" if has_copy else "SQLite"
        raise StoreRefused(
            f"{source.name} is a backup of {kind}, which EVERTURN_DATABASE_URL does not name. Nothing was "
            "restored.",
            hint="Restore it into the same kind of database, or export and import its sessions.",
        )


def is_postgres(address: str) -> bool:
    """Whether this address of a database names PostgreSQL; an empty one does not."""
    return address.startswith(("postgresql://", "postgres://"))


def _file_of(address: str, folder: Path) -> Path:
    return Path(address.removeprefix("sqlite://")) if address else folder / "everturn.db"


def _has_sqlite(folder: Path) -> bool:
    return any(map(is_sqlite, folder.iterdir()))


def _restore_sqlite(source: Path, target: Path) -> None:
    """Copy a backup's SQLite file to an address outside the data folder."""
    if target.exists():
        raise StoreRefused(
            f"{target} exists already. Nothing was restored.",
            hint="Move it away, or name another file in EVERTURN_DATABASE_URL.",
        )
    if not (source / target.name).is_file():
        raise StoreRefused(
            f"{source.name} holds no database named {target.name}. Nothing was restored.",
            hint="Name a file as it is called in the backup in EVERTURN_DATABASE_URL, or none at all.",
        )
    coming = target.with_name(f".{target.name}.incoming")
    with report_errors(target):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(source / target.name, coming)
        with coming.open("rb") as file:
            os.fsync(file.fileno())
        coming.rename(target)  # whole or not at all: a partial file would block the next attempt
        Disk().sync_folder(target.parent)


def _postgres() -> ModuleType:
    """The PostgreSQL driver, imported only when it is used: its package is an extra."""
    with report_missing("PostgreSQL", "postgresql"):
        from everturn.store import postgres
    return postgres
