"""Workers on PostgreSQL: the OS lock within one data folder, the lease across machines, the spool.

A worker whose lock in this data folder can be taken is dead: its spool is delivered, then its turns are
released and its journals sealed. Of a worker on another machine only the lease is known. When that has
expired, its turns are released too, but its journals stay open, because its spool may still arrive.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from pathlib import Path

from everturn.domain.errors import StoreAway
from everturn.store.files.disk import Disk, write_atomically
from everturn.store.journal.spool import Spool
from everturn.store.postgres.database import PostgresDatabase
from everturn.store.scripts.queries.turns import WORKERS_EXPIRED, WORKERS_FORGOTTEN
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns.workers import WorkerLock, Workers, release

FORGOTTEN_MS = 7 * 24 * 3600 * 1000
STALLED = 0.8  # of a lease: a worker that could not renew its own for so long must not judge the others
PATIENCE = 0.5  # of a lease: how long the others then get to renew theirs


class PostgresWorkers(Workers):
    def __init__(self, db: PostgresDatabase, data_dir: Path, disk: Disk, *, lease_s: float) -> None:
        super().__init__(db, data_dir)
        self._postgres = db
        self._disk = disk
        self._lease_ms = round(lease_s * 1000)
        self._lease_s = lease_s
        self._renewed_at = 0.0  # monotonic, when the newest renewal began
        self._patient_until = 0.0
        self._spools = data_dir / "spool"
        # The path alone could be the same on two machines; the name of the machine alone, two folders.
        self._identity = _identity(data_dir / "workers", disk)

    async def register(self, worker: str) -> None:
        """Take the worker's lock and a fresh lease. Registering again after a lost lease means that the spool
        is empty, so the journals it wrote before are sealed."""
        self._lock(worker)
        spool = self._spool(worker)
        if self._postgres.is_away:
            raise StoreAway("The database is away: the worker cannot register.")
        if not spool.is_empty:
            await self._postgres.flusher.deliver(spool)
        self._renewed_at = self._db.clock.monotonic()
        await self._db.write(_register, worker, self._identity, self._lease_ms)
        self._postgres.flusher.use_spool(spool)

    async def heartbeat(self, worker: str) -> bool:
        """Renew the lease; False if it was lost and the worker's turns taken over. Raises StoreAway."""
        began = self._db.clock.monotonic()
        is_held = await self._db.write_urgent(_renew, worker, self._lease_ms)
        now = self._db.clock.monotonic()
        if now - self._renewed_at >= self._lease_s * STALLED:
            self._patient_until = now + self._lease_s * PATIENCE
        self._renewed_at = began
        return is_held

    async def take_over(self, worker: str) -> int:
        await self._db.read(_end_silent, self._postgres.idle_ms)
        await self._deliver_left_spools()
        released = await super().take_over(worker)
        for dead in await self._find_dead():
            if dead != worker and dead not in self._locks:
                released += await self._db.write(_expire, dead)
        for gone in await self._db.read(_forgotten):
            await self._db.write(release, gone, "crash", True)
        return released

    async def _find_dead(self) -> list[str]:
        """Workers whose lease has run out. None while this may be the database's fault.

        If commits wait for longer than a lease, as during a failover, the leases of all workers run out.
        The worker that looked first afterwards would take the turns of the others, which are alive, and their
        calls would be in doubt.
        """
        now = self._db.clock.monotonic()
        is_stalled = now - self._renewed_at >= self._lease_s * STALLED
        if is_stalled or now < self._patient_until:
            return []
        return await self._db.read(_find_expired)

    async def unregister(self, worker: str) -> None:
        """Release what the worker holds. If the database is away, the lock is still released; the next
        process to start here delivers the spool and takes the turns over."""
        try:
            self._refuse_away()
            await super().unregister(worker)
        except StoreAway:
            lock = self._locks.pop(worker, None)
            if lock is not None:
                lock.release(and_file=False)
            raise
        self._postgres.flusher.use_spool(None)

    def _refuse_away(self) -> None:
        if self._postgres.is_away:
            raise StoreAway("The database is away; what was spooled is safe and delivered by the next start.")

    def _spool(self, worker: str) -> Spool:
        return Spool(self._spools / f"{worker}.spool", self._disk)

    async def _deliver_left_spools(self) -> None:
        """Deliver files of dead workers of this folder, also of those the database has no row of."""
        for path in await asyncio.to_thread(lambda: sorted(self._spools.glob("*.spool"))):
            dead = path.stem
            lock = WorkerLock(self._folder / f"{dead}.lock")
            if dead in self._locks or not lock.try_take():
                continue
            try:
                await self._deliver_spool(dead)
            finally:
                lock.release(and_file=False)

    async def _deliver_spool(self, dead: str) -> None:
        spool = self._spool(dead)
        if not spool.is_empty:
            await self._postgres.flusher.deliver(spool)
        await asyncio.to_thread(spool.clear)


def _identity(folder: Path, disk: Disk) -> str:
    """A name for this data folder on this machine. A copied folder on another machine has another."""
    path = folder / "folder-id"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        write_atomically(disk, path, secrets.token_hex(16).encode())
    return f"{path.read_text().strip()}@{socket.gethostname()}"


def _register(tx: Tx, worker: str, folder: str, lease_ms: int) -> Script[None]:
    yield q("worker_register", worker, folder, lease_ms)
    yield q("writers_seal_former", worker)


def _renew(tx: Tx, worker: str, lease_ms: int) -> Script[bool]:
    return bool((yield q("worker_renew", worker, lease_ms)))


def _end_silent(tx: Tx, idle_ms: int) -> Script[int]:
    return len((yield q("writes_end_silent", idle_ms)))


def _find_expired(tx: Tx) -> Script[list[str]]:
    return (yield from WORKERS_EXPIRED.all())


def _forgotten(tx: Tx) -> Script[list[str]]:
    return (yield from WORKERS_FORGOTTEN.all(FORGOTTEN_MS))


def _expire(tx: Tx, dead: str) -> Script[int]:
    if not (yield q("worker_expire", dead)):
        return 0  # it has renewed its lease meanwhile, or another worker was faster
    return (yield from release(tx, dead, "crash", False))
