"""Prints figures in one format, so that people and programs can compare runs."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    target: str = ""
    is_met: bool | None = None


class Report:
    """Collects figures, prints each at once, and writes them as JSON at the end if requested."""

    def __init__(self, title: str) -> None:
        self.figures: list[Figure] = []
        print(f"\n{title}\n{'-' * len(title)}", flush=True)

    def say(
        self, name: str, value: float, unit: str, target: str = "", met: Callable[[float], bool] | None = None
    ) -> None:
        is_met = met(value) if met else None
        mark = {True: "met", False: "MISSED", None: ""}[is_met]
        digits = 0 if abs(value) >= 100 else 2 if abs(value) >= 1 else 4
        print(f"  {name:<62} {value:>14,.{digits}f} {unit:<9} {target:<12} {mark}", flush=True)
        self.figures.append(Figure(name, value, unit, target, is_met))

    def at_most(self, name: str, value: float, unit: str, limit: float) -> None:
        self.say(name, value, unit, f"≤ {limit:g}", lambda v: v <= limit)

    def at_least(self, name: str, value: float, unit: str, limit: float) -> None:
        self.say(name, value, unit, f"≥ {limit:g}", lambda v: v >= limit)

    def close(self) -> int:
        missed = [figure for figure in self.figures if figure.is_met is False]
        print(f"\n  {len(self.figures)} figures, {len(missed)} targets missed", flush=True)
        target = os.environ.get("EVERTURN_BENCH_JSON")
        if target:
            with Path(target).open("a", encoding="utf-8") as file:
                for figure in self.figures:
                    file.write(json.dumps(asdict(figure)) + "\n")
        return len(missed)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
