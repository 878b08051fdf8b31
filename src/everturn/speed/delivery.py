"""What delivery costs: ``python -m everturn.speed.delivery [--quick]``, also with ``--chats``, ``--seconds``.

Messages of many chats come in at a steady rate while an engine answers them with a scripted model. Measured
is the time from receiving a message to the moment when the platform may be told that it is stored, and the
memory of the whole process; before that the processor time of an account that has nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
import time
from pathlib import Path

import anyio

from everturn.delivery import AccountService, AccountServices, AccountSettings
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import ChatKind, ChatPlace, OutgoingPart, SenderRole, Update
from everturn.domain.gateway import Admission
from everturn.domain.platform import Deliver
from everturn.speed.figures import Report, peak_mb, percentile
from everturn.store import Store, open_store
from everturn.testing import Say, ScriptedModel
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.platform import FakePlatform


class SteadyPlatform(FakePlatform):
    """Delivers messages at a rate, each on time, however long the ones before take."""

    def __init__(self, chats: int, per_second: float, seconds: float) -> None:
        super().__init__()
        self._chats = chats
        self._per_second = per_second
        self._seconds = seconds
        self.waits_s: list[float] = []
        self.sent = 0
        self.is_over = anyio.Event()

    async def receive(self, deliver: Deliver) -> None:
        choose = random.Random(1)
        started = time.perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(round(self._per_second * self._seconds)):
                due = started + number / self._per_second
                await anyio.sleep(max(0.0, due - time.perf_counter()))
                place = ChatPlace(
                    self.account, self.name, ChatKind.DIRECT, str(choose.randrange(self._chats))
                )
                update = Update(f"u{number}", place, "ada", f"message {number}")
                group.start_soon(self._deliver, deliver, update, due)
        self.is_over.set()
        await anyio.sleep_forever()

    async def _deliver(self, deliver: Deliver, update: Update, due: float) -> None:
        await deliver(update)
        self.waits_s.append(time.perf_counter() - due)

    async def send(self, part: OutgoingPart) -> str:
        self.sent += 1
        return part.id


async def admit(update: Update) -> Admission:
    return Admission(OWNER, SenderRole.OWNER, "default")


async def measure(store: Store, platform: SteadyPlatform, report: Report) -> None:
    clock = SystemClock()
    model = ScriptedModel(then=Say("here you are"), clock=clock)
    async with open_harness(store, model=model, clock=clock) as here, anyio.create_task_group() as group:
        services = AccountServices(store, here.engine, clock, here.engine.worker)
        service = AccountService(platform.account, platform, admit, AccountSettings(), services)
        group.start_soon(service.run)
        await platform.is_over.wait()
        count = len(platform.waits_s)
        report.say("messages received", count, "")
        report.say("answers sent meanwhile", platform.sent, "")
        report.say("received to acknowledged, p50", 1000 * percentile(platform.waits_s, 0.5), "ms")
        report.at_most("received to acknowledged, p99", 1000 * percentile(platform.waits_s, 0.99), "ms", 100)
        report.at_most("memory of the process, at most", peak_mb(), "MB", 250)
        group.cancel_scope.cancel()


async def measure_idle(store: Store, report: Report, seconds: float) -> None:
    clock = SystemClock()
    async with open_harness(store, model=ScriptedModel(clock=clock), clock=clock) as here:
        alone = await busy_share(seconds)
        services = AccountServices(store, here.engine, clock, here.engine.worker)
        platform = FakePlatform(account="idle")
        service = AccountService(platform.account, platform, admit, AccountSettings(), services)
        async with anyio.create_task_group() as group:
            group.start_soon(service.run)
            await anyio.sleep(1.0)
            served = await busy_share(seconds)
            group.cancel_scope.cancel()
    report.at_most("processor time of an idle account", 100 * (served - alone), "%", 1)


async def busy_share(seconds: float) -> float:
    before, started = time.process_time(), time.perf_counter()
    await anyio.sleep(seconds)
    return (time.process_time() - before) / (time.perf_counter() - started)


async def main(chats: int, per_second: float, seconds: float) -> int:
    logging.disable(logging.WARNING)  # turns that are cut off at the end
    report = Report(f"Delivery: {chats:,} chats, {per_second:g} messages/s for {seconds:g} s, SQLite")
    with tempfile.TemporaryDirectory(prefix="everturn-delivery-") as name:
        home = Path(name)
        async with open_store(f"sqlite://{home / 'idle.db'}", data_dir=home / "idle") as store:
            await measure_idle(store, report, min(10.0, seconds))
        async with open_store(f"sqlite://{home / 'busy.db'}", data_dir=home / "busy") as store:
            await measure(store, SteadyPlatform(chats, per_second, seconds), report)
    return report.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--per-second", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--quick", action="store_true", help="a short run that proves nothing")
    options = parser.parse_args()
    if options.quick:
        options.chats, options.seconds = 500, 3.0
    asyncio.run(main(options.chats, options.per_second, options.seconds))  # figures, not a verdict
