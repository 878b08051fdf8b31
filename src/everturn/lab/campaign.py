"""Runs lives with faults, one after the other, until there were enough. Seed and number repeat a life."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import msgspec

from everturn.lab.crash.disks import disk_fault
from everturn.lab.crash.kills import kill
from everturn.lab.crash.power import power_cuts
from everturn.lab.service.soak import Soak, SoakPlan, server_environment
from everturn.lab.trial import Trial, failure_of
from everturn.store import open_store

Life = Callable[[Path, random.Random], AsyncIterator[Trial]]
IN_PROCESS = ("kill", "power", "disk", "database")
_SERVICE = -1  # instead of the number of a life


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``counts``: how many faults of each kind, 0 for as many as fit into ``minutes``."""

    seed: int
    counts: dict[str, int]
    minutes: float = 10.0
    first: int = 0  # the number of the first life: to repeat one of an earlier campaign
    lives_max: int = 0  # 0: no limit
    service_minutes: float = 0.0
    people: int = 12  # who use the server at once
    life_s: float = 8.0  # until the server is ended
    database_url: str = ""  # of the server; empty: SQLite


class Failed(msgspec.Struct, frozen=True):
    trial: Trial
    life: int


class Campaign:
    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.trials: list[Trial] = []
        self.failed: list[Failed] = []
        self.soak: Soak | None = None
        self.seconds = 0.0
        self._folder = folder
        self._say = say

    async def run(self) -> None:
        began = time.monotonic()
        try:
            with ExitStack() as stack:
                await self._run_lives(stack, began + self.plan.minutes * 60)
            if self.plan.service_minutes:
                await self._use_a_service()
        finally:
            self.seconds = time.monotonic() - began

    def tally(self) -> Counter[str]:
        return Counter(trial.kind for trial in self.trials)

    async def _run_lives(self, stack: ExitStack, until: float) -> None:
        kinds: dict[str, Life] = {"kill": kill, "power": power_cuts, "disk": disk_fault}
        if "database" in self.plan.counts:
            # Both need the packages of an extra.
            from everturn.lab.crash.databases import DatabaseFaults
            from everturn.testing.postgres_server import PostgresServer

            server = await anyio.to_thread.run_sync(stack.enter_context, PostgresServer(in_memory=False))
            await anyio.to_thread.run_sync(server.make_template, _make_tables)
            kinds["database"] = DatabaseFaults(server).trials
        number = self.plan.first
        planned = [kind for kind in IN_PROCESS if kind in self.plan.counts]
        while any(self._wants(kind, until) for kind in planned):
            if self.plan.lives_max and number >= self.plan.first + self.plan.lives_max:
                return
            # The number decides on the kind, so that a life can be repeated without those before it.
            kind = planned[number % len(planned)]
            if self._wants(kind, until):
                choice = random.Random(f"{self.plan.seed}-{number}")
                await self._live(kind, kinds[kind], number, choice)
            number += 1

    def _wants(self, kind: str, until: float) -> bool:
        wanted = self.plan.counts[kind]
        return self.tally()[kind] < wanted if wanted else time.monotonic() < until

    async def _live(self, kind: str, life: Life, number: int, choice: random.Random) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"life-{number}-", dir=self._folder))
        failed_before = len(self.failed)
        started = time.monotonic()
        if failure := await failure_of(self._trials_of(kind, life(folder, choice), number)):
            self._add(Trial(kind, "the lab itself", time.monotonic() - started, failure), number)
        if len(self.failed) == failed_before:
            shutil.rmtree(folder)  # that of a failure is kept, to be looked at

    async def _trials_of(self, kind: str, trials: AsyncIterator[Trial], number: int) -> None:
        wanted = self.plan.counts[kind] or 1 << 60
        async for trial in trials:
            self._add(trial, number)
            self._say(f"life {number} ({kind}): {self._progress()}")
            if self.tally()[kind] >= wanted:
                break

    def _progress(self) -> str:
        tally = self.tally()
        counted = ", ".join(f"{tally[kind]:,} {kind}" for kind in IN_PROCESS if tally[kind])
        return f"{counted}; {len(self.failed)} failed"

    async def _use_a_service(self) -> None:
        plan = SoakPlan(
            seconds=self.plan.service_minutes * 60,
            people=self.plan.people,
            life_s=self.plan.life_s,
            seed=self.plan.seed,
            database_url=self.plan.database_url,
        )
        home = self._folder / "service"
        soak = self.soak = Soak(home, plan, self._say)
        started = time.monotonic()
        failure = await failure_of(_use(soak, home))
        watch = soak.watch
        self.trials += [Trial("service", how, at_s) for at_s, how in sorted(watch.ends + watch.disturbed)]
        if failure:
            self._add(Trial("service", "while it was used", time.monotonic() - started, failure), _SERVICE)

    def _add(self, trial: Trial, life: int) -> None:
        self.trials.append(trial)
        if trial.failure:
            self.failed.append(Failed(trial, life))


async def _use(soak: Soak, home: Path) -> None:
    """Raises Lost if anything was lost or repeated, AssertionError if something grew or is not sound."""
    await soak.run()
    grown = soak.watch.growth()
    assert not grown, f"Grew: {'; '.join(grown)}."
    environ = server_environment(home, "http://127.0.0.1:9", soak.plan.database_url)
    command = [sys.executable, "-m", "everturn", "doctor"]
    checked = await anyio.run_process(command, env=environ, check=False)
    assert checked.returncode == 0, checked.stdout.decode()


async def _make_tables(address: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(address, data_dir=Path(folder)):
            pass
