"""A clock that moves only when a test advances it."""

from __future__ import annotations

import heapq
import itertools

import anyio
import anyio.lowlevel

from everturn.testing.waiting import within

_ROUNDS = 12


class FakeClock:
    """Starts at a fixed moment; ``advance`` moves it and wakes the sleepers whose time has come.

    Sleepers wake in the order of their times, and each of them sees exactly its own time on the clock.
    """

    def __init__(self, start_ms: int = 1_750_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._slept = anyio.Event()

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    def set_back(self, seconds: float) -> None:
        """Set the date back, as a user or a time server does. Elapsed time and sleepers are unaffected."""
        self._start_ms -= round(seconds * 1000)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        awake = anyio.Event()
        sleeper = (self._elapsed_s + seconds, next(self._order), awake)
        heapq.heappush(self._sleepers, sleeper)
        self._slept.set()
        self._slept = anyio.Event()
        try:
            await awake.wait()
        finally:
            if not awake.is_set():  # cancelled: there is no sleeper left to wake
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)

    @property
    def sleeping(self) -> list[float]:
        """How long each sleeper still has to sleep, in seconds, shortest first."""
        return [at - self._elapsed_s for at, _, awake in sorted(self._sleepers) if not awake.is_set()]

    async def someone_sleeps(self, seconds: float) -> None:
        """Wait until a sleeper has exactly this long to go."""
        with within(f"a task sleeps for {seconds:g} s"):
            while not any(abs(left - seconds) < 1e-6 for left in self.sleeping):
                await self._slept.wait()

    async def advance(self, seconds: float) -> None:
        """Move the clock, stopping at each sleeper's time so that it can act and sleep again."""
        until = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, awake = heapq.heappop(self._sleepers)
            self._elapsed_s = max(self._elapsed_s, at)
            awake.set()
            await _let_others_run()
        self._elapsed_s = until

    def set_wall(self, by_s: float) -> None:
        """Set the wall clock forward or back. No time passes, and no sleeper wakes."""
        self._start_ms += round(by_s * 1000)

    def stand_still(self, seconds: float) -> None:
        """Let time pass as if the process were stopped. Sleepers wake at the next move."""
        self._elapsed_s += seconds

    async def jump(self, seconds: float) -> None:
        """Move the clock at once, as when a machine was asleep: sleepers that were due wake once, late."""
        self._elapsed_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed_s:
            heapq.heappop(self._sleepers)[2].set()
        await _let_others_run()


async def _let_others_run() -> None:
    """A few rounds of the event loop: enough to act and to sleep again, not to wait for a disk."""
    for _ in range(_ROUNDS):
        await anyio.lowlevel.checkpoint()
