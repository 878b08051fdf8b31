"""The benchmark of agents: small tasks, each in a session of its own, and whether their results are there.

Owns the tasks (`tasks/`: data, no code), how one is carried out and checked, and the report. May import
everything but `cli`. Called by `everturn bench` and by its tests. Start with `task.py`.
"""

from everturn.bench.report import BenchReport, as_json, as_log
from everturn.bench.task import Area, Task, choose_tasks, read_tasks
from everturn.bench.trial import Bench, TaskTrial

__all__ = [
    "Area",
    "Bench",
    "BenchReport",
    "Task",
    "TaskTrial",
    "as_json",
    "as_log",
    "choose_tasks",
    "read_tasks",
]
