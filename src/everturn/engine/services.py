"""What every turn works with: the contracts, the clock, the bounds. Built once by the engine."""

from __future__ import annotations

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.model import Models
from everturn.domain.probe import Probe
from everturn.domain.store import Store
from everturn.domain.tool import Toolbox
from everturn.engine.lease import Lease
from everturn.engine.settings import EngineSettings
from everturn.memory import Memory


class TurnServices(msgspec.Struct, frozen=True):
    store: Store
    models: Models
    toolbox: Toolbox
    clock: Clock
    ids: Ids
    probe: Probe
    settings: EngineSettings
    lease: Lease
    memory: Memory | None = None
    preferred_model: str | None = None  # of the owner of the turn

    @property
    def default_model(self) -> str:
        """The model where neither the turn, its session nor its profile names one."""
        return self.preferred_model or self.models.default

    async def may_start(self) -> None:
        """Return when a model call or a tool may start: the lease is held, and the store takes writes.

        Awaited right before one starts. What comes of it could not be kept while the disk is full, and
        the store says itself when that is over.
        """
        await self.lease.held()
        while (trouble := self.store.trouble) is not None:
            await self.store.other_trouble(trouble)
            await self.lease.held()
