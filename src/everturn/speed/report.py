"""A result as a file for programs, a page with charts, and a picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from everturn.speed.figures import Figure, number
from everturn.speed.picture import FAINT, INK, curves, draw, draw_curve
from everturn.speed.result import Measured, SpeedResult
from everturn.speed.suites import SUITES

_STYLE = (
    f"body{{font:16px/1.5 system-ui,sans-serif;color:{INK};max-width:1000px;margin:2rem auto;padding:0 1rem}}"
    f"td,th{{text-align:left;padding:.2rem .75rem .2rem 0;border-bottom:1px solid {FAINT}}}"
    "td.n,th.n{text-align:right;white-space:nowrap}svg{max-width:100%}.missed{font-weight:600}.curves{display:flex;flex-wrap:wrap}"
)


def write_report(result: SpeedResult, folder: Path) -> tuple[Path, Path, Path]:
    """Write ``speed.json``, ``speed.html`` and ``speed.svg`` to the folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, page, picture = folder / "speed.json", folder / "speed.html", folder / "speed.svg"
    data.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    page.write_text(as_html(result), encoding="utf-8")
    picture.write_text(draw(_all(result)), encoding="utf-8")
    return data, page, picture


def verdict(result: SpeedResult) -> str:
    figures = _all(result)
    missed = sum(figure.is_met is False for figure in figures)
    failed = [measured.suite for measured in result.suites if measured.failure]
    said = f"{len(figures)} figures, {missed} targets missed."
    if failed:
        said += f" Not measured to the end: {', '.join(failed)}."
    if result.is_quick:
        said += " The short version: it shows that everything runs, not how fast."
    return said


def facts(result: SpeedResult) -> list[str]:
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(result.at))
    return [
        f"Everturn {result.version}, Python {result.python}, SQLite {result.sqlite}, {at} UTC",
        f"{result.machine}, {result.processors} processors",
    ]


def as_html(result: SpeedResult) -> str:
    charts = "".join(
        f"<div>{draw_curve(name, points)}</div>" for name, points in curves(_all(result)).items()
    )
    growth = f'<h2>Growth</h2><div class="curves">{charts}</div>' if charts else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Speed</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>Speed</h1><p><strong>{escape(verdict(result))}</strong>"
        f"<ul>{''.join(f'<li>{escape(fact)}' for fact in facts(result))}</ul>"
        "<p>The floor is what the same costs without Everturn, measured in the same run."
        f"<h2>Against the targets</h2>{draw(_all(result))}{growth}"
        f"{''.join(map(_section, result.suites))}</html>\n"
    )


def _section(measured: Measured) -> str:
    about = next((suite.about for suite in SUITES if suite.name == measured.suite), "")
    before, after = measured.load
    failure = f"<p><strong>{escape(measured.failure)}</strong>" if measured.failure else ""
    return (
        f"<h2>{escape(measured.suite)}</h2><p>{escape(about)}. {measured.seconds:,.0f} s, load average "
        f"{before:.1f} before and {after:.1f} after.{failure}<table>"
        '<tr><th>Figure<th class="n">Measured<th class="n">Target<th class="n">Floor<th>'
        f"{''.join(map(_row, measured.figures))}</table>"
    )


def _row(figure: Figure) -> str:
    floor = "" if figure.floor is None else f"{number(figure.floor)} {figure.unit}"
    mark = "missed" if figure.is_met is False else ""
    return (
        f"<tr><td>{escape(figure.name)}"
        f'<td class="n">{escape(f"{number(figure.value)} {figure.unit}")}'
        f'<td class="n">{escape(figure.target)}<td class="n">{escape(floor)}<td class="{mark}">{mark}'
    )


def _all(result: SpeedResult) -> Sequence[Figure]:
    return [figure for measured in result.suites for figure in measured.figures]
