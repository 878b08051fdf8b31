"""Draws figures against their targets, and how figures grow.

Only figures with a target get a bar. Its length is the share of its target that was used, on a logarithmic
scale: shorter is better, and a bar that passes the line has missed its target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from everturn.speed.figures import Figure, number

WIDTH, ROW, TOP = 960, 26, 56
LABELS, TRACK = 470, 330  # pixels
FEWEST, MOST = 0.001, 4.0  # shares of the target
MET, MISSED, INK, FAINT = "#1f6f87", "#b7791f", "#6b6b66", "#c9c9c4"


def draw(figures: Sequence[Figure]) -> str:
    rows = [figure for figure in figures if figure.is_met is not None and figure.target[2:] != "0"]
    height = TOP + ROW * len(rows) + 20
    line = LABELS + _place(1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<text x="{line}" y="20" text-anchor="middle">target</text>',
        f'<text x="{LABELS}" y="20">better</text>',
        f'<line x1="{line}" y1="28" x2="{line}" y2="{height - 12}" stroke="{FAINT}" stroke-dasharray="3 3"/>',
        *(_row(figure, TOP + ROW * index) for index, figure in enumerate(rows)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(figure: Figure, y: int) -> str:
    limit = float(figure.target[2:])
    used = figure.value / limit if figure.is_lower_better else limit / (figure.value or FEWEST)
    colour = MET if figure.is_met else MISSED
    length = max(2.0, _place(used))
    said = f"{number(figure.value)} {figure.unit}"
    return (
        f'<text x="{LABELS - 14}" y="{y}" text-anchor="end">{escape(figure.name.strip())}</text>'
        f'<rect x="{LABELS}" y="{y - 9}" width="{length:.1f}" height="10" rx="2" fill="{colour}"/>'
        f'<text x="{LABELS + TRACK + 14}" y="{y}">{escape(said)} '
        f'<tspan fill="{FAINT}">({escape(figure.target)})</tspan></text>'
    )


def _place(used: float) -> float:
    """The length in pixels for a share of the target."""
    bounded = min(MOST, max(FEWEST, used))
    return TRACK * math.log(bounded / FEWEST) / math.log(MOST / FEWEST)


# --- curves --------------------------------------------------------------------------------------------

PLOT_WIDTH, PLOT_HEIGHT, LEFT, BOTTOM, TITLE = 420, 150, 70, 30, 36


def curves(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """The figures of each curve with more than one point, in the order of their places."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.curve:
            found.setdefault(figure.curve, []).append(figure)
    return {name: sorted(points, key=lambda one: one.at) for name, points in found.items() if len(points) > 1}


def draw_curve(name: str, points: Sequence[Figure]) -> str:
    """One curve: places on a logarithmic scale, values from zero, the target as a dashed line."""
    first, last = math.log(points[0].at), math.log(points[-1].at)
    limits = [float(one.target[2:]) for one in points if one.target]
    highest = max(one.value for one in points) * 1.15 or 1.0
    width, height = PLOT_WIDTH - LEFT - 40, PLOT_HEIGHT - BOTTOM - TITLE

    def x(at: float) -> float:
        return LEFT + width * (math.log(at) - first) / (last - first or 1.0)

    def y(value: float) -> float:
        return TITLE + height * (1 - value / highest)

    path = " ".join(f"{x(one.at):.1f},{y(one.value):.1f}" for one in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" '
        f'width="{PLOT_WIDTH}" font-family="ui-sans-serif, system-ui, sans-serif" font-size="11" '
        f'fill="{INK}" role="img" aria-label="{escape(name)}">',
        f'<text x="{LEFT}" y="14" font-size="12">{escape(name)}, {escape(points[0].unit)}</text>',
        f'<line x1="{LEFT}" y1="{y(0)}" x2="{LEFT + width}" y2="{y(0)}" stroke="{FAINT}"/>',
    ]
    if limits and limits[0] < highest:
        line = y(limits[0])
        parts.append(
            f'<line x1="{LEFT}" y1="{line:.1f}" x2="{LEFT + width}" y2="{line:.1f}" stroke="{MISSED}" '
            f'stroke-dasharray="3 3"/><text x="{LEFT - 6}" y="{line + 4:.1f}" text-anchor="end" '
            f'fill="{MISSED}">{limits[0]:g}</text>'
        )
    parts.append(f'<polyline points="{path}" fill="none" stroke="{MET}" stroke-width="2"/>')
    for one in points:
        parts.append(
            f'<circle cx="{x(one.at):.1f}" cy="{y(one.value):.1f}" r="3" fill="{MET}"/>'
            f'<text x="{x(one.at):.1f}" y="{y(one.value) - 7:.1f}" text-anchor="middle">'
            f"{number(one.value)}</text>"
            f'<text x="{x(one.at):.1f}" y="{PLOT_HEIGHT - 12}" text-anchor="middle">{one.at:,.0f}</text>'
        )
    return "\n".join([*parts, "</svg>"])
