"""What the store suites do all the time: make a session, run a turn, append its events, end it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn.domain import events as ev
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.events import Event, Payload
from everturn.domain.fold import fold
from everturn.domain.jobs import NewJob
from everturn.domain.messages import Call, Message, Outcome, Text
from everturn.domain.sessions import NewSession, Session
from everturn.domain.store_values import Accepted, Claim, Submission
from everturn.domain.turns import Failure, FinishReason, Turn
from everturn.store import Store

ME = "local"
WORKER = "wrk_one"
CRASHED = Failure("crashed", "The server stopped.")


async def new_session(store: Store, title: str = "") -> Session:
    return await store.sessions.create(ME, NewSession(title=title))


# ``Any``: fields of ``NewJob``; below, of ``Submission`` and ``Ask``.
def new_job(number: int = 1, command: str = "make all", **more: Any) -> NewJob:
    return NewJob(
        id=f"job_{number:026d}",
        turn_id="trn_x",
        call_id="call_1",
        command=command,
        workspace="/somewhere",
        boot_id="boot",
        worker=WORKER,
        output_bytes_max=1000,
        **more,
    )


async def say(store: Store, session_id: str, text: str, **more: Any) -> Accepted:
    return await store.turns.accept(ME, session_id, Submission(text=text, **more))


async def claim(store: Store, worker: str = WORKER, session_id: str | None = None) -> Claim:
    found = await store.turns.claim(worker, session_id=session_id)
    assert len(found) == 1, "there was a turn to claim"
    return found[0]


async def start(store: Store, session_id: str, text: str, worker: str = WORKER) -> Claim:
    """Accept a message and claim its turn."""
    await say(store, session_id, text)
    return await claim(store, worker, session_id)


def answer(text: str, step: int = 1) -> list[Payload]:
    """The events of one model call that answers with this text and asks for no tool."""
    return [
        ev.StepStarted(step, "scripted:one"),
        ev.TextDelta(step, text),
        ev.StepFinished(step, FinishReason.STOP),
    ]


def wish(call_id: str = "call_1", step: int = 1, *, is_started: bool = True) -> list[Payload]:
    """The events of one model call that asks for a tool, and the start of that tool call."""
    payloads: list[Payload] = [
        ev.StepStarted(step, "scripted:one"),
        ev.TextDelta(step, "Let me see. "),
        ev.StepFinished(step, FinishReason.CALLS, (Call(call_id, "look", "{}"),)),
    ]
    if is_started:
        payloads.append(ev.ToolStarted(step, call_id, "look", "{}"))
    return payloads


def finished(call_id: str = "call_1", text: str = "found it") -> Payload:
    return ev.ToolFinished(call_id, "look", Outcome.OK, text)


async def append(store: Store, held: Claim, payloads: Sequence[Payload], after: int | None = None) -> int:
    """Append events as the claim's worker; return the number of the last."""
    first = (held.number if after is None else after) + 1
    await store.journal.append(held.turn.id, held.epoch, first, payloads)
    return first + len(payloads) - 1


async def complete(
    store: Store, held: Claim, number: int, provider: str | None = None, handle: str = ""
) -> Turn:
    journal = await store.journal.of_turn(ME, held.turn.id)
    folded = fold(held.turn.id, journal, is_ended=True)
    completed = await store.turns.complete(
        held.turn.id, held.epoch, number, folded, provider=provider, handle=handle
    )
    return completed.turn


async def answered(store: Store, session_id: str, text: str, reply: str, worker: str = WORKER) -> Claim:
    """Run a whole turn: accept, claim, answer, complete."""
    held = await start(store, session_id, text, worker)
    number = await append(store, held, answer(reply))
    await complete(store, held, number)
    return held


async def interrupted(store: Store, session_id: str, text: str, partly: str) -> Claim:
    """Run a turn that is interrupted after part of its answer."""
    held = await start(store, session_id, text)
    await append(store, held, [ev.StepStarted(1, "scripted:one"), ev.TextDelta(1, partly)])
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    return held


def late(
    held: Claim, first_number: int, payloads: Sequence[Payload], at: int = 1_750_000_000_000
) -> list[Event]:
    """Events of the claim's worker as its spool holds them."""
    return [
        Event(
            held.session.id, 0, held.turn.id, ev.kind_of(payload), at, ev.encode(payload), held.epoch, number
        )
        for number, payload in enumerate(payloads, start=first_number)
    ]


def ask(ident: str, turn_id: str, session_id: str, topic: AskTopic = AskTopic.QUESTION, **more: Any) -> Ask:
    return Ask(ident, session_id, turn_id, topic, 0, text="Shall I?", **more)


async def transcript(store: Store, session_id: str) -> list[Message]:
    return list((await store.transcript.messages(ME, session_id, limit=500)).items)


async def words(store: Store, session_id: str) -> list[str]:
    """The text of each message in the transcript, without abandoned attempts."""
    return [message.text for message in await transcript(store, session_id)]


def all_words(message: Message) -> str:
    """The text of a message, abandoned attempts included."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


async def positions(store: Store, session_id: str, after: int = 0) -> list[int]:
    found: list[int] = []
    while batch := await store.journal.after(ME, session_id, after):
        found += [event.position for event in batch]
        after = found[-1]
    return found
