"""The lease: whether this worker may start a model call or a tool now."""

from __future__ import annotations

import anyio

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid
from everturn.domain.store import StoreLeases
from everturn.engine.settings import EngineSettings


class Lease:
    """Held for some seconds after the last renewal, by a clock that also runs while the process is stopped.
    On a store without leases it is always held."""

    def __init__(self, clock: Clock, seconds: float, margin_s: float) -> None:
        self._clock = clock
        self._seconds = seconds - margin_s
        self._until = 0.0
        self._is_endless = False
        self._renewed = anyio.Event()

    def renew(self, asked_at: float) -> None:
        """Extend the lease. It counts from when the renewal was requested, not from the answer."""
        self._until = asked_at + self._seconds
        self._renewed.set()
        self._renewed = anyio.Event()

    def hold_forever(self) -> None:
        self._is_endless = True

    def drop(self) -> None:
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        return self._is_endless or self._clock.monotonic() < self._until

    async def wait_held(self) -> None:
        """Wait until the lease is held. Awaited right before a model call or a tool starts.

        A worker that could not renew its lease waits here. It continues when the renewal succeeds, and is
        cancelled here if other workers have taken its turns.
        """
        while not self.is_held:  # guard: c04
            await self._renewed.wait()


def lease_of(store: StoreLeases, clock: Clock, settings: EngineSettings) -> Lease:
    """The lease of this worker. Raises Invalid if it would expire between two renewals."""
    held_s = store.lease_s - settings.lease_margin_s
    if store.has_leases and settings.heartbeat_s >= held_s:
        raise Invalid(
            f"A lease of {store.lease_s:g} s is too short: it is renewed every {settings.heartbeat_s:g} s, "
            f"and nothing is started in its last {settings.lease_margin_s:g} s.",
            hint="Set a longer lease_s in [store], or a shorter heartbeat_s in [engine].",
        )
    return Lease(clock, store.lease_s, settings.lease_margin_s)
