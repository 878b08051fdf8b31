"""Draws figures against their targets: ``python -m benchmarks.picture FIGURES.jsonl PICTURE.svg``.

The benchmarks write their figures to the file that EVERTURN_BENCH_JSON names. Only figures with a target
are drawn. The length of a bar is the share of its target that was used, on a logarithmic scale: shorter is
better, and a bar that passes the line has missed its target.
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path

from benchmarks.printing import Figure

WIDTH, ROW, TOP = 960, 26, 56
LABELS, TRACK = 470, 330  # pixels
FEWEST, MOST = 0.001, 4.0  # shares of the target
MET, MISSED, INK, FAINT = "#1f6f87", "#b7791f", "#6b6b66", "#c9c9c4"


def drawn(figures: list[Figure]) -> str:
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
    used = figure.value / limit if figure.target.startswith("≤") else limit / figure.value
    colour = MET if figure.is_met else MISSED
    digits = 0 if abs(figure.value) >= 100 else 1 if abs(figure.value) >= 1 else 2
    length = max(2.0, _place(used))
    said = f"{figure.value:,.{digits}f} {figure.unit}"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    lines = arguments.figures.read_text(encoding="utf-8").splitlines()
    arguments.picture.write_text(drawn([Figure(**json.loads(line)) for line in lines]), encoding="utf-8")


if __name__ == "__main__":
    main()
