"""F02: messages of one chat become turns in the order in which the platform delivered them."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain.delivery import DeliveryTotals, Refusal
from everturn.domain.errors import WrongState
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission, WhenBusy
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, answer, append, claim, complete
from tests.conftest import OpenAnother
from tests.delivering import ACCOUNT, accept, arrive, due, receive, send_to
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio


async def test_f02_only_the_oldest_message_of_each_chat_can_be_settled(store: Store) -> None:
    first, second = await receive(store, "u1", "one"), await receive(store, "u2", "two")
    elsewhere = await receive(store, "u3", "three", chat="43")
    found = await store.delivery.inbox.list_waiting(ACCOUNT, limit=100)
    assert [received.id for received in found] == [first.id, elsewhere.id]
    with pytest.raises(WrongState):
        await store.delivery.inbox.accept(second.id, Submission(text="two"))
    with pytest.raises(WrongState):
        await store.delivery.inbox.refuse(second.id, Refusal("no", "No."))
    await accept(store, elsewhere)
    accepted = [await accept(store, first), await accept(store, second)]
    queued = await store.turns.queue(ME, accepted[0].turn.session_id)
    assert [turn.text for turn in queued] == ["one", "two"]


async def test_f02_what_is_on_its_way_is_counted_and_chats_that_wait_are_known(
    store: Store, clock: FakeClock
) -> None:
    accepted = await arrive(store, "u1")
    waits = await receive(store, "u2", chat="43")
    await send_to(store, waits.chat, "note", "hello")
    await clock.advance(5)
    assert await store.delivery.totals() == DeliveryTotals(1, 1, 0, 0, 5.0)
    assert await store.delivery.chats.list_working(ACCOUNT, limit=10) == []
    held = await claim(store, session_id=accepted.turn.session_id)
    (working,) = await store.delivery.chats.list_working(ACCOUNT, limit=10)
    assert working.place.chat == "42"
    await complete(store, held, await append(store, held, answer("done")))
    assert await store.delivery.chats.list_working(ACCOUNT, limit=10) == []


async def test_f02_after_a_refusal_the_next_message_goes_on(store: Store) -> None:
    first, second = await receive(store, "u1"), await receive(store, "u2")
    await store.delivery.inbox.refuse(first.id, Refusal("no", "No."))
    await accept(store, second)
    assert await store.delivery.inbox.list_waiting(ACCOUNT, limit=100) == []


async def test_f02_messages_received_by_two_processes_at_once_keep_one_order(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(receive, (store, other)[number % 2], f"u{number}", f"text {number}")
    texts = []
    while found := await other.delivery.inbox.list_waiting(ACCOUNT, limit=100):
        (received,) = found
        assert received.update is not None
        texts.append(received.update.text)
        session_id = (await accept(store, received)).turn.session_id
    assert sorted(texts) == sorted(f"text {number}" for number in range(12))
    assert [turn.text for turn in await store.turns.queue(ME, session_id)] == texts


async def test_f02_a_message_waits_while_another_of_its_chat_is_being_accepted(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    other = await open_another()
    await arrive(store, "u1", "one")
    second = await receive(store, "u2", "two")
    probe.hold(Moment.ACCEPT_WRITTEN)
    async with anyio.create_task_group() as group:
        group.start_soon(accept, store, second)
        await probe.reached(Moment.ACCEPT_WRITTEN)
        await held_up.start(group, other, receive, other, "u3", "three")
        probe.release(Moment.ACCEPT_WRITTEN)
    found = await store.delivery.inbox.list_waiting(ACCOUNT, limit=100)
    assert [received.update and received.update.text for received in found] == ["three"]


async def test_f02_a_message_that_came_late_is_marked(store: Store) -> None:
    numbers = {"u1": 5, "u2": 7, "u3": 6, "u4": 8, "u5": None}
    late = {name: (await receive(store, name, number=number)).is_late for name, number in numbers.items()}
    assert late == {"u1": False, "u2": False, "u3": True, "u4": False, "u5": False}
    assert not (await receive(store, "u6", chat="43", number=1)).is_late


async def test_f02_the_newest_message_of_each_chat_is_known(store: Store) -> None:
    await receive(store, "u1", number=5)
    await receive(store, "u2", number=3)
    await receive(store, "u3", chat="43", number=9)
    await receive(store, "u4", chat="44")
    seen = await store.delivery.chats.list_seen(ACCOUNT, limit=10)
    assert [(one.place.chat, one.number) for one in seen] == [("43", 9), ("42", 5)]
    assert len(await store.delivery.chats.list_seen(ACCOUNT, limit=1)) == 1
    assert await store.delivery.chats.list_seen("another", limit=10) == []


async def test_f02_a_message_during_a_turn_is_queued_steers_or_interrupts(store: Store) -> None:
    first = await arrive(store, "u1", "one")
    session_id = first.turn.session_id
    await claim(store, session_id=session_id)
    queued = await accept(store, await receive(store, "u2", "two"))
    assert (queued.turn.state, queued.is_steering) == (TurnState.QUEUED, False)
    steering = await accept(store, await receive(store, "u3", "three"), when_busy=WhenBusy.STEER)
    assert (steering.turn.id, steering.is_steering) == (first.turn.id, True)
    last = await accept(store, await receive(store, "u4", "four"), when_busy=WhenBusy.INTERRUPT)
    assert (await store.turns.get(ME, first.turn.id)).state is TurnState.CANCELLED
    texts = [turn.text for turn in await store.turns.queue(ME, session_id)]
    assert texts[0] == "four"
    assert {"two", "three"} <= set(texts)
    assert [reply.turn_id for reply in await due(store)] == [first.turn.id]
    assert last.turn.id != first.turn.id
