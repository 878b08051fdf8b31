"""everturn budgets"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.cli.main import everturn
from everturn.domain.errors import Invalid, NotFound


def call(home: Path, *arguments: str) -> str:
    result = CliRunner().invoke(everturn, ["budgets", *arguments, "--home", str(home)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_budget_is_set_listed_and_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "day       0.00 USD of 5.00 USD (until 20" in call(home, "set", "day", "5")
    assert "month     0 tokens of 1,000,000 tokens" in call(home, "set", "month", "1000000", "--tokens")
    assert len(call(home).splitlines()) == 2
    assert call(home, "remove", "month", "--tokens") == "Removed.\n"
    assert len(call(home).splitlines()) == 1
    assert call(home, "remove", "day") == "Removed.\n"
    assert "There are no budgets." in call(home)
    with pytest.raises(NotFound):
        call(home, "remove", "month")
    with pytest.raises(Invalid):
        call(home, "set", "session", "5")
