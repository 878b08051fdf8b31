"""Limits the rate at which an account sends parts."""

from __future__ import annotations

import math

from everturn.domain.clock import Clock


class Pace:
    """A token bucket that fills at ``per_s_max`` and holds one second's worth; 0 means no limit.

    A pause empties it. Without ``has_pauses`` it ignores pauses: the account's chats belong to different
    services, and one of them must not hold up the others.
    """

    def __init__(self, clock: Clock, per_s_max: float, *, has_pauses: bool = True) -> None:
        self._has_pauses = has_pauses
        self._clock = clock
        self._per_s = per_s_max
        self._left = max(1.0, per_s_max)
        self._filled_at = clock.monotonic()
        self._paused_until = self._filled_at

    def count_allowed(self) -> int:
        if self._clock.monotonic() < self._paused_until:
            return 0
        if not self._per_s:
            return 1_000
        self._fill()
        return math.floor(self._left)

    def spend(self) -> None:
        self._left -= 1

    def pause(self, seconds: float) -> None:
        """Send nothing for this long, because the platform asked for it."""
        if self._has_pauses:
            self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    def wait_s(self) -> float:
        """Return the seconds until the next send is allowed; 0 if it is allowed now."""
        paused_s = self._paused_until - self._clock.monotonic()
        if paused_s > 0:
            return paused_s
        if self.count_allowed():
            return 0.0
        return (1 - self._left) / self._per_s

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._left = min(max(1.0, self._per_s), self._left + (now - self._filled_at) * self._per_s)
        self._filled_at = now
