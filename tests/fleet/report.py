"""What a drill showed, as Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence

from tests.fleet.drill import Drill, Fault
from tests.fleet.load import Sample


def report(drill: Drill) -> str:
    seen, seconds = drill.seen, drill.ended_s - drill.began_s
    lines = [
        f"{drill.plan.sessions} sessions, {len(drill.workers)} workers behind {drill.plan.balancer}; {drill.database.facts}.",
        f"{os.cpu_count()} processors, load average {os.getloadavg()[1]:.1f} over the last 5 minutes, "
        f"Python {platform.python_version()}; seed {drill.plan.seed}.",
        *([f"The workers started as {drill.plan.former}."] if drill.plan.former else []),
        "",
        f"- {seen.turns:,} turns with {seen.events:,} events read in {seconds:,.0f} s "
        f"({seen.events / seconds:,.0f}/s), {seen.connections:,} streams opened.",
        f"- {seen.resumed:,} turns resumed, {seen.in_doubt:,} asked about a call in doubt, {seen.effects:,} effects counted.",
        "- Nothing acknowledged was lost, nothing happened twice, each stream went on where it was.",
        f"- From the model's word to the reader on any worker, before the first fault (G06: 250 ms at p99): {_figures(_quiet(drill, seen.delays))}.",
        f"- Accepting a message, before the first fault: {_figures(_quiet(drill, seen.accepts))}.",
        f"- Turns at once by worker, on average: {_shares(drill)}; claims by process: "
        f"{', '.join(str(count) for _, count in drill.claims.most_common())}.",
        "",
        "| Fault | | Longest silence of a stream | Longest wait for 202 |",
        "|---|---|---|---|",
    ]
    for fault, until in _windows(drill):
        silence = _longest(_between(seen.silences, fault.at_s, until))
        accept = _longest(_between(seen.accepts, fault.at_s, until))
        lines.append(f"| {fault.name} | {fault.detail} | {silence} | {accept} |")
    return "\n".join(lines) + "\n"


def percentile(samples: Sequence[Sample], share: float) -> float:
    ordered = sorted(one.seconds for one in samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _quiet(drill: Drill, samples: Iterable[Sample]) -> list[Sample]:
    until = drill.faults[0].at_s if drill.faults else drill.ended_s
    return _between(samples, drill.began_s, until)


def _between(samples: Iterable[Sample], begin: float, end: float) -> list[Sample]:
    return [one for one in samples if begin <= one.at_s < end]


def _windows(drill: Drill) -> list[tuple[Fault, float]]:
    ends = [*(fault.at_s for fault in drill.faults[1:]), drill.ended_s]
    return list(zip(drill.faults, ends, strict=True))


def _figures(samples: Sequence[Sample]) -> str:
    if not samples:
        return "nothing"
    p50, p99 = (percentile(samples, share) * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"


def _longest(samples: Sequence[Sample]) -> str:
    return f"{max(one.seconds for one in samples):.1f} s" if samples else "nothing"


def _shares(drill: Drill) -> str:
    names = [worker.name for worker in drill.workers]
    counts = [[one[name] for one in drill.running if name in one] for name in names]
    return ", ".join(f"{sum(found) / max(1, len(found)):.1f}" for found in counts)
