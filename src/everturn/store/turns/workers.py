"""Workers: which are alive, and how the turns of dead ones are released.

Each process holds an OS lock on its own file in the data folder. If another process can take that lock, its
owner is dead; no clock is needed. Across machines (PostgreSQL) the lease decides.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from everturn.domain.errors import StoreRefused
from everturn.domain.probe import Moment
from everturn.store.scripts.queries.turns import (
    SESSIONS_LOCK_OF_WORKER,
    TURNS_OF_WORKER,
    WORKERS_ALL,
    WORKERS_UNKNOWN,
    WorkerColumns,
)
from everturn.store.scripts.script import Database, Script, Tx, q


class WorkerLock:
    """An OS lock on one worker's file; it goes when the process goes, however that happens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_take(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self, *, and_file: bool) -> None:
        if and_file:
            self.path.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Workers:
    """``data_dir`` holds the locks. Of a SQLite file that is the folder it lies in: the file may be moved,
    or restored from a backup, and then no lock beside it is held, whatever its rows say."""

    def __init__(self, db: Database, data_dir: Path) -> None:
        self._db = db
        self._folder = data_dir / "workers"
        self._identity = str(data_dir.resolve())
        self._locks: dict[str, WorkerLock] = {}

    async def register(self, worker: str) -> None:
        self._lock(worker)
        await self._db.write(_register, worker, self._identity, None)

    def _lock(self, worker: str) -> None:
        """Hold the worker's lock from now on. Raises StoreRefused."""
        if worker not in self._locks:
            lock = WorkerLock(self._folder / f"{worker}.lock")
            if not lock.try_take():
                raise StoreRefused(f"Worker {worker} is registered by another process.")
            self._locks[worker] = lock

    async def heartbeat(self, worker: str) -> bool:
        return True

    async def take_over(self, worker: str) -> int:
        released = 0
        for other in await self._db.read(_all):
            is_ours = other.id == worker or other.id in self._locks
            is_here = other.folder == self._identity or self._db.dialect == "sqlite"
            if is_here and not is_ours:
                released += await self._take_over_dead(other.id)
        return released

    async def unregister(self, worker: str) -> None:
        await self._db.write(release, worker, "handed_over", True)
        lock = self._locks.pop(worker, None)
        if lock is not None:
            lock.release(and_file=True)

    def close(self) -> None:
        """Release the locks without unregistering: other processes then find these workers dead."""
        for lock in self._locks.values():
            lock.release(and_file=False)
        self._locks.clear()

    async def _take_over_dead(self, dead: str) -> int:
        lock = WorkerLock(self._folder / f"{dead}.lock")
        if not lock.try_take():  # guard: c01
            return 0
        try:
            await self._deliver_spool(dead)
            return await self._db.write(release, dead, "crash", True)
        finally:
            lock.release(and_file=True)

    async def _deliver_spool(self, dead: str) -> None:
        """SQLite has no spool: what is not in the database was never acknowledged."""


def _register(tx: Tx, worker: str, folder: str, lease_until: int | None) -> Script[None]:
    yield q("worker_insert", worker, folder, tx.now, lease_until)


def _all(tx: Tx) -> Script[list[WorkerColumns]]:
    rows = yield from WORKERS_ALL.all()
    if tx.dialect == "sqlite":
        # A worker that holds turns but has no row, because that was deleted while the worker lived: only its
        # lock shows whether it is alive.
        rows += yield from WORKERS_UNKNOWN.all()
    return rows


def release(tx: Tx, worker: str, reason: str, is_sealed: bool) -> Script[int]:
    """Make a worker's turns claimable; with ``is_sealed`` also seal its journals and delete its row."""
    locked: tuple[list[int], ...] = ()
    if tx.dialect == "postgresql":
        yield q("worker_lock", worker)
        locked = ((yield from SESSIONS_LOCK_OF_WORKER.all(worker)),)
    held = {turn.id: turn for turn in (yield from TURNS_OF_WORKER.all(worker))}
    rows = yield q("turns_release", worker, reason, tx.now, *locked)
    for (turn_id,) in rows:
        tx.touch(held[turn_id].owner, held[turn_id].session_id)
        tx.moments.append((Moment.TAKEN_OVER, turn_id))
    if is_sealed:
        yield q("writers_seal_worker", worker)
        yield q("worker_delete", worker)
    return len(rows)
