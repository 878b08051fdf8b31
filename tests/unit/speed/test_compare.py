"""Two results, figure by figure: what got better, what got worse, what runs cannot tell."""

from __future__ import annotations

from everturn.speed.compare import compare
from everturn.speed.figures import Figure
from everturn.speed.result import Measured, SpeedResult, make_result


def _result(*figures: Figure) -> SpeedResult:
    return make_result((Measured("store", 1.0, (0.0, 0.0), figures),), is_quick=False)


def _verdict(before: Figure, after: Figure) -> str:
    [change] = compare(_result(before), _result(after))
    return change.verdict


def test_less_time_is_better_and_fewer_events_are_worse() -> None:
    assert _verdict(Figure("open", 8.0, "ms"), Figure("open", 4.0, "ms")) == "better"
    assert _verdict(Figure("open", 4.0, "ms"), Figure("open", 8.0, "ms")) == "worse"
    assert _verdict(Figure("events", 50_000.0, "1/s"), Figure("events", 20_000.0, "1/s")) == "worse"


def test_the_target_says_which_way_is_better() -> None:
    ratio = Figure("of raw SQLite", 0.4, "x", "≥ 0.5")
    assert _verdict(ratio, Figure("of raw SQLite", 0.8, "x", "≥ 0.5")) == "better"
    cost = Figure("times git", 0.8, "x", "≤ 1.5")
    assert _verdict(cost, Figure("times git", 1.4, "x", "≤ 1.5")) == "worse"


def test_what_runs_on_one_machine_differ_by_is_no_difference() -> None:
    assert _verdict(Figure("open", 4.0, "ms"), Figure("open", 4.9, "ms")) == "same"
    assert _verdict(Figure("events", 20_000.0, "1/s"), Figure("events", 17_000.0, "1/s")) == "same"


def test_nothing_lost_compares_with_something_lost() -> None:
    lost = Figure("incomplete", 2.0, "", "≤ 0")
    assert _verdict(Figure("incomplete", 0.0, "", "≤ 0"), lost) == "worse"
    assert _verdict(lost, Figure("incomplete", 0.0, "", "≤ 0")) == "better"


def test_figures_of_only_one_result_are_named() -> None:
    changes = compare(_result(Figure("old", 1.0, "ms")), _result(Figure("new", 1.0, "ms")))
    assert [(one.name, one.verdict) for one in changes] == [("store: new", "added"), ("store: old", "gone")]


def test_a_name_that_a_suite_gives_twice_is_compared_with_its_own_repeat() -> None:
    before = _result(Figure("rate", 100.0, "1/s"), Figure("rate", 10.0, "1/s"))
    after = _result(Figure("rate", 100.0, "1/s"), Figure("rate", 50.0, "1/s"))
    assert [one.verdict for one in compare(before, after)] == ["same", "better"]
