"""Whether this worker may start something now."""

from __future__ import annotations

import anyio

from everturn.domain.clock import Clock


class Lease:
    """Held until so many seconds after the last renewal, by a clock that also runs while the process
    is stopped. On a store without leases it is held for good."""

    def __init__(self, clock: Clock, seconds: float, margin_s: float) -> None:
        self._clock = clock
        self._seconds = seconds - margin_s
        self._until = 0.0
        self._is_endless = False
        self._renewed = anyio.Event()

    def renewed(self, asked_at: float) -> None:
        """The renewal that was asked for at this time has succeeded: count from the asking."""
        self._until = asked_at + self._seconds
        self._renewed.set()
        self._renewed = anyio.Event()

    def endless(self) -> None:
        self._is_endless = True

    def lost(self) -> None:
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        return self._is_endless or self._clock.monotonic() < self._until

    async def held(self) -> None:
        """Return when it is held. Awaited right before a model call or a tool starts.

        A worker that could not renew its lease waits here: it goes on when the renewal succeeds, and is
        cancelled here when it turns out that others have its turns.
        """
        while not self.is_held:
            await self._renewed.wait()
