"""Slows down whoever guesses passwords."""

from __future__ import annotations

from collections import OrderedDict

from everturn.domain.clock import Clock
from everturn.web.problems import Throttled

_FREE_ATTEMPTS = 5
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 900.0
_FORGET_AFTER_S = 3600.0
_ADDRESSES_MAX = 10_000


class Throttle:
    """Five wrong passwords are free; then each doubles the wait, up to 15 minutes, per address.

    All addresses together get fifty: guessing from many places at once is slowed too.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise Throttled if this address has to wait."""
        for who, free in ((address, _FREE_ATTEMPTS), ("*", _FREE_ATTEMPTS * 10)):
            wait = self._wait(who, free)
            if wait > 0:
                raise Throttled(wait)

    def failed(self, address: str) -> None:
        for who in (address, "*"):
            count, _ = self._recent(who)
            self._failures[who] = (count + 1, self._clock.monotonic())
            self._failures.move_to_end(who)
        while len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)

    def _wait(self, who: str, free: int) -> float:
        count, last = self._recent(who)
        if count < free:
            return 0.0
        pause: float = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(count - free, 20))
        return last + pause - self._clock.monotonic()

    def _recent(self, who: str) -> tuple[int, float]:
        count, last = self._failures.get(who, (0, 0.0))
        if self._clock.monotonic() - last > _FORGET_AFTER_S:
            return 0, 0.0
        return count, last
