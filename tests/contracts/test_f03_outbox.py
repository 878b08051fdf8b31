"""F03: a reply is parts, and the parts are rows, before the first is sent; each has a stated fate."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import anyio
import pytest

from everturn.domain.delivery import PartState, WhenUnknown
from everturn.domain.errors import LeaseLost, NotFound, WrongState
from everturn.domain.events import ReplySent, ReplyUnknown
from everturn.domain.probe import Moment
from everturn.domain.replies import ReplyDelivery, ReplyState
from everturn.domain.store_values import Accepted
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.store.scripts.common import lock_session
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turns.workers import release
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import CRASHED, ME, WORKER, answer, append, claim, complete
from tests.conftest import OpenAnother
from tests.delivering import (
    ACCOUNT,
    AGE_MAX_MS,
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
OTHER = "wrk_two"


async def die(store: Store, worker: str = WORKER) -> None:
    """What a take-over does about a worker that died."""
    await store.database.write(release, worker, "crash", True)


async def test_f03_a_reply_is_owed_with_the_turn_and_due_when_it_has_ended(store: Store) -> None:
    accepted = await arrive(store, "u1")
    assert await due(store) == []
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    assert (owed.turn_id, owed.session_id, owed.state) == (
        accepted.turn.id,
        accepted.turn.session_id,
        TurnState.COMPLETED,
    )
    assert owed.chat.place.chat == "42"
    assert owed.answer == "good morning"


async def test_f03_a_reply_is_recorded_once_by_however_many_processes(
    store: Store, open_another: OpenAnother
) -> None:
    other = await open_another()
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    recorded: list[bool] = []

    async def record_through(through: Store) -> None:
        recorded.append(await record(through, owed, "good", "morning"))

    async with anyio.create_task_group() as group:
        for through in (store, other, store, other):
            group.start_soon(record_through, through)
    assert sorted(recorded) == [False, False, False, True]
    assert await states(store, accepted.turn.id) == [P.WAITING, P.WAITING]
    assert await due(store) == []


async def test_f03_an_interrupted_turn_is_told_and_its_answer_still_comes_after_it_was_resumed(
    store: Store,
) -> None:
    accepted = await arrive(store, "u1")
    held = await claim(store)
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    (owed,) = await due(store)
    assert (owed.state, owed.failure) == (TurnState.INTERRUPTED, CRASHED)
    assert await record(store, owed, "It was interrupted.")
    assert not await record(store, owed, "It was interrupted.")
    assert await due(store) == []
    await store.turns.resume(ME, held.turn.id)
    assert await due(store) == []
    again = await claim(store)
    await complete(store, again, await append(store, again, answer("here it is")))
    (owed,) = await due(store)
    assert await record(store, owed, "here it is")
    assert await states(store, accepted.turn.id) == [P.WAITING, P.WAITING]


def purge_slowly(tx: Tx, session_id: str) -> Script[None]:
    session = yield from lock_session(tx, ME, session_id)
    yield q("session_delete", session.no)
    tx.probe.pass_by(Moment.PRUNED, session_id)


async def test_f03_a_session_purged_while_an_interruption_is_recorded_takes_the_notice_along(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    other = await open_another()
    accepted = await arrive(store, "u1")
    held = await claim(store)
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    (owed,) = await due(store)
    refused: list[Exception] = []

    async def record_late() -> None:
        try:
            await record(other, owed, "It was interrupted.")
        except NotFound as error:
            refused.append(error)

    probe.hold(Moment.PRUNED)
    async with anyio.create_task_group() as group:
        group.start_soon(store.database.write, purge_slowly, accepted.turn.session_id)
        await probe.reached(Moment.PRUNED)
        await held_up.start(group, other, record_late)
        probe.release(Moment.PRUNED)
    assert len(refused) == 1
    assert await claim_parts(store, await lease_of(store)) == []


async def test_f03_parts_of_a_chat_are_claimed_one_at_a_time_in_order_and_chats_beside_each_other(
    store: Store,
) -> None:
    one, two = await receive(store, "u1", chat="1"), await receive(store, "u2", chat="2")
    await send_to(store, one.chat, "first", "a", "b")
    await send_to(store, two.chat, "first", "x")
    await send_to(store, one.chat, "second", "c")
    lease = await lease_of(store)
    seen = []
    while claimed := await claim_parts(store, lease):
        assert len({part.chat.id for part in claimed}) == len(claimed)
        assert await claim_parts(store, lease) == []
        seen.append([part.body.text for part in claimed])
        for part in claimed:
            await store.delivery.outbox.mark_sent(lease, part.id, f"tg-{part.body.text}")
    assert seen == [["a", "x"], ["b"], ["c"]]


async def test_f03_a_message_of_its_own_is_sent_once_per_key(store: Store) -> None:
    chat = (await receive(store, "u1")).chat
    assert await send_to(store, chat, "note", "hello")
    assert not await send_to(store, chat, "note", "hello again")
    with pytest.raises(NotFound):
        await store.delivery.outbox.put("eve", chat.id, "note", [], age_max_ms=AGE_MAX_MS)


async def test_f03_what_the_platform_did_not_take_is_sent_again_at_its_time_and_blocks_the_chat(
    store: Store, clock: FakeClock
) -> None:
    chat = (await receive(store, "u1")).chat
    await send_to(store, chat, "note", "a", "b")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    retry_at = clock.now_ms() + 30_000
    await store.delivery.outbox.put_back(lease, part.id, "Too many requests.", retry_at=retry_at)
    assert await claim_parts(store, lease) == []
    await clock.advance(30)
    (again,) = await claim_parts(store, lease)
    assert (again.id, again.attempts, again.is_repeat) == (part.id, 2, False)


async def test_f03_the_next_part_of_a_chat_keeps_the_spacing_that_its_sender_asked_for(
    store: Store, clock: FakeClock
) -> None:
    chat = (await receive(store, "u1")).chat
    other = (await receive(store, "u2", chat="43")).chat
    await send_to(store, chat, "note", "a", "b")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.mark_sent(lease, part.id, "1", spacing_ms=1_000)
    await send_to(store, other, "note", "x")
    assert [part.body.text for part in await claim_parts(store, lease)] == ["x"]
    await clock.advance(1)
    assert [part.body.text for part in await claim_parts(store, lease)] == ["b"]


async def test_f03_what_could_not_be_sent_in_time_is_undelivered_and_the_chat_goes_on(
    store: Store, clock: FakeClock
) -> None:
    chat = (await receive(store, "u1")).chat
    await send_to(store, chat, "old", "a", age_max_ms=60_000)
    await send_to(store, chat, "new", "b")
    lease = await lease_of(store)
    await clock.advance(60)
    (claimed,) = await claim_parts(store, lease)
    assert claimed.body.text == "b"
    (given_up,) = await store.delivery.outbox.list_undecided(ME)
    assert (given_up.state, given_up.error) == (P.UNDELIVERED, "It could not be sent in time.")


async def test_f03_a_dead_senders_part_becomes_unknown_with_the_take_over(
    store: Store, open_another: OpenAnother
) -> None:
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, "good", "morning")
    first = await lease_of(store)
    (part,) = await claim_parts(store, first)
    other = await open_another()
    await other.workers.register(OTHER)
    assert await other.delivery.leases.take(ACCOUNT, OTHER) is None, "its worker lives"
    await die(store)
    second = await other.delivery.leases.take(ACCOUNT, OTHER)
    assert second is not None
    assert second.epoch == first.epoch + 1
    assert await states(store, accepted.turn.id) == [P.UNKNOWN, P.WAITING]
    assert await claim_parts(other, second) == [], "an unknown part holds the chat until it is decided"
    outbox = store.delivery.outbox
    late_writes: list[Callable[[], Awaitable[object]]] = [
        lambda: outbox.mark_sent(first, part.id, "1"),
        lambda: outbox.put_back(first, part.id, "Too many requests.", retry_at=0),
        lambda: outbox.mark_unknown(first, part.id, "The connection broke."),
        lambda: outbox.give_up(first, part.id, "Refused."),
        lambda: outbox.settle_unknown(first, WhenUnknown.REPEAT),
        lambda: store.delivery.leases.release(first),
    ]
    for write in late_writes:
        with pytest.raises(LeaseLost):
            await write()
    assert await states(store, accepted.turn.id) == [P.UNKNOWN, P.WAITING]


async def test_f03_a_worker_that_was_fenced_claims_nothing(store: Store, open_another: OpenAnother) -> None:
    chat = (await receive(store, "u1")).chat
    first = await lease_of(store)
    other = await open_another()
    await other.workers.register(OTHER)
    await die(store)
    assert await other.delivery.leases.take(ACCOUNT, OTHER) is not None
    await send_to(store, chat, "note", "a")
    with pytest.raises(LeaseLost):
        await claim_parts(store, first)


async def test_f03_a_lease_that_was_given_up_is_free_and_one_that_is_held_is_given_again(
    store: Store, open_another: OpenAnother
) -> None:
    lease = await lease_of(store)
    assert await store.delivery.leases.take(ACCOUNT, WORKER) == lease
    await store.delivery.leases.release(lease)
    other = await open_another()
    await other.workers.register(OTHER)
    taken = await other.delivery.leases.take(ACCOUNT, OTHER)
    assert taken is not None
    assert taken.epoch > lease.epoch


async def test_f03_what_a_worker_was_sending_when_it_begins_anew_is_unknown(store: Store) -> None:
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, "good morning")
    await claim_parts(store, await lease_of(store))
    await store.delivery.leases.take(ACCOUNT, WORKER)  # its service failed, and could not release the lease
    assert await states(store, accepted.turn.id) == [P.UNKNOWN]


async def test_f03_one_of_many_workers_takes_an_account(store: Store, open_another: OpenAnother) -> None:
    other = await open_another()
    workers = {WORKER: store, OTHER: other}
    for worker, through in workers.items():
        await through.workers.register(worker)
    taken = []

    async def take(worker: str, through: Store) -> None:
        taken.append(await through.delivery.leases.take(ACCOUNT, worker))

    async with anyio.create_task_group() as group:
        for worker, through in workers.items():
            group.start_soon(take, worker, through)
    assert len([lease for lease in taken if lease is not None]) == 1


@pytest.mark.parametrize(
    ("policy", "fates"),
    [
        (WhenUnknown.HOLD, [P.HELD]),
        (WhenUnknown.REPEAT, [P.WAITING, P.HELD]),
        (WhenUnknown.RESEND, [P.WAITING, P.WAITING]),
    ],
)
async def test_f03_an_unknown_part_is_held_repeated_once_or_sent_again_as_configured(
    store: Store, policy: WhenUnknown, fates: list[PartState]
) -> None:
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, "good morning")
    lease = await lease_of(store)
    repeats = []
    for fate in fates:
        (part,) = await claim_parts(store, lease)
        repeats.append(part.is_repeat)
        await store.delivery.outbox.mark_unknown(lease, part.id, "The connection broke.")
        assert await states(store, accepted.turn.id) == [P.UNKNOWN]
        assert await store.delivery.outbox.settle_unknown(lease, policy) == 1
        assert await states(store, accepted.turn.id) == [fate]
    assert repeats == [False, policy is WhenUnknown.REPEAT][: len(fates)]


async def test_f03_a_part_that_stays_unknown_is_sent_again_less_and_less_often(
    store: Store, clock: FakeClock
) -> None:
    chat = (await receive(store, "u1")).chat
    await send_to(store, chat, "one", "a")
    lease = await lease_of(store)
    for pause_s in (0, 1, 2, 4):
        (part,) = await claim_parts(store, lease)
        await store.delivery.outbox.mark_unknown(lease, part.id, "The connection broke.")
        await store.delivery.outbox.settle_unknown(lease, WhenUnknown.RESEND)
        if pause_s:
            assert await claim_parts(store, lease) == []
            await clock.advance(pause_s)


async def test_f03_a_person_decides_about_a_held_part(store: Store) -> None:
    chat = (await receive(store, "u1")).chat
    await send_to(store, chat, "one", "a")
    await send_to(store, chat, "two", "b")
    lease = await lease_of(store)
    for _ in range(2):
        (part,) = await claim_parts(store, lease)
        await store.delivery.outbox.mark_unknown(lease, part.id, "The connection broke.")
        await store.delivery.outbox.settle_unknown(lease, WhenUnknown.HOLD)
    first, second = await store.delivery.outbox.list_undecided(ME)
    assert [first.excerpt, second.excerpt] == ["a", "b"]
    assert await store.delivery.outbox.list_undecided("eve") == []
    with pytest.raises(NotFound):
        await store.delivery.outbox.send_again("eve", first.id)
    again = await store.delivery.outbox.send_again(ME, first.id)
    assert (again.state, again.is_repeat) == (P.WAITING, True)
    arrived = await store.delivery.outbox.confirm_arrived(ME, second.id)
    assert arrived.state is P.SENT
    for act, part_id in itertools.product(
        (store.delivery.outbox.send_again, store.delivery.outbox.confirm_arrived), (first.id, second.id)
    ):
        with pytest.raises(WrongState):
            await act(ME, part_id)
    (part,) = await claim_parts(store, lease)
    assert (part.body.text, part.is_repeat) == ("a", True)


async def test_f03_an_undelivered_part_can_be_sent_again_and_is_no_repeat(store: Store) -> None:
    chat = (await receive(store, "u1")).chat
    await send_to(store, chat, "one", "a")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.give_up(lease, part.id, "The chat was deleted.")
    (stuck,) = await store.delivery.outbox.list_undecided(ME)
    assert (stuck.state, stuck.error) == (P.UNDELIVERED, "The chat was deleted.")
    again = await store.delivery.outbox.send_again(ME, stuck.id)
    assert (again.state, again.is_repeat) == (P.WAITING, False)


async def test_f03_a_part_that_is_sent_again_waits_for_the_one_that_is_being_sent(store: Store) -> None:
    chat = (await receive(store, "u1")).chat
    await send_to(store, chat, "one", "a", "b")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.give_up(lease, part.id, "Refused.")
    (later,) = await claim_parts(store, lease)
    await store.delivery.outbox.send_again(ME, part.id)
    assert await claim_parts(store, lease) == []
    await store.delivery.outbox.mark_sent(lease, later.id, "2")
    (again,) = await claim_parts(store, lease)
    assert again.id == part.id


async def test_f03_a_purged_session_takes_its_messages_along(store: Store) -> None:
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, "good", "morning")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.sessions.delete(ME, accepted.turn.session_id)
    await store.delivery.outbox.mark_sent(lease, part.id, "1")  # its row has gone, which is no error
    assert await claim_parts(store, lease) == []
    assert await due(store) == []


# --- the session is told ------------------------------------------------------------------------------


async def told(store: Store, session_id: str) -> list[ReplySent | ReplyUnknown]:
    """The events about replies, in order."""
    found = await store.journal.after(ME, session_id, 0)
    payloads = [event.payload for event in found]
    return [payload for payload in payloads if isinstance(payload, ReplySent | ReplyUnknown)]


async def recorded_reply(store: Store, *texts: str) -> Accepted:
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, *texts)
    return accepted


async def shown(store: Store, accepted: Accepted) -> ReplyDelivery:
    page = await store.transcript.page(ME, accepted.turn.session_id)
    (turn,) = [turn for turn in page.turns if turn.id == accepted.turn.id]
    (delivery,) = turn.replies
    return delivery


async def test_f03_the_session_is_told_once_that_the_chat_has_the_whole_answer(store: Store) -> None:
    accepted = await recorded_reply(store, "good", "morning")
    session_id = accepted.turn.session_id
    before = await store.sessions.get(ME, session_id)
    lease = await lease_of(store)
    assert (await shown(store, accepted)).state is ReplyState.WAITING
    for text in ("good", "morning"):
        assert await told(store, session_id) == []
        (part,) = await claim_parts(store, lease)
        await store.delivery.outbox.mark_sent(lease, part.id, f"tg-{text}")
    (sent,) = await told(store, session_id)
    assert isinstance(sent, ReplySent)
    assert sent.turn_id == accepted.turn.id
    assert (sent.reply.account, sent.reply.platform, sent.reply.state) == (
        ACCOUNT,
        "telegram",
        ReplyState.SENT,
    )
    assert await shown(store, accepted) == sent.reply
    after = await store.sessions.get(ME, session_id)
    assert (after.version, after.updated_at) == (before.version, before.updated_at), "it is no activity"


async def test_f03_the_session_is_told_of_a_reply_that_a_person_decides_about(store: Store) -> None:
    accepted = await recorded_reply(store, "good morning")
    session_id, lease, outbox = accepted.turn.session_id, await lease_of(store), store.delivery.outbox
    (part,) = await claim_parts(store, lease)
    await outbox.mark_unknown(lease, part.id, "The connection broke.")
    await outbox.settle_unknown(lease, WhenUnknown.HOLD)
    (unknown,) = await told(store, session_id)
    assert isinstance(unknown, ReplyUnknown)
    assert (unknown.reply.state, unknown.reply.parts, unknown.reply.error) == (
        ReplyState.UNKNOWN,
        (part.id,),
        "The connection broke.",
    )
    assert await shown(store, accepted) == unknown.reply
    await outbox.send_again(ME, part.id)
    assert (await shown(store, accepted)).state is ReplyState.WAITING
    (again,) = await claim_parts(store, lease)
    await outbox.mark_sent(lease, again.id, "tg-1")
    _, sent = await told(store, session_id)
    assert isinstance(sent, ReplySent)
    assert sent.reply.is_repeat


async def test_f03_the_session_is_told_of_an_answer_that_a_person_saw_arrive(store: Store) -> None:
    accepted = await recorded_reply(store, "good morning")
    lease, outbox = await lease_of(store), store.delivery.outbox
    (part,) = await claim_parts(store, lease)
    await outbox.mark_unknown(lease, part.id, "The connection broke.")
    await outbox.settle_unknown(lease, WhenUnknown.HOLD)
    await outbox.confirm_arrived(ME, part.id)
    events = await told(store, accepted.turn.session_id)
    assert [type(event) for event in events] == [ReplyUnknown, ReplySent]


@pytest.mark.parametrize("is_refused", [True, False])
async def test_f03_the_session_is_told_of_an_answer_that_will_not_arrive(
    store: Store, clock: FakeClock, is_refused: bool
) -> None:
    accepted = await recorded_reply(store, "good morning")
    lease, outbox = await lease_of(store), store.delivery.outbox
    if is_refused:
        (part,) = await claim_parts(store, lease)
        await outbox.give_up(lease, part.id, "The chat was deleted.")
    else:
        await clock.advance(AGE_MAX_MS / 1000)
        assert await claim_parts(store, lease) == []
    (event,) = await told(store, accepted.turn.session_id)
    assert isinstance(event, ReplyUnknown)
    assert event.reply.state is ReplyState.UNDELIVERED
    assert event.reply.error == ("The chat was deleted." if is_refused else "It could not be sent in time.")


async def test_f03_a_notice_to_a_chat_is_no_answer_and_the_session_is_not_told(store: Store) -> None:
    received = await receive(store, "u1")
    accepted = await accept(store, received)
    await send_to(store, received.chat, "note", "hello")
    lease = await lease_of(store)
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.mark_sent(lease, part.id, "1")
    assert await told(store, accepted.turn.session_id) == []
