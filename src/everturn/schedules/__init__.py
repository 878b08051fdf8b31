"""What is due later: rules become times, and times become turns.

Imports domain, and tools for the agent's own tool; the engine arrives as a contract. Called by app and web.
Start with ``times``, which computes when a rule is due, and ``plan``, which decides what happens to due
times; ``runner`` carries that out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.schedules.book import Preview, ReadSentence, ScheduleBook
    from everturn.schedules.chat import ScheduleCommand
    from everturn.schedules.description import describe
    from everturn.schedules.plan import plan_due, replan
    from everturn.schedules.runner import ScheduleRunner
    from everturn.schedules.times import check_timing, latest_times, next_time, next_times
    from everturn.schedules.tool import SchedulesTool

__all__ = [
    "Preview",
    "ReadSentence",
    "ScheduleBook",
    "ScheduleCommand",
    "ScheduleRunner",
    "SchedulesTool",
    "check_timing",
    "describe",
    "latest_times",
    "next_time",
    "next_times",
    "plan_due",
    "replan",
]

__getattr__ = lazy_names(__name__)
