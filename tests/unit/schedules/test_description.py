from __future__ import annotations

import pytest

from everturn.domain.schedules import CronRule, IntervalRule, OnceRule, Rule, Timing
from everturn.schedules.description import describe


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (CronRule("0 8 * * 1-5"), "Weekdays at 08:00, Europe/Vienna"),
        (CronRule("5 8 * * mon-fri"), "Weekdays at 08:05, Europe/Vienna"),
        (CronRule("30 6 * * *"), "Every day at 06:30, Europe/Vienna"),
        (CronRule("0 9 * * TUE"), "Every Tuesday at 09:00, Europe/Vienna"),
        (CronRule("0 9 * * 7"), "Every Sunday at 09:00, Europe/Vienna"),
        (CronRule("0 * * * *"), "Every hour, Europe/Vienna"),
        (CronRule("0 8 * * MON#1"), "At 08:00 on the first Monday of the month, Europe/Vienna"),
        (CronRule("30 7,19 * * *"), "At 07:30 and 19:30 every day, Europe/Vienna"),
        (CronRule("0 9 31 * *"), "At 09:00 on the 31st day of every month, Europe/Vienna"),
        (CronRule("0 9 22 * *"), "At 09:00 on the 22nd day of every month, Europe/Vienna"),
        (OnceRule("2027-03-21T10:00"), "On 21 March 2027 at 10:00, Europe/Vienna"),
        (IntervalRule(6 * 3600), "Every 6 hours"),
        (IntervalRule(3600), "Every hour"),
        (IntervalRule(5400), "Every 1 hour 30 minutes"),
        (IntervalRule(86400), "Every 24 hours"),
    ],
)
def test_a_rule_is_read_in_plain_words(rule: Rule, words: str) -> None:
    assert describe(Timing(rule, "Europe/Vienna")) == words
