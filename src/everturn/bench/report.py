"""What a run of the benchmark found: sums for the table, and everything as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from everturn import __version__
from everturn.bench.task import FRESH, PRACTISED, Area
from everturn.bench.trial import TaskTrial


class Sums(msgspec.Struct, frozen=True):
    name: str
    right: int
    tasks: int
    steps: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    version: str = __version__
    model: str
    timeout_s: float
    runs: int
    trials: tuple[TaskTrial, ...]

    def sums(self) -> list[Sums]:
        """By area, then of the tasks that prompts were tuned with, of the others, and of all."""
        groups = [(area.value, [t for t in self.trials if t.area is area]) for area in Area]
        groups += [
            (PRACTISED, [t for t in self.trials if t.is_practised]),
            (FRESH, [t for t in self.trials if not t.is_practised]),
            ("all", list(self.trials)),
        ]
        return [_sums(name, trials) for name, trials in groups if trials]


def as_json(report: BenchReport) -> bytes:
    whole = {**msgspec.structs.asdict(report), "sums": report.sums()}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def as_log(report: BenchReport) -> str:
    """Each task with what was asked, done and said."""
    return "\n\n".join(
        f"== {trial.task}: {'right' if trial.is_right else trial.missing}\n" + "\n".join(trial.story)
        for trial in report.trials
    )


def _sums(name: str, trials: Sequence[TaskTrial]) -> Sums:
    return Sums(
        name,
        sum(trial.is_right for trial in trials),
        len(trials),
        sum(trial.steps for trial in trials),
        _sum_known(trial.input_tokens for trial in trials),
        _sum_known(trial.output_tokens for trial in trials),
        _sum_known_money(trial.cost_usd for trial in trials),
        round(sum(trial.seconds for trial in trials), 2),
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sum_known_money(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
