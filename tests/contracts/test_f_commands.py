"""F01, F02: commands and other updates of a chat are settled in order, once each, and answered."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from everturn.delivery.answers import Answers
from everturn.delivery.commands import ChatCommand, Commands
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import ChatKind, ChatPlace, InboxState, SenderRole, Update, UpdateKind
from everturn.domain.preferences import KIND, NAME
from everturn.domain.store_values import Submission
from everturn.store import Store
from everturn.testing import Say
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.models import Wait
from everturn.testing.platform import FakePlatform
from tests.serving import answering, arrived, context_of
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


class Talk:
    """Says something in the chat and waits for what comes back."""

    def __init__(self, platform: FakePlatform) -> None:
        self._platform = platform
        self._said = 0

    async def __call__(self, text: str, *, sender: str = "ada") -> str:
        seen = len(self._platform.texts())
        self._said += 1
        self._platform.say(f"u{self._said}", text, sender=sender)
        return (await arrived(self._platform, seen + 1))[seen]


async def test_f_commands_start_list_and_switch_sessions(store: Store) -> None:
    platform = FakePlatform()
    talk = Talk(platform)
    async with answering(store, platform, Say("one"), Say("two"), Say("three")):
        assert "no session" in await talk("/sessions")
        assert await talk("about cats") == "one"
        assert await talk("/new") == "The next message starts a new session."
        assert await talk("about dogs") == "two"
        listed = await talk("/sessions")
        assert [line[:2] for line in listed.splitlines()] == ["1.", "2."]
        assert "(this one)" in listed.splitlines()[1]
        await arrived(platform, 6)  # the hint is a part of its own
        assert "goes on with" in await talk("/switch 1")
        assert await talk("more about cats") == "three"
        for wrong in ("/switch", "/switch 3", "/switch 0", "/switch x"):
            assert "Say which one" in await talk(wrong)
    sessions = (await store.sessions.list(OWNER)).items
    assert sorted(session.messages for session in sessions) == [2, 4]


async def test_f_commands_are_answered_in_the_language_of_the_owner(store: Store) -> None:
    platform = FakePlatform()
    talk = Talk(platform)
    await store.records.put(OWNER, KIND, NAME, {"language": "de"})
    async with answering(store, platform, Say("eins")):
        assert (
            await talk("/sessions")
            == "Dieser Chat hat noch keine Sitzung. Schreib eine Nachricht, um eine zu beginnen."
        )
        assert await talk("hallo") == "eins"
        assert await talk("/new") == "Die nächste Nachricht beginnt eine neue Sitzung."


async def test_f_commands_move_through_the_conversation(store: Store) -> None:
    platform = FakePlatform()
    talk = Talk(platform)
    async with answering(store, platform, Say("one"), Say("two"), Say("two again")) as (harness, _):
        assert await talk("hello") == "one"
        assert await talk("more") == "two"
        assert await talk("/undo") == "Undone. The conversation ends with: one"
        assert await talk("/redo@everturn_bot") == "Redone. The conversation ends with: two"
        assert await talk("/retry") == "Asked again."
        assert (await arrived(platform, 6))[5] == "two again", "not quoted: it was asked here"
        (session,) = (await store.sessions.list(OWNER)).items
        assert [message.text for message in await harness.messages(session)] == [
            "hello",
            "one",
            "more",
            "two again",
        ]


async def test_f_commands_stop_and_queue(store: Store) -> None:
    platform = FakePlatform()
    talk = Talk(platform)
    script = ([Say("fir"), Wait(anyio.Event())], Say("second"))
    async with answering(store, platform, *script) as (harness, _):
        platform.say("first", "hello")
        await until("the model is asked", lambda: harness.model.requests)
        assert "is running" in await talk("/status")
        assert await talk("/queue and then this") == "*Queued: it is answered next.*"
        assert "1. and then this" in await talk("/queue")
        platform.say("stop", "/stop", sender="bob")
        await until("the second is answered", lambda: "second" in platform.texts())
        assert [text for text in platform.texts() if "Stopped." in text] == ["*Stopped.*"], "said once"
        assert await talk("/stop") == "Nothing is running."


async def test_f_commands_stop_says_so_where_the_turn_began_on_the_page(store: Store) -> None:
    platform = FakePlatform()
    async with answering(store, platform, Say("one"), Wait(anyio.Event())) as (harness, _):
        platform.say("first", "hello")
        await arrived(platform, 1)
        (session,) = (await store.sessions.list(OWNER)).items
        await harness.engine.submit(OWNER, session.id, Submission(text="and from the page?"))
        await until("the model is asked", lambda: len(harness.model.requests) == 2)
        assert await Talk(platform)("/stop") == "Stopped."


async def test_f_commands_say_in_plain_words_that_a_turn_is_in_the_way(store: Store) -> None:
    platform = FakePlatform()
    async with answering(store, platform, Wait(anyio.Event())) as (harness, _):
        platform.say("first", "take your time")
        await until("it runs", lambda: harness.model.requests)
        assert (
            await Talk(platform)("/undo") == "A turn is running. Stop it with /stop, or wait until it ends."
        )


async def test_f_commands_change_model_and_profile_for_the_owner_only(store: Store) -> None:
    platform = FakePlatform()
    talk = Talk(platform)
    async with answering(store, platform, Say("one")):
        assert await talk("hello") == "one"
        assert await talk("/model openai:big", sender="bob") == "Only the owner can do this."
        assert "uses openai:big" in await talk("/model openai:big")
        assert "There is no profile 'loud'" in await talk("/profile loud")
        assert "profile quiet" in await talk("/profile quiet")
    (session,) = (await store.sessions.list(OWNER)).items
    assert (session.model, session.profile) == ("openai:big", "quiet")


async def test_f_words_that_only_look_like_a_command_are_a_message(store: Store) -> None:
    platform = FakePlatform()
    talk = Talk(platform)
    async with answering(store, platform, Say("a file of passwords"), Say("a tool")):
        assert await talk("/etc/passwd: what is it?") == "a file of passwords"
        assert await talk("what is /help?") == "a tool"
        assert "Commands" in await talk("/help")


async def test_f_an_edit_and_unreadable_contents_are_answered_and_other_kinds_only_recorded(
    store: Store,
) -> None:
    platform = FakePlatform()
    place = ChatPlace(platform.account, platform.name, ChatKind.DIRECT, "42")
    kinds = {
        "u1": UpdateKind.DELETION,
        "u2": UpdateKind("reaction"),
        "u3": UpdateKind.EDIT,
        "u4": UpdateKind.UNREADABLE,
    }
    for update_id, kind in kinds.items():
        platform.deliver_later(Update(update_id, place, "ada", "changed", kind=kind))
    async with answering(store, platform):
        assert await arrived(platform, 2) == [
            "Edits are not seen; send it again as a new message.",
            "A message of this kind cannot be read here. Send it as text or as a file.",
        ]
    for update_id in kinds:
        again = Update(update_id, place, "ada")
        received = await store.delivery.inbox.receive(OWNER, again, profile="default")
        assert (received.is_repeat, received.state) == (True, InboxState.REFUSED)
    assert (await store.sessions.list(OWNER)).items == ()


async def test_f_a_stop_that_runs_again_after_a_crash_does_not_stop_the_next_turn(store: Store) -> None:
    platform = FakePlatform()
    script: list[Any] = [[Say("fir"), Wait(anyio.Event())], [Say("sec"), Wait(anyio.Event())]]
    async with open_harness(store, *script, clock=SystemClock()) as harness:
        context = context_of(harness, platform)
        commands = Commands(context, Answers(context))
        for update_id in ("u1", "u2"):
            said = await store.delivery.inbox.receive(OWNER, _said(platform, update_id), profile="default")
            await harness.engine.submit_received(said.id, Submission(text="hello"))
        await until("the first runs", lambda: len(harness.model.requests) == 1)
        stop = await store.delivery.inbox.receive(OWNER, _said(platform, "u3"), profile="default")
        for _ in range(2):  # the process died before the row of the inbox was settled
            await commands.run(stop, ChatCommand("stop", ""), SenderRole.OWNER)
            await until("the second runs", lambda: len(harness.model.requests) == 2)
        session = (await store.sessions.list(OWNER)).items[0]
        assert session.active_turn is not None, "it still runs"


def _said(platform: FakePlatform, update_id: str) -> Update:
    return Update(update_id, ChatPlace(platform.account, platform.name, ChatKind.DIRECT, "42"), "ada", "x")
