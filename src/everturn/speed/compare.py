"""Compares two results, figure by figure."""

from __future__ import annotations

import msgspec

from everturn.speed.figures import Figure
from everturn.speed.result import SpeedResult

NOISE = 1.25  # smaller differences are ignored: runs on one machine differ by as much


class FigureChange(msgspec.Struct, frozen=True):
    """A figure of one or both results. ``ratio`` is after / before, or None if one is zero or missing."""

    name: str
    before: Figure | None
    after: Figure | None

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None or not self.before.value or not self.after.value:
            return None
        return self.after.value / self.before.value

    @property
    def verdict(self) -> str:
        """better | worse | same | added | gone"""
        if self.before is None:
            return "added"
        if self.after is None:
            return "gone"
        is_lower_better = self.after.is_lower_better
        ratio = self.ratio
        if ratio is None:
            if self.before.value == self.after.value:
                return "same"
            return "better" if (self.after.value < self.before.value) == is_lower_better else "worse"
        gain = 1 / ratio if is_lower_better else ratio
        return "better" if gain >= NOISE else "worse" if gain * NOISE <= 1 else "same"


def compare(before: SpeedResult, after: SpeedResult) -> list[FigureChange]:
    """Compare all figures of both results, in the order of the newer one."""
    old, new = before.figures, after.figures
    names = [*new, *(name for name in old if name not in new)]
    return [FigureChange(name, old.get(name), new.get(name)) for name in names]
