"""everturn schedules"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.cli.main import everturn
from everturn.domain.errors import Invalid


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
