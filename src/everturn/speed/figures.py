"""Prints figures in one format, so that people and programs can compare runs."""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

FIGURES_FILE = "EVERTURN_BENCH_JSON"  # the variable that names the file for the figures


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured figure.

    ``floor`` is the cost without Everturn, from the same run and in the same unit. Figures of one ``curve``
    are drawn together, each at its x value (``at``).
    """

    name: str
    value: float
    unit: str
    target: str = ""
    is_met: bool | None = None
    floor: float | None = None
    curve: str = ""
    at: float = 0.0

    @property
    def is_lower_better(self) -> bool:
        if self.target:
            return self.target.startswith("≤")
        return self.unit not in ("1/s", "MB/s")


class Report:
    """Collects figures, prints each at once, and writes them as JSON at the end if requested."""

    def __init__(self, title: str) -> None:
        self.figures: list[Figure] = []
        print(f"\n{title}\n{'-' * len(title)}", flush=True)

    def say(self, name: str, value: float, unit: str, *, floor: float | None = None) -> None:
        """Report a figure without a target."""
        self._add(Figure(name, value, unit, floor=floor))

    def at_most(
        self,
        name: str,
        value: float,
        unit: str,
        limit: float,
        *,
        floor: float | None = None,
        on: tuple[str, float] = ("", 0.0),
    ) -> None:
        self._add(Figure(name, value, unit, f"≤ {limit:g}", value <= limit, floor, *on))

    def at_least(
        self,
        name: str,
        value: float,
        unit: str,
        limit: float,
        *,
        floor: float | None = None,
        on: tuple[str, float] = ("", 0.0),
    ) -> None:
        self._add(Figure(name, value, unit, f"≥ {limit:g}", value >= limit, floor, *on))

    def _add(self, figure: Figure) -> None:
        mark = {True: "met", False: "MISSED", None: ""}[figure.is_met]
        beside = "" if figure.floor is None else f"  floor {number(figure.floor)}"
        value = f"{number(figure.value):>14} {figure.unit:<9} {figure.target:<12}"
        print(f"  {figure.name:<62} {value} {mark}{beside}", flush=True)
        self.figures.append(msgspec.structs.replace(figure, name=figure.name.strip()))

    def close(self) -> int:
        missed = [figure for figure in self.figures if figure.is_met is False]
        print(f"\n  {len(self.figures)} figures, {len(missed)} targets missed", flush=True)
        target = os.environ.get(FIGURES_FILE)
        if target:
            with Path(target).open("ab") as file:
                for figure in self.figures:
                    file.write(msgspec.json.encode(figure) + b"\n")
        return len(missed)


def number(value: float) -> str:
    """Format a value with its significant digits."""
    size = abs(value)
    digits = 0 if size >= 100 or not size else 2 if size >= 1 else 4
    return f"{value:,.{digits}f}"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def peak_mb() -> float:
    """Return the peak memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
