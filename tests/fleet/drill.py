"""One drill: a fleet under load, one fault after the other, and in the end a check of everything that was promised."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import asyncpg
import httpx2
import msgspec

from everturn.testing.wires import served
from tests.fleet.balancer import balancer_for
from tests.fleet.database import Database
from tests.fleet.load import FleetServer, FleetTalker, Seen, Talk
from tests.fleet.workers import Worker

_LOOK_S = 1.0
_WORKERS = 3


class DrillPlan(msgspec.Struct, frozen=True, kw_only=True):
    faults: Sequence[str]
    sessions: int = 12
    rest_s: float = 2.0  # between an answer and the next message, on average
    pause_s: float = 0.05  # between two words of the model
    quiet_s: float = 20.0  # before the first fault and after each
    lease_s: float = 15.0
    grace_s: float = 5.0  # that a drained worker gives its turns
    balancer: str = "haproxy"
    files_url: str | None = None  # object storage
    seed: int = 1
    former: str = ""  # the version that the workers start with, for the report


class Fault(msgspec.Struct, frozen=True):
    """``seconds``: how long the fault itself took, a restart included."""

    name: str
    at_s: float
    seconds: float
    detail: str


class Drill:
    def __init__(
        self,
        plan: DrillPlan,
        folder: Path,
        database: Database,
        say: Callable[[str], None] = lambda _: None,
        former: Path | None = None,
    ) -> None:
        """``former``: the source of an earlier version, with which the workers start; ``upgrade`` ends that."""
        self.plan = plan
        self.database = database
        self.seen = Seen()
        self.faults: list[Fault] = []
        self.running: list[dict[str, int]] = []  # turns by worker, sampled
        self.claims: Counter[str] = Counter()
        self.cpu_s = 0.0
        self.began_s = 0.0
        self.ended_s = 0.0
        self.workers: list[Worker] = []
        self._folder = folder
        self._say = say
        self._former = former

    async def run(self) -> None:
        """Raises Lost if anything was lost or happened twice."""
        async with AsyncExitStack() as stack:
            talker = await stack.enter_async_context(served(FleetTalker))
            talker.pause_s = self.plan.pause_s
            self.workers = [self._worker(number, f"{talker.url}/v1") for number in range(_WORKERS)]
            async with anyio.create_task_group() as starting:
                for worker in self.workers:
                    stack.callback(worker.end)
                    worker.tree = self._former
                    starting.start_soon(worker.start)
            url = await stack.enter_async_context(
                balancer_for(self.plan.balancer, self._folder, self.workers)
            )
            limits = httpx2.Limits(max_connections=None)
            http = await stack.enter_async_context(
                httpx2.AsyncClient(base_url=url, limits=limits, timeout=20.0, trust_env=False)
            )
            await self._use(FleetServer(http))

    def _worker(self, number: int, provider: str) -> Worker:
        settings = (
            f"[store]\nlease_s = {self.plan.lease_s}\n"
            f"[engine]\nheartbeat_s = {self.plan.lease_s / 4}\nserver_turns_max = 2000\nowner_turns_max = 2000\n"
            f"makes_titles = false\n[server]\ngrace_s = {self.plan.grace_s}\n"
        )
        if self.plan.files_url is not None:
            settings += f'[files]\nurl = "{self.plan.files_url}"\n'
        own = {"OPENAI_BASE_URL": provider, "EVERTURN_SECRET_KEY": "A" * 43 + "="}
        return Worker(f"w{number}", self._folder, self.database.environ | own, settings)

    async def _use(self, server: FleetServer) -> None:
        talks = [
            Talk(number, server, self.seen, self.plan.seed, self.plan.rest_s)
            for number in range(self.plan.sessions)
        ]
        is_over = False
        self.began_s = time.monotonic()
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._watch)
            async with anyio.create_task_group() as group:
                for talk in talks:
                    group.start_soon(talk.live, lambda: is_over)
                await self._break_things()
                is_over = True
            self.ended_s = time.monotonic()
            watching.cancel_scope.cancel()
        self._say("checking everything that was acknowledged")
        for talk in talks:
            await talk.check([worker.home for worker in self.workers])
        await self._count_claims()

    async def _break_things(self) -> None:
        await anyio.sleep(self.plan.quiet_s)
        for name in self.plan.faults:
            at_s = time.monotonic()
            detail = await self._acts[name]()
            fault = Fault(name, at_s, time.monotonic() - at_s, detail)
            self.faults.append(fault)
            self._say(f"{fault.name}: {fault.detail} ({fault.seconds:.1f} s); {self.seen.turns} turns")
            await anyio.sleep(self.plan.quiet_s)

    @property
    def _acts(self) -> dict[str, Callable[[], Awaitable[str]]]:
        return {
            "kill": self._kill,
            "freeze": self._freeze,
            "drain": self._drain,
            "upgrade": self._upgrade,
            **self.database.faults,
        }

    async def _kill(self) -> str:
        worker = self.workers[0]
        turns = await _running(worker)
        worker.kill()
        await anyio.sleep(self.plan.lease_s + 1)
        await worker.start()
        return f"kill -9 with {turns} turns; started again after the lease"

    async def _freeze(self) -> str:
        worker = self.workers[1]
        turns = await _running(worker)
        worker.freeze()
        await anyio.sleep(self.plan.lease_s * 1.5)
        worker.thaw()
        return f"SIGSTOP with {turns} turns, for {self.plan.lease_s * 1.5:g} s"

    async def _drain(self) -> str:
        worker = self.workers[2]
        turns = await _running(worker)
        seconds = await worker.drain()
        await worker.start()
        return f"SIGTERM with {turns} turns; ended after {seconds:.1f} s, started again"

    async def _upgrade(self) -> str:
        taken = []
        for worker in self.workers:
            taken.append(await worker.drain())
            worker.tree = None
            await worker.start()
        return "one by one; to end they took " + ", ".join(f"{one:.1f} s" for one in taken)

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(_LOOK_S)
            counts: dict[str, int] = {}
            for worker in self.workers:
                with anyio.move_on_after(_LOOK_S):
                    counts[worker.name] = await _running(worker)
            self.running.append(counts)

    async def _count_claims(self) -> None:
        """How many turns each worker process took, those that it took over included."""
        connection = await asyncpg.connect(self.database.address)
        try:
            rows = await connection.fetch("SELECT worker, count(*) FROM writers GROUP BY worker ORDER BY 2")
        finally:
            await connection.close()
        self.claims.update(dict(rows))


async def _running(worker: Worker) -> int:
    answer = await worker.ask("/api/health")
    return int(answer.json()["turns_running"]) if answer is not None else 0
