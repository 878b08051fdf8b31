"""Words about days and times, as people write them in a sentence: "every weekday at 8", "on the 31st"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.schedules import CronRule, OnceRule, Rule
from everturn.domain.timezones import find_zone

_DAY_NAMES = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NUMBERS = MappingProxyType(
    {
        "a": 1,
        "an": 1,
        "one": 1,
        "two": 2,
        "three": 3,
        "four": 4,
        "five": 5,
        "six": 6,
        "ten": 10,
        "other": 2,
        "second": 2,
        "third": 3,
        "fourth": 4,  # every second day
    }
)
_PLACES = MappingProxyType({"first": "#1", "second": "#2", "third": "#3", "fourth": "#4", "last": "L"})
_UNITS = MappingProxyType({"min": 60, "h": 3600, "d": 86400, "w": 7 * 86400})
DAY_S = _UNITS["d"]
_TAIL_CHARS_MAX = 200
# With which the names of time zones begin; others, such as TCP/IP, are words of the task.
_AREAS = frozenset(
    (
        *("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic"),
        *("Australia", "Europe", "Indian", "Pacific", "UTC"),
    )
)

# --- what was found -----------------------------------------------------------------------------------


class Day(msgspec.Struct):
    """On which days. ``cron``: day of month, month and day of week. ``every_s``: an interval, with
    ``weekday`` if it counts weeks. ``is_missing``: a week or month was named, but no day of it."""

    words: str
    cron: str = ""
    date: date | None = None
    every_s: int = 0
    weekday: int | None = None
    note: str = ""
    is_missing: bool = False


class TimeWords:
    """The words about time that were found so far. Each slot is filled once: a second day or time belongs to
    the task."""

    def __init__(self, timezone: str, now_ms: int) -> None:
        self.timezone = timezone
        self.now_ms = now_ms
        self.has_zone = False
        self.day: Day | None = None
        self.rule: Rule | None = None
        self.times: list[tuple[int, int]] = []
        self.vague: str | None = None
        self.vague_words = ""
        self.is_half_day = False  # an hour of which it is not said whether it is before noon
        self.parts: list[str] = []  # the words, without those about the time of day

    @property
    def zone(self) -> ZoneInfo:
        return find_zone(self.timezone)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms / 1000, UTC).astimezone(self.zone)

    @property
    def has_time(self) -> bool:
        return (
            bool(self.times) or self.rule is not None or (self.day is not None and self._is_steady(self.day))
        )

    def _is_steady(self, day: Day) -> bool:
        """An interval of less than a day needs no time of day."""
        return 0 < day.every_s < DAY_S

    def take_day(self, day: Day) -> bool:
        if self.rule is not None:
            return False
        if self.day is None:
            self.day = day
        elif self.day.is_missing and (day.cron or day.weekday is not None) and not day.is_missing:
            day.words = f"{self.day.words} {day.words}"
            self.day = day
        elif day.is_missing:
            return False
        elif self.day.every_s >= _UNITS["w"] and self.day.weekday is None and day.weekday is not None:
            self.day.weekday = day.weekday
        else:
            return False
        return True


Take = Callable[[TimeWords, re.Match[str]], bool]


def split_sentence(sentence: str, timezone: str, now_ms: int) -> tuple[TimeWords, str]:
    """What the sentence says about time, and the rest of it."""
    found = TimeWords(timezone, now_ms)
    start = _take_all(found, sentence, 0)
    rest = sentence[start:]
    end = _find_tail(found, rest) if found.day is None or not found.has_time else len(rest)
    if end < len(rest):
        _take_all(found, rest, end)
    return found, _clean(rest[:end])


def _find_tail(found: TimeWords, text: str) -> int:
    """Where the words about time begin with which the text ends; its length if there are none."""
    for place in re.compile(r"(?<!\S)(?=\S)").finditer(text, max(0, len(text) - _TAIL_CHARS_MAX)):
        trial = TimeWords(found.timezone, found.now_ms)
        trial.day, trial.times, trial.vague = found.day, list(found.times), found.vague
        end = _take_all(trial, text, place.start())
        if end > place.start() and not text[end:].strip(" .!?,"):
            return place.start()
    return len(text)


def _take_all(found: TimeWords, text: str, at: int) -> int:
    """Take words about time from here on, as many as there are; return where they end."""
    while True:
        gap = _GAP.match(text, at)
        after = gap.end() if gap else at
        for pattern, take in _WORDS:
            match = pattern.match(text, after)
            if match and take(found, match):
                at = match.end()
                break
        else:
            return at


def _clean(task: str) -> str:
    task = task.strip().strip(",;:\u2013-").strip()
    task = re.sub(r"^(?:please|then|and)\s+", "", task, flags=re.IGNORECASE)
    return task[:1].upper() + task[1:]


# --- words about days and times -----------------------------------------------------------------------

_DAY = rf"(?:{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in _DAY_NAMES)}|tues|thur|thurs|weds)"
_MONTH = rf"(?:{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in _MONTH_NAMES)}|sept)"
_AND = r"(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*)"
_NUMBER = rf"(?:\d{{1,4}}|{'|'.join(_NUMBERS)})"
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)"
_CLOCK = (
    r"(?:\d{1,2}(?:[:.]\d{2})?\s*(?:a\.?m\.?|p\.?m\.?)|\d{1,2}[:.]\d{2}|\d{1,2}(?:\s*o'clock)?|noon|midnight)"
)
_OF_MONTH = r"(?:\s+of\s+(?:the|each|every)\s+month)?"
_GAP = re.compile(r"[\s,]*(?:(?:and|please|starting)\s+)?", re.IGNORECASE)


def _day_number(name: str) -> int:
    return next(number for number, day in enumerate(_DAY_NAMES) if day.startswith(name.lower()[:3]))


def _month_number(name: str) -> int:
    return next(n for n, month in enumerate(_MONTH_NAMES, start=1) if month.startswith(name.lower()[:3]))


def _number(words: str) -> int:
    return int(words) if words.isdigit() else _NUMBERS[words.lower()]


def _keep(found: TimeWords, match: re.Match[str]) -> None:
    found.parts.append(match[0].strip(" ,"))


def _take_cron(found: TimeWords, match: re.Match[str]) -> bool:
    if found.day is not None or found.rule is not None:
        return False
    found.rule = CronRule(" ".join(match[1].split()))
    _keep(found, match)
    return True


def _take_zone(found: TimeWords, match: re.Match[str]) -> bool:
    if found.has_zone or match[1].split("/")[0] not in _AREAS:
        return False
    find_zone(match[1])
    found.timezone, found.has_zone = match[1], True
    _keep(found, match)
    return True


def _take_iso(found: TimeWords, match: re.Match[str]) -> bool:
    try:
        day = date.fromisoformat(match[1])
    except ValueError:
        raise Invalid(f"There is no day {match[1]}.", hint="Write it like 2026-11-20.") from None
    if not found.take_day(Day(f"On {day.day} {day:%B %Y}", date=day)):
        return False
    _keep(found, match)
    return True


def _take_in(found: TimeWords, match: re.Match[str]) -> bool:
    """in 20 minutes"""
    if found.day is not None or found.rule is not None:
        return False
    seconds = _number(match[1]) * _UNITS[_unit(match[2])]
    if seconds >= DAY_S:
        day = (found.now + timedelta(seconds=seconds)).date()
        found.day = Day(f"On {day.day} {day:%B %Y}", date=day)
    else:
        # Up to the whole minute: a time that has passed would never come.
        instant = datetime.fromtimestamp(found.now_ms / 1000 + seconds + 59, UTC).astimezone(found.zone)
        found.rule = OnceRule(instant.replace(tzinfo=None).isoformat(timespec="minutes"))
    _keep(found, match)
    return True


def _unit(word: str) -> str:
    word = word.lower()
    return "min" if word.startswith("m") else word[0]


def _take_interval(found: TimeWords, match: re.Match[str]) -> bool:
    """every 6 hours, every other day, hourly"""
    words = match[0].lower()
    if words.startswith("half") or "half" in words:
        day = Day("Every 30 minutes", every_s=1800)
    elif words.startswith("hourly"):
        day = Day("Every hour", every_s=3600)
    else:
        count, unit = _number(match[1] or "1"), _unit(match[2])
        if count == 1 and unit in "dw":
            return False
        day = Day(match[0].capitalize(), every_s=count * _UNITS[unit])
    if not found.take_day(day):
        return False
    _keep(found, match)
    return True


def _take_fortnight(found: TimeWords, match: re.Match[str]) -> bool:
    """every fortnight, fortnightly, every other Monday"""
    weekday = _day_number(match["day"]) if match["day"] else None
    if not found.take_day(Day("Every 2 weeks", every_s=2 * _UNITS["w"], weekday=weekday)):
        return False
    _keep(found, match)
    return True


def _take_daily(found: TimeWords, match: re.Match[str]) -> bool:
    """every day, every morning, nightly"""
    if not found.take_day(Day("Every day", cron="* * *")):
        return False
    part = (match[1] or ("night" if "night" in match[0].lower() else "")).lower()
    if part and found.vague is None and not found.times:
        found.vague, found.vague_words = part, match[0]
    found.parts.append("every day" if part else match[0].strip(" ,"))
    return True


def _take_weekdays(found: TimeWords, match: re.Match[str]) -> bool:
    is_weekend = "weekend" in match[0].lower()
    day = Day("Weekends", cron="* * 6,0") if is_weekend else Day("Weekdays", cron="* * 1-5")
    if not found.take_day(day):
        return False
    _keep(found, match)
    return True


def _take_days(found: TimeWords, match: re.Match[str]) -> bool:
    """every Monday, on Mondays and Thursdays, Monday to Friday; on Friday and next Friday are one time"""
    lead, listed = (match["lead"] or "").lower(), match["days"]
    names = re.findall(_DAY, listed, re.IGNORECASE)
    numbers = [_day_number(name) for name in names]
    is_plural = bool(re.search(r"days\b", listed, re.IGNORECASE))
    is_range = bool(re.search(r"\b(?:to|through)\b|[a-z]\s*[-\u2013]\s*[a-z]", listed, re.IGNORECASE))
    shown = " and ".join(_DAY_NAMES[number].capitalize() for number in numbers)
    in_weeks = found.day is not None and (found.day.is_missing or found.day.every_s >= _UNITS["w"])
    if not (lead.startswith(("every", "each")) or is_plural or is_range or len(numbers) > 1 or in_weeks):
        if not lead:
            return False
        ahead = (numbers[0] - found.now.isoweekday()) % 7 or 7
        day = found.now.date() + timedelta(days=ahead)
        made = Day(f"On {shown}, {day.day} {day:%B}", date=day)
    else:
        week = "-".join(map(str, numbers)) if is_range else ",".join(map(str, numbers))
        shown = shown.replace(" and ", " to ") if is_range else shown
        made = Day(f"Every {shown}", cron=f"* * {week}", weekday=numbers[0])
    if not found.take_day(made):
        return False
    _keep(found, match)
    return True


def _take_month_day(found: TimeWords, match: re.Match[str]) -> bool:
    """on the 1st and 15th, on the last day of the month"""
    numbers = [int(number) for number in re.findall(r"\d+", match[0])]
    if any(not 1 <= number <= 31 for number in numbers):
        return False
    if numbers:
        shown = " and ".join(f"{number}{ordinal_suffix(number)}" for number in numbers)
        late = max(numbers)
        note = f"Months without a {late}{ordinal_suffix(late)} are left out." if late > 28 else ""
        made = Day(f"On the {shown}", cron=f"{','.join(map(str, numbers))} * *", note=note)
    else:
        made = Day("On the last day of the month", cron="L * *")
    if not found.take_day(made):
        return False
    _keep(found, match)
    return True


def ordinal_suffix(number: int) -> str:
    return "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _take_nth_day(found: TimeWords, match: re.Match[str]) -> bool:
    """the first Monday of the month"""
    place, number = match[1].lower(), _day_number(match[2])
    words = f"Every {place} {_DAY_NAMES[number].capitalize()} of the month"
    if not found.take_day(Day(words, cron=f"* * {number}{_PLACES[place]}")):
        return False
    _keep(found, match)
    return True


def _take_date(found: TimeWords, match: re.Match[str]) -> bool:
    """on 21 March 2027, on March 21, every year on 21 March"""
    number, month = int(match["d1"] or match["d2"]), _month_number(match["m1"] or match["m2"])
    if not 1 <= number <= 31:
        return False
    shown = f"{number} {_MONTH_NAMES[month - 1].capitalize()}"
    if (match["lead"] or "").lower().startswith(("every", "each", "yearly")):
        made = Day(f"Every year on {shown}", cron=f"{number} {month} *")
    else:
        year = match["y1"] or match["y2"]
        day = _make_date(int(year), month, number, shown) if year else _next_date(found, month, number, shown)
        made = Day(f"On {shown} {day.year}", date=day)
    if not found.take_day(made):
        return False
    _keep(found, match)
    return True


def _make_date(year: int, month: int, number: int, shown: str) -> date:
    try:
        return date(year, month, number)
    except ValueError:
        raise Invalid(
            f"There is no {shown} {year}, so that this never fires.", hint="Choose another day."
        ) from None


def _next_date(found: TimeWords, month: int, number: int, shown: str) -> date:
    today = found.now.date()
    for year in range(today.year, today.year + 9):  # a 29th of February can be eight years away
        try:
            day = date(year, month, number)
        except ValueError:
            continue
        if day >= today:
            return day
    raise Invalid(f"There is no {shown}, so that this never fires.", hint="Choose another day.")


def _take_near(found: TimeWords, match: re.Match[str]) -> bool:
    """today, tonight, tomorrow evening"""
    word, part = match[1].lower(), (match[2] or "").lower()
    ahead = {"today": 0, "tonight": 0, "this": 0, "tomorrow": 1}.get(word.split()[0], 2)
    day = found.now.date() + timedelta(days=ahead)
    if not found.take_day(Day(f"On {day.day} {day:%B}", date=day)):
        return False
    part = "evening" if word == "tonight" else part
    if part and found.vague is None:
        found.vague, found.vague_words = part, match[0]
    found.parts.append("today" if not ahead else word)
    return True


def _take_wide(found: TimeWords, match: re.Match[str]) -> bool:
    """every week, monthly, every year"""
    word = match[0].lower()
    unit = "week" if "week" in word else "month" if "month" in word else "year"
    if not found.take_day(Day(f"Every {unit}", is_missing=True)):
        return False
    _keep(found, match)
    return True


def _take_time(found: TimeWords, match: re.Match[str]) -> bool:
    """at 8, at 8:30 and 18:30, at 5 pm, at noon"""
    if found.times or found.rule is not None:
        return False
    times: list[tuple[int, int]] = []
    for words in re.findall(_CLOCK, match["times"], re.IGNORECASE):
        time = _clock_time(words)
        if time is None:
            return False
        times.append(time)
        is_bare = re.fullmatch(r"[1-6]", words.strip()) is not None
        found.is_half_day = found.is_half_day or is_bare
    found.times = times
    if found.vague and found.is_half_day:  # "in the afternoon at 5"
        found.times = [(hour + 12 * (found.vague != "morning"), minute) for hour, minute in times]
        found.is_half_day = False
    return True


def _clock_time(words: str) -> tuple[int, int] | None:
    words = words.lower().replace(".m", "m").strip(" .")
    if words in ("noon", "midnight"):
        return (12, 0) if words == "noon" else (0, 0)
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    hour, minute = numbers[0], numbers[1] if len(numbers) > 1 else 0
    half = words[-2:] if words[-2:] in ("am", "pm") else ""
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half == "pm")
    return (hour, minute) if hour < 24 and minute < 60 else None


def _take_vague(found: TimeWords, match: re.Match[str]) -> bool:
    """in the evening"""
    if found.vague is not None:
        return False
    part = "lunch" if "lunch" in match[0].lower() else match[1].lower()
    if found.is_half_day and found.times:
        found.times = [(hour + 12 * (part != "morning"), minute) for hour, minute in found.times]
        found.is_half_day = False
        return True
    found.vague, found.vague_words = part, match[0]
    return True


_PERIOD = rf"(?:seconds?|secs?|minutes?|mins?|hours?|days?|weeks?|months?|quarters?|years?|{_DAY}s?)"
_OFTEN = rf"(?:once|twice|(?:\d+|{'|'.join(_NUMBERS)})\s+times)\s+(?:a|an|every|each|per)\s+{_PERIOD}"
_UNREAD = rf"(?:(?:every|each)\s+(?:[\w-]+\s+)?{_PERIOD}|{_OFTEN}|quarterly|biweekly)"
_UNREAD_START = re.compile(rf"(?:{_UNREAD}|yesterday)(?!\w)", re.IGNORECASE)
_UNREAD_END = re.compile(rf"(?<!\S){_UNREAD}(?:\s+at\s+\S+)?\W*$", re.IGNORECASE)
_BAD_CLOCK = re.compile(r"(?:^|(?<=\s))at\s+(\d+[:.]\d+)(?!\S)\s*", re.IGNORECASE)


def has_unread_time(task: str) -> bool:
    """True if a task begins or ends with words about time that are not understood, such as "quarterly"."""
    at_the_end = max(0, len(task) - _TAIL_CHARS_MAX)
    return any((_UNREAD_START.match(task), _UNREAD_END.search(task, at_the_end)))


def take_bad_clock(task: str) -> tuple[str, str]:
    """A time that no clock shows, such as 25:00, and the task without it. Empty if there is none."""
    match = _BAD_CLOCK.search(task)
    if match is None or _clock_time(match[1]) is not None:
        return "", task
    return match[1], _clean(task[: match.start()] + task[match.end() :])


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})(?![\w/:])", re.IGNORECASE)


_DAYS_IN_ROW = rf"{_DAY}s?(?:(?:{_AND}|\s*[-\u2013]\s*|\s+(?:to|through)\s+){_DAY}s?)*"
_FIELD = r"(?:\*|\d[\d,\-]*|[A-Z]{3}(?:-[A-Z]{3})?|L)(?:[/#]\d+)?"
# In this order: the longer words come before the shorter ones that they begin with.
_WORDS: Sequence[tuple[re.Pattern[str], Take]] = (
    (re.compile(rf"(?:cron\s+)?((?:{_FIELD}\s+){{4}}{_FIELD})(?!\S)"), _take_cron),
    (re.compile(r"(?:in\s+)?((?:[A-Z][A-Za-z_]+/){1,2}[A-Z][A-Za-z_\-]+|UTC)(?![\w/])"), _take_zone),
    (re.compile(r"(?:on\s+)?(\d{4}-\d{2}-\d{2})(?=[T\s,]|$)", re.IGNORECASE), _take_iso),
    (_compile(rf"in\s+({_NUMBER})\s+(minutes?|mins?|hours?|h|days?|weeks?)"), _take_in),
    (_compile(r"(?:every|each)\s+half(?:\s+an)?\s+hour|half-hourly|hourly"), _take_interval),
    (
        _compile(rf"(?:every|each)\s+(?:({_NUMBER})\s+)?(minutes?|mins?|hours?|h|days?|weeks?)"),
        _take_interval,
    ),
    (_compile(rf"(?:every|each)\s+(?:fortnight|other\s+(?P<day>{_DAY}))|fortnightly"), _take_fortnight),
    (
        _compile(
            r"(?:every|each)\s+(?:single\s+)?day|(?:every|each)\s+(morning|afternoon|evening|night)|daily|nightly"
        ),
        _take_daily,
    ),
    (
        _compile(
            r"(?:on\s+|every\s+|each\s+)?(?:weekdays|workdays|working\s+days|weekends)|"
            r"(?:every|each)\s+(?:weekday|workday|working\s+day|weekend)"
        ),
        _take_weekdays,
    ),
    (
        _compile(rf"(?:(?:on|every|each)\s+)(?:the\s+)?({'|'.join(_PLACES)})\s+({_DAY}){_OF_MONTH}"),
        _take_nth_day,
    ),
    (
        _compile(
            r"(?:(?P<lead>(?:every|each)\s+year(?:\s+on)?|yearly(?:\s+on)?|every|each|on)\s+(?:the\s+)?|(?=\d))"
            rf"(?:(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?(?P<m1>{_MONTH})(?:\s+(?P<y1>\d{{4}}))?|"
            rf"(?P<m2>{_MONTH})\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y2>\d{{4}}))?)"
        ),
        _take_date,
    ),
    (
        _compile(
            rf"(?:on|every|each)\s+(?:the\s+)?(?:{_ORDINAL}(?:{_AND}(?:the\s+)?{_ORDINAL})*{_OF_MONTH}|"
            r"last\s+day(?:\s+of\s+(?:the|each|every)\s+month)?)"
        ),
        _take_month_day,
    ),
    (_compile(rf"(?:(?P<lead>every|each|on|next|this|coming)\s+)?(?P<days>{_DAYS_IN_ROW})"), _take_days),
    (_compile(r"(?:every|each)\s+(?:week|month|year)|weekly|monthly|yearly"), _take_wide),
    (
        _compile(
            r"((?:the\s+)?day\s+after\s+tomorrow|tomorrow|today|tonight|this(?=\s+(?:morning|afternoon|evening)))"
            r"(?:\s+(morning|afternoon|evening|night))?"
        ),
        _take_near,
    ),
    (
        _compile(
            rf"(?:T(?=\d)|(?:(?:at|around|about|@)\s*)+)(?P<times>{_CLOCK}(?:{_AND}(?:at\s+)?{_CLOCK})*)"
        ),
        _take_time,
    ),
    (_compile(r"(?P<times>\d{1,2}:\d{2}|\d{1,2}\s*[ap]\.?m\.?|noon|midnight)"), _take_time),
    (
        _compile(
            r"(?:(?:in\s+the|at)\s+(?:early\s+|late\s+)?(morning|afternoon|evening|night|lunch(?:time)?))"
        ),
        _take_vague,
    ),
)
