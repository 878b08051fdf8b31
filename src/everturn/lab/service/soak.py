"""One soak: the server, its model, the people, and the ends of its lives."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import anyio
import anyio.abc
import httpx2
import msgspec
from anyio.streams.text import TextReceiveStream

from everturn.lab.service.people import Person, Server, Tally
from everturn.lab.service.talker import Talker
from everturn.lab.service.watch import Watch
from everturn.testing.ports import free_port
from everturn.testing.wires import served

_WAYS = (signal.SIGKILL, signal.SIGTERM)  # how a life ends, in turn
# What happens in the middle of a life, in turn: the process stands still, its clock jumps.
_FREEZE, _LATER, _EARLIER = "frozen", "clock +1 h", "clock -1 h"
_MIDDLES = (_FREEZE, _LATER, _EARLIER)
_FREEZE_S = 1.5
_READY_S = 60.0


class SoakPlan(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    people: int = 20
    life_s: float = 45.0  # then it is killed or told to stop, in turn
    ends_min: int = 0  # of lives, however long that takes
    seed: int = 1
    database_url: str = ""


class Soak:
    def __init__(self, home: Path, plan: SoakPlan, say: Callable[[str], None] = lambda _: None) -> None:
        self._home = home
        self.plan = plan
        self._say = say
        self.tally = Tally()
        self.watch = Watch(home)
        self._begin = time.monotonic()

    @property
    def _at_s(self) -> float:
        return time.monotonic() - self._begin

    def _is_over(self) -> bool:
        return self._at_s > self.plan.seconds and len(self.watch.ends) >= self.plan.ends_min

    async def run(self) -> None:
        """Raises ``Lost`` if anything was lost or repeated."""
        port = free_port()
        limits = httpx2.Limits(max_connections=None)
        url = f"http://127.0.0.1:{port}"
        async with (
            served(Talker) as talker,
            httpx2.AsyncClient(base_url=url, limits=limits, timeout=60.0, trust_env=False) as http,
        ):
            server = Server(http)
            environ = server_environment(self._home, talker.url, self.plan.database_url)
            async with anyio.create_task_group() as lives:
                lives.start_soon(self._lives, server, environ, port)
                async with anyio.create_task_group() as people:
                    for number in range(self.plan.people):
                        person = Person(
                            f"p{number}",
                            server,
                            self._home / "workspaces",
                            self.tally,
                            self.plan.seed * 1000 + number,
                        )
                        people.start_soon(person.live, self._is_over)
                lives.cancel_scope.cancel()

    async def _lives(self, server: Server, environ: dict[str, str], port: int) -> None:
        middles = cycle(_MIDDLES)
        for how in cycle(_WAYS):
            async with run_server(environ, port) as process:
                server.up.set()
                await self._one_life(process, self.plan.life_s / 2)
                await self._disturb(process, next(middles))
                await self._one_life(process, self.plan.life_s / 2)
                if self._is_over():
                    await anyio.sleep_forever()  # the last life ends after the last person has left
                server.up = anyio.Event()
                self.watch.ends.append((self._at_s, how.name))
                process.send_signal(how)
                await process.wait()

    async def _disturb(self, process: anyio.abc.Process, how: str) -> None:
        """The server stands still for a moment, or its clock jumps; it lives on."""
        self.watch.disturbed.append((self._at_s, how))
        if how == _FREEZE:
            process.send_signal(signal.SIGSTOP)
            await anyio.sleep(_FREEZE_S)
            process.send_signal(signal.SIGCONT)
        else:
            process.send_signal(signal.SIGUSR1 if how == _LATER else signal.SIGUSR2)

    async def _one_life(self, process: anyio.abc.Process, seconds: float) -> None:
        until = self._at_s + seconds
        while self._at_s < until and not self._is_over():
            await anyio.sleep(min(1.0, self.plan.life_s / 8))
            sample = self.watch.look(process.pid, self._at_s, self.tally.turns, self.tally.accept_ms)
            if sample is None:
                raise AssertionError(f"the server ended by itself with {process.returncode}")
            self._say(
                f"{sample.at_s:6.0f} s  life {sample.life + 1}  {sample.turns} turns  "
                f"{sample.rss_mib:.0f} MiB  {sample.handles} files  log {sample.wal_mib:.1f} MiB"
            )


def server_environment(home: Path, provider: str, database_url: str = "") -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN")}
    own = {
        "EVERTURN_HOME": str(home),
        "OPENAI_BASE_URL": f"{provider}/v1",
        "OPENAI_API_KEY": "sk-soak-000000000000",
        "EVERTURN_MODEL": "openai:soak",
    }
    return kept | own | ({"EVERTURN_DATABASE_URL": database_url} if database_url else {})


@asynccontextmanager
async def run_server(environ: dict[str, str], port: int) -> AsyncIterator[anyio.abc.Process]:
    """A server that is ready; killed if it is still there at the end."""
    command = [sys.executable, "-m", "everturn.testing.hurried_server", "--port", str(port)]
    async with (
        await anyio.open_process(command, env=environ, stderr=None) as process,
        anyio.create_task_group() as group,
    ):
        try:
            assert process.stdout is not None
            output = TextReceiveStream(process.stdout)
            with anyio.fail_after(_READY_S):
                text = ""
                while "is ready" not in text:
                    text += await output.receive()
            group.start_soon(_drain, output)
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            group.cancel_scope.cancel()


async def _drain(output: TextReceiveStream) -> None:
    async for _ in output:
        continue
