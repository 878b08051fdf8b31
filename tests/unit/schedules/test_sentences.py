"""One plain sentence becomes a rule and a task, or a question whose choices are clear."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.domain.errors import Invalid
from everturn.domain.schedules import CronRule, IntervalRule, OnceRule
from everturn.schedules.sentences import SENTENCE_CHARS_MAX, name_of, read_sentence, read_when
from everturn.schedules.times import check_timing, next_times

ZONE = "Europe/Vienna"
NOW = round(datetime(2026, 11, 18, 9, 24, tzinfo=ZoneInfo(ZONE)).timestamp() * 1000)  # a Wednesday


@pytest.mark.parametrize(
    ("sentence", "rule", "task"),
    [
        ("every weekday at 8 summarise my inbox", "0 8 * * 1-5", "Summarise my inbox"),
        ("summarise my inbox every weekday at 8.", "0 8 * * 1-5", "Summarise my inbox"),
        ("Every weekday summarise my inbox at 8", "0 8 * * 1-5", "Summarise my inbox"),
        ("every day at 8 tell me what is due by tomorrow", "0 8 * * *", "Tell me what is due by tomorrow"),
        ("please every day at 7:15 am, tell me the news", "15 7 * * *", "Tell me the news"),
        ("sum up my day every day at 5 pm?", "0 17 * * *", "Sum up my day"),
        ("every evening at 6 turn on the lights", "0 18 * * *", "Turn on the lights"),
        ("every day at 8 and 18 check the mail", "0 8,18 * * *", "Check the mail"),
        ("every day at noon TCP/IP check", "0 12 * * *", "TCP/IP check"),
        ("every monday and thursday at 9:30 check", "30 9 * * 1,4", "Check"),
        ("Fridays at 17:00 review", "0 17 * * 5", "Review"),
        ("weekly on friday at 17 review", "0 17 * * 5", "Review"),
        ("Monday to Friday at 8 work", "0 8 * * 1-5", "Work"),
        ("on weekends at 10 water the plants", "0 10 * * 6,0", "Water the plants"),
        ("every first monday of the month at 9 plan", "0 9 * * 1#1", "Plan"),
        ("on the 1st and 15th at 9 pay", "0 9 1,15 * *", "Pay"),
        ("on the last day of the month at 18:00 pay", "0 18 L * *", "Pay"),
        ("every year on 21 March at 10 sow", "0 10 21 3 *", "Sow"),
        ("*/20 6-9 * * MON-FRI look", "*/20 6-9 * * MON-FRI", "Look"),
        ("on 21 March 2027 at 10 sow", OnceRule("2027-03-21T10:00"), "Sow"),
        ("21 March at 10 sow", OnceRule("2027-03-21T10:00"), "Sow"),
        ("sow 21 March at 10", OnceRule("2027-03-21T10:00"), "Sow"),
        ("on March 2nd at 10 sow", OnceRule("2027-03-02T10:00"), "Sow"),
        ("tomorrow at 9 call the bank", OnceRule("2026-11-19T09:00"), "Call the bank"),
        ("on friday at 5pm send it", OnceRule("2026-11-20T17:00"), "Send it"),
        ("remind me of the oven in 20 minutes", OnceRule("2026-11-18T09:44"), "Remind me of the oven"),
        ("in 3 days at 9 ask again", OnceRule("2026-11-21T09:00"), "Ask again"),
        ("2026-11-20T08:00 begin", OnceRule("2026-11-20T08:00"), "Begin"),
    ],
)
def test_a_sentence_is_read_as_rule_and_task(sentence: str, rule: str | OnceRule, task: str) -> None:
    reading = read_sentence(sentence, ZONE, NOW)
    assert (reading.question, reading.text) == ("", task)
    assert reading.timing is not None
    assert reading.timing.rule == (CronRule(rule) if isinstance(rule, str) else rule)
    assert reading.timing.timezone == ZONE


@pytest.mark.parametrize(
    ("sentence", "first", "every_h"),
    [
        ("every 6 hours look", "2026-11-18T12:00", 6),
        ("every hour look", "2026-11-18T10:00", 1),
        ("hourly look", "2026-11-18T10:00", 1),
        ("every half hour look", "2026-11-18T09:30", 0.5),
        ("every other day at 7am look", "2026-11-19T07:00", 48),
        ("every 2 weeks on monday at 9 look", "2026-11-23T09:00", 14 * 24),
        ("every second week on monday at 9 look", "2026-11-23T09:00", 14 * 24),
        ("every fortnight on monday at 9 look", "2026-11-23T09:00", 14 * 24),
        ("look fortnightly on monday at 9", "2026-11-23T09:00", 14 * 24),
        ("every other monday at 9 look", "2026-11-23T09:00", 14 * 24),
        ("every third day at 7am look", "2026-11-19T07:00", 72),
    ],
)
def test_intervals_fall_on_whole_hours_or_on_the_time_that_was_named(
    sentence: str, first: str, every_h: float
) -> None:
    timing = read_sentence(sentence, ZONE, NOW).timing
    assert timing is not None
    assert isinstance(timing.rule, IntervalRule)
    assert timing.rule.every_s == every_h * 3600
    assert next_times(timing, NOW, 1) == [round(datetime.fromisoformat(f"{first}+01:00").timestamp() * 1000)]


@pytest.mark.parametrize(
    ("sentence", "question", "labels"),
    [
        ("On the 31st in the evening clean up", "On the 31st. At what time?", ["18:00", "20:00"]),
        ("every morning tell me the weather", "Every day. At what time?", ["07:00", "08:00", "09:00"]),
        ("tonight call", "On 18 November. At what time?", ["18:00", "20:00"]),
        ("on friday at 5 send it", "morning or in the afternoon?", ["05:00", "17:00"]),
        (
            "every week review",
            "Every week. On which day?",
            ["Every Monday at 08:00", "Every Friday at 08:00"],
        ),
        (
            "every month pay",
            "Every month. On which day?",
            ["On the 1st at 08:00", "On the last day at 08:00"],
        ),
        ("every day at 8:00 and 18:30 check", "At which of these times?", ["08:00", "18:30"]),
        (
            "at 8 wake me",
            "At 08:00. On which days?",
            ["Every day at 08:00", "Weekdays at 08:00", "Tomorrow at 08:00"],
        ),
        (
            "summarise my inbox",
            "When?",
            ["Every day at 08:00", "Weekdays at 08:00", "Tomorrow at 08:00"],
        ),
    ],
)
def test_an_unclear_sentence_is_a_question_whose_choices_are_clear(
    sentence: str, question: str, labels: list[str]
) -> None:
    reading = read_sentence(sentence, ZONE, NOW)
    assert reading.timing is None
    assert question in reading.question
    assert [choice.label for choice in reading.choices] == labels
    for choice in reading.choices:
        chosen = read_sentence(choice.sentence, ZONE, NOW)
        assert (chosen.question, chosen.text) == ("", reading.text)


@pytest.mark.parametrize(
    "sentence",
    [
        "every 90 seconds look",
        "quarterly at 9 do taxes",
        "every quarter do taxes",
        "yesterday at 8 look",
        "twice a day look",
        "three times a week look",
        "look every 90 seconds",
    ],
)
def test_words_about_time_that_cannot_be_read_do_not_become_a_task(sentence: str) -> None:
    reading = read_sentence(sentence, ZONE, NOW)
    assert (reading.timing, reading.choices) == (None, ())
    assert "cannot be read" in reading.detail


@pytest.mark.parametrize(
    "sentence",
    ["compare every quarter with the last one", "say what happened yesterday", "mail each customer"],
)
def test_other_words_about_time_are_part_of_the_task(sentence: str) -> None:
    assert len(read_sentence(sentence, ZONE, NOW).choices) == 3


def test_a_time_that_no_clock_shows_is_named_and_left_out() -> None:
    reading = read_sentence("every day at 25:00 look", ZONE, NOW)
    assert (reading.detail, reading.text) == ("25:00 is not a time of day.", "Look")
    assert reading.choices[0].sentence == "Every day at 08:00 look"
    assert "cannot be read" in read_sentence("look every day at 8:75", ZONE, NOW).detail


def test_what_a_rule_leaves_out_is_said() -> None:
    assert "without a 31st are left out" in read_sentence("On the 31st at 18:00 pay", ZONE, NOW).note
    assert "could be several" in read_sentence("On the 31st in the evening pay", ZONE, NOW).detail


def test_a_zone_in_the_sentence_counts_also_for_tomorrow() -> None:
    # In Auckland it is already the evening of the 18th; two hours later it is the 19th there.
    timing = read_sentence("tomorrow at 9 Pacific/Auckland call", ZONE, NOW + 4 * 3_600_000).timing
    assert timing is not None
    assert (timing.timezone, timing.rule) == ("Pacific/Auckland", OnceRule("2026-11-20T09:00"))


def test_a_rule_without_a_task_asks_what_to_do() -> None:
    assert read_sentence("every weekday at 8", ZONE, NOW).question == "What should it do?"
    assert read_when("Weekdays at 08:00, Europe/Berlin", ZONE, NOW).rule == CronRule("0 8 * * 1-5")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("every week", "On which day"),
        ("soon", "cannot be read as a time"),
        ("every day at 8 dance", "cannot be read as a time"),
        ("", "When"),
        ("on 30 February at 8", "never fires"),
        ("30 February at 8", "never fires"),
        ("on 29 February 2027 at 8", "never fires"),
        ("on 2026-13-40 at 8", "no day"),
        ("every day at 8 Europe/Atlantis", "no time zone"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_in_words(words: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        read_when(words, ZONE, NOW)
    assert refused.value.hint


def test_a_sentence_without_end_is_refused() -> None:
    with pytest.raises(Invalid, match="at most"):
        read_sentence("x" * (SENTENCE_CHARS_MAX + 1), ZONE, NOW)


def test_a_name_is_the_beginning_of_the_task() -> None:
    assert name_of("Summarise my inbox.") == "Summarise my inbox"
    assert name_of("Summarise my inbox and tell me what needs an answer, today") == (
        "Summarise my inbox and tell me what needs an …"
    )


WORDS = """every on at the in day monday fridays 8 31st 2nd half 17:30 pm 21 March 2027 month week hours tomorrow
weekday evening noon last first and , * 0 1-5 UTC Europe/Vienna summarise my inbox . \u2013"""


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
def test_no_order_of_words_breaks_the_reading(words: list[str]) -> None:
    hint = ""
    try:
        reading = read_sentence(" ".join(words), ZONE, NOW)
        if reading.timing is not None:
            check_timing(reading.timing, NOW)
    except Invalid as error:
        hint = error.hint
    else:
        hint = reading.question or reading.text
    assert hint
