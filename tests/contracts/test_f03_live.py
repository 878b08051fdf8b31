"""F03: while a turn runs its chat may have a live message; the answer replaces it, and never depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import (
    AccountLease,
    NewPart,
    PartState,
    ReplyUnderway,
    WhenUnknown,
)
from everturn.domain.errors import PlatformBusy
from everturn.domain.store_values import Claim
from everturn.store import Store
from everturn.testing import Say
from everturn.testing.acting import CRASHED, ME, answer, append, claim, complete
from everturn.testing.harness import open_harness
from everturn.testing.models import CallTool, Wait
from everturn.testing.platform import RICH, FakePlatform
from everturn.testing.tools import FakeTool
from tests.delivering import ACCOUNT, AGE_MAX_MS, arrive, claim_parts, due, lease_of, record, send_to, states
from tests.serving import FAST, answering, service_of, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio
P = PartState
LIVE = msgspec.structs.replace(FAST, live=True, live_after_s=0, live_look_s=0.01, live_spacing_s=0.01)


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


async def underway(store: Store) -> list[ReplyUnderway]:
    return list(await store.delivery.outbox.replies_underway(ACCOUNT, limit=10))


async def shown(store: Store) -> tuple[Claim, ReplyUnderway, AccountLease]:
    """A turn that runs, with a live message that waits to be sent."""
    accepted = await arrive(store, "u1")
    held = await claim(store, session_id=accepted.turn.session_id)
    (one,) = await underway(store)
    assert await store.delivery.outbox.put_live(one, NewPart("Thinking"), age_max_ms=AGE_MAX_MS)
    assert not await store.delivery.outbox.put_live(one, NewPart("Thinking"), age_max_ms=AGE_MAX_MS)
    return held, one, await lease_of(store)


async def finish(store: Store, held: Claim) -> None:
    await complete(store, held, await append(store, held, answer("good morning")))


async def test_f03_the_answer_replaces_the_live_message_and_waits_while_that_is_being_sent(
    store: Store,
) -> None:
    held, _, lease = await shown(store)
    (live,) = await claim_parts(store, lease)
    await finish(store, held)
    assert await due(store) == [], "it is being sent: its name is not known yet"
    await store.delivery.outbox.mark_sent(lease, live.id, "msg-1")
    (owed,) = await due(store)
    assert (owed.live_id, owed.is_live_last) == ("msg-1", True)
    await send_to(store, owed.chat, "note", "a notice")
    (owed,) = await due(store)
    assert not owed.is_live_last


async def test_f03_a_live_message_that_was_sent_meanwhile_is_looked_at_again(store: Store) -> None:
    held, _, lease = await shown(store)
    await finish(store, held)
    (stale,) = await due(store)
    (live,) = await claim_parts(store, lease)
    assert not await record(store, stale, "good morning"), "it is being sent"
    await store.delivery.outbox.mark_sent(lease, live.id, "msg-1")
    assert not await record(store, stale, "good morning"), "the answer would come beside it"
    (fresh,) = await due(store)
    assert await record(store, fresh, "good morning")


async def test_f03_a_live_message_that_still_waits_is_dropped_when_the_answer_is_recorded(
    store: Store,
) -> None:
    held, one, lease = await shown(store)
    await finish(store, held)
    (owed,) = await due(store)
    assert owed.live_id is None
    assert await record(store, owed, "good morning")
    assert [part.body.text for part in await claim_parts(store, lease)] == ["good morning"]
    assert await store.delivery.outbox.list_undecided(ME) == []
    assert not await store.delivery.outbox.put_live(one, NewPart("Thinking"), age_max_ms=AGE_MAX_MS)
    assert not await store.delivery.outbox.is_underway(lease, one)


async def test_f03_a_live_message_that_was_decided_on_before_the_answer_does_not_come_after_it(
    store: Store,
) -> None:
    accepted = await arrive(store, "u1")
    held = await claim(store, session_id=accepted.turn.session_id)
    (one,) = await underway(store)
    await finish(store, held)
    (owed,) = await due(store)
    assert await record(store, owed, "good morning")
    assert not await store.delivery.outbox.put_live(one, NewPart("Thinking"), age_max_ms=AGE_MAX_MS)
    assert [part.body.text for part in await claim_parts(store, await lease_of(store))] == ["good morning"]


@pytest.mark.parametrize("policy", [WhenUnknown.REPEAT, WhenUnknown.HOLD])
async def test_f03_a_live_message_of_unknown_outcome_is_not_repeated_and_no_person_is_asked(
    store: Store, policy: WhenUnknown
) -> None:
    held, _, lease = await shown(store)
    (live,) = await claim_parts(store, lease)
    await store.delivery.outbox.mark_unknown(lease, live.id, "The connection broke.")
    await finish(store, held)
    assert await due(store) == []
    await store.delivery.outbox.settle_unknown(lease, policy)
    assert await store.delivery.outbox.list_undecided(ME) == []
    assert (await store.delivery.totals()).outbox_for_people == 0
    assert (await store.delivery.figures(ACCOUNT, since_ms=0)).undecided == 0
    (owed,) = await due(store)
    assert owed.live_id is None
    assert await record(store, owed, "good morning")
    assert [part.body.text for part in await claim_parts(store, lease)] == ["good morning"]
    assert await states(store, held.turn.id) == [P.SENDING]


async def test_f03_there_is_no_live_edit_once_the_turn_has_ended_or_another_worker_serves(
    store: Store,
) -> None:
    held, one, lease = await shown(store)
    outbox = store.delivery.outbox
    assert await outbox.is_underway(lease, one)
    assert not await outbox.is_underway(msgspec.structs.replace(lease, epoch=lease.epoch + 1), one)
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    assert not await outbox.is_underway(lease, one)


async def test_f03_no_live_message_comes_before_the_answer_of_an_earlier_turn(store: Store) -> None:
    outbox = store.delivery.outbox
    first = await arrive(store, "u1")
    held = await claim(store, session_id=first.turn.session_id)
    await arrive(store, "u2")
    await finish(store, held)
    await claim(store, session_id=first.turn.session_id)
    (one,) = await underway(store)
    assert not await outbox.put_live(one, NewPart("Thinking"), age_max_ms=AGE_MAX_MS)
    (owed,) = await due(store)
    assert await record(store, owed, "good morning")
    assert await outbox.put_live(one, NewPart("Thinking"), age_max_ms=AGE_MAX_MS)


class OneMessagePlatform(FakePlatform):
    """Shows every text as one message, as real platforms do with short ones."""

    def __init__(self) -> None:
        super().__init__(features=RICH)

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(markdown)] if markdown.strip() else []


async def test_f03_a_turn_is_shown_in_one_message_that_becomes_the_answer(store: Store) -> None:
    platform, go_on = OneMessagePlatform(), anyio.Event()
    script = [Say("Once upon "), Wait(go_on), Say("a time.")]
    async with answering(store, platform, script, settings=LIVE):
        platform.say("u1", "tell me a story")
        await until("the text so far is shown", lambda: _shows(platform, "Once upon"))
        assert len(platform.arrived) == 1
        assert platform.texts()[0].endswith("*Writing …*")
        platform.edit_failures = [PlatformBusy("Slower.", after_s=0.05)]
        go_on.set()
        await until("the answer replaces it", lambda: platform.texts() == ["Once upon a time."])
    assert len(platform.sends) == 1
    assert platform.edits[-1].text == "Once upon a time.", "nothing is edited after the answer"


async def test_f03_the_answer_keeps_the_line_about_what_was_run(store: Store) -> None:
    platform, tools = OneMessagePlatform(), [FakeTool("terminal", "ok"), FakeTool("look", "seen")]
    script: list[Any] = [CallTool("terminal"), CallTool("look"), Say("It was the lock.")]
    async with (
        open_harness(store, *script, tools=tools, clock=SystemClock()) as harness,
        serving(service_of(harness, platform)),
    ):
        platform.say("u1", "did the backup run?")
        await until("it is answered", lambda: bool(platform.arrived))
    assert platform.texts() == ["*Ran 1 command, used 1 other tool*\n\nIt was the lock."]


async def test_f03_an_answer_that_is_not_the_chats_last_message_comes_below(store: Store) -> None:
    platform, go_on = OneMessagePlatform(), anyio.Event()
    script = [Say("Once upon "), Wait(go_on), Say("a time.")]
    async with answering(store, platform, script, Say("Yes."), settings=LIVE):
        platform.say("u1", "tell me a story")
        await until("it is shown", lambda: _shows(platform, "Once upon"))
        platform.say("u2", "are you there?")
        await until("the notice arrives", lambda: len(platform.arrived) == 2)
        go_on.set()
        await until("both are answered", lambda: "Yes." in "".join(platform.texts()))
        texts = platform.texts()
    assert texts[:3] == ["*The answer is below.*", "*Queued: it is answered next.*", "Once upon a time."]


async def test_f03_the_answer_arrives_also_if_the_live_message_cannot_be_sent_or_edited(
    store: Store,
) -> None:
    platform, go_on = OneMessagePlatform(), anyio.Event()
    platform.failures = [ConnectionResetError("The connection broke.")]
    script = [Say("Once upon "), Wait(go_on), Say("a time.")]
    async with answering(store, platform, script, settings=LIVE):
        platform.say("u1", "tell me a story")
        await until("it was tried", lambda: len(platform.sends) == 1)
        go_on.set()
        await until("the answer arrives", lambda: platform.texts() == ["Once upon a time."])


def _shows(platform: FakePlatform, text: str) -> bool:
    return bool(platform.arrived) and text in platform.texts()[0]
