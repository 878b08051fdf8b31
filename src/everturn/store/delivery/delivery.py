"""The nouns of delivery over one database."""

from __future__ import annotations

from everturn.store.delivery.chats import Chats
from everturn.store.delivery.inbox import Inbox
from everturn.store.delivery.leases import AccountLeases
from everturn.store.delivery.outbox import Outbox
from everturn.store.scripts.script import Database


class Delivery:
    def __init__(self, db: Database, *, text_bytes_max: int) -> None:
        self.chats = Chats(db)
        self.inbox = Inbox(db, text_bytes_max=text_bytes_max)
        self.leases = AccountLeases(db)
        self.outbox = Outbox(db)
