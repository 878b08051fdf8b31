"""Makes backups when they are due. Every server has a runner, and a lease lets one work at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from zoneinfo import ZoneInfo

import anyio
import msgspec

from everturn.backups.backup import BackupOptions, reason_of
from everturn.backups.book import BackupBook
from everturn.backups.bucket import BucketShelf
from everturn.backups.drill import DrillSettings, try_restore
from everturn.backups.encryption import Key, Lock, make_lock
from everturn.backups.rotation import (
    RETRY_MS,
    choose_superfluous,
    drill_due_at,
    due_at,
    made_at,
    name_of,
)
from everturn.backups.settings import BackupSettings
from everturn.backups.shelf import BackupShelf, FolderShelf
from everturn.backups.watch import BackupWatch
from everturn.delivery.bell import Bell
from everturn.domain.backups import (
    BackupDrill,
    BackupEntry,
    BackupPhase,
    BackupProgress,
    BackupState,
    BackupStatus,
)
from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Invalid, LeaseLost, NotADatabase, Retry, StoreBroken
from everturn.store import StorageKeys, Store

LEASE: Final = "~backups"  # among the accounts' leases; no account can have this name
LOOK_S: Final = 15.0
_OVERDUE_MS: Final = 3_600_000
_LEFT_OUT_MAX: Final = 100
_PUBLISH_S: Final = 2.0
_log = logging.getLogger("everturn.backups")


@dataclass(frozen=True)
class BackupServices:
    """What the runner needs.

    ``worker`` is the id under which this server holds leases. ``database`` is the database's address, or
    empty if it lies in the data folder. ``find_keys`` returns the keys of object storage.
    """

    store: Store
    clock: Clock
    home: Path
    worker: str
    zone: ZoneInfo
    database: str = ""
    find_keys: Callable[[], StorageKeys] = StorageKeys


def open_shelf(services: BackupServices, settings: BackupSettings) -> BackupShelf:
    """Return where backups are kept. Raises StoreRefused if a package is missing."""
    if settings.url is None:
        return FolderShelf(services.home, settings)
    return BucketShelf(settings.url, services.home / "backups", services.find_keys, services.clock)


class BackupRunner:
    """Implements ``domain.backups.Backups``. Makes backups while entered; only a server enters it."""

    def __init__(self, services: BackupServices, settings: BackupSettings) -> None:
        self._services = services
        self._settings = settings
        self._book = BackupBook(services.store.records)
        self._shelf = open_shelf(services, settings)
        self._bell = Bell(services.clock)
        self._task: asyncio.Task[None] | None = None
        # Why this server could not record the result of a backup, for example on a full disk.
        self._unrecorded = ""
        self._watch: BackupWatch | None = None

    async def __aenter__(self) -> Self:
        # Not a task group, which would wrap errors from the body.
        self._task = asyncio.create_task(self.run(), name="backups")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Abort a running backup and leave nothing behind. Another server or the next start makes it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def run(self) -> None:
        while True:
            try:
                await self.look()
                self._unrecorded, wait_s = "", LOOK_S
            except Exception as error:  # the root of its task: if it ended, no more backups would be made
                # Not soon: on a full disk, which takes no record either, each try writes a whole copy.
                wait_s = RETRY_MS / 1000
                self._unrecorded = reason_of(error) if isinstance(error, EverturnError) else repr(error)
                _log.warning("backups wait: %s", error, exc_info=not isinstance(error, EverturnError))
            await self._bell.wait(wait_s)

    async def look(self) -> None:
        """Make a backup if one is due or requested, and a trial restore if that is due.

        Does nothing while another server does this.
        """
        if not (await self._is_due() or await self._to_try()):
            return
        leases = self._services.store.delivery.leases
        lease = await leases.take(LEASE, self._services.worker)
        if lease is None:
            return
        try:
            key = None
            if await self._is_due():  # another server may have made it before we got the lease
                key = await self._make()
            await self._try_newest(key)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await leases.release(lease)
                except (LeaseLost, Retry) as error:
                    _log.info("the lease of backups was not released: %s", error)

    async def _is_due(self) -> bool:
        now = self._services.clock.now_ms()
        due = due_at(self._settings, self._services.zone, await self._book.state(), now)
        return (due is not None and due <= now) or await self._book.is_asked()

    # --- one backup -----------------------------------------------------------------------------------

    async def _make(self) -> Key | None:
        """Make a backup and remove old ones. Return the key that opens it, if it is encrypted."""
        book, before, is_asked = self._book, await self._book.state(), await self._book.is_asked()
        key: Key | None = None
        try:
            lock = await asyncio.to_thread(make_lock, self._settings)
            made, left_out = await self._make_one(
                lock, expects_backups=bool(before.last_name) and not is_asked
            )
        except (EverturnError, OSError) as error:
            problem, hint = reason_of(error), getattr(error, "hint", "")
            _log.error("no backup was made: %s %s", problem, hint)
            now = self._services.clock.now_ms()
            state = msgspec.structs.replace(before, failed_at=now, problem=problem, hint=hint)
        else:
            key = lock.key() if lock else None
            _log.info("made the backup %s, %.1f MB, verified", made.name, made.bytes / 1e6)
            await book.put_entry(made)
            state = BackupState(
                last_at=made.made_at, last_name=made.name, left_out=tuple(left_out[:_LEFT_OUT_MAX])
            )
        if is_asked:
            await book.clear_ask()
        await book.put_state(state)
        if not state.problem:
            await self._rotate()
        return key

    async def _make_one(self, lock: Lock | None, *, expects_backups: bool) -> tuple[BackupEntry, list[str]]:
        services, now = self._services, self._services.clock.now_ms()
        await self._shelf.prepare(expects_backups=expects_backups)
        with self._track_progress() as watch:
            stored = await self._shelf.put(
                services.store, services.home, name_of(now), BackupOptions(watch, lock)
            )
        entry = BackupEntry(
            name=name_of(now),
            made_at=now,
            bytes=stored.bytes,
            verified_at=now,
            is_encrypted=lock is not None,
            counts=stored.summary.counts,
        )
        return entry, stored.summary.left_out

    @contextmanager
    def _track_progress(self) -> Iterator[BackupWatch]:
        """Publish the progress to the other servers during the block."""
        self._watch = watch = BackupWatch()
        publishing = asyncio.create_task(self._publish(watch), name="backup progress")
        try:
            yield watch
        finally:
            publishing.cancel()
            self._watch = None

    async def _publish(self, watch: BackupWatch) -> None:
        while True:
            with suppress(Retry):  # only for display, and the next update follows
                await self._book.put_progress(watch.progress)
            await self._services.clock.sleep(_PUBLISH_S)

    # --- the trial restore ----------------------------------------------------------------------------

    async def _to_try(self) -> BackupEntry | None:
        """Return the newest sound backup if a trial restore is due and this server can read it."""
        if (entry := await self._newest_if_drill_is_due()) is None:
            return None
        return None if await self._shelf.is_encrypted(entry.name) else entry

    async def _newest_if_drill_is_due(self) -> BackupEntry | None:
        now = self._services.clock.now_ms()
        due = drill_due_at(self._settings, await self._book.drill(), now)
        if due is None or due > now:
            return None
        sound = [entry for entry in await self._entries() if not entry.problem]
        return sound[-1] if sound else None

    async def _try_newest(self, key: Key | None) -> None:
        """Make a trial restore of the newest backup.

        ``key`` belongs to a backup that was just made. Without it, an encrypted backup cannot be tried.
        """
        entry = await self._newest_if_drill_is_due() if key else await self._to_try()
        if entry is None:
            return
        services, begun = self._services, self._services.clock.now_ms()
        settings = DrillSettings(services.home, services.database, services.find_keys)
        try:
            with self._track_progress() as watch:
                counts = await try_restore(self._shelf, entry, key, settings, watch)
        except (EverturnError, OSError) as error:
            drill = await self._note_failed(entry, error)
        else:
            took = services.clock.now_ms() - begun
            _log.info("restored %s on trial in %.1f s: whole", entry.name, took / 1000)
            drill = BackupDrill(at=begun, name=entry.name, took_ms=took, counts=counts)
            await self._book.put_entry(msgspec.structs.replace(entry, verified_at=begun))
        await self._book.put_drill(drill)

    async def _note_failed(self, entry: BackupEntry, error: EverturnError | OSError) -> BackupDrill:
        problem, hint = reason_of(error), getattr(error, "hint", "")
        _log.error("the trial restore of %s failed: %s %s", entry.name, problem, hint)
        is_damaged = isinstance(error, (StoreBroken, NotADatabase, Invalid))
        if is_damaged:
            await self._book.put_entry(msgspec.structs.replace(entry, problem=problem))
        now = self._services.clock.now_ms()
        return BackupDrill(at=now, name=entry.name, problem=problem, hint=hint, is_damaged=is_damaged)

    async def _rotate(self) -> None:
        for entry in choose_superfluous(await self._entries(), self._settings, self._services.zone):
            try:
                await self._shelf.remove(entry.name)
            except (EverturnError, OSError) as error:
                _log.warning("%s could not be removed: %s", entry.name, reason_of(error))
                continue
            _log.info("removed the backup %s: newer ones are kept", entry.name)
        there = set(await self._shelf.names())
        for name in (await self._book.entries()).keys() - there:
            await self._book.forget(name)

    async def _entries(self) -> list[BackupEntry]:
        """Return the backups in the folder with their records, oldest first.

        A backup without a record predates a restore of the store. It has its final name, so it was complete
        and checked.
        """
        known = await self._book.entries()
        return [
            known.get(name) or BackupEntry(name=name, made_at=made_at(name) or 0)
            for name in await self._shelf.names()
        ]

    # --- the contract ---------------------------------------------------------------------------------

    async def ask(self) -> None:
        await self._book.ask(self._services.clock.now_ms())
        self._bell.ring()

    async def status(self) -> BackupStatus:
        """Return the state and the backups. If their folder or bucket does not answer, the state says why."""
        state, now, drill = await self._book.state(), self._services.clock.now_ms(), await self._book.drill()
        if self._unrecorded and not state.problem:
            state = msgspec.structs.replace(state, problem=self._unrecorded)
        try:
            entries = await self._entries()
        except (EverturnError, OSError) as error:
            entries = []
            if not state.problem:
                hint = getattr(error, "hint", "")
                state = msgspec.structs.replace(state, problem=reason_of(error), hint=hint)
        progress = await self._progress()
        return BackupStatus(
            folder=self._shelf.place,
            is_scheduled=self._settings.is_scheduled,
            is_running=progress is not None,
            next_at=due_at(self._settings, self._services.zone, state, now),
            progress=progress,
            is_encrypted=self._settings.is_encrypted,
            drill=drill,
            drill_days=self._settings.drill_days,
            state=state,
            backups=entries,
        )

    async def _progress(self) -> BackupProgress | None:
        if self._watch is not None:
            return self._watch.progress
        if await self._services.store.delivery.leases.holder(LEASE) is not None:
            return await self._book.progress() or BackupProgress(phase=BackupPhase.COPYING)
        return BackupProgress(phase=BackupPhase.WAITING) if await self._book.is_asked() else None

    async def find_problem(self) -> str:
        state, now = await self._book.state(), self._services.clock.now_ms()
        if state.problem or self._unrecorded:
            return f"No backup was made: {state.problem or self._unrecorded}"
        due = due_at(self._settings, self._services.zone, state, now)
        if due and now - due > _OVERDUE_MS:
            return "The last backup is overdue. See whether a server is making it."
        drill = await self._book.drill()
        if self._settings.drill_days and drill is not None and drill.problem:
            return f"The backup {drill.name} was not restored on trial: {drill.problem}"
        return ""

    async def figures(self) -> Mapping[str, float]:
        state, drill = await self._book.state(), await self._book.drill()
        found = {"is_failing": float(bool(await self.find_problem()))}
        if state.last_at is not None:
            found["last_timestamp_seconds"] = state.last_at / 1000
        if drill is not None:
            found["drill_timestamp_seconds"] = drill.at / 1000
            found["drill_is_failing"] = float(bool(drill.problem))
        return found
