"""State and services that the parts of an account's service share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio
import msgspec

from everturn.delivery.bell import Bell
from everturn.delivery.pace import Pace
from everturn.delivery.parts import render_parts
from everturn.delivery.settings import AccountSettings
from everturn.domain.asks import Ask
from everturn.domain.audit import AuditLog, name_author
from everturn.domain.budgets import Budget, BudgetLimit
from everturn.domain.clock import Clock
from everturn.domain.delivery import Chat, NewPart, Received
from everturn.domain.delivery_store import Delivery
from everturn.domain.model import Models
from everturn.domain.platform import Platform
from everturn.domain.probe import Probe
from everturn.domain.sessions import Session, SessionPatch
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, Request, RetriedTurn, Submission
from everturn.domain.turn_traces import TurnTraces
from everturn.domain.turns import Turn
from everturn.skills import Slash


class AgentEngine(Protocol):
    """What a chat can ask the engine for."""

    async def submit_received(
        self, inbox_id: str, submission: Submission
    ) -> tuple[Received, Accepted | None]: ...

    async def cancel(self, owner: str, turn_id: str, *, by: str = "") -> Turn: ...

    async def answer(self, owner: str, ask_id: str, answer: str, *, by: str) -> Ask: ...

    async def undo(self, owner: str, session_id: str, request: Request) -> Session: ...

    async def redo(self, owner: str, session_id: str, request: Request) -> Session: ...

    async def retry(
        self, owner: str, session_id: str, retried: RetriedTurn, request: Request
    ) -> Accepted: ...

    async def change_session(self, owner: str, session_id: str, patch: SessionPatch) -> Session: ...

    async def put_budget(self, owner: str, limit: BudgetLimit) -> Budget: ...


class RunsCommand(Protocol):
    """Runs a command of another room and returns the answer. It may run again after a crash."""

    async def __call__(self, received: Received, rest: str) -> str: ...


NamesProfiles = Callable[[], Awaitable[Sequence[str]]]


class ListsNotes(Protocol):
    """Lists the notes about an owner, newest first."""

    async def __call__(self, owner: str, limit: int) -> Sequence[str]: ...


class AccountServices(msgspec.Struct, frozen=True):
    """The services that all accounts share.

    ``worker`` is this process's id in the store. ``profiles`` lists the names that a chat may choose. Without
    ``models``, model names are not checked. ``page_url`` is the page's address, or empty if unknown.
    ``timezone`` applies to budgets that name none. ``schedule`` runs the command of that name. ``slash``
    holds the prompts and skills that a message can name. ``notes`` is None if there is no memory.
    """

    store: Store
    engine: AgentEngine
    clock: Clock
    worker: str
    models: Models | None = None
    profiles: NamesProfiles | None = None
    page_url: str = ""
    probe: Probe = Probe()
    timezone: str = "UTC"
    schedule: RunsCommand | None = None
    slash: Slash | None = None
    traces: TurnTraces = TurnTraces()
    audit: AuditLog = AuditLog()
    notes: ListsNotes | None = None


class AccountContext(msgspec.Struct, frozen=True):
    """One account and its services.

    ``outgoing`` rings when there is something to send. ``pace`` limits sends and live edits together.
    ``live`` holds one lock per chat with a live message, taken while that message is edited.
    """

    account: str
    platform: Platform
    settings: AccountSettings
    services: AccountServices
    outgoing: Bell
    pace: Pace
    live: dict[str, anyio.Lock] = {}

    @property
    def delivery(self) -> Delivery:
        return self.services.store.delivery

    @property
    def clock(self) -> Clock:
        return self.services.clock

    @property
    def age_max_ms(self) -> int:
        return round(self.settings.age_max_s * 1000)

    async def note(self, what: str, received: Received, detail: str = "") -> None:
        """Record in the audit log what the author of this update did. Durable on return.

        After a crash the update is handled again, and recorded again.
        """
        await self.services.audit.write(what, name_author(received), detail=detail)

    async def tell(self, chat: Chat, key: str, markdown: str) -> bool:
        """Send a message of our own to the chat, once per key."""
        return await self.put(chat, key, render_parts(self.platform, markdown))

    async def put(self, chat: Chat, key: str, parts: Sequence[NewPart]) -> bool:
        is_new = await self.delivery.outbox.put(chat.owner, chat.id, key, parts, age_max_ms=self.age_max_ms)
        self.outgoing.ring()
        return is_new
