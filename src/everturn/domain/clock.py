"""Time as a parameter: the real clock. ``testing`` has one that tests control."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

T = TypeVar("T")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, the unit of every time that is stored or sent. The wall clock can be set:
        use it for dates and for ages across a restart, never for how long something takes."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back and also count while the machine sleeps, for durations and leases."""
        ...

    async def sleep(self, seconds: float) -> None: ...


# Python's monotonic clock stops while a Linux machine sleeps: a worker that wakes up would believe that it
# still holds its lease, and repeat what another worker has done. CLOCK_BOOTTIME keeps counting; on macOS the
# monotonic clock does.
_THROUGH_SLEEP: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_THROUGH_SLEEP)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


async def call_within(clock: Clock, seconds: float, act: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``act``. Raises TimeoutError, and cancels ``act``, after this many seconds."""
    ended: list[T] = []
    error: Exception | None = None
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_expire, clock, seconds, scope, name="timeout")
            try:
                ended.append(await act())
            except Exception as raised:
                # Raised below: the task group would wrap it in an ExceptionGroup.
                error = raised
            group.cancel_scope.cancel()
    if error is not None:
        raise error
    if not ended:
        raise TimeoutError
    return ended[0]


async def _expire(clock: Clock, seconds: float, scope: anyio.CancelScope) -> None:
    await clock.sleep(seconds)
    scope.cancel()
