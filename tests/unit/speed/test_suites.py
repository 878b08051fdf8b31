"""Suites are chosen by name and run in processes of their own; one that fails says so."""

from __future__ import annotations

import pytest

from everturn.domain.errors import Invalid
from everturn.speed import SUITES, Suite, choose_suites, run_suites


def test_extra_suites_are_run_only_if_they_are_named() -> None:
    usual = {suite.name for suite in choose_suites(())}
    extra = {suite.name for suite in SUITES if suite.is_extra}
    assert extra
    assert not usual & extra
    assert {suite.name for suite in choose_suites(sorted(extra))} == extra


def test_an_unknown_suite_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Invalid) as refused:
        choose_suites(["store", "warp"])
    assert "'warp'" in refused.value.message
    assert "growth" in (refused.value.hint or "")


def test_a_suite_gives_its_figures() -> None:
    [measured] = run_suites(choose_suites(["fold"]), is_quick=True)
    assert not measured.failure
    assert measured.seconds > 0
    assert all(figure.value > 0 for figure in measured.figures)
    assert measured.figures


def test_a_suite_that_cannot_run_says_why_and_the_next_one_runs() -> None:
    lacking = Suite("fold", "", ("no_such_package_at_all",))
    unknown = Suite("no_such_suite", "")
    first, second = run_suites([lacking, unknown], is_quick=True)
    assert "no_such_package_at_all" in first.failure
    assert "code 1" in second.failure
