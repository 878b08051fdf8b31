"""A process that runs schedules, to be killed: ``python -m tests.crash.schedule_work URL FOLDER [MOMENT NTH]``.

Without a moment it works until nothing is due.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from everturn.domain.clock import SystemClock
from everturn.domain.probe import Moment, Probe
from everturn.domain.schedules import RUNS, IntervalRule, RunsIn, ScheduleSettings, Timing, WhenMissed
from everturn.schedules import plan_due
from everturn.store import Store, StoreSettings, open_store
from everturn.testing import KillingProbe, Say, ScriptedModel
from everturn.testing.harness import OWNER, open_harness

EVERY_MS = 3_600_000
STORE = StoreSettings(lease_s=7.0)


async def make_schedules(store: Store, count: int, hours: int, now_ms: int) -> None:
    """Schedules that are due every hour, first ``hours`` hours ago."""
    start = now_ms - hours * EVERY_MS - 60_000
    for number in range(count):
        timing = Timing(IntervalRule(EVERY_MS // 1000, start), "UTC")
        settings = ScheduleSettings(
            f"number {number}", "Do it.", timing, when_missed=WhenMissed.ALL, runs_in=RunsIn.NEW
        )
        await store.schedules.create(OWNER, settings, due_at=start + EVERY_MS)


async def work(store: Store, probe: Probe) -> None:
    """Settle everything that is due; the engine runs what was started, as far as it comes."""
    clock = SystemClock()
    model = ScriptedModel(then=Say("done"), clock=clock)
    async with open_harness(store, model=model, clock=clock, probe=probe) as harness:
        while due := await store.schedules.due(limit=10):
            for schedule in due:
                await harness.engine.settle_schedule(plan_due(schedule, clock.now_ms()))


async def check(store: Store, count: int, hours: int) -> None:
    """Each time has one fate and one turn, and there is no turn besides."""
    schedules = (await store.schedules.list(OWNER, limit=count + 1)).items
    assert len(schedules) == count
    turns = set()
    for schedule in schedules:
        found = await store.schedules.occurrences(OWNER, schedule.id, limit=hours + 10)
        times = [one.due_at for one in found][::-1]
        assert times == [times[0] + number * EVERY_MS for number in range(hours)], schedule.id
        assert {one.fate for one in found} <= RUNS
        turns |= {one.turn_id for one in found}
    assert None not in turns
    assert len(turns) == count * hours
    assert (await store.sessions.overview(OWNER, limit=1)).sessions == count * hours


async def main(url: str, folder: str, moment: str = "", nth: str = "1") -> None:
    probe = KillingProbe(Moment(moment), int(nth)) if moment else Probe()
    async with open_store(url, data_dir=Path(folder), probe=probe, settings=STORE) as store:
        await work(store, probe)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
