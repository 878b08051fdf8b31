"""F03: what a removed account still had to do ends with a stated fate, and a new one of its name starts anew."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

from everturn.domain.delivery import InboxState, PartState, WhenUnknown
from everturn.domain.errors import LeaseLost, NotFound
from everturn.domain.probe import Moment
from everturn.domain.replies import ReplyDelivery, ReplyState
from everturn.domain.store_values import Accepted, RecordName, Submission
from everturn.store import Store
from everturn.store.delivery.removal import remove_account
from everturn.store.scripts.script import Script, Tx
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, WORKER
from tests.conftest import OpenAnother
from tests.delivering import (
    ACCOUNT,
    accept,
    arrive,
    claim_parts,
    due,
    lease_of,
    receive,
    record,
    reply,
    send_to,
    states,
)
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio
P = PartState
RECORD = RecordName(ME, "gateway", ACCOUNT)
LATE = Submission(text="late")


async def remove(store: Store) -> None:
    await store.delivery.remove_account(ACCOUNT, [RECORD])


async def answered(store: Store, update_id: str, chat: str, *texts: str) -> Accepted:
    """A turn of a chat of its own, whose answer is recorded."""
    accepted = await arrive(store, update_id, chat=chat)
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, *texts)
    return accepted


async def shown(store: Store, accepted: Accepted) -> ReplyDelivery:
    page = await store.transcript.page(ME, accepted.turn.session_id)
    turns = [*page.turns, *page.queued]
    (delivery,) = next(turn.replies for turn in turns if turn.id == accepted.turn.id)
    return delivery


async def test_f03_removing_an_account_gives_everything_that_waits_a_fate(store: Store) -> None:
    await store.records.put(ME, "gateway", ACCOUNT, {})
    waiting = await answered(store, "u1", "1", "good morning")
    lease = await lease_of(store)
    sending = await answered(store, "u2", "2", "good morning")
    await store.delivery.outbox.claim(lease, limit=1)
    assert await states(store, waiting.turn.id) == [P.SENDING]
    owed = await arrive(store, "u3", chat="3")
    received = await receive(store, "u4", chat="4")

    await remove(store)

    assert await store.records.get(ME, "gateway", ACCOUNT) is None
    assert await states(store, waiting.turn.id) == [P.HELD], "it may have arrived"
    assert await states(store, sending.turn.id) == [P.UNDELIVERED]
    assert await states(store, owed.turn.id) == [P.UNDELIVERED]
    settled, accepted = await store.delivery.inbox.accept(received.id, LATE)
    assert (settled.state, accepted) == (InboxState.REFUSED, None)
    assert settled.refusal is not None
    assert settled.refusal.code == "account_removed"
    assert await store.delivery.outbox.list_undecided(ME) == []
    assert (await store.delivery.totals()).outbox_for_people == 0
    assert await store.delivery.chats.list(ME) == []
    delivery = await shown(store, sending)
    assert (delivery.state, delivery.account, delivery.parts, delivery.error) == (
        ReplyState.UNDELIVERED,
        ACCOUNT,
        (),
        "The account was removed.",
    )


async def test_f03_a_new_account_of_the_name_sends_nothing_of_the_removed_one(store: Store) -> None:
    old = await answered(store, "u1", "1", "good morning")
    (part,) = await store.delivery.outbox.of_turn(ME, old.turn.id)
    for _ in range(2):  # also the second time
        await remove(store)
        await store.delivery.readmit_account(ACCOUNT)
        lease = await lease_of(store)
        assert await claim_parts(store, lease) == []
        assert await due(store) == []
        assert await store.delivery.inbox.list_waiting(ACCOUNT, limit=10) == []
        with pytest.raises(NotFound):
            await store.delivery.outbox.send_again(ME, part.id)
        again = await receive(store, "u1", chat="1")
        assert not again.is_repeat
        assert again.chat.session_id is None
        await accept(store, again)


async def test_f03_a_session_of_a_removed_account_is_no_longer_a_chats(store: Store) -> None:
    accepted = await arrive(store, "u1")
    session = await store.sessions.get(ME, accepted.turn.session_id)
    assert session.chat is not None
    chat = await store.delivery.chats.get(ME, session.chat.id)
    await remove(store)
    assert (await store.sessions.get(ME, session.id)).chat is None
    with pytest.raises(NotFound):
        await send_to(store, chat, "note", "hello")


async def test_f03_a_worker_that_still_serves_a_removed_account_can_do_nothing(
    store: Store, open_another: OpenAnother
) -> None:
    serving = await answered(store, "u1", "1", "good morning")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    other = await open_another()
    await remove(other)
    for write in (
        lambda: store.delivery.outbox.mark_sent(lease, part.id, "1"),
        lambda: store.delivery.outbox.settle_unknown(lease, WhenUnknown.REPEAT),
        lambda: store.delivery.leases.release(lease),
    ):
        with suppress(LeaseLost):
            assert await write() == 0, "there is nothing of the account to settle"
    assert await store.delivery.leases.take(ACCOUNT, WORKER) is None
    with pytest.raises(NotFound):
        await receive(store, "u2", chat="1")
    with pytest.raises(NotFound):
        await receive(store, "u3", chat="new")
    assert await states(store, serving.turn.id) == [P.HELD]


def _remove_and_pass(tx: Tx) -> Script[None]:
    yield from remove_account(tx, ACCOUNT, [RECORD])
    tx.probe.pass_by(Moment.ACCEPT_WRITTEN, ACCOUNT)


async def test_f03_a_worker_that_looked_before_the_removal_does_not_take_the_account(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    other = await open_another()
    await store.workers.register(WORKER)
    await receive(store, "u1", chat="1")
    taken: list[object] = []

    async def take() -> None:
        taken.append(await store.delivery.leases.take(ACCOUNT, WORKER))

    probe.hold(Moment.ACCEPT_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(other.database.write, _remove_and_pass)
        await probe.reached(Moment.ACCEPT_WRITTEN)
        await held_up.start(group, store, take)
        probe.release(Moment.ACCEPT_WRITTEN)
    assert taken == [None]


async def test_f03_updates_that_arrive_while_the_account_is_removed_are_stored_or_refused(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    await receive(store, "u0", chat="1")
    stored: list[str] = []

    async def receive_one(number: int) -> None:
        with suppress(NotFound):  # it is not acknowledged then
            stored.append((await receive(store, f"u{number}", chat=str(number % 3))).id)

    async with anyio.create_task_group() as group:
        for number in range(1, 13):
            group.start_soon(receive_one, number)
            if number == 6:
                group.start_soon(remove, other)
    assert await store.delivery.inbox.list_waiting(ACCOUNT, limit=100) == []
    for inbox_id in stored:
        settled, _ = await store.delivery.inbox.accept(inbox_id, LATE)
        assert settled.state is InboxState.REFUSED
