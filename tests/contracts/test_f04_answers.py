"""F04: an approval or a question reaches the person in their chat and can be answered there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from everturn.delivery.ask_words import call_text, format_answer
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.audit import AuditLog
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import NewPart
from everturn.domain.errors import PlatformRefused
from everturn.domain.platform import Features
from everturn.domain.preferences import KIND, NAME
from everturn.domain.store_values import Submission
from everturn.domain.tool import Emit, ToolCall, ToolQuestion, ToolResult, Verdict
from everturn.store import Store
from everturn.testing import Say
from everturn.testing.acting import ME, ask, claim
from everturn.testing.harness import OWNER, Harness, open_harness
from everturn.testing.models import CallTool
from everturn.testing.platform import PLAIN, RICH, FakePlatform
from everturn.testing.tools import FakeTool
from tests.auditing import KeptAudit
from tests.conftest import OpenAnother
from tests.delivering import AGE_MAX_MS, arrive, claim_parts, lease_of
from tests.serving import service_of, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio
CALL = CallTool("pay", {"to": "bob", "amount": 5})
LONG = CallTool("pay", {"note": "x" * 500})


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


class Chat(FakePlatform):
    """Shows 300 characters in one message."""

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(markdown[start : start + 300]) for start in range(0, len(markdown), 300)]

    def labels(self) -> list[str]:
        return [button.label for button in self.arrived[-1].body.buttons]

    def press_label(self, update_id: str, label: str, *, sender: str = "ada") -> None:
        (data,) = [b.data for part in self.arrived for b in part.body.buttons if b.label == label][-1:]
        self.press(update_id, data, sender=sender)


@asynccontextmanager
async def asking(
    store: Store, platform: Chat, *script: Any, page_url: str = "", audit: AuditLog | None = None
) -> AsyncIterator[tuple[Harness, FakeTool]]:
    pay = FakeTool("pay", "paid")

    async def choose(call: ToolCall, emit: Emit) -> ToolResult | ToolQuestion:
        return ToolQuestion("Red or blue?", ("red", "blue"))

    tools, rules = [pay, FakeTool("choose", choose)], {"pay": Verdict.ASK}
    async with (
        open_harness(store, *script, tools=tools, rules=rules, clock=SystemClock()) as harness,
        serving(service_of(harness, platform, page_url=page_url, audit=audit)),
    ):
        platform.say("u1", "go on")
        yield harness, pay


async def arrival(platform: Chat, words: str) -> str:
    """Wait for a message with these words."""
    await until(f"{words!r} arrives", lambda: any(words in text for text in platform.texts()))
    return next(text for text in platform.texts() if words in text)


async def test_f04_a_call_is_shown_whole_and_allowed_by_a_button(store: Store) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, CALL, Say("it is paid")) as (_, pay):
        shown = await arrival(platform, "bob")
        assert shown.startswith("**Approve pay**\n\n```\npay\nto: bob\namount: 5\n```")
        assert platform.labels() == ["Allow once", "Deny"]
        platform.press_label("p1", "Allow once")
        await arrival(platform, "it is paid")
        assert (await arrival(platform, "Allowed in Fake at")).endswith(": `pay`")
        assert len(pay.calls) == 1
    assert not any("bob" in text for text in platform.texts()), "the question has become one line"
    assert all(not part.body.buttons for part in platform.arrived)


async def test_f04_a_question_links_to_its_session_on_the_page(store: Store) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, CALL, Say("then not"), page_url="https://agent.example.org/") as _:
        await arrival(platform, "bob")
        (session,) = (await store.sessions.list(OWNER)).items
        *_, link = platform.arrived[-1].body.buttons
        assert (link.label, link.url) == ("Open", f"https://agent.example.org/#/s/{session.id}")
        platform.press_label("p1", "Deny")
        await arrival(platform, "then not")


async def test_f04_a_question_that_the_page_led_to_comes_below_the_words_written_there(
    store: Store,
) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, Say("hello"), CALL, Say("it is paid")) as (harness, _):
        await arrival(platform, "hello")
        (session,) = (await store.sessions.list(OWNER, limit=2)).items
        await harness.engine.submit(OWNER, session.id, Submission(text="Pay Bob."))
        await arrival(platform, "bob")
        quote, question = platform.texts()[1:3]
        assert quote == "*From the browser:*\n> Pay Bob."
        assert question.startswith("**Approve pay**")
        platform.press_label("p1", "Allow once")
        await arrival(platform, "it is paid")
    assert sum("Pay Bob." in text for text in platform.texts()) == 1, "it is not quoted again"


async def test_f04_a_denied_call_does_not_run_and_a_member_cannot_answer(store: Store) -> None:
    platform, audit = Chat(features=RICH), KeptAudit()
    async with asking(store, platform, CALL, Say("then not"), audit=audit) as (_, pay):
        await arrival(platform, "bob")
        platform.press_label("p1", "Allow once", sender="bob")
        await arrival(platform, "Only the owner can answer this.")
        platform.press_label("p2", "Deny")
        await arrival(platform, "then not")
        await arrival(platform, "Denied in Fake at")
        assert pay.calls == []
    ((what, by, detail),) = audit.lines
    assert (what, by) == ("approval", "ada (main, fake)")
    assert detail.startswith("deny: pay ")


async def test_f04_the_first_answer_counts_and_the_chat_shows_it(store: Store) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, CALL, Say("then not")) as (harness, pay):
        await arrival(platform, "bob")
        button = platform.arrived[-1].body.buttons[0]
        (session,) = (await store.sessions.list(OWNER)).items
        await harness.answer(session, "deny")
        await arrival(platform, "Denied in the browser at")
        platform.press("p1", button.data)
        await arrival(platform, "answered already")
        assert pay.calls == []


async def test_f04_a_call_that_does_not_fit_comes_as_a_file(store: Store) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, LONG, Say("it is paid")) as (_, pay):
        await until("the question arrives", lambda: platform.arrived and platform.labels())
        assert platform.labels() == ["Allow once", "Deny"]
        ((name, content),) = platform.file_bytes
        assert name == "pay.txt"
        assert b"x" * 500 in content
        platform.press_label("p1", "Allow once")
        await arrival(platform, "it is paid")
        assert len(pay.calls) == 1


async def test_f04_where_the_whole_call_cannot_be_shown_it_can_only_be_denied(store: Store) -> None:
    platform = Chat(features=Features(edits=True, buttons=True, files=False, typing=False))
    async with asking(store, platform, LONG, Say("then not")) as (_, pay):
        await arrival(platform, "does not fit here")
        assert platform.labels() == ["Deny"]
        platform.press_label("p1", "Deny")
        await arrival(platform, "then not")
        assert pay.calls == []


async def test_f04_a_call_whose_file_did_not_arrive_cannot_be_allowed(store: Store) -> None:
    platform = Chat(features=RICH)
    platform.failures = [PlatformRefused("The file is not allowed.")]
    async with asking(store, platform, LONG, Say("then not")) as (_, pay):
        await until("the question arrives", lambda: platform.arrived and platform.labels())
        platform.press_label("p1", "Allow once")
        await arrival(platform, "not shown here in full")
        platform.press_label("p2", "Deny")
        await arrival(platform, "then not")
        assert pay.calls == []


async def test_f04_without_buttons_an_approval_is_typed(store: Store) -> None:
    platform = Chat(features=PLAIN)
    async with asking(store, platform, [CALL, CALL], Say("one is paid")) as (_, pay):
        await until("both are asked", lambda: sum("/approve" in text for text in platform.texts()) == 2)
        codes = [text.partition("`/approve ")[2].partition("`")[0] for text in platform.texts()]
        assert len(set(codes)) == 2
        platform.say("u2", "/approve")
        await arrival(platform, "Several wait")
        platform.say("u3", f"/approve {codes[0]}", sender="bob")
        await arrival(platform, "Only the owner can answer this.")
        platform.say("u4", f"/approve {codes[0].upper()}")
        platform.say("u5", f"/deny {codes[1]}")
        await arrival(platform, "one is paid")
        assert len(pay.calls) == 1
        platform.say("u6", "/approve")
        await arrival(platform, "nothing left to answer")


@pytest.mark.parametrize("answer", ["2", "blue", "the button"])
async def test_f04_a_question_is_answered_by_a_button_or_by_the_next_message(
    store: Store, answer: str
) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, CallTool("choose"), Say("painted")) as (harness, _):
        await arrival(platform, "Red or blue?")
        assert platform.labels() == ["red", "blue"]
        await until("the platform's receipt is stored", lambda: is_receipt_stored(store))
        if answer == "the button":
            platform.press_label("p1", "blue")
        else:
            platform.say("u2", answer)
        await arrival(platform, "painted")
        result = str(harness.model.requests[-1])
        assert "blue" in result
    await arrival(platform, "painted")


async def is_receipt_stored(store: Store) -> bool:
    asks = await store.asks.open(OWNER)
    (chat,) = await store.delivery.chats.list(OWNER)
    parts = await store.delivery.outbox.find(OWNER, chat.id, f"ask:{asks[0].id}")
    return all(part.external_id for part in parts)


async def test_f04_words_that_are_too_long_for_an_answer_are_a_message(store: Store) -> None:
    platform = Chat(features=RICH)
    async with asking(store, platform, CallTool("choose"), Say("painted"), Say("read")):
        await arrival(platform, "Red or blue?")
        await until("the platform's receipt is stored", lambda: is_receipt_stored(store))
        platform.say("u2", "blue " * 20_000)
        await arrival(platform, "Queued")
        platform.press_label("p1", "blue")
        await arrival(platform, "read")


async def test_f04_an_ask_is_asked_once_by_however_many_processes(
    store: Store, open_another: OpenAnother
) -> None:
    """And its answer is shown once."""
    other = await open_another()
    lease = await lease_of(store)
    accepted = await arrive(store, "u1")
    held = await claim(store)
    question = ask("ask_" + "1" * 26, held.turn.id, accepted.turn.session_id)
    await store.turns.wait(held.turn.id, held.epoch, held.number + 1, [question], [])
    (due,) = await store.delivery.outbox.asks_due("main", limit=10)
    assert due.ask.id == question.id

    async def ask_through(through: Store) -> bool:
        return await through.delivery.outbox.record_question(
            due, [NewPart("Shall I?")], age_max_ms=AGE_MAX_MS
        )

    assert await results(ask_through, store, other, store) == [False, False, True]
    assert await store.delivery.outbox.asks_due("main", limit=10) == []
    await store.asks.answer(ME, question.id, "yes", by="ada")
    assert await store.delivery.outbox.answers_due("main", limit=10) == [], "it was not sent yet"
    (part,) = await claim_parts(store, lease)
    await store.delivery.outbox.mark_sent(lease, part.id, "m1")
    (answered,) = await store.delivery.outbox.answers_due("main", limit=10)

    async def show_through(through: Store) -> bool:
        return await through.delivery.outbox.record_answer(answered, [NewPart("Yes.")], age_max_ms=AGE_MAX_MS)

    assert await results(show_through, store, other, store) == [False, False, True]
    assert await store.delivery.outbox.answers_due("main", limit=10) == []


async def results(act: Callable[[Store], Awaitable[bool]], *stores: Store) -> list[bool]:
    """What the stores answer if all act at once, in order."""
    answers: list[bool] = []

    async def note(store: Store) -> None:
        answers.append(await act(store))

    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(note, store)
    return sorted(answers)


def test_f04_a_call_hides_nothing() -> None:
    arguments = '{"command": "rm \u202e fdp.exe", "text": "```\\n\\u200b"}'
    shown = call_text(Ask("ask_x", "ses_x", "trn_x", AskTopic.APPROVAL, 0, name="run", arguments=arguments))
    assert shown.splitlines() == ["run", "command: rm \\u202e fdp.exe", "text:", "    ```", "    \\u200b"]


def test_f04_a_line_of_an_argument_cannot_pass_for_another_argument() -> None:
    arguments = '{"path\\nmode": "a\\npath: b", "mode": 7}'
    shown = call_text(Ask("ask_x", "ses_x", "trn_x", AskTopic.APPROVAL, 0, name="write", arguments=arguments))
    assert shown.splitlines() == ["write", "path mode:", "    a", "    path: b", "mode: 7"]


def answered(topic: AskTopic, answer: str, *, name: str, label: str = "", text: str = "") -> str:
    by = "chat:slack"
    ask = Ask("ask_x", "ses_x", "trn_x", topic, 0, name=name, label=label, text=text, answer=answer, by=by)
    return format_answer(ask)


def test_f04_an_answered_question_can_still_be_read() -> None:
    allowed = answered(
        AskTopic.APPROVAL, "once", name="terminal", label="rm -rf\n`x`\u202e", text="It deletes."
    )
    assert re.fullmatch(r"\*Allowed in Slack at \d\d:\d\d\*: `rm -rf 'x'\\u202e`", allowed)
    said = answered(AskTopic.QUESTION, "blue", name="ask_user", text="Red or blue?")
    assert re.fullmatch(r"Red or blue\?\n\n\*Answered in Slack at \d\d:\d\d:\* blue", said)


async def test_f04_a_question_without_buttons_says_what_is_wanted_and_links_to_the_page(store: Store) -> None:
    platform = Chat(features=PLAIN)
    async with asking(store, platform, CALL, Say("then not"), page_url="https://agent.example.org/") as _:
        shown = await arrival(platform, "/approve")
        (session,) = (await store.sessions.list(OWNER)).items
        assert shown.startswith("**Approve pay**")
        assert shown.endswith(f"[Open](https://agent.example.org/#/s/{session.id})")


async def test_f04_a_question_is_german_to_an_owner_who_chose_it(store: Store) -> None:
    platform = Chat(features=RICH)
    await store.records.put(OWNER, KIND, NAME, {"language": "de"})
    async with asking(store, platform, CALL, CallTool("choose"), Say("gut")) as _:
        assert (await arrival(platform, "bob")).startswith("**pay erlauben?**")
        assert platform.labels() == ["Einmal erlauben", "Ablehnen"]
        platform.press_label("p1", "Ablehnen")
        await arrival(platform, "Abgelehnt in Fake um")
        await arrival(platform, "Red or blue?")
        assert platform.labels() == ["red", "blue"]  # the agent's words
        platform.press_label("p2", "red")
        await arrival(platform, "Beantwortet in Fake um")
