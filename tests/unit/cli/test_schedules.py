"""everturn schedules"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.cli.common import OWNER, with_store
from everturn.cli.main import everturn
from everturn.domain.errors import Invalid
from everturn.domain.schedules import (
    CronRule,
    RunsIn,
    ScheduleSettings,
    Timing,
    WhenMissed,
    WhenOverlapping,
)


def call(home: Path, *arguments: str) -> str:
    result = CliRunner().invoke(everturn, ["schedules", *arguments, "--home", str(home)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_schedule_is_made_listed_run_paused_continued_and_deleted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = call(home, "add", "Morning", "Say hello.", "--cron", "0 8 * * 1-5", "--timezone", "Europe/Vienna")
    assert "Weekdays at 08:00, Europe/Vienna" in made
    assert len(made.splitlines()) == 6, "the rule and its next five times"
    assert all(line.endswith(" 08:00") for line in made.splitlines()[1:]), (
        "by the clocks of Vienna, as the rule"
    )
    found = re.match(r"sch_\w+", made)
    assert found is not None
    schedule = found[0]
    listed = call(home, "list")
    assert "Morning" in listed
    assert " 08:00 " in listed
    assert f" {schedule} " in listed, "whole, also on a narrow screen: it is copied from here"
    assert "It has not been due yet." in call(home, "history", schedule)
    assert "Started in session ses_" in call(home, "run", schedule)
    assert "ran" in call(home, "history", schedule)
    assert call(home, "pause", schedule) == "Paused.\n"
    assert "paused" in call(home, "list")
    assert call(home, "continue", schedule).endswith(" 08:00\n")
    assert call(home, "delete", schedule) == "Deleted.\n"
    assert "There are no schedules." in call(home, "list")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--cron", "0 8 * * *", "--every", "1h"),
        ("--every", "soon"),
        ("--when", "every week"),
        ("--at", "2020-01-01T08:00"),
    ],
)
def test_a_rule_that_is_missing_double_or_never_fires_is_refused(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(Invalid):
        call(tmp_path / "home", "add", "Morning", "Say hello.", *arguments)


def test_a_rule_is_given_in_words(tmp_path: Path) -> None:
    said = call(tmp_path / "home", "add", "Morning", "Say hello.", "--when", "every weekday at 8")
    assert "Weekdays at 08:00, UTC" in said


def test_a_schedule_is_made_with_a_budget_and_changed_in_place(tmp_path: Path) -> None:
    home = tmp_path / "home"
    added = call(home, "add", "Morning", "Say hello.", "--every", "6h", "--model", "m", "--budget", "0.50")
    schedule = added.split()[0]
    assert f"schedule  0.00 USD of 0.50 USD ({schedule})" in budgets(home)
    changed = call(home, "change", schedule, "--when", "every day at 7", "--timezone", "Europe/Vienna")
    assert changed.startswith(f"{schedule}  Every day at 07:00, Europe/Vienna")
    call(home, "change", schedule, "--name", "Evening", "--text", "Say bye.", "--model", "", "--budget", "2")
    call(home, "change", schedule, "--cron", "0 20 * * *", "--new-sessions", "--overlap", "queue")
    settings = read(home, schedule)
    assert (settings.name, settings.text, settings.model) == ("Evening", "Say bye.", None)
    assert settings.timing == Timing(CronRule("0 20 * * *"), "Europe/Vienna")
    assert (settings.runs_in, settings.when_overlapping) == (RunsIn.NEW, WhenOverlapping.QUEUE)
    assert settings.when_missed is WhenMissed.LAST, "it was not named"
    call(home, "change", schedule, "--timezone", "UTC")
    assert read(home, schedule).timing == Timing(CronRule("0 20 * * *"), "UTC")
    assert "2.00 USD" in budgets(home)
    for _ in range(2):
        call(home, "change", schedule, "--budget", "")
    assert "There are no budgets." in budgets(home)


@pytest.mark.parametrize(
    "options", [(), ("--budget", "a lot"), ("--cron", "x"), ("--when", "a", "--at", "b")]
)
def test_a_change_that_cannot_be_made_changes_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    home = tmp_path / "home"
    schedule = call(home, "add", "Morning", "Say hello.", "--every", "6h").split()[0]
    before = read(home, schedule)
    with pytest.raises(Invalid):
        call(home, "change", schedule, *options)
    assert read(home, schedule) == before
    with pytest.raises(Invalid):
        call(home, "add", "Other", "Hello.", "--every", "6h", "--budget", "-1")
    assert "Other" not in call(home, "list"), "refused before it was made"


def budgets(home: Path) -> str:
    return CliRunner().invoke(everturn, ["budgets", "--home", str(home)]).output


def read(home: Path, schedule: str) -> ScheduleSettings:
    found = with_store(home, lambda store, config: store.schedules.get(OWNER, schedule))
    return found.settings
