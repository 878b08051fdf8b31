"""What a server uses while it is soaked: sampled every second, judged at the end, drawn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import median

import msgspec

_MIB = 1024 * 1024
_WAL_MIB_MAX = 96  # the log is emptied at 64
_GROWTH_MAX = 1.3
_LONG_LIFE = 240  # samples
_WIDTH, _HEIGHT, _LEFT, _TOP = 960, 120, 60, 40
_LEGEND = "│ kill -9   ┆ told to stop"
_LINE, _INK, _FAINT, _KILL = "#1f6f87", "#6b6b66", "#c9c9c4", "#b7791f"


class Sample(msgspec.Struct, frozen=True):
    at_s: float
    life: int
    rss_mib: float
    handles: int
    threads: int
    wal_mib: float
    turns: int
    accept_ms: float  # the longest since the last sample


class Watch:
    def __init__(self, home: Path) -> None:
        self._wal = home / "everturn.db-wal"
        self.samples: list[Sample] = []
        self.ends: list[tuple[float, str]] = []  # when a life ended, and how
        self.disturbed: list[tuple[float, str]] = []  # when it was disturbed, and how; it went on

    def look(self, pid: int, at_s: float, turns: int, accept_ms: list[float]) -> Sample | None:
        """None if the process has just ended."""
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            handles = len(os.listdir(f"/proc/{pid}/fd"))
            threads = len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return None
        wal = self._wal.stat().st_size / _MIB if self._wal.exists() else 0.0
        rss = pages * os.sysconf("SC_PAGE_SIZE") / _MIB
        longest = max(accept_ms, default=0.0)
        accept_ms.clear()
        sample = Sample(at_s, len(self.ends), rss, handles, threads, wal, turns, longest)
        self.samples.append(sample)
        return sample

    def growth(self) -> list[str]:
        """A sentence for each figure that grew and must not."""
        found = []
        wal = max((sample.wal_mib for sample in self.samples), default=0.0)
        if wal > _WAL_MIB_MAX:
            found.append(f"the write-ahead log reached {wal:.0f} MiB")
        lives = [self._life(number) for number in sorted({sample.life for sample in self.samples})]
        warm = [life[len(life) // 2 :] for life in lives if len(life) >= 10]
        if len(warm) >= 3:
            found += _grown("from life to life", warm[1], warm[-1])
        for life in lives:
            if len(life) >= _LONG_LIFE:
                quarter = len(life) // 4
                found += _grown("within a life", life[quarter : 2 * quarter], life[-quarter:])
        return found

    def _life(self, number: int) -> list[Sample]:
        return [sample for sample in self.samples if sample.life == number]

    def draw(self, title: str) -> str:
        rows = [
            ("memory, MiB", [sample.rss_mib for sample in self.samples]),
            ("open files", [float(sample.handles) for sample in self.samples]),
            ("write-ahead log, MiB", [sample.wal_mib for sample in self.samples]),
            ("longest wait for 202, restarts included, ms", [sample.accept_ms for sample in self.samples]),
            ("turns, all together", [float(sample.turns) for sample in self.samples]),
        ]
        height = _TOP + _HEIGHT * len(rows) + 20
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'font-family="ui-sans-serif, system-ui, sans-serif" font-size="12" fill="{_INK}">',
            f'<text x="{_LEFT}" y="20">{escape(title)}</text>',
            f'<text x="{_WIDTH - 20}" y="20" text-anchor="end" fill="{_KILL}">{_LEGEND}</text>',
            *(self._end_line(at_s, how, height) for at_s, how in self.ends),
            *(self._row(name, values, index) for index, (name, values) in enumerate(rows)),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _x(self, at_s: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * at_s / max(self.samples[-1].at_s, 1.0)

    def _end_line(self, at_s: float, how: str, height: int) -> str:
        x = self._x(at_s)
        dashes = "" if how == "SIGKILL" else ' stroke-dasharray="3 3"'
        return f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{height - 20}" stroke="{_KILL}"{dashes}/>'

    def _row(self, name: str, values: list[float], index: int) -> str:
        bottom = _TOP + _HEIGHT * (index + 1) - 16
        most = max(*values, 1.0)
        points = " ".join(
            f"{self._x(sample.at_s):.1f},{bottom - (_HEIGHT - 40) * value / most:.1f}"
            for sample, value in zip(self.samples, values, strict=True)
        )
        return (
            f'<text x="{_LEFT}" y="{bottom - _HEIGHT + 34}">{escape(name)}</text>'
            f'<text x="{_LEFT - 8}" y="{bottom - _HEIGHT + 46}" text-anchor="end">{most:,.0f}</text>'
            f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - 20}" y2="{bottom}" stroke="{_FAINT}"/>'
            f'<polyline points="{points}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>'
        )


def _grown(when: str, before: Sequence[Sample], after: Sequence[Sample]) -> Iterator[str]:
    for name in ("rss_mib", "handles", "threads"):
        early, late = (median(getattr(sample, name) for sample in part) for part in (before, after))
        if late > early * _GROWTH_MAX:
            yield f"{name} grew {when} from {early:.0f} to {late:.0f}"
