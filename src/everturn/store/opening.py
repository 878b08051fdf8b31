"""Opening a store by its address: the nouns over the database that the address names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from everturn.domain.clock import Clock, SystemClock
from everturn.domain.errors import Gone, NotFound, StoreRefused
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.domain.sessions import Session
from everturn.store.asks import Asks
from everturn.store.common import session_row
from everturn.store.disk import Disk
from everturn.store.files import Files
from everturn.store.hub import Hub
from everturn.store.journal import Journal
from everturn.store.records import Records
from everturn.store.script import Database, Script, Tx
from everturn.store.search import Search
from everturn.store.sessions import Sessions
from everturn.store.sqlite import SqliteDatabase
from everturn.store.transcript import Transcript
from everturn.store.turns import Turns
from everturn.store.upkeep import Upkeep
from everturn.store.workers import Workers


class StoreSettings(msgspec.Struct, frozen=True):
    """The store's bounds, each with its unit."""

    text_bytes_max: int = 1_000_000
    recovery_attempts_max: int = 3
    recovery_age_max_ms: int = 24 * 3600 * 1000
    lease_s: float = 15.0


class Store:
    """The nouns over one database."""

    def __init__(
        self,
        db: Database,
        hub: Hub,
        *,
        data_dir: Path,
        disk: Disk,
        settings: StoreSettings,
        workers: Workers,
        copy_database: Callable[[Path], Awaitable[None]],
    ) -> None:
        self._db = db
        self._hub = hub
        self.data_dir = data_dir
        self.sessions = Sessions(db)
        self.turns = Turns(db, text_bytes_max=settings.text_bytes_max)
        self.transcript = Transcript(db)
        self.journal = Journal(
            db,
            hub,
            recovery_attempts_max=settings.recovery_attempts_max,
            recovery_age_max_ms=settings.recovery_age_max_ms,
        )
        self.asks = Asks(db)
        self.files = Files(db, data_dir / "files", disk)
        self.search = Search(db)
        self.workers = workers
        self.records = Records(db)
        self.upkeep = Upkeep(db, self.files, data_dir / "files", self.search, copy_database)

    @property
    def kind(self) -> str:
        return self._db.dialect

    @property
    def database(self) -> Database:
        """For other nouns built on the same database, such as the memory ledger."""
        return self._db

    @property
    def hub(self) -> Hub:
        return self._hub

    async def changes(self, owner: str) -> AsyncIterator[list[tuple[str, Session | None]] | None]:
        """Batches of sessions whose list row changed, None for a deleted one, without end.

        A batch that is itself None means that anything may have changed: read the list again.
        """
        watcher = self._hub.watch(owner)
        try:
            while True:
                ids = await watcher.next()
                if ids is None:
                    yield None
                else:
                    yield await self._db.read(_rows, owner, tuple(ids))
        finally:
            self._hub.unwatch(watcher)


def _rows(tx: Tx, owner: str, ids: tuple[str, ...]) -> Script[list[tuple[str, Session | None]]]:
    found: list[tuple[str, Session | None]] = []
    for session_id in ids:
        try:
            row = yield from session_row(tx, owner, session_id)
            found.append((session_id, row.session))
        except (Gone, NotFound):
            found.append((session_id, None))
    return found


@asynccontextmanager
async def open_store(
    url: str | Path | None = None,
    *,
    data_dir: str | Path,
    clock: Clock | None = None,
    ids: Ids | None = None,
    probe: Probe | None = None,
    disk: Disk | None = None,
    settings: StoreSettings | None = None,
    vfs: str | None = None,
) -> AsyncIterator[Store]:
    """Open the store: SQLite in the data folder, a SQLite file by path, or ``postgresql://…``.

    Raises NotADatabase, StoreTooNew, StoreRefused, DiskReadOnly, StoreAway.
    """
    folder = Path(data_dir)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
    clock = clock or SystemClock()
    ids = ids or Ids(clock)
    probe = probe or Probe()
    disk = disk or Disk()
    settings = settings or StoreSettings()
    hub = Hub()
    address = str(url) if url else ""
    if address.startswith(("postgresql://", "postgres://")):
        from everturn.store.postgres import open_postgres

        async with open_postgres(
            address, folder, clock=clock, ids=ids, probe=probe, hub=hub, disk=disk, settings=settings
        ) as store:
            yield store
        return
    if "://" in address and not address.startswith("sqlite://"):
        raise StoreRefused(f"The address {address.split('://')[0]}://… names no database we know.")
    path = Path(address.removeprefix("sqlite://")) if address else folder / "everturn.db"
    db = SqliteDatabase(path, clock=clock, ids=ids, probe=probe, hub=hub, vfs=vfs)
    await db.open()
    try:
        yield Store(
            db,
            hub,
            data_dir=folder,
            disk=disk,
            settings=settings,
            workers=Workers(db, folder),
            copy_database=db.copy_to,
        )
    finally:
        await db.close()
