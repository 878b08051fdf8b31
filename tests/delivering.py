"""What tests of delivery share: updates of a fake platform, and turns that answer them."""

from __future__ import annotations

from typing import Any

from everturn.domain.delivery import (
    AccountLease,
    Chat,
    ChatKind,
    ChatPlace,
    NewPart,
    OutgoingPart,
    PartState,
    Received,
    ReplyDue,
    Update,
)
from everturn.domain.store_values import Accepted, Submission
from everturn.store import Store
from everturn.testing.acting import ME, WORKER, answer, append, claim, complete

ACCOUNT = "main"
AGE_MAX_MS = 7 * 24 * 3600 * 1000


def place(chat: str = "42", **more: Any) -> ChatPlace:
    return ChatPlace(ACCOUNT, "telegram", more.pop("kind", ChatKind.DIRECT), chat, **more)


def update(update_id: str, text: str = "hello", chat: str = "42", **more: Any) -> Update:
    return Update(update_id, more.pop("at", place(chat)), "ada", text, **more)


async def receive(
    store: Store, update_id: str, text: str = "hello", chat: str = "42", **more: Any
) -> Received:
    return await store.delivery.inbox.receive(ME, update(update_id, text, chat, **more), profile="default")


async def accept(store: Store, received: Received, **more: Any) -> Accepted:
    text = received.update.text if received.update else "again"
    _, accepted = await store.delivery.inbox.accept(received.id, Submission(text=text, **more))
    assert accepted is not None
    return accepted


async def arrive(store: Store, update_id: str, text: str = "hello", chat: str = "42") -> Accepted:
    """Receive an update and make it a turn."""
    return await accept(store, await receive(store, update_id, text, chat))


async def reply(store: Store, accepted: Accepted, text: str) -> None:
    """Run the turn to its end with this answer."""
    held = await claim(store, session_id=accepted.turn.session_id)
    assert held.turn.id == accepted.turn.id
    await complete(store, held, await append(store, held, answer(text)))


async def due(store: Store) -> list[ReplyDue]:
    return list(await store.delivery.outbox.replies_due(ACCOUNT, limit=100))


async def record(store: Store, reply_due: ReplyDue, *texts: str) -> bool:
    parts = [NewPart(text) for text in texts]
    return await store.delivery.outbox.record_reply(reply_due, parts, age_max_ms=AGE_MAX_MS)


async def send_to(store: Store, chat: Chat, key: str, *texts: str, age_max_ms: int = AGE_MAX_MS) -> bool:
    parts = [NewPart(text) for text in texts]
    return await store.delivery.outbox.put(ME, chat.id, key, parts, age_max_ms=age_max_ms)


async def lease_of(store: Store, worker: str = WORKER) -> AccountLease:
    await store.workers.register(worker)
    lease = await store.delivery.leases.take(ACCOUNT, worker)
    assert lease is not None
    return lease


async def claim_parts(store: Store, lease: AccountLease) -> list[OutgoingPart]:
    return list(await store.delivery.outbox.claim(lease, limit=100))


async def states(store: Store, turn_id: str) -> list[PartState]:
    return [part.state for part in await store.delivery.outbox.of_turn(ME, turn_id)]
