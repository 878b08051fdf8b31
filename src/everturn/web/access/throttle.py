"""Slows down clients that guess passwords."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from everturn.domain.clock import Clock
from everturn.web.access.errors import Throttled

_FREE_ATTEMPTS = 5
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 900.0
_FORGET_AFTER_S = 3600.0
_ADDRESSES_MAX = 10_000
_KNOWN_MAX = 1_000
_ALL = "*"


class Throttle:
    """Five wrong passwords are free; then each doubles the wait, up to 15 minutes, per address.

    All addresses together get fifty, which also slows guessing from many addresses at once. An address that
    has signed in before is not slowed by the others. A browser that has signed in before (``browser``, its
    id) has its own count, so guesses from elsewhere cannot lock its owner out.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._told: set[str] = set()  # addresses that were told to wait since their last counted attempt
        self._known: OrderedDict[str, None] = OrderedDict()

    def begin(self, address: str, browser: str = "") -> None:
        """Count a try before the password is checked: otherwise many that arrive at once would all be
        checked. Raises Throttled if this address has to wait."""
        place, counted = _count_keys(address, browser)
        bounds = [(place, _FREE_ATTEMPTS)]
        if _ALL in counted and place not in self._known:
            bounds.append((_ALL, _FREE_ATTEMPTS * 10))
        for who, free in bounds:
            wait = self._wait(who, free)
            if wait > 0:
                is_first = who not in self._told
                self._told.add(who)
                raise Throttled(wait, is_first=is_first)
        for who in counted:
            self._tries[who] = (self._recent(who)[0] + 1, self._clock.monotonic())
            self._tries.move_to_end(who)
            self._told.discard(who)
        while len(self._tries) > _ADDRESSES_MAX:
            self._told.discard(self._tries.popitem(last=False)[0])

    def take_back(self, address: str, browser: str = "") -> None:
        """Uncount a try whose password was not checked."""
        for who in _count_keys(address, browser)[1]:
            count, last = self._recent(who)
            self._tries[who] = (max(0, count - 1), last)

    def note_success(self, address: str, browser: str = "") -> None:
        self.take_back(address, browser)
        self._tries.pop(_count_keys(address, browser)[0], None)
        place = _place(address)
        self._known[place] = None
        self._known.move_to_end(place)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def _wait(self, who: str, free: int) -> float:
        count, last = self._recent(who)
        if count < free:
            return 0.0
        pause: float = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(count - free, 20))
        return last + pause - self._clock.monotonic()

    def _recent(self, who: str) -> tuple[int, float]:
        count, last = self._tries.get(who, (0, 0.0))
        if self._clock.monotonic() - last > _FORGET_AFTER_S:
            return 0, 0.0
        return count, last


def _count_keys(address: str, browser: str) -> tuple[str, tuple[str, ...]]:
    """Where a try comes from, and all that it counts for."""
    if browser:
        place = f"browser {browser}"
        return place, (place,)
    place = _place(address)
    return place, (place, _ALL)


def _place(address: str) -> str:
    """The network that an address counts for: a client with one IPv6 address has all 2^64 of its network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
