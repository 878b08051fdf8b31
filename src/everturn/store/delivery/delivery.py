"""The nouns of delivery over one database."""

from __future__ import annotations

from everturn.domain.gateway import AccountFigures
from everturn.store.delivery.chats import Chats
from everturn.store.delivery.inbox import Inbox
from everturn.store.delivery.leases import AccountLeases
from everturn.store.delivery.outbox import Outbox
from everturn.store.scripts.queries.delivery import ACCOUNT_FIGURES
from everturn.store.scripts.script import Database, Script, Tx


class Delivery:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self._db = db
        self.chats = Chats(db)
        self.inbox = Inbox(db, text_bytes_max=text_bytes_max)
        self.leases = AccountLeases(db)
        self.outbox = Outbox(db)

    async def figures(self, account: str, *, since_ms: int) -> AccountFigures:
        return await self._db.read(_figures, account, since_ms)


def _figures(tx: Tx, account: str, since_ms: int) -> Script[AccountFigures]:
    row = yield from ACCOUNT_FIGURES.only(account, since_ms)
    return AccountFigures(row.received, row.last_received_at, row.waiting, row.waiting_since, row.undecided)
