"""Late delivery: what a worker's spool brings after its turn was interrupted, resumed, ended or pruned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Fenced, WrongState
from everturn.domain.fold import fold
from everturn.domain.messages import Outcome, Result, Text
from everturn.domain.store_values import Claim, Request
from everturn.domain.turns import FinishReason, Recovery, TurnState
from everturn.store import Store
from everturn.store.turns.workers import release
from everturn.testing import FakeClock
from everturn.testing.acting import (
    CRASHED,
    ME,
    all_words,
    answer,
    answered,
    append,
    ask,
    claim,
    complete,
    finished,
    late,
    new_session,
    say,
    start,
    transcript,
    wish,
    words,
)

pytestmark = pytest.mark.anyio
DAY_MS = 24 * 3600 * 1000


async def test_every_late_event_of_an_interrupted_turn_finds_its_place(store: Store) -> None:
    """The end was written by another process: its number must not hide the first late event."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "one ")])
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    spooled = [ev.TextDelta(1, "two "), ev.TextDelta(1, "three ")]
    assert await store.journal.deliver_late(held.turn.id, held.epoch, late(held, number + 1, spooled)) == 2
    assert await store.journal.recover(ME, session.id)
    assert await words(store, session.id) == ["hello", "one two three "]
    turn = await store.turns.get(ME, held.turn.id)
    assert turn.recovery is Recovery.RECOVERED


async def test_a_spool_that_is_delivered_twice_adds_nothing(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "one "), ev.TextDelta(1, "two")])
    assert await store.journal.deliver_late(held.turn.id, held.epoch, spooled[:2]) == 2
    assert await store.journal.deliver_late(held.turn.id, held.epoch, spooled) == 1
    assert await store.journal.deliver_late(held.turn.id, held.epoch, spooled) == 0
    await store.journal.recover(ME, session.id)
    assert await words(store, session.id) == ["hello", "one two"]


async def test_late_events_complete_a_turn_that_another_worker_only_interrupted(store: Store) -> None:
    """Claiming a turn to interrupt it is not resuming it: what the dead worker did is its output."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish())
    await _lose_worker(store)
    second = await claim(store, "wrk_two")
    await store.turns.interrupt(second.turn.id, second.epoch, CRASHED)
    spooled = [finished(text="late result"), *answer("All done.", step=2)]
    await _deliver(store, held, number, spooled)
    messages = await transcript(store, session.id)
    results = [part for message in messages for part in message.parts if isinstance(part, Result)]
    assert [result.text for result in results] == ["late result"]
    assert messages[-1].text == "All done."


@pytest.mark.parametrize("how", ["cancel", "send"])
async def test_a12_what_was_produced_before_a_cancel_and_arrives_after_it_is_in_the_transcript(
    store: Store, how: str
) -> None:
    """Its worker was cut off from the database and has it in its spool while another process stops the turn."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish())
    if how == "cancel":
        await store.turns.cancel(ME, held.turn.id)
    else:
        await say(store, session.id, "no, this", when_busy="interrupt")
    with pytest.raises(Fenced):
        await append(store, held, [finished()], number)
    await _deliver(store, held, number, [finished(text="paid"), *answer("Done.", step=2)])
    messages = await transcript(store, session.id)
    results = [part.text for message in messages for part in message.parts if isinstance(part, Result)]
    assert (results, messages[-1].text) == (["paid"], "Done.")
    assert (await store.turns.get(ME, held.turn.id)).state is TurnState.CANCELLED
    kinds = [event.kind for event in await store.journal.of_turn(ME, held.turn.id)]
    assert kinds[-1] == "turn.cancelled", "it stands after what arrived"
    assert await store.upkeep.check() == []


async def test_c09_late_text_of_a_resumed_turn_is_shown_as_an_abandoned_attempt(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "first ")])
    await _lose_worker(store)
    second = await claim(store, "wrk_two")
    ended = await append(store, second, [ev.StepAbandoned(1, "crash"), *answer("second")])
    # The spool arrives while the second worker runs: its own fold has not seen it.
    folded_before = await store.journal.of_turn(ME, held.turn.id)
    await _deliver(store, held, number, [ev.TextDelta(1, "attempt")], recover=False)
    folded = fold(held.turn.id, folded_before, is_ended=True)
    await store.turns.complete(held.turn.id, second.epoch, ended, folded)
    await store.journal.recover(ME, session.id)
    messages = await transcript(store, session.id)
    assert messages[1].text == "second"
    assert all_words(messages[1]) == "first attemptsecond"
    abandoned = [p.text for p in messages[1].parts if isinstance(p, Text) and p.is_abandoned]
    assert "".join(abandoned) == "first attempt"
    assert not messages[1].is_recovered, "the turn was completed: nothing of it had to be recovered"
    assert (await store.turns.get(ME, held.turn.id)).recovery is Recovery.NONE


async def test_unread_late_events_keep_their_turn_from_being_pruned(store: Store, clock: FakeClock) -> None:
    """Pruning first and threading afterwards would fold an empty journal over the answer."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "first ")])
    await _lose_worker(store)
    second = await claim(store, "wrk_two")
    ended = await append(store, second, [ev.StepAbandoned(1, "crash"), *answer("the answer")])
    await complete(store, second, ended)
    await _deliver(store, held, number, [ev.TextDelta(1, "attempt")], recover=False)
    await clock.advance(3 * DAY_MS / 1000)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    await store.journal.recover(ME, session.id)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    await store.journal.recover(ME, session.id)
    assert [message.text for message in await transcript(store, session.id)] == ["hello", "the answer"]


async def test_late_events_are_threaded_in_however_old_the_turn_is(store: Store, clock: FakeClock) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await clock.advance(2 * DAY_MS / 1000)
    await _deliver(store, held, 1, [ev.StepStarted(1, "m"), ev.TextDelta(1, "there it is")])
    assert await words(store, session.id) == ["hello", "there it is"]
    assert (await store.turns.get(ME, held.turn.id)).recovery is Recovery.RECOVERED


async def test_a_waiting_turn_that_is_interrupted_waits_for_no_late_output(store: Store) -> None:
    """Its worker recorded everything when it began to wait: nothing more can come from it."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish(is_started=False))
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [ask("ask_1", held.turn.id, session.id)], [])
    turn = await store.turns.interrupt(held.turn.id, None, CRASHED)
    assert turn.recovery is Recovery.FINAL


async def test_c09_a_late_tool_result_settles_a_call_that_is_in_doubt_and_no_other(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, wish())
    await _lose_worker(store)
    second = await claim(store, "wrk_two")
    payloads = [ev.ToolFinished("call_1", "look", Outcome.UNKNOWN, "unknown"), *answer("fine", step=2)]
    ended = await append(store, second, payloads)
    await complete(store, second, ended)
    await _deliver(store, held, number, [finished(text="too late")])
    results = [p for m in await transcript(store, session.id) for p in m.parts if isinstance(p, Result)]
    assert [result.text for result in results] == ["unknown"]


async def test_pruning_leaves_a_session_alone_whose_turn_runs(store: Store, clock: FakeClock) -> None:
    """Late events lie after those of the next turn: cutting up to them would hide what that turn said."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    second = await start(store, session.id, "and now?")
    number = await append(store, second, [ev.StepStarted(1, "m"), ev.TextDelta(1, "visible")])
    seen = (await store.sessions.get(ME, session.id)).position - 1
    await _deliver(store, held, 1, [ev.StepStarted(1, "m"), ev.TextDelta(1, "late")])
    await clock.advance(3 * DAY_MS / 1000)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    following = await store.journal.after(ME, session.id, seen)
    assert following[0].kind == "text.delta"
    await append(store, second, [ev.StepFinished(1, FinishReason.STOP)], number)


async def test_resuming_a_turn_whose_journal_was_pruned_is_refused_and_loses_nothing(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "half an answer")])
    await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    await answered(store, session.id, "go on", "whole")
    await clock.advance(3 * DAY_MS / 1000)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    await store.transcript.undo(ME, session.id, Request())
    with pytest.raises(WrongState):
        await store.turns.resume(ME, held.turn.id)
    assert await store.turns.claim("wrk_two") == []
    assert await words(store, session.id) == ["hello", "half an answer"]


async def _lose_worker(store: Store) -> None:
    """The turn's worker is thought dead and may still have a spool: released, not sealed."""
    await store.database.write(release, "wrk_one", "crash", False)


async def _deliver(
    store: Store, held: Claim, number: int, payloads: Sequence[ev.Payload], *, recover: bool = True
) -> None:
    events = late(held, number + 1, payloads)
    assert await store.journal.deliver_late(held.turn.id, held.epoch, events) == len(events)
    if recover:
        await store.journal.recover(ME, held.session.id)
