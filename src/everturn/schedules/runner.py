"""Runs the schedules that are due. Every server has one; the store lets only one of them settle a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, Self

import anyio.lowlevel
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Refused, Retry
from everturn.domain.schedules import DuePlan, Schedule, Schedules, Settlement
from everturn.schedules.plan import plan_due, replan

_log = logging.getLogger("everturn.schedules")
# Between two checks: another server may have made a schedule that is due before all known ones.
LOOK_S_MAX = 5.0
BATCH_MAX = 50


class ScheduleEngine(Protocol):
    async def settle_schedule(self, plan: DuePlan) -> Settlement: ...


class ScheduleRunner:
    def __init__(self, schedules: Schedules, engine: ScheduleEngine, clock: Clock) -> None:
        self._schedules = schedules
        self._engine = engine
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # Not a task group, which would wrap errors from the body.
        self._task = asyncio.create_task(self.run(), name="schedules")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Start nothing more. What is being settled now is settled, or left to the next server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def run(self) -> None:
        """Run what is due, until cancelled."""
        while True:
            wait_s = LOOK_S_MAX
            try:
                wait_s = await self.look()
            except Retry as error:
                _log.warning("schedules wait: %s", error)
            except EverturnError:
                # The task must go on: without it later times would be missed silently.
                _log.exception("schedules wait")
            await self._clock.sleep(wait_s)

    async def look(self) -> float:
        """Settle what is due now; return the seconds until there is more to do."""
        for schedule in await self._schedules.from_the_future(limit=BATCH_MAX):
            await self._change(replan(schedule, self._clock.now_ms()))
        while await self._settle_batch() == BATCH_MAX:
            await anyio.lowlevel.checkpoint()
        next_look = await self._schedules.next_look()
        if next_look is None:
            return LOOK_S_MAX
        wait_s = (next_look - self._clock.now_ms()) / 1000
        # What is already due could not be settled: wait before the next try.
        return LOOK_S_MAX if wait_s <= 0 else min(LOOK_S_MAX, wait_s)

    async def _settle_batch(self) -> int:
        """Settle a batch of schedules; return how many were due."""
        due = await self._schedules.due(limit=BATCH_MAX)
        for schedule in due:
            try:
                await self._engine.settle_schedule(plan_due(schedule, self._clock.now_ms()))
            except Refused as error:
                await self._pause(schedule, error)
        return len(due)

    async def _pause(self, schedule: Schedule, error: Refused) -> None:
        """Pause a schedule that cannot run, e.g. in a time zone that this machine does not know, so that it
        is not tried again and again."""
        _log.warning("schedule %s is paused: %s", schedule.id, error)
        now = self._clock.now_ms()
        await self._change(msgspec.structs.replace(schedule, paused_at=now, pause_reason=error.message))

    async def _change(self, schedule: Schedule) -> None:
        try:
            await self._schedules.change(schedule)
        except Refused as error:  # changed or deleted meanwhile
            _log.info("schedule %s: %s", schedule.id, error)
