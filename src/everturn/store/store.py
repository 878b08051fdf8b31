"""The nouns over one database: what a caller holds when a store is open."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from everturn.domain.machine import Machine
from everturn.domain.sessions import Session
from everturn.domain.store_values import Trouble, WriteCounts
from everturn.store.blobs.blobs import StoredBlobs
from everturn.store.blobs.files import Files
from everturn.store.blobs.places import Places
from everturn.store.budgets import Budgets
from everturn.store.checkpoints import Checkpoints
from everturn.store.context import StoreContext
from everturn.store.delegates import DelegateRows
from everturn.store.delivery.delivery import Delivery
from everturn.store.jobs import JobRows
from everturn.store.journal.hub import Hub
from everturn.store.journal.journal import Journal
from everturn.store.ledger import Ledger
from everturn.store.notes import Notes
from everturn.store.records import Records
from everturn.store.schedules import Schedules
from everturn.store.scripts.script import Database
from everturn.store.sessions.search import Search
from everturn.store.sessions.sessions import Sessions, rows_of
from everturn.store.sessions.transcript import Transcript
from everturn.store.turns.asks import Asks
from everturn.store.turns.turns import Turns
from everturn.store.turns.workers import Workers
from everturn.store.upkeep import Upkeep
from everturn.store.working_copies import WorkingCopies


class Store:
    """The nouns over one database."""

    def __init__(
        self,
        db: Database,
        context: StoreContext,
        *,
        data_dir: Path,
        machine: Machine,
        workers: Workers,
        copy_database: Callable[[Path], Awaitable[None]],
    ) -> None:
        hub, disk, settings = context.hub, context.disk, context.settings
        self._db = db
        self._hub = hub
        self.data_dir = data_dir
        self.machine = machine
        self.lease_s = settings.lease_s
        self.sessions = Sessions(db, machine)
        self.turns = Turns(db, machine, text_bytes_max=settings.text_bytes_max)
        self.transcript = Transcript(db, text_bytes_max=settings.text_bytes_max)
        self.journal = Journal(
            db,
            hub,
            recovery_attempts_max=settings.recovery_attempts_max,
            recovery_age_max_ms=settings.recovery_age_max_ms,
        )
        self.asks = Asks(db)
        self.blobs = StoredBlobs(db, Places(db, data_dir, disk, settings.files_url))
        self.files = Files(db, self.blobs)
        self.checkpoints = Checkpoints(db, self.blobs)
        self.blobs.add_roots(self.checkpoints.roots)
        self.delivery = Delivery(db, text_bytes_max=settings.text_bytes_max)
        self.jobs = JobRows(db, machine)
        self.budgets = Budgets(db)
        self.delegates = DelegateRows(db)
        self.schedules = Schedules(db, text_bytes_max=settings.text_bytes_max)
        self.working_copies = WorkingCopies(db)
        self.search = Search(db)
        self.workers = workers
        self.records = Records(db)
        self.ledger = Ledger(db)
        # With SQLite the notes are files of the data folder.
        self.notes = Notes(db) if db.dialect == "postgresql" else None
        self.upkeep = Upkeep(db, self.blobs, self.checkpoints, disk, self.search, copy_database)

    @property
    def kind(self) -> str:
        return self._db.dialect

    @property
    def has_leases(self) -> bool:
        return self._db.dialect == "postgresql"

    @property
    def has_certain_commits(self) -> bool:
        return self._db.dialect == "sqlite"

    @property
    def is_away(self) -> bool:
        """The database cannot be reached at the moment; appends go to the spool."""
        return self._db.is_away

    @property
    def trouble(self) -> Trouble | None:
        """Why the last write was not stored; None as soon as one is."""
        return self._hub.trouble

    async def health_changed(self, known: Trouble | None) -> Trouble | None:
        """Wait until the trouble differs from ``known``, then return it."""
        return await self._hub.health_changed(known)

    @property
    def database(self) -> Database:
        """For tests and benchmarks, which run scripts of their own."""
        return self._db

    @property
    def hub(self) -> Hub:
        return self._hub

    def counts(self) -> WriteCounts:
        writer = self._db.writer
        return WriteCounts(
            events=self._hub.events_total,
            writes=writer.items_done,
            commits=writer.batches,
            waiting=writer.waiting,
            commit_seconds=tuple(writer.commit_seconds),
            is_log_stuck=bool(writer.log_trouble),
        )

    async def wait_for_change(self, known: int) -> int:
        return await self._hub.wait_for_change(known)

    async def changes(self, owner: str) -> AsyncGenerator[list[tuple[str, Session | None]] | None, None]:
        """Sessions whose row in the list changed, in batches, without end; (id, None) for a deleted one, and
        for what is no session: schedules, and what needs the owner, may have changed. A batch that is None
        means that anything may have changed: read the list again.
        """
        watcher = self._hub.watch(owner)
        try:
            while True:
                ids = await watcher.next()
                if ids is None:
                    yield None
                else:
                    yield await self._db.read(rows_of, owner, tuple(ids))
        finally:
            self._hub.unwatch(watcher)
