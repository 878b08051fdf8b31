"""F10: each cause of a notification owes one, and takes it back when it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from everturn.domain.asks import AskTopic, Decision, DoubtAnswer
from everturn.domain.delivery import NewPart, WhenUnknown
from everturn.domain.notifications import ANSWER_AFTER_MS, NewTarget, NoticeKind, NoticeState
from everturn.domain.turns import Failure
from everturn.store import Store
from everturn.testing import FakeClock, Say
from everturn.testing.acting import ME, WORKER, answer, append, ask, claim, complete, new_session, say, start
from everturn.testing.harness import OWNER
from everturn.testing.models import Wait
from tests.delegating import delegating, hand_over, task
from tests.delivering import arrive, claim_parts, due, lease_of, record, reply
from tests.notifying import add_browser, grace, look_and_send, service_of
from tests.push_service import PushService
from tests.scheduling import DAY_MS, make, settle

pytestmark = pytest.mark.anyio
BROKEN = Failure("model", "The provider cannot be reached.")


@pytest.fixture
def push() -> Iterator[PushService]:
    service = PushService()
    with service.serve():
        yield service


async def test_f10_a_failed_run_is_notified_until_the_next_one_and_a_paused_schedule_too(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session = await new_session(store, "Mails")
    schedule = await make(store, clock, session_id=session.id)

    async def next_run() -> None:
        await clock.advance(DAY_MS / 1000)
        await settle(store, clock)

    await next_run()
    held = await claim(store)
    await store.turns.fail(held.turn.id, held.epoch, BROKEN)
    await grace(clock)
    await look_and_send(service)
    (failed,) = push.messages
    assert (failed["kind"], failed["title"], failed["text"], failed["link"]) == (
        "schedule",
        "Schedule failed: Morning",
        "The provider cannot be reached.",
        f"#/s/{session.id}",
    )
    await next_run()
    held = await claim(store)
    await complete(store, held, await append(store, held, answer("Three mails.")))
    await look_and_send(service)
    assert push.shown[failed["tag"]]["is_gone"], "a later run has begun"

    for number in (1, 2):
        await store.sessions.mark_deleted(ME, session.id, due_at=clock.now_ms() + DAY_MS)
        await next_run()
        await grace(clock)
        await look_and_send(service)
        paused = push.messages[-1]
        assert (paused["title"], paused["text"], paused["link"]) == (
            "Schedule failed: Morning",
            "Paused. Its session was deleted.",
            "#/schedules",
        )
        await store.sessions.restore(ME, session.id)
        found = await store.schedules.get(ME, schedule.id)
        due_at = clock.now_ms() + DAY_MS
        await store.schedules.change(replace(found, paused_at=None, pause_reason="", due_at=due_at))
        await look_and_send(service)
        assert push.shown[paused["tag"]]["is_gone"], f"pause {number} is over"


async def test_f10_an_answer_that_may_not_have_arrived_is_notified_until_a_person_decides(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    accepted = await arrive(store, "u1")
    await reply(store, accepted, "good morning")
    (owed,) = await due(store)
    await record(store, owed, "good", "morning")
    lease, outbox, parts = await lease_of(store), store.delivery.outbox, []
    for _ in range(2):
        (part,) = await claim_parts(store, lease)
        await outbox.mark_unknown(lease, part.id, "The connection broke.")
        await outbox.settle_unknown(lease, WhenUnknown.HOLD)
        parts.append(part.id)
    await grace(clock)
    await look_and_send(service)
    (message,) = push.messages
    assert (message["kind"], message["title"]) == ("delivery", "Delivery unknown")
    assert message["text"].endswith("to main\nThe connection broke.")
    assert message["link"] == f"#/s/{accepted.turn.session_id}"
    for part_id in parts:
        assert not push.shown[message["tag"]].get("is_gone")
        await outbox.confirm_arrived(ME, part_id)
        await look_and_send(service)
    assert push.shown[message["tag"]]["is_gone"]


@pytest.mark.parametrize("is_queued", [False, True])
async def test_f10_a_long_turn_that_failed_is_notified_with_its_reason(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService, is_queued: bool
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session = await new_session(store, "Build")
    turn = (await say(store, session.id, "build it")).turn
    epoch = None if is_queued else (await claim(store)).epoch
    await clock.advance(ANSWER_AFTER_MS / 1000)
    await store.turns.fail(turn.id, epoch, BROKEN)
    await grace(clock)
    await look_and_send(service)
    (message,) = push.messages
    assert (message["kind"], message["title"], message["text"]) == ("answer", "Build", BROKEN.message)


async def test_f10_a_call_in_doubt_is_notified_until_it_is_settled(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session = await new_session(store, "Deploy")
    held = await start(store, session.id, "deploy it")
    doubt = ask("ask_doubt", held.turn.id, session.id, AskTopic.DOUBT, name="terminal")
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [doubt], [])
    await grace(clock)
    await look_and_send(service)
    (message,) = push.messages
    assert (message["kind"], message["title"], message["text"]) == (
        "approval",
        "Did this call finish?",
        "Deploy\nShall I?",
    )
    assert "ask" not in message, "it cannot be answered from a notification"
    await store.asks.answer(ME, "ask_doubt", DoubtAnswer.CHECK, by="browser")
    await look_and_send(service)
    assert push.shown[message["tag"]]["title"] == "Answered"


async def test_f10_what_a_delegate_does_is_for_its_parent(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service, gate = service_of(store, clock, data_dir, [push.private]), anyio.Event()
    browser = push.browser((await service.key()).key)
    await service.add(OWNER, NewTarget(name="one", browser=browser))
    script = [hand_over(task()), "all done"]
    async with delegating(store, script, [[Wait(gate), Say("found it")]], clock=clock) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        await d.h.seen(session, "turn.waiting")
        await clock.advance(ANSWER_AFTER_MS / 1000)
        gate.set()
        await d.ended(turn_id)
    await grace(clock)
    notices = await store.delivery.notices.due(limit=10)
    assert [(notice.kind, notice.cause) for notice in notices] == [(NoticeKind.ANSWER, turn_id)]


async def test_f10_a_message_is_recorded_once_and_taken_back_once_when_it_is_not_being_sent(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service, notices = service_of(store, clock, data_dir, [push.private]), store.delivery.notices
    await add_browser(service, push)
    session = await new_session(store)
    held = await start(store, session.id, "pay it")
    asked = ask("ask_one", held.turn.id, session.id, AskTopic.APPROVAL, name="pay")
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [asked], [])
    await grace(clock)
    (notice,) = await notices.due(limit=10)
    assert await notices.record(notice, NewPart("{}")) is NoticeState.SHOWN
    assert await notices.record(notice, NewPart("{}")) is None
    await store.asks.answer(ME, "ask_one", Decision.DENY, by="browser")
    (notice,) = await notices.over(limit=10)
    await store.workers.register(WORKER)
    lease = await store.delivery.leases.take(notice.chat.place.account, WORKER)
    assert lease is not None
    (part,) = await claim_parts(store, lease)
    assert await notices.withdraw(notice, None) is None
    await store.delivery.outbox.mark_sent(lease, part.id, "")
    assert await notices.withdraw(notice, None) is NoticeState.WITHDRAWN
    assert await notices.withdraw(notice, None) is None
