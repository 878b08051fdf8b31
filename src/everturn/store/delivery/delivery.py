"""The nouns of delivery over one database."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain.delivery import DeliveryTotals
from everturn.domain.gateway import AccountFigures
from everturn.domain.store_values import RecordName
from everturn.store.delivery import removal
from everturn.store.delivery.chats import Chats
from everturn.store.delivery.devices import Devices
from everturn.store.delivery.inbox import Inbox
from everturn.store.delivery.leases import AccountLeases
from everturn.store.delivery.notices import Notices
from everturn.store.delivery.outbox import Outbox
from everturn.store.scripts.queries.delivery import ACCOUNT_FIGURES, DELIVERY_TOTALS, LEASE
from everturn.store.scripts.script import Database, Script, Tx


class Delivery:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self._db = db
        self.chats = Chats(db)
        self.inbox = Inbox(db, text_bytes_max=text_bytes_max)
        self.leases = AccountLeases(db)
        self.outbox = Outbox(db)
        self.devices = Devices(db)
        self.notices = Notices(db)

    async def remove_account(self, account: str, records: Sequence[RecordName]) -> None:
        await self._db.write(removal.remove_account, account, records)

    async def readmit_account(self, account: str) -> None:
        # Looking first costs no write transaction: it was never removed, as a rule.
        if await self._db.read(_is_removed, account):
            await self._db.write(removal.readmit_account, account)

    async def totals(self) -> DeliveryTotals:
        return await self._db.read(_totals)

    async def figures(self, account: str, *, since_ms: int) -> AccountFigures:
        return await self._db.read(_figures, account, since_ms)


def _is_removed(tx: Tx, account: str) -> Script[bool]:
    found = yield from LEASE.first(account)
    return found is not None and found.is_removed


def _figures(tx: Tx, account: str, since_ms: int) -> Script[AccountFigures]:
    row = yield from ACCOUNT_FIGURES.only(account, since_ms)
    return AccountFigures(row.received, row.last_received_at, row.waiting, row.waiting_since, row.undecided)


def _totals(tx: Tx) -> Script[DeliveryTotals]:
    row = yield from DELIVERY_TOTALS.only()
    lag_ms = 0 if row.oldest is None else max(0, tx.now - row.oldest)
    return DeliveryTotals(row.received, row.waiting, row.unknown_count, row.for_people, lag_ms / 1000)
