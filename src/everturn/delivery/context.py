"""What the parts of an account's service share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.delivery.bell import Bell
from everturn.delivery.parts import render_parts
from everturn.delivery.settings import AccountSettings
from everturn.domain.clock import Clock
from everturn.domain.delivery import Chat, NewPart, Received
from everturn.domain.delivery_store import Delivery
from everturn.domain.platform import Platform
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, Submission


class Submitter(Protocol):
    """How a received message becomes a turn: the engine."""

    async def submit_received(
        self, inbox_id: str, submission: Submission
    ) -> tuple[Received, Accepted | None]: ...


class AccountServices(msgspec.Struct, frozen=True):
    """What every account is given. ``worker``: this process, as it is registered in the store."""

    store: Store
    submitter: Submitter
    clock: Clock
    worker: str


class AccountContext(msgspec.Struct, frozen=True):
    """One account, and what it is served with. ``outgoing`` is rung when there is something to send."""

    account: str
    platform: Platform
    settings: AccountSettings
    services: AccountServices
    outgoing: Bell

    @property
    def delivery(self) -> Delivery:
        return self.services.store.delivery

    @property
    def clock(self) -> Clock:
        return self.services.clock

    @property
    def age_max_ms(self) -> int:
        return round(self.settings.age_max_s * 1000)

    async def tell(self, chat: Chat, key: str, markdown: str) -> bool:
        """Send a message of our own to the chat, once per key."""
        return await self.put(chat, key, render_parts(self.platform, markdown))

    async def put(self, chat: Chat, key: str, parts: Sequence[NewPart]) -> bool:
        is_new = await self.delivery.outbox.put(chat.owner, chat.id, key, parts, age_max_ms=self.age_max_ms)
        self.outgoing.ring()
        return is_new
