"""Whether this worker may still start something."""

from __future__ import annotations

from everturn.domain.clock import Clock
from everturn.domain.errors import Stopped


class LeaseLost(Stopped):
    """This worker could not renew its lease: somebody else may have its turns by now."""

    code = "lease_lost"


class Lease:
    """Held until so many seconds after the last renewal, by a clock that also runs while the process
    is stopped. On a store without leases it is renewed for good."""

    def __init__(self, clock: Clock, seconds: float, margin_s: float) -> None:
        self._clock = clock
        self._seconds = seconds - margin_s
        self._until = 0.0
        self._is_endless = False

    def renewed(self, asked_at: float) -> None:
        """The renewal that was asked for at this time has succeeded: count from the asking."""
        self._until = asked_at + self._seconds

    def endless(self) -> None:
        self._is_endless = True

    def lost(self) -> None:
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        return self._is_endless or self._clock.monotonic() < self._until

    def check(self) -> None:
        """Raise LeaseLost unless held. Called right before a model call or a tool starts."""
        if not self.is_held:
            raise LeaseLost("This worker could not renew its lease; it starts no model call and no tool.")
