"""C11: the model is always given a valid history, whatever moment the crash chose."""

from __future__ import annotations

import pytest

from everturn.domain import events as ev
from everturn.domain.messages import Call, Outcome, Result
from everturn.domain.turns import FinishReason
from everturn.lab.crash.checks import assert_valid
from everturn.store import Store
from everturn.testing.acting import CRASHED, ME, answer, append, claim, new_session, say, start

pytestmark = pytest.mark.anyio

CALLS = (Call("call_1", "look", "{}"), Call("call_2", "look", "{}"))
JOURNAL: list[ev.Payload] = [
    ev.StepStarted(1, "m"),
    ev.ReasoningDelta(1, "hm "),
    ev.TextDelta(1, "Let me see. "),
    ev.StepFinished(1, FinishReason.CALLS, CALLS),
    ev.ToolStarted(1, "call_1", "look", "{}"),
    ev.ToolStarted(1, "call_2", "look", "{}"),
    ev.ToolFinished("call_2", "look", Outcome.OK, "second first"),
    ev.ToolFinished("call_1", "look", Outcome.ERROR, "first second"),
    *answer("There.", step=2),
]


@pytest.mark.parametrize("how", ["cancel", "fail", "interrupt"])
async def test_c11_a_turn_that_breaks_off_anywhere_leaves_a_result_for_every_call(
    store: Store, how: str
) -> None:
    session = await new_session(store)
    for cut in range(len(JOURNAL) + 1):
        held = await start(store, session.id, f"cut at {cut}")
        if cut:
            await append(store, held, JOURNAL[:cut])
        if how == "cancel":
            await store.turns.cancel(ME, held.turn.id)
        elif how == "fail":
            await store.turns.fail(held.turn.id, held.epoch, CRASHED)
        else:
            await store.turns.interrupt(held.turn.id, None, CRASHED)
        context = await store.transcript.context(ME, session.id)
        assert_valid(context)
        mine = [message for message in context if message.turn_id == held.turn.id]
        results = {p.call_id: p.outcome for m in mine for p in m.parts if isinstance(p, Result)}
        assert len(results) == (2 if cut >= 4 else 0)
        if cut == 4:
            assert set(results.values()) == {Outcome.CANCELLED}, "never started"
        if cut == 6:
            assert set(results.values()) == {Outcome.UNKNOWN}, "started, and the outcome is unknown"


async def test_c11_the_context_of_a_running_turn_ends_with_the_user_s_words(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "one")
    await append(store, held, JOURNAL[:5])
    await store.turns.cancel(ME, held.turn.id)
    await say(store, session.id, "two")
    running = await claim(store)
    context = await store.transcript.context(ME, session.id, upto=running.turn.id)
    assert_valid(context)
    assert context[-1].text == "two"
