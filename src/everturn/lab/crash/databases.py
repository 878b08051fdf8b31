"""A PostgreSQL that goes away, crashes or loses the answer to a commit at a random moment of a life."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import asyncpg

from everturn.domain.errors import EverturnError, Retry
from everturn.domain.probe import Moment, Probe
from everturn.lab.crash.engine_checks import check_engine_life
from everturn.lab.crash.engine_life import live
from everturn.lab.crash.notes import notes_in, read_notes
from everturn.lab.trial import Trial, consists_of, failure_of
from everturn.store import open_store
from everturn.testing.postgres_proxy import PostgresProxy
from everturn.testing.postgres_server import PostgresServer

FAULTS = ("away", "connections ended", "server crash", "commit lost before it", "commit lost after it")
LIVES_AT_ONCE = 6
_AWAY_S_MAX = 1.0
_LIFE_S_MAX = 120.0
_BACK_S_MAX = 60.0


class _FaultProbe(Probe):
    """Starts the fault at one passing of a moment, whichever comes at that number."""

    def __init__(self, at: int, fault: Callable[[], Awaitable[None]]) -> None:
        self._left = at
        self._fault = fault
        self.task: asyncio.Task[None] | None = None
        self.moment = ""

    async def reach(self, moment: Moment, subject: str = "") -> None:
        self.pass_by(moment, subject)

    def pass_by(self, moment: Moment, subject: str = "") -> None:
        self._left -= 1
        if self._left == 0:
            self.moment = str(moment)
            self.task = asyncio.ensure_future(self._fault())


class DatabaseFaults:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    async def trials(self, folder: Path, choice: random.Random) -> AsyncIterator[Trial]:
        """Several lives at once: each mostly waits. A crash of the server is a fault for all of them."""
        found: list[Trial] = []

        async def one(address: str, life: Path, choice: random.Random) -> None:
            life.mkdir()
            trial = await self._trial_on(address, life, choice)
            if trial is not None:
                found.append(trial)

        async with AsyncExitStack() as stack:
            # All before the first life: a fault of a life would end the making of another's database.
            addresses = [await stack.enter_async_context(self._database()) for _ in range(LIVES_AT_ONCE)]
            async with anyio.create_task_group() as group:
                for number, address in enumerate(addresses):
                    group.start_soon(one, address, folder / str(number), random.Random(choice.random()))
        for trial in found:
            yield trial

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[str]:
        context = self._server.database()
        address = await anyio.to_thread.run_sync(context.__enter__)
        try:
            yield address
        finally:
            await self._until_back(address)
            await anyio.to_thread.run_sync(context.__exit__, None, None, None)

    async def _trial_on(self, address: str, folder: Path, choice: random.Random) -> Trial | None:
        """One life with one fault. None if it passed too few moments to meet it."""
        fault = choice.choice(FAULTS)
        async with PostgresProxy(self._server.port) as proxy:
            probe = _FaultProbe(choice.randrange(1, 120), self._fault(fault, proxy, choice))
            notes = folder / "notes"
            started = time.monotonic()
            failure = await self._live(proxy.address(address), folder / "data", notes, probe)
            if probe.task is None:
                return None
            await probe.task
        await self._until_back(address)
        failure = failure or await failure_of(self._check(address, folder / "data", notes))
        return Trial("database", f"{fault}, at {probe.moment}", time.monotonic() - started, failure)

    async def _check(self, address: str, folder: Path, notes: Path) -> None:
        """Another life's fault may make the server crash meanwhile: then once more."""
        while True:
            try:
                await check_engine_life(address, folder, read_notes(notes))
                return
            except Retry:
                await self._until_back(address)

    async def _live(self, url: str, folder: Path, notes: Path, probe: Probe) -> str:
        """Live until the end, or until an act is refused because of the fault. Returns what is wrong."""
        try:
            with anyio.fail_after(_LIFE_S_MAX):
                async with open_store(url, data_dir=folder, probe=probe) as store:
                    await live(store, folder, notes_in(notes), probe)
        except TimeoutError:
            return f"The life did not end within {_LIFE_S_MAX:g} s."
        except (EverturnError, BaseExceptionGroup) as error:
            if not consists_of(error, EverturnError):
                raise
        return ""

    def _fault(self, name: str, proxy: PostgresProxy, choice: random.Random) -> Callable[[], Awaitable[None]]:
        async def away() -> None:
            proxy.go_away()
            await anyio.sleep(choice.uniform(0.05, _AWAY_S_MAX))
            proxy.come_back()

        async def end_connections() -> None:
            await self._execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )

        async def crash() -> None:
            # If one of its processes dies by a signal, PostgreSQL ends them all and recovers from its log.
            rows = await self._execute(
                "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
            for row in rows[:1]:
                with suppress(ProcessLookupError):  # its client has left meanwhile
                    os.kill(row[0], signal.SIGKILL)

        async def lose_commit() -> None:
            proxy.lose_commit(is_stored=name.endswith("after it"))

        acts = {"away": away, "connections ended": end_connections, "server crash": crash}
        return acts.get(name, lose_commit)

    async def _execute(self, statement: str) -> list[tuple[int]]:
        """Another life's fault may end this connection, too: then once more."""
        while True:
            await self._until_back(self._server.address())
            try:
                connection = await asyncpg.connect(self._server.address())
                try:
                    return [tuple(row) for row in await connection.fetch(statement)]
                finally:
                    await connection.close()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                continue

    async def _until_back(self, address: str) -> None:
        """Wait until the server has recovered from a crash."""
        with anyio.fail_after(_BACK_S_MAX):
            while True:
                try:
                    await (await asyncpg.connect(address)).close()
                    return
                except (OSError, asyncpg.PostgresError):
                    await anyio.sleep(0.05)
