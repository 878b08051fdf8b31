"""F10: a notification is owed by the transaction that caused it, and reaches the person or is not needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from everturn.domain.asks import AskTopic, Decision
from everturn.domain.delivery import PartState
from everturn.domain.errors import Invalid, NotFound
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import JobEnding
from everturn.domain.notifications import (
    GRACE_MS,
    NewTarget,
    NoticeKind,
    NoticeSettings,
    NoticeState,
    QuietHours,
)
from everturn.domain.sessions import SessionPatch
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, ask, new_job, new_session, start
from tests.conftest import OpenAnother
from tests.delivering import AGE_MAX_MS, receive
from tests.notifying import add_browser, grace, long_turn, look_and_send, send_all, service_of
from tests.push_service import PushService
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def push() -> Iterator[PushService]:
    service = PushService()
    with service.serve():
        yield service


async def asked(store: Store, ident: str = "ask_one", topic: AskTopic = AskTopic.APPROVAL) -> str:
    """A turn that waits for an approval; return its session's id."""
    session = await new_session(store, "Nightly backup")
    held = await start(store, session.id, "look at it")
    question = ask(
        ident, held.turn.id, session.id, topic, name="terminal", arguments='{"command": "restic unlock"}'
    )
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [question], [])
    return session.id


async def test_f10_another_server_sends_what_a_crashed_one_owed(
    store: Store, open_another: OpenAnother, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    device = await add_browser(service_of(store, clock, data_dir, [push.private]), push)
    session_id = await long_turn(store, clock)
    await grace(clock)
    # The first server does nothing more. Another one finds all of it in the store.
    other = await open_another()
    await look_and_send(service_of(other, clock, data_dir, [push.private], "wrk_two"), "wrk_two")
    (message,) = push.messages
    assert (message["title"], message["text"]) == ("Receipts", "Done: 210.")
    assert message["link"] == f"#/s/{session_id}"
    (headers,) = push.attempts
    assert int(headers["ttl"]) > 0
    assert headers["urgency"] == "normal"
    assert len(headers["topic"]) == 32
    assert (await store.delivery.devices.get(ME, device.id)).sent_at == clock.now_ms()


async def test_f10_what_was_read_meanwhile_is_dropped(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session_id = await long_turn(store, clock)
    await grace(clock)
    (notice,) = await store.delivery.notices.due(limit=10)
    await store.sessions.change(ME, session_id, SessionPatch(is_unread=False))
    await look_and_send(service)
    assert push.attempts == []
    assert await store.delivery.notices.state(notice.id) is NoticeState.DROPPED


async def test_f10_what_is_read_while_a_send_waits_is_not_sent(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session_id = await long_turn(store, clock)
    await grace(clock)
    await service.notifier.look()
    await store.sessions.change(ME, session_id, SessionPatch(is_unread=False))
    await look_and_send(service)
    assert push.attempts == []


async def test_f10_short_turns_and_kinds_that_were_not_chosen_are_not_notified(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push, "asks only", [NoticeKind.APPROVAL])
    await long_turn(store, clock)
    await grace(clock)
    assert await store.delivery.notices.due(limit=10) == []


async def test_f10_an_approval_is_shown_with_its_call_and_replaced_once_answered(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session_id = await asked(store)
    await grace(clock)
    await look_and_send(service)
    (message,) = push.messages
    assert message["title"] == "Approve this command"
    assert "restic unlock" in message["text"]
    assert (message["ask"], message["session"]) == ("ask_one", session_id)
    assert push.attempts[0]["urgency"] == "high"
    await store.asks.answer(ME, "ask_one", Decision.DENY, by="browser")
    await look_and_send(service)
    assert push.shown[message["tag"]]["is_gone"]
    assert push.shown[message["tag"]]["title"] == "Denied"
    assert push.attempts[0]["topic"] == push.attempts[1]["topic"]
    await look_and_send(service)
    assert len(push.attempts) == 2, "it is taken back once"


async def test_f10_a_browser_that_was_away_gets_only_what_is_still_so(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    await asked(store)
    await grace(clock)
    push.is_away = True
    await look_and_send(service)
    await store.asks.answer(ME, "ask_one", Decision.ONCE, by="browser")
    await look_and_send(service)
    push.come_back()
    (message,) = push.messages
    assert (message["title"], message["is_gone"]) == ("Allowed", True)


async def test_f10_two_servers_send_it_once(
    store: Store, open_another: OpenAnother, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    other = await open_another()
    services = [
        service_of(store, clock, data_dir, [push.private], "wrk_one"),
        service_of(other, clock, data_dir, [push.private], "wrk_two"),
    ]
    await add_browser(services[0], push)
    for number in range(5):
        await long_turn(store, clock, f"Session {number}")
    await grace(clock)
    async with anyio.create_task_group() as group:
        for service in services:
            group.start_soon(service.notifier.look)
    async with anyio.create_task_group() as group:
        group.start_soon(send_all, services[0], "wrk_one")
        group.start_soon(send_all, services[1], "wrk_two")
    assert sorted(message["title"] for message in push.messages) == [f"Session {n}" for n in range(5)]


async def test_f10_a_subscription_that_is_gone_is_marked_and_gets_nothing_more(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    device = await add_browser(service, push)
    push.statuses = [410]
    await long_turn(store, clock)
    await grace(clock)
    await look_and_send(service)
    (shown,) = await service.devices(ME)
    assert (shown.ended_at, shown.error) == (clock.now_ms(), "The push service answered 410.")
    await long_turn(store, clock)
    await grace(clock)
    assert await store.delivery.notices.due(limit=10) == []
    assert (await store.delivery.totals()).outbox_for_people == 0, "no person has to decide about it"
    again = await add_browser(service, push)
    assert (again.id, again.ended_at) == (device.id, None)


async def test_f10_a_busy_service_is_left_alone_and_others_are_not_delayed(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push, "one")
    push.statuses = [429]
    await long_turn(store, clock)
    await grace(clock)
    await look_and_send(service)
    other = PushService()
    with other.serve():
        both = service_of(store, clock, data_dir, [push.private, other.private])
        await add_browser(both, other, "two")
        await long_turn(store, clock, "Second")
        push.statuses = [429] * 3
        await grace(clock)
        await look_and_send(both)
        assert [message["title"] for message in other.messages] == ["Second"]
        push.statuses = []
        await clock.advance(7)
        await look_and_send(both)
        assert [message["title"] for message in push.messages] == ["Receipts", "Second"]


async def test_f10_after_a_hanging_service_it_is_sent_again(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    push.statuses = [-1]
    await long_turn(store, clock)
    await grace(clock)
    await service.notifier.look()
    async with anyio.create_task_group() as group:
        group.start_soon(send_all, service)
        await until("the message has left", lambda: push.attempts)
        await clock.advance(25)
    assert len(push.attempts) == 2
    assert len(push.messages) == 1


async def test_f10_jobs_budgets_and_failed_turns_are_notified(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    session = await new_session(store, "Build")
    await store.jobs.add(ME, session.id, new_job(when_ended=WhenEnded.TELL), running_max=9)
    await store.jobs.end(new_job().id, JobEnding(JobState.ENDED, exit_code=2))
    await asked(store, "ask_budget", AskTopic.BUDGET)
    await grace(clock)
    await look_and_send(service)
    titles = {message["title"]: message["text"] for message in push.messages}
    assert set(titles) == {"Job: Failed with exit code 2", "Budget reached"}
    assert titles["Job: Failed with exit code 2"] == "Build\nmake all"


async def test_f10_quiet_hours_hold_back_what_holds_up_nothing(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    # The fake clock begins at 15:06 UTC.
    await service.put_settings(ME, NoticeSettings(QuietHours("15:00", "16:00", "UTC"), shows_content=False))
    await long_turn(store, clock)
    await asked(store)
    await grace(clock)
    await look_and_send(service)
    assert [message["title"] for message in push.messages] == ["Everturn needs you"]
    assert "text" not in push.messages[0]
    await clock.advance(3600)
    await look_and_send(service)
    assert [message["title"] for message in push.messages] == ["Everturn needs you", "Everturn has news"]


async def test_f10_a_chat_is_told_in_its_own_words_and_not_of_what_it_gets_anyway(
    store: Store, clock: FakeClock, data_dir: Path
) -> None:
    service = service_of(store, clock, data_dir, page_url="https://agent.example.org/")
    chat = (await receive(store, "u1")).chat
    await service.add(ME, NewTarget(name="Telegram", chat=chat.id))
    session_id = await long_turn(store, clock)
    await grace(clock)
    (notice,) = await store.delivery.notices.due(limit=10)
    await service.notifier.look()
    parts = await store.delivery.outbox.find(ME, chat.id, f"note:answer:{notice.cause}")
    assert [part.state for part in parts] == [PartState.WAITING]
    await store.delivery.chats.switch(ME, chat.id, session_id)
    held = await start(store, session_id, "more")
    question = ask("ask_two", held.turn.id, session_id, AskTopic.APPROVAL, name="pay")
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [question], [])
    await clock.advance(GRACE_MS)
    assert await store.delivery.notices.due(limit=10) == []


async def test_f10_an_approval_is_asked_in_the_chosen_chat_with_its_buttons(
    store: Store, clock: FakeClock, data_dir: Path
) -> None:
    service = service_of(store, clock, data_dir)
    chat = (await receive(store, "u1")).chat
    await service.add(ME, NewTarget(name="Telegram", chat=chat.id))
    await asked(store)
    (due,) = await store.delivery.outbox.asks_due(chat.place.account, limit=10)
    assert due.chat.id == chat.id
    await store.delivery.outbox.record_question(due, [], age_max_ms=AGE_MAX_MS)
    assert await store.delivery.outbox.asks_due(chat.place.account, limit=10) == []


async def test_f10_a_removed_device_takes_what_waits_for_it_along(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    device = await add_browser(service, push)
    await long_turn(store, clock)
    await grace(clock)
    await service.notifier.look()
    await service.remove(ME, device.id)
    await look_and_send(service)
    assert push.attempts == []
    assert await store.delivery.chats.list(ME) == []
    with pytest.raises(NotFound):
        await service.test(ME, device.id)


async def test_f10_a_browser_with_another_key_is_refused(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    with pytest.raises(Invalid, match="another key"):
        await service.add(ME, NewTarget(name="old", browser=push.browser("B" * 87)))
