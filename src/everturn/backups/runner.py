"""Makes the backups that are due. Every server has a runner; a lease lets only one of them work at a time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from zoneinfo import ZoneInfo

import anyio
import msgspec

from everturn.backups.book import BackupBook
from everturn.backups.making import make_backup, reason_of, size_of
from everturn.backups.rotation import RETRY_MS, choose_superfluous, due_at, made_at, name_of
from everturn.backups.settings import BackupSettings
from everturn.backups.shelf import BackupShelf
from everturn.delivery.bell import Bell
from everturn.domain.backups import BackupEntry, BackupState, BackupStatus
from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, LeaseLost, Retry
from everturn.store import Store

LEASE: Final = "~backups"  # among the accounts' leases; no account can have this name
LOOK_S: Final = 15.0
_OVERDUE_MS: Final = 3_600_000
_LEFT_OUT_MAX: Final = 100
_log = logging.getLogger("everturn.backups")


@dataclass(frozen=True)
class BackupServices:
    """``worker``: the id under which this server holds leases."""

    store: Store
    clock: Clock
    home: Path
    worker: str
    zone: ZoneInfo


class BackupRunner:
    """Implements ``domain.backups.Backups``. Makes backups while it is entered, by a server only."""

    def __init__(self, services: BackupServices, settings: BackupSettings) -> None:
        self._services = services
        self._settings = settings
        self._book = BackupBook(services.store.records)
        self._shelf = BackupShelf(services.home, settings)
        self._bell = Bell(services.clock)
        self._task: asyncio.Task[None] | None = None
        # Why this server could not even record how a backup went, as on a full disk.
        self._unrecorded = ""

    async def __aenter__(self) -> Self:
        # Not a task group, which would wrap errors from the body.
        self._task = asyncio.create_task(self.run(), name="backups")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End a backup that is being made: nothing of it is kept, and another server or the next start makes
        it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def run(self) -> None:
        while True:
            try:
                await self.look()
                self._unrecorded, wait_s = "", LOOK_S
            except Exception as error:  # the root of its task: without it no backup would be made again
                # Not soon: on a full disk, which takes no record either, each try writes a whole copy.
                wait_s = RETRY_MS / 1000
                self._unrecorded = reason_of(error) if isinstance(error, EverturnError) else repr(error)
                _log.warning("backups wait: %s", error, exc_info=not isinstance(error, EverturnError))
            await self._bell.wait(wait_s)

    async def look(self) -> None:
        """Make a backup if one is due or asked for, and no other server is making one."""
        if not await self._is_due():
            return
        leases = self._services.store.delivery.leases
        lease = await leases.take(LEASE, self._services.worker)
        if lease is None:
            return
        try:
            if await self._is_due():  # another server may have made it before the lease was free
                await self._make()
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

    async def _make(self) -> None:
        book, before, is_asked = self._book, await self._book.state(), await self._book.is_asked()
        try:
            made, left_out = await self._make_one(expects_backups=bool(before.last_name) and not is_asked)
        except (EverturnError, OSError) as error:
            problem, hint = reason_of(error), getattr(error, "hint", "")
            _log.error("no backup was made: %s %s", problem, hint)
            now = self._services.clock.now_ms()
            state = msgspec.structs.replace(before, failed_at=now, problem=problem, hint=hint)
        else:
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

    async def _make_one(self, *, expects_backups: bool) -> tuple[BackupEntry, list[str]]:
        now = self._services.clock.now_ms()
        await asyncio.to_thread(self._shelf.prepare, expects_backups=expects_backups)
        target = self._shelf.folder / name_of(now)
        left_out = await make_backup(self._services.store, self._services.home, target)
        size = await asyncio.to_thread(size_of, target)
        return BackupEntry(name=target.name, made_at=now, bytes=size, verified_at=now), left_out

    async def _rotate(self) -> None:
        for entry in choose_superfluous(await self._entries(), self._settings, self._services.zone):
            try:
                await asyncio.to_thread(self._shelf.remove, entry.name)
            except (EverturnError, OSError) as error:
                _log.warning("%s could not be removed: %s", entry.name, reason_of(error))
                continue
            _log.info("removed the backup %s: newer ones are kept", entry.name)
        there = set(await asyncio.to_thread(self._shelf.names))
        for name in (await self._book.entries()).keys() - there:
            await self._book.forget(name)

    async def _entries(self) -> list[BackupEntry]:
        """The backups in the folder, with what is known of each, oldest first. One without a record was made
        before the store was restored: it has its name, so it was complete and checked."""
        known = await self._book.entries()
        return [
            known.get(name) or BackupEntry(name=name, made_at=made_at(name) or 0)
            for name in await asyncio.to_thread(self._shelf.names)
        ]

    # --- the contract ---------------------------------------------------------------------------------

    async def ask(self) -> None:
        await self._book.ask(self._services.clock.now_ms())
        self._bell.ring()

    async def status(self) -> BackupStatus:
        state, now = await self._book.state(), self._services.clock.now_ms()
        if self._unrecorded and not state.problem:
            state = msgspec.structs.replace(state, problem=self._unrecorded)
        holder = await self._services.store.delivery.leases.holder(LEASE)
        return BackupStatus(
            folder=str(self._shelf.folder),
            is_scheduled=self._settings.is_scheduled,
            is_running=holder is not None or await self._book.is_asked(),
            next_at=due_at(self._settings, self._services.zone, state, now),
            state=state,
            backups=await self._entries(),
        )

    async def find_problem(self) -> str:
        state, now = await self._book.state(), self._services.clock.now_ms()
        if state.problem or self._unrecorded:
            return f"No backup was made: {state.problem or self._unrecorded}"
        due = due_at(self._settings, self._services.zone, state, now)
        if due and now - due > _OVERDUE_MS:
            return "The last backup is overdue. See whether a server is making it."
        return ""
