"""The report of a run: a file that is read again, and a page with every figure, its floor and its curve."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.errors import Invalid
from everturn.speed import read_result, write_report
from everturn.speed.figures import Figure
from everturn.speed.picture import curves
from everturn.speed.report import verdict
from everturn.speed.result import Measured, SpeedResult, make_result

_EVENTS = Figure("durable events/s <16>", 30_000.0, "1/s", "≥ 50000", False, 70_000.0)
_LIST = (
    Figure("1,000 sessions: list", 0.5, "ms", "≤ 5", True, None, "list", 1_000),
    Figure("100,000 sessions: list", 1.5, "ms", "≤ 5", True, None, "list", 100_000),
)


def _result() -> SpeedResult:
    return make_result(
        (
            Measured("store", 12.0, (3.5, 4.5), (_EVENTS,)),
            Measured("growth", 1.0, (4.5, 4.5), _LIST, "It ended with code 1."),
        ),
        is_quick=False,
    )


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    data, _, _ = write_report(_result(), tmp_path / "deep" / "down")
    assert read_result(data) == _result()


def test_the_page_has_every_figure_its_floor_the_load_and_what_failed(tmp_path: Path) -> None:
    _, page, _ = write_report(_result(), tmp_path)
    html = page.read_text(encoding="utf-8")
    for said in ("durable events/s &lt;16&gt;", "30,000 1/s", "70,000 1/s", "load average 3.5", "code 1."):
        assert said in html
    assert verdict(_result()) == "3 figures, 1 targets missed. Not measured to the end: growth."


def test_figures_of_one_curve_are_drawn_in_the_order_of_their_places() -> None:
    assert curves([_EVENTS, *reversed(_LIST)]) == {"list": list(_LIST)}
    assert curves(_LIST[:1]) == {}, "one point is no curve"


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"version": 1}')
    with pytest.raises(Invalid, match="not a result"):
        read_result(other)
