"""F01-F03, F05, F07: updates of a platform become turns, and their answers reach the chats, once or marked."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import msgspec
import pytest

from everturn.delivery.replies import Replies
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import (
    AccountLease,
    ChatKind,
    ChatPlace,
    NewPart,
    OutgoingPart,
    PartState,
    RemoteFile,
    Update,
    WhenUnknown,
)
from everturn.domain.errors import OutcomeUnknown, PlatformBusy, PlatformRefused
from everturn.domain.messages import Attachment, Text
from everturn.domain.platform import Deliver, FindSeen
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.store import Store
from everturn.testing import HoldingProbe, Say
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.models import Wait
from everturn.testing.platform import RICH, FakePlatform
from tests.conftest import OpenAnother
from tests.delivering import arrive, claim_parts, due, lease_of, receive, reply, send_to
from tests.serving import FAST, answering, arrived, context_of, service_of, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> SystemClock:
    """The store's and the loops'. They poll at short intervals, and the tests wait for facts."""
    return SystemClock()


def answers(platform: FakePlatform) -> list[str]:
    """What arrived, without notices."""
    return [text for text in platform.texts() if not text.startswith("*")]


async def test_f_messages_are_answered_in_their_chats_in_order(store: Store) -> None:
    platform = FakePlatform()
    async with answering(store, platform, Say("first"), Say("second\n\nin two parts"), Say("third")):
        for number, text in enumerate(("one", "two", "three")):
            platform.say(f"u{number}", text)
            await arrived(platform, (1, 3, 4)[number])
    assert platform.texts() == ["first", "second", "in two parts", "third"]
    assert platform.unacknowledged == 0
    (session,) = (await store.sessions.list(OWNER)).items
    assert session.key == "agent:default:fake:dm:42"


async def test_f_a_chat_with_one_person_is_called_by_their_name(store: Store) -> None:
    platform = FakePlatform()
    direct = ChatPlace("main", "fake", ChatKind.DIRECT, "42")
    group = ChatPlace("main", "fake", ChatKind.GROUP, "43")
    async with answering(store, platform, Say("first"), Say("second")):
        for number, place in enumerate((direct, group)):
            platform.deliver_later(Update(f"u{number}", place, "ada", "hello", sender_name="Ada Lovelace"))
            await arrived(platform, 1, place.chat)
    titles = {chat.place.kind: chat.title for chat in await store.delivery.chats.list(OWNER)}
    assert titles == {ChatKind.DIRECT: "Ada Lovelace", ChatKind.GROUP: ""}


async def test_f_nothing_waits_for_the_next_look(store: Store) -> None:
    platform = FakePlatform()
    settings = msgspec.structs.replace(FAST, poll_s=3600.0)
    async with answering(store, platform, Say("first\n\nin two parts"), Say("second"), settings=settings):
        platform.say("u1")
        await arrived(platform, 2)
        platform.say("u2", "   ")
        await arrived(platform, 3)
        platform.say("u3")
        await arrived(platform, 4)


async def test_f_a_chat_sees_that_an_answer_is_being_written(store: Store) -> None:
    platform = FakePlatform(features=RICH)
    go_on = anyio.Event()
    settings = msgspec.structs.replace(FAST, typing_s=0.01)
    async with answering(store, platform, [Wait(go_on), Say("here")], settings=settings):
        platform.say("u1")
        await until("typing is shown", lambda: platform.typing)
        go_on.set()
        await arrived(platform, 1)
    assert set(platform.typing) == {"42"}


async def test_f01_an_update_that_is_delivered_again_is_answered_once(store: Store) -> None:
    platform = FakePlatform()
    async with answering(store, platform, Say("first"), Say("second")):
        for update_id in ("u1", "u1", "u2"):
            platform.say(update_id)
        await until("both are answered", lambda: len(answers(platform)) == 2)
    assert answers(platform) == ["first", "second"]


class ForgetfulPlatform(FakePlatform):
    """Keeps nothing, and reads the chats' history instead."""

    find_seen: FindSeen

    def use_history(self, find_seen: FindSeen) -> None:
        self.find_seen = find_seen


async def test_f01_a_platform_that_keeps_nothing_is_told_what_is_stored_of_its_chats(store: Store) -> None:
    platform = ForgetfulPlatform()
    await receive(store, "u1", number=5)
    async with answering(store, platform, Say("first")):
        (seen,) = await platform.find_seen()
    assert (seen.place.chat, seen.number) == ("42", 5)


async def _queued(store: Store, count: int) -> bool:
    return (await store.sessions.list(OWNER)).items[0].queued == count


async def test_f02_messages_during_a_turn_are_queued_and_their_sender_is_told_once(store: Store) -> None:
    platform = FakePlatform()
    go_on = anyio.Event()
    script = ([Say("fir"), Wait(go_on), Say("st")], Say("second"), Say("third"), Say("fourth"))
    async with answering(store, platform, *script) as (harness, _):
        platform.say("u1", "one")
        await until("the model is asked", lambda: harness.model.requests)
        for update_id in ("u2", "u3", "u4"):
            platform.say(update_id, "and this")
        await until("all are queued", lambda: _queued(store, 3))
        go_on.set()
        told = await arrived(platform, 5)
        assert told == ["*Queued: it is answered next.*", "first", "second", "third", "fourth"]


async def test_f02_a_notice_that_was_not_sent_yet_is_not_followed_by_another(store: Store) -> None:
    platform = FakePlatform()
    platform.held_chats = {"42"}
    first, second = anyio.Event(), anyio.Event()
    script = ([Wait(first), Say("first")], [Wait(second), Say("second")], Say("third"))
    async with answering(store, platform, *script) as (harness, _):
        platform.say("u1", "one")
        await until("the model is asked", lambda: harness.model.requests)
        platform.say("u2", "two")
        await until("its notice is being sent", lambda: platform.sends)
        first.set()
        await until("the second runs", lambda: len(harness.model.requests) == 2)
        platform.say("u3", "three")
        await until("it is queued", lambda: _queued(store, 1))
        second.set()
        platform.release()
        told = await arrived(platform, 4)
        assert told == ["*Queued: it is answered next.*", "first", "second", "third"]


async def test_f01_a_message_from_a_clock_that_is_ahead_was_not_sent_after_it_was_received(
    store: Store,
) -> None:
    platform = FakePlatform()
    place = ChatPlace(platform.account, platform.name, ChatKind.DIRECT, "42")
    platform.deliver_later(Update("u1", place, "ada", "hello", sent_at=4_000_000_000_000))
    async with answering(store, platform, Say("hi")) as (harness, _):
        await arrived(platform, 1)
        (session,) = (await store.sessions.list(OWNER)).items
        (text,) = (await harness.messages(session))[0].parts
    assert isinstance(text, Text)
    assert text.source is not None
    assert text.source.sent_at is not None
    assert text.source.sent_at <= SystemClock().now_ms()


async def test_f05_a_stranger_gets_no_answer_and_no_row(store: Store) -> None:
    platform = FakePlatform()
    async with answering(store, platform, Say("hello ada")) as (_, service):
        platform.say("u1", "let me in", chat="66", sender="eve")
        platform.say("u2", "hello")
        await arrived(platform, 1)
    assert service.strangers == 1
    assert platform.texts("66") == []
    assert len(await store.delivery.chats.list(OWNER)) == 1


async def test_f03_a_busy_platform_is_left_alone_and_gets_the_part_later(store: Store) -> None:
    platform = FakePlatform()
    platform.failures = [PlatformBusy("Too many requests.", after_s=0.05), PlatformBusy("Not reached.")]
    async with answering(store, platform, Say("here it is")):
        platform.say("u1")
        assert await arrived(platform, 1) == ["here it is"]
    assert len(platform.sends) == 3


async def test_f03_what_the_platform_refuses_is_undelivered_and_the_chat_goes_on(store: Store) -> None:
    platform = FakePlatform()
    platform.failures = [PlatformRefused("The text is not allowed.")]
    async with answering(store, platform, Say("bad\n\ngood")):
        platform.say("u1")
        assert await arrived(platform, 1) == ["good"]
    (part,) = await store.delivery.outbox.list_undecided(OWNER)
    assert (part.state, part.error) == (PartState.UNDELIVERED, "The text is not allowed.")


@pytest.mark.parametrize(
    ("policy", "deduplicates", "seen", "state"),
    [
        (WhenUnknown.REPEAT, False, [False, True], PartState.SENT),
        (WhenUnknown.HOLD, False, [False], PartState.HELD),
        (WhenUnknown.HOLD, True, [False], PartState.SENT),
    ],
    ids=["repeated", "held", "deduplicated"],
)
async def test_f03_a_send_with_an_unknown_outcome_is_repeated_once_held_or_deduplicated(
    store: Store, policy: WhenUnknown, deduplicates: bool, seen: list[bool], state: PartState
) -> None:
    platform = FakePlatform(deduplicates=deduplicates)
    platform.late_failures = [ConnectionResetError("the connection broke")]
    settings = msgspec.structs.replace(FAST, when_unknown=policy)
    async with answering(store, platform, Say("here it is"), settings=settings):
        platform.say("u1")

        async def is_settled() -> bool:
            return await _reply_states(store) == [state]

        await until("the part has its fate", is_settled)
    assert [part.is_repeat for part in platform.arrived] == seen


async def _reply_states(store: Store) -> list[PartState]:
    """The states of the parts that answer the chat's turn."""
    heads = [session.head for session in (await store.sessions.list(OWNER)).items]
    parts = [part for head in heads if head for part in await store.delivery.outbox.of_turn(OWNER, head)]
    return [part.state for part in parts]


async def test_f03_a_send_that_has_begun_is_finished_before_the_account_stops(store: Store) -> None:
    platform = FakePlatform()
    platform.held_chats = {"42"}
    async with open_harness(store, Say("here it is"), clock=SystemClock()) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(service_of(harness, platform).run)
            platform.say("u1")
            await until("the part is being sent", lambda: platform.sends)
            group.cancel_scope.cancel()
            platform.release()
        assert platform.texts() == ["here it is"]
        assert await _reply_states(store) == [PartState.SENT]


async def test_f03_a_part_whose_sender_died_is_sent_once_more_and_marked(
    store: Store, open_another: OpenAnother
) -> None:
    platform = FakePlatform()
    received = await receive(store, "u1")
    await send_to(store, received.chat, "note", "hello")
    lease = await lease_of(store, "wrk_dead")
    (part,) = await claim_parts(store, lease)
    platform.arrived.append(part)  # it arrived, and then the process died
    store.workers.close()
    other = await open_another()
    async with answering(other, platform, Say("answer")):
        await arrived(platform, 2)
    assert [(part.body.text, part.is_repeat) for part in platform.arrived[:2]] == [
        ("hello", False),
        ("hello", True),
    ]


async def test_f03_parts_of_a_claim_whose_outcome_is_unknown_are_sent_once_and_not_marked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = store.delivery.outbox
    claim = outbox.claim
    lost: list[OutgoingPart] = []

    async def lose_answer(lease: AccountLease, *, limit: int) -> list[OutgoingPart]:
        parts = await claim(lease, limit=limit)
        if parts and not lost:
            lost.extend(parts)
            raise OutcomeUnknown("The connection was lost during the commit.")
        return parts

    monkeypatch.setattr(outbox, "claim", lose_answer)
    platform = FakePlatform()
    async with answering(store, platform, Say("first"), Say("second")):
        platform.say("u1")
        await arrived(platform, 1)
        platform.say("u2")
        await arrived(platform, 2)
    assert lost
    assert [(part.body.text, part.is_repeat) for part in platform.arrived] == [
        ("first", False),
        ("second", False),
    ]


async def test_f01_half_a_character_does_not_stop_the_updates_after_it(store: Store) -> None:
    platform = FakePlatform()
    half = "half \ud83d"
    place = ChatPlace(platform.account, platform.name, ChatKind.DIRECT, "42")
    async with answering(store, platform, Say("first"), Say("second")):
        file = RemoteFile("ref-1", half)
        platform.deliver_later(Update("u1", place, "ada", half, (file,), sender_name=half, chat_title=half))
        await arrived(platform, 1)
        platform.say("u2")
        await arrived(platform, 2)
    assert platform.texts() == ["first", "second"]


async def test_f07_a_chat_and_a_platform_that_hang_delay_no_other(store: Store) -> None:
    slow, quick = FakePlatform(), FakePlatform(account="second")
    slow.held_chats = {"1"}
    async with (
        answering(store, slow, *[Say("answer")] * 3) as (harness, _),
        serving(service_of(harness, quick)),
    ):
        slow.say("u1", chat="1")
        await until("a send hangs", lambda: slow.sends)
        slow.say("u2", chat="2")
        quick.say("u3", chat="3")
        assert await arrived(slow, 1, "2") == ["answer"]
        assert await arrived(quick, 1, "3") == ["answer"]
        slow.release()
        assert await arrived(slow, 1, "1") == ["answer"]


async def test_f01_files_are_fetched_into_the_turn_and_missing_ones_named(store: Store) -> None:
    platform = FakePlatform()
    platform.files = {"ref-1": b"some notes", "ref-3": b"x" * 20}
    platform.say(
        "u1",
        "look",
        files=(
            RemoteFile("ref-1", "notes.txt", "text/plain"),
            RemoteFile("ref-2", "gone.txt"),
            RemoteFile("ref-3", "large.bin"),
        ),
    )
    settings = msgspec.structs.replace(FAST, file_bytes_max=10)
    async with answering(store, platform, Say("I see"), settings=settings) as (harness, _):
        await arrived(platform, 1)
        (session,) = (await store.sessions.list(OWNER)).items
        message = (await harness.messages(session))[0]
    names = [part.name for part in message.parts if isinstance(part, Attachment)]
    assert names == ["notes.txt"]
    assert "gone.txt is missing: gone.txt is not there any more." in message.text
    assert "large.bin is missing: large.bin has 20 bytes; the limit is 10." in message.text


async def test_f07_a_message_that_fails_holds_up_its_own_chat_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = FakePlatform()
    async with answering(store, platform, *[Say("answer")] * 3) as (harness, service):
        submit, failures = harness.engine.submit_received, 0

        async def submit_unless_bad(inbox_id: str, submission: Submission) -> object:
            nonlocal failures
            if submission.text == "bad" and failures < 3:
                failures += 1
                raise RuntimeError("a bug")
            return await submit(inbox_id, submission)

        monkeypatch.setattr(harness.engine, "submit_received", submit_unless_bad)
        platform.say("u1", "bad", "1")
        platform.say("u2", "good", "2")
        await arrived(platform, 1, "2")
        await arrived(platform, 1, "1")
        assert failures == 3
        assert service.last_error == ""


async def test_f01_a_message_that_cannot_be_a_turn_is_refused_and_its_sender_told(store: Store) -> None:
    platform = FakePlatform()
    async with answering(store, platform, Say("never said")):
        platform.say("u1", "   ")
        (told,) = await arrived(platform, 1)
    assert "no text" in told


async def test_f01_a_second_worker_serves_the_account_after_the_first_has_stopped(
    store: Store, open_another: OpenAnother
) -> None:
    platform = FakePlatform()
    other = await open_another()
    script = [Say("answer")] * 2  # whichever engine runs the turns
    async with (
        open_harness(store, *script, clock=SystemClock()) as one,
        open_harness(other, *script, clock=SystemClock()) as two,
    ):
        first, second = service_of(one, platform), service_of(two, platform)
        async with serving(first):
            await until("the first serves", lambda: first.is_serving)
            async with serving(second):
                platform.say("u1")
                await arrived(platform, 1)
                assert not second.is_serving
        async with serving(second):
            await until("the second serves", lambda: second.is_serving)
            platform.say("u2")
            assert await arrived(platform, 2) == ["answer", "answer"]


async def test_f03_an_answer_that_the_platform_cannot_render_is_sent_as_it_is(store: Store) -> None:
    class Clumsy(FakePlatform):
        def render(self, markdown: str) -> Sequence[NewPart]:
            raise ValueError(markdown)

    platform = Clumsy()
    async with answering(store, platform, Say("**bold**")):
        platform.say("u1")
        assert await arrived(platform, 1) == ["**bold**"]


@pytest.mark.parametrize(
    ("error", "traces"),
    [
        (ValueError("the platform is down"), [True, False]),
        (PlatformBusy("the platform is down"), [False, False]),
        (ConnectionError("the platform is down"), [False, False]),
    ],
    ids=["a bug", "busy", "no connection"],
)
async def test_f07_an_error_of_the_platform_while_receiving_stops_neither_sending_nor_later_updates(
    store: Store, caplog: pytest.LogCaptureFixture, error: Exception, traces: list[bool]
) -> None:
    class Breaking(FakePlatform):
        breaks = 2

        async def receive(self, deliver: Deliver) -> None:
            if self.breaks:
                self.breaks -= 1
                raise error
            await super().receive(deliver)

    platform = Breaking()
    async with answering(store, platform, Say("still here")) as (_, service):
        platform.say("u1")
        assert await arrived(platform, 1) == ["still here"]
        assert service.last_error == "the platform is down"
    logged = [record for record in caplog.records if "receiving" in record.getMessage()]
    assert [bool(record.exc_info) for record in logged] == traces, "that of a bug, once"


async def test_f07_a_reply_to_one_chat_is_recorded_beside_that_to_another(store: Store) -> None:
    for chat in ("one", "two"):
        await reply(store, await arrive(store, f"to {chat}", chat=chat), "here")
    probe = HoldingProbe()
    probe.hold(Moment.REPLY_RECORDED)
    async with open_harness(store, clock=SystemClock()) as harness:
        context = context_of(harness, FakePlatform())
        services = msgspec.structs.replace(context.services, probe=probe)
        replies = Replies(msgspec.structs.replace(context, services=services))
        async with anyio.create_task_group() as group:
            group.start_soon(replies.record_due)
            await probe.reached(Moment.REPLY_RECORDED)
            with anyio.fail_after(60):
                while await due(store):
                    await anyio.lowlevel.checkpoint()
            probe.release(Moment.REPLY_RECORDED)
