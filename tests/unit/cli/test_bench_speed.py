"""everturn bench speed and compare, as a user runs them."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from everturn.cli.main import everturn as cli
from everturn.speed import read_result


def test_a_measured_suite_is_written_and_compared_with_itself(tmp_path: Path) -> None:
    runner = CliRunner()
    report = tmp_path / "report"
    ran = runner.invoke(cli, ["bench", "speed", "--quick", "--only", "fold", "--report", str(report)])
    assert ran.exit_code == 0, ran.output
    assert "The short version" in ran.output
    assert {path.name for path in report.iterdir()} == {"speed.json", "speed.html", "speed.svg"}
    figures = read_result(report / "speed.json").figures

    same = runner.invoke(cli, ["bench", "compare", *[str(report / "speed.json")] * 2])
    assert same.exit_code == 0, same.output
    assert f"{len(figures)} same" in same.output


def test_the_suites_are_listed_and_an_unknown_one_is_refused() -> None:
    runner = CliRunner()
    assert "raw SQLite" in runner.invoke(cli, ["bench", "speed", "--list"]).output
    refused = runner.invoke(cli, ["bench", "speed", "--only", "warp"])
    assert refused.exit_code != 0
