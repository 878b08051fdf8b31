"""What every turn works with: the contracts, the clock, the bounds. Built once by the engine."""

from __future__ import annotations

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.modelling import Models
from everturn.domain.probe import Probe
from everturn.domain.storing import Store
from everturn.domain.tooling import Toolbox
from everturn.engine.lease import Lease
from everturn.engine.settings import EngineSettings
from everturn.memory import Memory


class Gear(msgspec.Struct, frozen=True):
    store: Store
    models: Models
    toolbox: Toolbox
    clock: Clock
    ids: Ids
    probe: Probe
    settings: EngineSettings
    lease: Lease
    memory: Memory | None = None
