"""Wakes a loop that looks for work at intervals."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from everturn.domain.clock import Clock
from everturn.domain.errors import Retry

_log = logging.getLogger("everturn.delivery")


class Bell:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = anyio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Return once the bell has rung since the last call returned, or after this many seconds."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._ring_after, seconds, name="interval")
            await self._rung.wait()
            group.cancel_scope.cancel()
        self._rung = anyio.Event()

    async def _ring_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._rung.set()


async def run_when_rung(
    bell: Bell, act: Callable[[], Awaitable[int]], *, poll_s: float, account: str
) -> None:
    """Call ``act`` until it finds nothing to do, then again when the bell rings or after the interval."""
    while True:
        try:
            count = await act()
        except Retry as error:
            _log.warning("account %s: %s", account, error)
            count = 0
        if not count:
            await bell.wait(poll_s)
