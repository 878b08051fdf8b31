"""C03: an interrupted turn shows what its journal holds, in order, as recovered; the session continues."""

from __future__ import annotations

import pytest

from everturn.domain import events as ev
from everturn.domain.messages import Outcome, Result, Role
from everturn.domain.turns import Recovery, TurnState
from everturn.store import Store
from everturn.testing.acting import (
    CRASHED,
    ME,
    answered,
    append,
    finished,
    new_session,
    start,
    transcript,
    wish,
    words,
)

pytestmark = pytest.mark.anyio


async def test_c03_text_and_tool_cards_stand_in_the_transcript_in_the_order_in_which_they_happened(
    store: Store,
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    payloads = [*wish("call_1"), finished("call_1"), *wish("call_2", step=2), ev.StepStarted(3, "m")]
    await append(store, held, [*payloads, ev.TextDelta(3, "And so")])
    turn = await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    assert (turn.state, turn.failure, turn.recovery) == (TurnState.INTERRUPTED, CRASHED, Recovery.FINAL)
    messages = await transcript(store, session.id)
    assert [message.role for message in messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
    ]
    assert all(message.is_recovered for message in messages[1:])
    assert not messages[0].is_recovered
    results = [part for message in messages for part in message.parts if isinstance(part, Result)]
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.UNKNOWN]
    assert messages[-1].text == "And so"


async def test_c03_the_session_takes_new_messages(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    assert (await store.sessions.get(ME, session.id)).active_turn is None
    await answered(store, session.id, "are you back?", "I am")
    assert await words(store, session.id) == ["hello", "are you back?", "I am"]
