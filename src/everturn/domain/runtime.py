"""What most parts are given alike: the clock, the source of ids, the probe of tests, and traces."""

from __future__ import annotations

from dataclasses import dataclass, field

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.domain.turn_traces import TurnTraces


@dataclass(frozen=True)
class Runtime:
    clock: Clock
    ids: Ids
    probe: Probe = field(default_factory=Probe)
    traces: TurnTraces = field(default_factory=TurnTraces)
