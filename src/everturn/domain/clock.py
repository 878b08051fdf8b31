"""Time as a parameter: the real clock here, one that obeys a test in ``testing``."""

from __future__ import annotations

import time
from typing import Protocol

import anyio


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, the unit of every time that is stored or sent."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and timeouts."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
