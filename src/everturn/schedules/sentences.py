"""Reads one plain sentence, such as "every weekday at 8 summarise my inbox", as a rule and a task.

It reads English words for times at the beginning and at the end of the sentence; what is left is the task.
It does not guess: where a sentence has several meanings, the reading is a question with choices, and each
choice is a complete, unambiguous sentence.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import MappingProxyType

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.schedules import CronRule, IntervalRule, OnceRule, Rule, Timing
from everturn.domain.timezones import find_zone
from everturn.schedules.time_words import (
    DAY_S,
    Day,
    TimeWords,
    has_unread_time,
    split_sentence,
    take_bad_clock,
)

SENTENCE_CHARS_MAX = 20_000
_NAME_CHARS = 48
_HINT = "Write a rule like: every weekday at 8, every 6 hours, on 21 March at 10:00, tomorrow at 9."

# Words that name no exact time, and what they may mean.
_VAGUE = MappingProxyType(
    {
        "morning": ("07:00", "08:00", "09:00"),
        "lunch": ("12:00", "13:00"),
        "afternoon": ("14:00", "16:00"),
        "evening": ("18:00", "20:00"),
        "night": ("22:00", "23:00"),
        "": ("08:00", "12:00", "18:00"),
    }
)


class SentenceChoice(msgspec.Struct, frozen=True):
    """``sentence``: the whole sentence with this meaning."""

    label: str
    sentence: str


class Reading(msgspec.Struct, frozen=True):
    """What a sentence says. ``question``: what it leaves open; ``timing`` is there if only the task is
    missing. ``note``: what follows from the rule and may surprise."""

    name: str
    text: str
    timing: Timing | None = None
    question: str = ""
    detail: str = ""
    choices: tuple[SentenceChoice, ...] = ()
    note: str = ""


def read_sentence(sentence: str, timezone: str, now_ms: int) -> Reading:
    """Raises Invalid for a sentence that is too long or names a time zone that does not exist.
    ``check_timing`` says whether its times ever come."""
    if len(sentence) > SENTENCE_CHARS_MAX:
        raise Invalid(f"A sentence has at most {SENTENCE_CHARS_MAX} characters.", hint="Shorten it.")
    found, task = split_sentence(sentence.strip(), timezone, now_ms)
    if found.timezone != timezone:  # "tomorrow" is a day of the zone that the sentence names
        found, task = split_sentence(sentence.strip(), found.timezone, now_ms)
    return _Answer(found, task).read()


def read_when(words: str, timezone: str, now_ms: int) -> Timing:
    """A rule without a task. Raises Invalid, with what is not clear, if it cannot be read."""
    reading = read_sentence(words, timezone, now_ms)
    if reading.text:
        raise Invalid(f"{words[:100]!r} cannot be read as a time.", hint=_HINT)
    if reading.timing is None:
        offered = "; ".join(choice.sentence for choice in reading.choices)
        hint = f"Write for example: {offered}." if offered else _HINT
        raise Invalid(f"{words[:100]!r} is not clear. {reading.question}", hint=hint)
    return reading.timing


def name_of(task: str) -> str:
    """The beginning of a task as a name: whole words, at most one line."""
    line = " ".join(task.split()).rstrip(".!")
    if len(line) <= _NAME_CHARS:
        return line
    return f"{line[:_NAME_CHARS].rsplit(' ', 1)[0].rstrip(',;:')} …"


class _Answer:
    """The reading of a sentence whose words about time were found."""

    def __init__(self, found: TimeWords, task: str) -> None:
        self._found = found
        self._task = task

    def read(self) -> Reading:
        found, day = self._found, self._found.day
        find_zone(found.timezone)
        if found.rule is not None:
            return self._clear(found.rule)
        if day is None:
            return self._ask_when()
        if day.is_missing:
            return self._ask_day(day)
        if found.is_half_day:
            return self._ask_half(day)
        if not found.has_time:
            return self._ask_time(day)
        if len(found.times) > 1 and (day.cron == "" or len({minute for _, minute in found.times}) > 1):
            return self._ask_one(day)
        return self._clear(self._rule(day), day.note)

    def _clear(self, rule: Rule, note: str = "") -> Reading:
        question = "" if self._task else "What should it do?"
        timing = Timing(rule, self._found.timezone)
        return Reading(name_of(self._task), self._task, timing, question=question, note=note)

    def _rule(self, day: Day) -> Rule:
        if day.every_s:
            return IntervalRule(day.every_s, self._interval_start(day))
        hour, minute = self._found.times[0]
        if day.date is not None:
            return OnceRule(f"{day.date}T{hour:02d}:{minute:02d}")
        hours = ",".join(str(hour) for hour, _ in sorted(self._found.times))
        return CronRule(f"{minute} {hours} {day.cron}")

    def _interval_start(self, day: Day) -> int:
        """So that short intervals fall on whole hours, and those of days on the time that was named."""
        now = self._found.now
        hour, minute = self._found.times[0] if self._found.times else (0, 0)
        first = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if day.weekday is not None:
            first += timedelta(days=(day.weekday - now.isoweekday()) % 7)
        step = timedelta(seconds=day.every_s)
        if day.every_s >= DAY_S and first <= now:
            first += timedelta(days=1 if day.weekday is None else 7)
        # The first time is one interval after the start.
        return _ms(first - step if day.every_s >= DAY_S or first > now else first)

    # --- questions ---------------------------------------------------------------------------------

    def _ask_when(self) -> Reading:
        found = self._found
        at = _format_time(found.times[0]) if found.times and not found.is_half_day else "08:00"
        choices = [self._choice(f"{days} at {at}") for days in ("Every day", "Weekdays", "Tomorrow")]
        if has_unread_time(self._task):
            return self._ask("When?", f"The words about time cannot be read. {_HINT}", [])
        if found.times:
            return self._ask(f"At {at}. On which days?", "", choices)
        return self._ask("When?", "The sentence names no time.", choices)

    def _ask_day(self, day: Day) -> Reading:
        at = (
            _format_time(self._found.times[0])
            if self._found.times and not self._found.is_half_day
            else "08:00"
        )
        if day.words.endswith("year"):
            return self._ask(
                f"{day.words}. On which day?", "Write it like: every year on 21 March at 10:00.", []
            )
        days = (
            ("Every Monday", "Every Friday")
            if day.words.endswith("week")
            else ("On the 1st", "On the last day")
        )
        return self._ask(f"{day.words}. On which day?", "", [self._choice(f"{one} at {at}") for one in days])

    def _ask_half(self, day: Day) -> Reading:
        hour, minute = self._found.times[0]
        choices = [self._at(_format_time((part, minute))) for part in (hour, hour + 12)]
        return self._ask(f"{day.words} at {hour}. In the morning or in the afternoon?", day.note, choices)

    def _ask_time(self, day: Day) -> Reading:
        vague = self._found.vague_words.strip(" ,")
        wrong, self._task = take_bad_clock(self._task)
        if wrong:
            return self._ask(
                f"{day.words}. At what time?",
                f"{wrong} is not a time of day.",
                [self._at(time) for time in _VAGUE[""]],
            )
        detail = f"“{vague[:1].upper()}{vague[1:]}” could be several." if vague else ""
        choices = [self._at(time) for time in _VAGUE[self._found.vague or ""]]
        return self._ask(f"{day.words}. At what time?", f"{detail} {day.note}".strip(), choices)

    def _ask_one(self, day: Day) -> Reading:
        detail = (
            "Times with different minutes need a schedule each." if day.cron else "This rule has one time."
        )
        choices = [self._at(_format_time(time)) for time in self._found.times]
        return self._ask(f"{day.words}. At which of these times?", detail, choices)

    def _at(self, time: str) -> SentenceChoice:
        return self._choice(f"{' '.join(self._found.parts)} at {time}", time)

    def _choice(self, when: str, label: str = "") -> SentenceChoice:
        task = f"{self._task[:1].lower()}{self._task[1:]}" if self._task[1:2].islower() else self._task
        return SentenceChoice(label or when, f"{when[:1].upper()}{when[1:]} {task}".strip())

    def _ask(self, question: str, detail: str, choices: list[SentenceChoice]) -> Reading:
        return Reading(
            name_of(self._task), self._task, question=question, detail=detail, choices=tuple(choices)
        )


def _format_time(time: tuple[int, int]) -> str:
    return f"{time[0]:02d}:{time[1]:02d}"


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
