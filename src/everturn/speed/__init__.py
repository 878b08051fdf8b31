"""The speed of Everturn: figures, each with a raw floor of the same run where there is one.

Owns the measurements (one file per suite, each also a program: `python -m everturn.speed.store --quick`),
how several are run, their report and the comparison of two results. May import everything but `cli`.
Called by `everturn bench speed` and `everturn bench compare`. Start with `suites.py`.
"""

from everturn.speed.compare import FigureChange, compare
from everturn.speed.report import write_report
from everturn.speed.result import Measured, SpeedResult, read_result
from everturn.speed.suites import SUITES, Suite, choose_suites, run_suites

__all__ = [
    "SUITES",
    "FigureChange",
    "Measured",
    "SpeedResult",
    "Suite",
    "choose_suites",
    "compare",
    "read_result",
    "run_suites",
    "write_report",
]
