"""A worker process: ``python -m tests.race.zombie URL FOLDER NAME MOMENTS STEPS``.

Runs an engine until its standard input ends. When it has passed MOMENTS, if any, it stops itself with SIGSTOP, as a
machine that is suspended would. What it does is counted in files that both workers share: a line for each
model call, a line for each effect of its tool. What it says goes to standard output, a line each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.model import Chunk, ModelRequest
from everturn.domain.probe import Moment, Probe
from everturn.domain.runtime import Runtime
from everturn.engine import Engine, EngineParts, EngineSettings
from everturn.store import StoreSettings, open_store
from everturn.testing import CallTool, CountingTool, FakeToolbox, Say, ScriptedModel, ScriptedModels

LEASE_S = 5.0  # a busy machine must not take a worker for dead that renews it every 0.2 s
STEPS = {"work": [Say("Working. "), CallTool("pay")], "done": "Done."}


class StoppingProbe(Probe):
    """Stops the process, once, exactly when the moments have been passed in this order."""

    def __init__(self, moments: list[Moment]) -> None:
        self._moments = moments

    async def reach(self, moment: Moment, subject: str = "") -> None:
        if self._moments and moment is self._moments[0]:
            del self._moments[0]
            if not self._moments:
                os.kill(os.getpid(), signal.SIGSTOP)


class CountedModel(ScriptedModel):
    """Writes a line for each call before anything else happens."""

    def __init__(self, counts: Path, who: str, steps: list[str]) -> None:
        super().__init__(*(STEPS[step] for step in steps))  # type: ignore[arg-type]  # the dict mixes two kinds of answers
        self._counts = counts
        self._who = who

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        note(self._counts, self._who)
        async with super().stream(request) as chunks:
            yield chunks


def note(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


async def run(url: str, folder: Path, name: str, moments: list[Moment], steps: list[str]) -> None:
    shared = folder.parent
    clock = SystemClock()
    settings = EngineSettings(
        makes_titles=False,
        lease_margin_s=0.2,
        heartbeat_s=0.2,
        take_over_s=0.1,
        poll_s=0.1,
        lost_poll_s=0.1,
        index_s=600,
        expire_s=600,
    )
    pay = CountingTool("pay", shared / "effects", is_safe_to_repeat=True)
    model = CountedModel(shared / "model-calls", name, steps)
    probe = StoppingProbe(moments)
    async with (
        open_store(url, data_dir=folder, settings=StoreSettings(lease_s=LEASE_S), probe=probe) as store,
        Engine(
            EngineParts(store, ScriptedModels(model), FakeToolbox(pay)),
            Runtime(clock, Ids(clock), probe),
            settings,
        ),
    ):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(url: str, folder: str, name: str, moments: str, steps: str) -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    passed = [Moment(moment) for moment in moments.split()]
    asyncio.run(run(url, Path(folder), name, passed, steps.split()))
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
