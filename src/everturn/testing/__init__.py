"""Test doubles: a fake clock, models that follow a script, probes that hold or kill, small tools.

May import anything; imported only by tests and benchmarks. Nothing here is used in production.
"""

from everturn.testing.clock import FakeClock
from everturn.testing.models import (
    CallTool,
    Chunks,
    Cut,
    ModelFails,
    Pause,
    Say,
    ScriptedModel,
    ScriptedModels,
    Think,
)
from everturn.testing.probe import HoldingProbe, KillingProbe, RecordingProbe
from everturn.testing.tools import CountingTool, FakeTool, FakeToolbox, count_effects
from everturn.testing.waiting import within

__all__ = [
    "CallTool",
    "Chunks",
    "CountingTool",
    "Cut",
    "FakeClock",
    "FakeTool",
    "FakeToolbox",
    "HoldingProbe",
    "KillingProbe",
    "ModelFails",
    "Pause",
    "RecordingProbe",
    "Say",
    "ScriptedModel",
    "ScriptedModels",
    "Think",
    "count_effects",
    "within",
]
