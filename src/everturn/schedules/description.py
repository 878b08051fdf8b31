"""A rule in plain words, as people check it before they save it."""

from __future__ import annotations

import re
from datetime import datetime

from everturn.domain.schedules import CronRule, IntervalRule, OnceRule, Timing
from everturn.schedules.time_words import ordinal_suffix

_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")  # the explanation says "31th"
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT_DAYS = {day[:3].upper(): str(number) for number, day in enumerate(_DAYS[:7])}


def describe(timing: Timing) -> str:
    """E.g. ``Weekdays at 08:00, Europe/Vienna``. The rule must be one that can be read."""
    rule = timing.rule
    if isinstance(rule, IntervalRule):
        return _describe_interval(rule.every_s)
    words = _describe_once(rule) if isinstance(rule, OnceRule) else _describe_cron(rule)
    return f"{words}, {timing.timezone}"


def _describe_interval(every_s: int) -> str:
    if every_s == 86400:
        return "Every 24 hours"  # not "every day": it moves when the clocks do
    parts = []
    for seconds, unit in _UNITS:
        count, every_s = divmod(every_s, seconds)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    words = " ".join(parts)
    return f"Every {words.removeprefix('1 ')}" if len(parts) == 1 else f"Every {words}"


def _describe_once(rule: OnceRule) -> str:
    time = datetime.fromisoformat(rule.at)
    return f"On {time.day} {time:%B %Y} at {time:%H:%M}"


def _describe_cron(rule: CronRule) -> str:
    minute, hour, day, month, weekday = rule.expression.upper().split()
    if (hour, day, month, weekday) == ("*", "*", "*", "*"):
        if minute == "0":
            return "Every hour"
        if minute == "*":
            return "Every minute"
    if minute.isdigit() and hour.isdigit() and (day, month) == ("*", "*"):
        days = _describe_days(weekday)
        if days:
            return f"{days} at {int(hour):02d}:{int(minute):02d}"
    # Imported here for the same reason as in ``times``.
    from cronsim.explain import explain

    return _ORDINAL.sub(lambda found: found[1] + ordinal_suffix(int(found[1])), explain(rule.expression))


def _describe_days(weekday: str) -> str:
    """The usual days; empty for others."""
    weekday = "-".join(_SHORT_DAYS.get(part, part) for part in weekday.split("-"))
    if weekday == "*":
        return "Every day"
    if weekday == "1-5":
        return "Weekdays"
    return f"Every {_DAYS[int(weekday)]}" if weekday.isdigit() and int(weekday) < len(_DAYS) else ""
