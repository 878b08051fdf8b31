"""The cost of background work: ``python -m everturn.speed.away [--quick]``

The processor time of 10,000 schedules that are not due; how long 200 delegates take beside 200 plain turns;
how much longer it takes to start a job than to run a command.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.job_states import WhenEnded
from everturn.domain.runtime import Runtime
from everturn.domain.schedules import CronRule, ScheduleSettings, Timing
from everturn.domain.tool import ToolCall
from everturn.domain.turns import ENDED
from everturn.engine import Delegates, DelegateSettings
from everturn.jobs import Jobs, JobServices, JobSettings
from everturn.schedules import ScheduleBook, ScheduleRunner
from everturn.speed.delivery import busy_share
from everturn.speed.figures import Report, percentile
from everturn.store import Store, open_store
from everturn.testing import CallTool, FakeToolbox, Say, ScriptedModel, ScriptedModels
from everturn.testing.harness import OWNER, Harness, open_harness
from everturn.tools import Sandbox
from everturn.tools.delegate_tools import OwnRights, delegate_tools
from everturn.tools.policy.judgement import CallContext
from everturn.tools.terminal.process import Command
from everturn.tools.terminal.runner import CommandRunner, Surroundings

CHILD = "scripted:child"
TRUE = ("/bin/sh", "-c", "true")


# --- schedules -----------------------------------------------------------------------------------------


async def idle_schedules(store: Store, report: Report, count: int, seconds: float) -> None:
    clock = SystemClock()
    book = ScheduleBook(store.schedules, clock)
    for number in range(count):
        timing = Timing(CronRule(f"{number % 60} {number // 60 % 24} 1 1 *"), "Europe/Vienna")
        await book.add(OWNER, ScheduleSettings(f"number {number}", "Do it.", timing))
    async with open_harness(store, model=ScriptedModel(clock=clock), clock=clock) as here:
        alone = await busy_share(seconds)
        async with ScheduleRunner(store.schedules, here.engine, clock):
            await anyio.sleep(1.0)
            watched = await busy_share(seconds)
    report.at_most(f"processor time of {count:,} idle schedules", 100 * (watched - alone), "%", 1)
    report.at_most("the same, with all else that an idle engine does", 100 * watched, "%", 1)


# --- delegates -----------------------------------------------------------------------------------------


@asynccontextmanager
async def open_delegating(store: Store, count: int) -> AsyncIterator[Harness]:
    clock = SystemClock()
    delegates = Delegates(store, clock, DelegateSettings(at_once_max=max(8, count)))

    async def rights_of(call: ToolCall) -> OwnRights:
        return OwnRights(frozenset({"delegate"}))

    async def no_excess(call: ToolCall, wanted: str) -> str:
        return ""

    tasks = [{"instructions": f"part {number}", "model": CHILD, "files": False} for number in range(count)]
    own = ScriptedModel([CallTool("delegate", {"tasks": tasks})], Say("all done"), clock=clock)
    others = ScriptedModel(name=CHILD, then=Say("done"), clock=clock)
    models = ScriptedModels(own, others)
    toolbox = FakeToolbox(*delegate_tools(delegates, rights_of, no_excess, lambda profile: None))
    async with open_harness(store, clock=clock, models=models, toolbox=toolbox, delegates=delegates) as here:
        yield here


async def delegates_beside_turns(store: Store, report: Report, count: int) -> None:
    async with open_delegating(store, count) as here:
        plain = await plain_turns(here, count)
        session = await here.new_session()
        started = time.perf_counter()
        await until_ended(here, (await here.send(session)).turn.id)
        delegated = time.perf_counter() - started
    report.say(f"{count} plain turns", plain, "s")
    report.say(f"a turn that waits for {count} delegates", delegated, "s")
    report.at_most("delegates ÷ plain turns", delegated / plain, "x", 1.5)


async def plain_turns(here: Harness, count: int) -> float:
    """Run all turns at once, each in a new session as delegates do, until the last has ended."""

    async def ask() -> None:
        session = await here.new_session(model=CHILD)
        await until_ended(here, (await here.send(session)).turn.id)

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(ask)
    return time.perf_counter() - started


async def until_ended(here: Harness, turn_id: str) -> None:
    turn = await here.turn(turn_id)
    if turn.state not in ENDED:
        async for _ in here.engine.follow(OWNER, turn.session_id, 0):
            if (await here.turn(turn_id)).state in ENDED:
                return


# --- jobs ----------------------------------------------------------------------------------------------


async def measure_jobs(store: Store, home: Path, report: Report, times: int) -> None:
    clock = SystemClock()
    sandbox = Sandbox(home)
    await sandbox.open()
    session = await store.sessions.create(OWNER)
    workspace = home / "workspaces" / session.id
    workspace.mkdir(parents=True)
    services = JobServices(
        store.jobs, store.files, store.machine, sandbox, Runtime(clock, Ids(clock)), home / "jobs"
    )
    jobs = Jobs(services, JobSettings(per_session_max=1000))
    context = CallContext(workspace, home, is_sandboxed=True, has_network=False)
    runner = CommandRunner(sandbox, clock, Surroundings(lambda call: context))
    commands, starts = [], []
    async with jobs.serve("wrk_one", lambda: None):
        for number in range(times):
            call = ToolCall(
                id=f"call_{number}",
                name="terminal",
                arguments={},
                owner=OWNER,
                session_id=session.id,
                turn_id="trn_x",
                workspace=workspace,
                key=f"trn_x:call_{number}",
            )
            started = time.perf_counter()
            await runner.run(call, ignore, Command(TRUE, 60), 10_000)
            commands.append(time.perf_counter() - started)
            started = time.perf_counter()
            job = await jobs.start(await runner.in_background(call, "true", TRUE, WhenEnded.RECORD))
            starts.append(time.perf_counter() - started)
            await jobs.wait(OWNER, job.id, seconds=60)
    sandbox.close()
    plain, start = 1000 * percentile(commands, 0.5), 1000 * percentile(starts, 0.5)
    report.say("a command in the terminal, p50", plain, "ms")
    report.say("a job started, p50", start, "ms")
    report.at_most("a job started, over a command in the terminal, p50", start - plain, "ms", 30)


async def ignore(output: str) -> None:
    """Ignore progress."""


async def main(*, is_quick: bool) -> int:
    logging.disable(logging.WARNING)
    report = Report("Work that goes on by itself, SQLite" + (" (short)" if is_quick else ""))
    schedules, seconds, delegates, jobs = (500, 2.0, 50, 5) if is_quick else (10_000, 30.0, 200, 30)
    with tempfile.TemporaryDirectory(prefix="everturn-away-") as name:
        home = Path(name)
        async with open_store(f"sqlite://{home / 'schedules.db'}", data_dir=home / "one") as store:
            await idle_schedules(store, report, schedules, seconds)
        async with open_store(f"sqlite://{home / 'delegates.db'}", data_dir=home / "two") as store:
            await delegates_beside_turns(store, report, delegates)
        async with open_store(f"sqlite://{home / 'jobs.db'}", data_dir=home / "three") as store:
            await measure_jobs(store, home / "three", report, jobs)
    return report.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run that proves nothing")
    asyncio.run(main(is_quick=parser.parse_args().quick))  # figures, not a verdict
