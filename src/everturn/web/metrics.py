"""Metrics of the server, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from everturn.domain.store_values import WriteCounts

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """Counts requests by route, never by path, so that the number of series is bounded."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS_S) + 1)
        self._seconds = 0.0

    def count(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """``seconds`` None: a stream, whose duration says nothing about speed."""
        self._requests[(method, route, status)] += 1
        if seconds is not None:
            self._buckets[bisect_left(_BUCKETS_S, seconds)] += 1
            self._seconds += seconds

    def text(self, gauges: Mapping[str, object]) -> str:
        """``gauges``: nested numbers; a path of names becomes the metric's name."""
        lines = ["# TYPE everturn_http_requests_total counter"]
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"everturn_http_requests_total{{{labels}}} {count}")
        lines.append("# TYPE everturn_http_seconds histogram")
        total = 0
        for bound, count in zip((*_BUCKETS_S, "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'everturn_http_seconds_bucket{{le="{bound}"}} {total}')
        lines.append(f"everturn_http_seconds_sum {self._seconds:.6f}")
        lines.append(f"everturn_http_seconds_count {total}")
        lines.extend(_gauges("everturn", gauges))
        return "\n".join(lines) + "\n"


def writer_figures(counts: WriteCounts) -> dict[str, float]:
    """Writes and commits so far, and how long commits take; empty before the first commit.

    The batch size is writes divided by commits. A write of a running turn holds one event or more.
    """
    recent = sorted(counts.commit_seconds)
    if not recent:
        return {}
    return {
        "writes_total": counts.writes,
        "commits_total": counts.commits,
        "log_trouble": int(counts.is_log_stuck),
        "writes_waiting": counts.waiting,
        "writes_per_commit": counts.writes / max(1, counts.commits),
        "commit_seconds_p50": recent[len(recent) // 2],
        "commit_seconds_p99": recent[min(len(recent) - 1, int(len(recent) * 0.99))],
    }


def _gauges(prefix: str, values: Mapping[str, object]) -> Iterable[str]:
    for name, value in values.items():
        metric = f"{prefix}_{_safe(str(name))}"
        if isinstance(value, Mapping) and _are_labels(value):
            yield f"# TYPE {metric} gauge"
            for label, number in value.items():
                yield f'{metric}{{state="{_safe(str(label))}"}} {_number(number)}'
        elif isinstance(value, Mapping):
            yield from _gauges(metric, value)
        elif isinstance(value, (bool, int, float)):
            yield f"# TYPE {metric} {'counter' if metric.endswith('_total') else 'gauge'}"
            yield f"{metric} {_number(value)}"


def _are_labels(value: Mapping[object, object]) -> bool:
    states = {"queued", "running", "waiting", "completed", "cancelled", "failed", "interrupted"}
    return bool(value) and set(value) <= states


def _safe(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)


def _number(value: float) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(int(value))
