"""Leases of accounts: one worker at a time sends for an account, fenced by an epoch.

A lease holds as long as its worker is registered. A dead worker thus loses its accounts together with its
turns, and leases need no heartbeat of their own.
"""

from __future__ import annotations

from everturn.domain.delivery import AccountLease
from everturn.domain.errors import LeaseLost, NotFound
from everturn.store.scripts.queries.delivery import LEASE, LeaseColumns
from everturn.store.scripts.script import Database, Script, Tx, q

_SENDER_GONE = "Its sender stopped before the platform answered."


class AccountLeases:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def take(self, account: str, worker: str) -> AccountLease | None:
        # Looking first costs no write transaction while another worker has the account.
        found = await self._db.read(_look, account)
        if found is not None and (found.is_removed or (found.is_alive and found.worker != worker)):
            return None
        return await self._db.write(_take, account, worker)

    async def holder(self, account: str) -> str | None:
        found = await self._db.read(_look, account)
        return found.worker if found is not None and found.is_alive else None

    async def release(self, lease: AccountLease) -> None:
        await self._db.write(_release, lease)


def lock_lease(tx: Tx, lease: AccountLease) -> Script[None]:
    """Lock the account's lease. Raises LeaseLost unless this is the present one."""
    found = yield from _lock(tx, lease.account)
    if found is None or (found.worker, found.epoch) != (lease.worker, lease.epoch):  # guard: f03
        raise LeaseLost(lease.account, lease.epoch)


def lock_lease_row(tx: Tx, account: str) -> Script[LeaseColumns]:
    """Lock the account's lease, whichever worker has it. There must be a row."""
    if tx.dialect == "postgresql":
        yield q("lease_lock", account)
    return (yield from LEASE.only(account))


def refuse_removed(tx: Tx, account: str) -> Script[None]:
    """Raises NotFound if the account was removed; otherwise it cannot be removed during this transaction."""
    yield q("lease_insert", account)  # without a row there would be nothing to lock
    if (yield from lock_lease_row(tx, account)).is_removed:  # guard: f03
        raise NotFound("account", account)


def next_epoch(lease: LeaseColumns) -> int:
    """Higher than all earlier ones, also after a removal."""
    return abs(lease.epoch) + 1


def is_present_lease(lease: AccountLease) -> Script[bool]:
    """Does not lock it: the lease may be lost a moment later."""
    found = yield from LEASE.first(lease.account)
    return found is not None and (found.worker, found.epoch) == (lease.worker, lease.epoch)


def _look(tx: Tx, account: str) -> Script[LeaseColumns | None]:
    return (yield from LEASE.first(account))


def _lock(tx: Tx, account: str) -> Script[LeaseColumns | None]:
    if tx.dialect == "postgresql":
        yield q("lease_lock", account)
    return (yield from LEASE.first(account))


def _take(tx: Tx, account: str, worker: str) -> Script[AccountLease | None]:
    yield q("lease_insert", account)
    yield from _lock(tx, account)
    found = yield from LEASE.only(account)
    if found.is_removed:  # guard: f03
        return None
    if found.worker == worker:
        # It serves the account anew, after its last service could not release the lease.
        yield q("parts_lost", account, _SENDER_GONE, tx.now)  # guard: f03
        return AccountLease(account, worker, found.epoch)
    if found.is_alive:
        return None
    lease = AccountLease(account, worker, found.epoch + 1)
    yield q("lease_set", account, worker, lease.epoch)
    yield q("parts_lost", account, _SENDER_GONE, tx.now)  # guard: f03
    return lease


def _release(tx: Tx, lease: AccountLease) -> Script[None]:
    yield from lock_lease(tx, lease)
    yield q("lease_set", lease.account, None, lease.epoch)
    yield q("parts_lost", lease.account, _SENDER_GONE, tx.now)
