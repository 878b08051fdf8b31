"""The fold: one pure function from journal to messages, whatever order the journal arrived in."""

from __future__ import annotations

import random
import time

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic
from everturn.domain.events import Event, Payload
from everturn.domain.fold import NOT_RUN_TEXT, OUTPUT_BYTES_MAX, UNKNOWN_TEXT, Folded, fold, in_order
from everturn.domain.ids import message_id
from everturn.domain.messages import Call, Message, Outcome, Reasoning, Result, Role, Text
from everturn.domain.turns import ClaimReason, FinishReason, Usage

TURN = "trn_" + "0" * 26
WORDS = st.text(alphabet="abc ", min_size=1, max_size=6)
folding = settings(max_examples=150, deadline=None)


# --- journals as workers write them ---------------------------------------------------------------------


@st.composite
def steps(draw: st.DrawFn, step: int) -> list[Payload]:
    """One model call: perhaps an attempt that is given up, then deltas, then its wishes and their ends."""
    payloads: list[Payload] = []
    if draw(st.booleans()):
        payloads += [ev.StepStarted(step, "m"), *draw(deltas(step))]
        payloads.append(ev.StepAbandoned(step, "cut", continues=draw(st.booleans())))
    payloads += [ev.StepStarted(step, "m", 2), *draw(deltas(step))]
    wishes = draw(st.integers(min_value=0, max_value=3))
    calls = tuple(Call(f"call_{step}_{n}", "look", "{}") for n in range(wishes))
    payloads.append(ev.StepFinished(step, FinishReason.CALLS if calls else FinishReason.STOP, calls))
    payloads.append(ev.StepUsage(step, "m", Usage(input_tokens=draw(st.integers(0, 9)))))
    for call in calls:
        how_far = draw(st.integers(min_value=0, max_value=2))
        if how_far:
            payloads.append(ev.ToolStarted(step, call.id, "look", "{}"))
        if how_far == 2:
            payloads.append(ev.ToolFinished(call.id, "look", Outcome.OK, draw(WORDS)))
    return payloads


@st.composite
def deltas(draw: st.DrawFn, step: int) -> list[Payload]:
    kinds = draw(st.lists(st.sampled_from([ev.TextDelta, ev.ReasoningDelta]), max_size=5))
    return [kind(step, draw(WORDS)) for kind in kinds]


@st.composite
def journals(draw: st.DrawFn) -> list[Event]:
    """A turn of some steps, perhaps taken over in the middle by a second worker."""
    epoch, number, at = 1, 1, 0
    events: list[Event] = []
    for step in range(1, 1 + draw(st.integers(min_value=1, max_value=4))):
        payloads = draw(steps(step))
        if step > 1 and draw(st.booleans()):
            epoch, number = epoch + 1, 0
            payloads = [ev.TurnResumed(epoch, "wrk_2", ClaimReason.CRASH), *payloads]
        for payload in payloads:
            number, at = number + 1, at + 1
            events.append(event(payload, epoch, number, at))
    return events


def event(payload: Payload, epoch: int, number: int, at: int = 0, *, is_late: bool = False) -> Event:
    data = ev.encode(payload)
    return Event("ses_x", 0, TURN, ev.kind_of(payload), at, data, epoch, number, is_late)


def told(folded: Folded) -> tuple[object, ...]:
    """What a fold says, without the times, which merging events may move."""
    bars = [(bar.kind, bar.label, bar.state, bar.step, bar.call_id) for bar in folded.timeline]
    calls = [(state.call.id, state.attempt, state.result is None) for state in folded.calls]
    messages = [(m.role, m.parts, m.ordinal, m.id) for m in folded.messages]
    return messages, folded.usage, bars, folded.steps, calls, folded.finish, folded.models


# --- what always holds ------------------------------------------------------------------------------------


@folding
@given(journals(), st.booleans())
def test_folding_again_gives_the_same(journal: list[Event], is_ended: bool) -> None:
    once = fold(TURN, journal, is_ended=is_ended)
    assert fold(TURN, journal, is_ended=is_ended) == once
    assert fold(TURN, journal + journal, is_ended=is_ended) == once


@folding
@given(journals(), st.randoms(use_true_random=False))
def test_the_order_of_delivery_does_not_matter(journal: list[Event], choice: random.Random) -> None:
    delivered = list(journal)
    choice.shuffle(delivered)
    assert fold(TURN, delivered) == fold(TURN, journal)


@folding
@given(journals(), st.data())
def test_late_events_of_a_turn_that_was_not_resumed_are_ordinary_events(
    journal: list[Event], data: st.DataObject
) -> None:
    """The tail of the last epoch arrives from a spool: the fold is the one of the whole journal."""
    newest = journal[-1].epoch
    tail = [n for n, entry in enumerate(journal) if entry.epoch == newest]
    cut = data.draw(st.sampled_from(tail))
    spooled = [msgspec.structs.replace(e, is_late=True) for e in journal[cut:]]
    assert told(fold(TURN, [*spooled, *journal[:cut]])) == told(fold(TURN, journal))


@folding
@given(journals())
def test_merging_adjacent_deltas_changes_nothing(journal: list[Event]) -> None:
    merged: list[Event] = []
    for entry in journal:
        payload, last = entry.payload, merged[-1].payload if merged else None
        if (
            isinstance(payload, (ev.TextDelta, ev.ReasoningDelta))
            and isinstance(last, (ev.TextDelta, ev.ReasoningDelta))
            and type(payload) is type(last)
            and payload.step == last.step
            and merged[-1].epoch == entry.epoch
        ):
            both = type(payload)(payload.step, last.text + payload.text)
            merged[-1] = event(both, entry.epoch, merged[-1].number, merged[-1].at)
        else:
            merged.append(entry)
    assert told(fold(TURN, merged, is_ended=True)) == told(fold(TURN, journal, is_ended=True))


@folding
@given(journals(), st.data())
def test_an_ended_turn_has_a_result_for_every_call_wherever_it_broke_off(
    journal: list[Event], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(min_value=0, max_value=len(journal)))
    messages = fold(TURN, journal[:cut], is_ended=True).messages
    wished: list[str] = []
    for message in messages:
        results = [part.call_id for part in message.parts if isinstance(part, Result)]
        assert results == wished, "the results of a step follow it at once, in its order"
        wished = [part.id for part in message.parts if isinstance(part, Call)]
    assert wished == []
    assert [message.ordinal for message in messages] == list(range(1, len(messages) + 1))
    assert [message.id for message in messages] == [message_id(TURN, m.ordinal) for m in messages]


@folding
@given(journals())
def test_no_word_is_lost(journal: list[Event]) -> None:
    written = "".join(
        e.payload.text for e in journal if isinstance(e.payload, (ev.TextDelta, ev.ReasoningDelta))
    )
    parts = [part for message in fold(TURN, journal).messages for part in message.parts]
    shown = "".join(part.text for part in parts if isinstance(part, (Text, Reasoning)))
    assert sorted(shown) == sorted(written)


# --- single cases -----------------------------------------------------------------------------------------


def journal_of(*payloads: Payload, epoch: int = 1, first: int = 1, is_late: bool = False) -> list[Event]:
    return [event(p, epoch, n, n, is_late=is_late) for n, p in enumerate(payloads, start=first)]


def test_an_abandoned_attempt_is_shown_and_not_part_of_the_words() -> None:
    folded = fold(
        TURN,
        journal_of(
            ev.StepStarted(1, "m"),
            ev.TextDelta(1, "first"),
            ev.StepAbandoned(1, "cut"),
            ev.StepStarted(1, "m", 2),
            ev.TextDelta(1, "second"),
            ev.StepFinished(1, FinishReason.STOP),
        ),
    )
    (message,) = folded.messages
    assert message.parts == (Text("first", is_abandoned=True), Text("second"))
    assert message.text == "second"


def test_an_attempt_that_continues_is_one_text_that_knows_where_it_was_cut() -> None:
    folded = fold(
        TURN,
        journal_of(
            ev.StepStarted(1, "m"),
            ev.TextDelta(1, "one "),
            ev.StepAbandoned(1, "cut", continues=True),
            ev.StepStarted(1, "m", 2),
            ev.TextDelta(1, "two"),
            ev.StepFinished(1, FinishReason.LENGTH),
        ),
    )
    assert folded.messages[0].parts == (Text("one two", cuts=(4,)),)
    assert [bar.finish for bar in folded.timeline] == ["", "length"]


def test_a_call_that_started_is_unknown_and_one_that_did_not_was_not_run() -> None:
    calls = (Call("a", "look", "{}"), Call("b", "look", "{}"))
    journal = journal_of(
        ev.StepStarted(1, "m"),
        ev.StepFinished(1, FinishReason.CALLS, calls),
        ev.ToolStarted(1, "a", "look", "{}"),
    )
    results = fold(TURN, journal, is_ended=True).messages[-1].parts
    assert [(r.call_id, r.outcome, r.text) for r in results if isinstance(r, Result)] == [
        ("a", Outcome.UNKNOWN, UNKNOWN_TEXT),
        ("b", Outcome.CANCELLED, NOT_RUN_TEXT),
    ]
    running = fold(TURN, journal)
    assert [state.is_in_doubt for state in running.calls] == [True, False]
    assert running.messages[-1].role is Role.ASSISTANT


def test_a_second_result_of_a_call_changes_nothing() -> None:
    journal = journal_of(
        ev.StepFinished(1, FinishReason.CALLS, (Call("a", "look", "{}"),)),
        ev.ToolFinished("a", "look", Outcome.OK, "first"),
        ev.ToolFinished("a", "look", Outcome.ERROR, "second"),
    )
    assert [part.text for part in fold(TURN, journal).messages[-1].parts if isinstance(part, Result)] == [
        "first"
    ]


def test_c09_a_late_result_counts_only_for_an_unsettled_call() -> None:
    calls = (Call("a", "look", "{}"), Call("b", "look", "{}"))
    journal = [
        *journal_of(ev.StepFinished(1, FinishReason.CALLS, calls), first=1),
        *journal_of(
            ev.ToolFinished("a", "look", Outcome.OK, "late a"),
            ev.ToolFinished("b", "look", Outcome.OK, "late b"),
            first=5,
            is_late=True,
        ),
        *journal_of(ev.ToolFinished("a", "look", Outcome.UNKNOWN, "settled"), epoch=2),
    ]
    results = fold(TURN, journal, is_ended=True).messages[-1].parts
    assert [part.text for part in results if isinstance(part, Result)] == ["settled", "late b"]


def superseded(journal: list[Event], *, claimed_epoch: int = 0) -> list[tuple[int, int]]:
    return [(e.epoch, e.number) for e, is_out in in_order(journal, claimed_epoch=claimed_epoch) if is_out]


SPOOLED = journal_of(ev.TextDelta(1, "half an answer"), first=3, is_late=True)
RESUMED = journal_of(ev.TurnResumed(2, "wrk_2", ClaimReason.CRASH), epoch=2)


def test_late_events_are_superseded_once_a_later_worker_has_worked() -> None:
    work = journal_of(ev.StepStarted(1, "m", 2), epoch=2, first=2)
    assert superseded([*SPOOLED, *RESUMED, *work]) == [(1, 3)]


def test_late_events_are_superseded_for_a_worker_that_claimed_the_turn() -> None:
    assert superseded([*SPOOLED, *RESUMED], claimed_epoch=2) == [(1, 3)]


def test_late_events_are_not_superseded_by_a_worker_that_only_interrupted_the_turn() -> None:
    assert superseded([*SPOOLED, *RESUMED]) == []


def test_events_delivered_in_time_are_never_superseded() -> None:
    in_time = journal_of(ev.TextDelta(1, "half an answer"), first=3)
    work = journal_of(ev.StepStarted(1, "m", 2), epoch=2, first=2)
    assert superseded([*in_time, *RESUMED, *work], claimed_epoch=3) == []


def test_an_event_delivered_in_time_and_late_counts_once_and_is_not_superseded() -> None:
    in_time = journal_of(ev.TextDelta(1, "half an answer"), first=3)
    work = journal_of(ev.StepStarted(1, "m", 2), epoch=2, first=2)
    journal = [*SPOOLED, *in_time, *work]
    assert superseded(journal, claimed_epoch=2) == []
    assert [e.number for e, _ in in_order(journal, claimed_epoch=2)] == [3, 2]


def test_steering_stands_between_the_steps_it_came_between() -> None:
    steering = Message("msg_x", TURN, Role.USER, (Text("faster"),), 0, is_steering=True)
    journal = journal_of(
        ev.StepStarted(1, "m"),
        ev.TextDelta(1, "slow"),
        ev.StepFinished(1, FinishReason.STOP),
        ev.MessageAdded(steering),
        ev.StepStarted(2, "m"),
        ev.TextDelta(2, "fast"),
        ev.StepFinished(2, FinishReason.STOP),
    )
    messages = fold(TURN, journal).messages
    assert [message.text for message in messages] == ["slow", "faster", "fast"]
    assert [message.ordinal for message in messages] == [1, 2, 3]
    assert messages[1].is_steering


def test_the_provider_s_own_reasoning_takes_the_place_of_the_streamed_one() -> None:
    block = Reasoning("thought", opaque={"signature": "x"}, model="m")
    journal = journal_of(
        ev.StepStarted(1, "m"),
        ev.ReasoningDelta(1, "thou"),
        ev.ReasoningDelta(1, "ght"),
        ev.TextDelta(1, "said"),
        ev.StepFinished(1, FinishReason.STOP, reasoning=(block,)),
    )
    assert fold(TURN, journal).messages[0].parts == (block, Text("said"))


def test_the_server_being_down_is_a_bar_of_the_timeline() -> None:
    journal = [
        *journal_of(ev.StepStarted(1, "m"), ev.TextDelta(1, "a")),
        *journal_of(
            ev.TurnResumed(2, "w", ClaimReason.CRASH, stopped_at=2),
            ev.StepStarted(1, "m", 2),
            epoch=2,
            first=7,
        ),
    ]
    bars = [(bar.kind, bar.state, bar.start_at, bar.end_at) for bar in fold(TURN, journal).timeline]
    assert bars == [("model", "abandoned", 1, 2), ("down", "done", 2, 7), ("model", "running", 8, None)]


def test_eight_times_the_deltas_cost_about_eight_times_as_much() -> None:
    """Quadratic would be 64 times. CPU time of this thread, the best of several: load does not count."""

    def cost(deltas: int) -> float:
        payloads = [ev.StepStarted(1, "m"), *[ev.TextDelta(1, "twenty characters :)")] * deltas]
        events = journal_of(*payloads)
        best = float("inf")
        for _ in range(3):
            begun = time.thread_time()
            fold(TURN, events)
            best = min(best, time.thread_time() - begun)
        return best

    assert cost(64_000) < cost(8_000) * 24


# --- the live output of a call that never reports back ---------------------------------------------------


def started_call(*more: Payload) -> list[Event]:
    wish = ev.StepFinished(1, FinishReason.CALLS, (Call("c", "run", "{}"),))
    return journal_of(ev.StepStarted(1, "m"), wish, ev.ToolStarted(1, "c", "run", "{}"), *more)


def result_of(events: list[Event]) -> Result:
    (result,) = fold(TURN, events, is_ended=True).messages[-1].parts
    assert isinstance(result, Result)
    return result


def test_what_a_call_printed_stays_if_it_never_reports_back() -> None:
    result = result_of(started_call(ev.ToolOutput("c", "line 1\n"), ev.ToolOutput("c", "line 2\n")))
    assert (result.outcome, result.text, result.output) == (Outcome.UNKNOWN, UNKNOWN_TEXT, "line 1\nline 2\n")


def test_a_call_that_reports_back_has_its_result_and_no_output_beside_it() -> None:
    done = ev.ToolFinished("c", "run", Outcome.OK, "the whole output")
    assert result_of(started_call(ev.ToolOutput("c", "part"), done)).output is None


def test_a_result_that_a_person_gave_for_a_call_in_doubt_does_not_hide_what_it_printed() -> None:
    answer = ev.QuestionAnswered("ask", "take it as done", "me", AskTopic.DOUBT, "c")
    given = ev.ToolFinished("c", "run", Outcome.OK, "The user says that it took effect.")
    assert result_of(started_call(ev.ToolOutput("c", "part"), answer, given)).output == "part"
    again = ev.ToolStarted(1, "c", "run", "{}", attempt=2)
    own = ev.ToolFinished("c", "run", Outcome.OK, "whole")
    assert result_of(started_call(ev.ToolOutput("c", "part"), answer, again, own)).output is None
    unknown = ev.ToolFinished("c", "run", Outcome.UNKNOWN, "Outcome unknown.")
    assert result_of(started_call(ev.ToolOutput("c", "part"), unknown)).output == "part"


def test_a_second_run_shows_its_own_output() -> None:
    again = ev.ToolStarted(1, "c", "run", "{}", attempt=2)
    events = started_call(ev.ToolOutput("c", "first"), again, ev.ToolOutput("c", "second"))
    assert result_of(events).output == "second"


def test_of_very_long_output_the_end_is_kept() -> None:
    pieces = [ev.ToolOutput("c", f"{number:07d}\u00e9\n") for number in range(40_000)]
    output = result_of(started_call(*pieces)).output
    assert output is not None
    assert output.endswith("0039999\u00e9\n")
    assert OUTPUT_BYTES_MAX - 1 <= len(output.encode()) <= OUTPUT_BYTES_MAX
