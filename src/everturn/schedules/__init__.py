"""What is due later: rules become times, and times become turns.

Imports domain. Called by web. Start with ``times``, which calculates when a rule is due; ``reading`` says a
rule in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.schedules.reading import describe
    from everturn.schedules.times import check_timing, latest_times, next_time, next_times

__all__ = ["check_timing", "describe", "latest_times", "next_time", "next_times"]

__getattr__ = lazy_names(__name__)
