"""What every turn is given: the contracts, the clock and the limits. Built once by the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from everturn.domain.budgets import BudgetLimit
from everturn.domain.clock import Clock
from everturn.domain.errors import ProfileMissing
from everturn.domain.hooks import TurnHooks
from everturn.domain.ids import Ids
from everturn.domain.model import Models
from everturn.domain.probe import Probe
from everturn.domain.skills import Skills
from everturn.domain.store import Store
from everturn.domain.tool import Toolbox
from everturn.domain.turn_traces import TurnTraces
from everturn.engine.budget_watch import BudgetWatch
from everturn.engine.delegates import Delegates
from everturn.engine.lease import Lease
from everturn.engine.preferences import read_preferences
from everturn.engine.settings import DEFAULT_PROFILE, EngineSettings, TurnProfile
from everturn.engine.turn_hooks import AfterTurnHooks
from everturn.memory import Memory
from everturn.workspace import Recorder, Restorer

ReadsProfiles = Callable[[], Awaitable[dict[str, TurnProfile]]]
"""The profiles of now, by name."""


class EngineParts(msgspec.Struct, frozen=True):
    """What an engine works with. ``recorder`` None: workspaces are not recorded. ``guest_budgets``: of each
    guest of the gateway who has none of their own."""

    store: Store
    models: Models
    toolbox: Toolbox
    memory: Memory | None = None
    recorder: Recorder | None = None
    guest_budgets: tuple[BudgetLimit, ...] = ()
    delegates: Delegates | None = None
    skills: Skills | None = None
    profiles: ReadsProfiles | None = None  # None: those of the settings
    hooks: TurnHooks | None = None


class TurnServices(msgspec.Struct, frozen=True):
    store: Store
    models: Models
    toolbox: Toolbox
    clock: Clock
    ids: Ids
    probe: Probe
    settings: EngineSettings
    lease: Lease
    budgets: BudgetWatch
    memory: Memory | None = None
    recorder: Recorder | None = None  # None: workspaces are not recorded
    restorer: Restorer | None = None  # there if workspaces are recorded
    skills: Skills | None = None
    profiles: ReadsProfiles | None = None
    traces: TurnTraces = TurnTraces()
    hooks: AfterTurnHooks | None = None
    preferred_model: str | None = None  # of the turn's owner
    instructions: str = ""  # theirs, for every agent

    @property
    def default_model(self) -> str:
        """The model to use where neither the turn, its session nor its profile names one."""
        return self.preferred_model or self.models.default

    async def for_owner(self, owner: str) -> TurnServices:
        """These services with the profiles of now, and the owner's preferences applied to the settings.

        Called each time a turn is claimed: a user who raises a limit and then answers "continue" continues
        with the new limit.
        """
        preferences = await read_preferences(self.store.records, owner)
        settings = preferences.over(self.settings)
        if self.profiles is not None:
            settings = msgspec.structs.replace(settings, profiles=await self.profiles())
        return msgspec.structs.replace(
            self,
            settings=settings,
            preferred_model=preferences.model,
            instructions=preferences.instructions.strip(),
        )

    def find_missing_profile(self, name: str | None) -> ProfileMissing | None:
        """The error if there is no such profile now. For services of an owner (``for_owner``)."""
        known = self.settings.profiles
        if self.profiles is None or (name or DEFAULT_PROFILE) in known:
            return None
        return ProfileMissing(name or DEFAULT_PROFILE, (one for one in known if not one.startswith("~")))

    async def may_start(self) -> None:
        """Wait until a model call or a tool may start: the lease is held and the store accepts writes.

        Awaited right before each of them starts: while the disk is full, its result could not be stored.
        """
        await self.lease.wait_held()
        while (trouble := self.store.trouble) is not None:
            await self.store.health_changed(trouble)
            await self.lease.wait_held()
