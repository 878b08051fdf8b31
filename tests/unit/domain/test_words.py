"""Enums that are stored and sent: the same bytes as plain strings, and open to words of a newer release."""

from __future__ import annotations

import msgspec
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic, Decision
from everturn.domain.fold import fold
from everturn.domain.turns import Bar, BarKind, BarState, ClaimReason, FinishReason


@pytest.mark.parametrize(
    ("payload", "data"),
    [
        (ev.StepFinished(1, FinishReason.STOP), b'{"kind":"step.finished","step":1,"finish":"stop"}'),
        (ev.QuestionAsked("ask_1", "?"), b'{"kind":"question.asked","ask_id":"ask_1","text":"?"}'),
        (
            ev.QuestionAsked("ask_1", "?", topic=AskTopic.DOUBT),
            b'{"kind":"question.asked","ask_id":"ask_1","text":"?","topic":"doubt"}',
        ),
        (
            ev.QuestionAnswered("ask_1", "yes", "ada", AskTopic.QUESTION),
            b'{"kind":"question.answered","ask_id":"ask_1","answer":"yes","by":"ada","topic":"question"}',
        ),
        (
            ev.ApprovalResolved("ask_1", "call_1", Decision.DENY, "ada"),
            b'{"kind":"approval.resolved","ask_id":"ask_1","call_id":"call_1","decision":"deny","by":"ada"}',
        ),
        (
            ev.TurnResumed(2, "wrk_1", ClaimReason.CRASH),
            b'{"kind":"turn.resumed","epoch":2,"worker":"wrk_1","reason":"crash"}',
        ),
    ],
)
def test_a_word_is_stored_as_its_value(payload: ev.Payload, data: bytes) -> None:
    assert ev.encode(payload) == data
    assert ev.decode(data) == payload


def test_the_default_state_of_a_bar_is_left_out() -> None:
    done = Bar(BarKind.TOOL, "ls", 1, 2, BarState.DONE)
    assert msgspec.json.encode(done) == b'{"kind":"tool","label":"ls","start_at":1,"end_at":2}'


def test_an_answer_stored_without_its_topic_answers_a_question() -> None:
    data = b'{"kind":"question.answered","ask_id":"ask_1","answer":"yes","by":"ada"}'
    answered = ev.decode(data)
    assert isinstance(answered, ev.QuestionAnswered)
    assert answered.topic is AskTopic.QUESTION


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind":"question.asked","ask_id":"ask_1","text":"?","topic":"weather"}',
        b'{"kind":"step.finished","step":1,"finish":"tired"}',
        b'{"kind":"turn.resumed","epoch":2,"worker":"wrk_1","reason":"moved"}',
        b'{"kind":"approval.resolved","ask_id":"a","call_id":"c","decision":"twice","by":"ada"}',
    ],
)
def test_a_word_of_a_newer_release_is_carried_through(data: bytes) -> None:
    payload = ev.decode(data)
    assert ev.encode(payload) == data  # type: ignore[arg-type]  # one of the payload classes
    event = ev.Event("ses_1", 1, "trn_1", ev.kind_of(payload), 1, data, 1, 1)  # type: ignore[arg-type]  # one of the payload classes
    fold("trn_1", [event], is_ended=True)


def test_an_unknown_word_equals_no_known_one() -> None:
    word = AskTopic("weather")
    assert word == "weather"
    assert word not in list(AskTopic)


def test_only_lasting_decisions_cover_later_calls() -> None:
    assert [d for d in Decision if d.is_lasting] == [Decision.SESSION, Decision.ALWAYS, Decision.TRUST]
    assert not Decision("twice").is_lasting


def test_something_that_is_not_a_string_is_no_word() -> None:
    with pytest.raises(ValueError, match="5"):
        AskTopic(5)  # type: ignore[arg-type]  # not a word at all
