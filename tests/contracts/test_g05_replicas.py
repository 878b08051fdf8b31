"""G05: nothing is acknowledged or seen before the synchronous replica has it, however long the replica is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import OutcomeUnknown
from everturn.store import Store, open_store
from everturn.store.postgres import database as database_module
from everturn.store.postgres import flusher as flusher_module
from everturn.store.postgres.connection import COMMAND_TIMEOUT_S
from everturn.testing import FakeClock
from everturn.testing.acting import WORKER, append, new_session, start
from everturn.testing.postgres_server import PostgresServer
from tests.waiting import until

pytestmark = pytest.mark.anyio
_SOON_S = 0.5
_WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Its own, because the replica is a setting of the whole server."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def admin(anyio_backend: str, server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.address())
    yield connection
    await name_replica(connection, "")
    await connection.close()


@pytest.fixture
async def replicated(
    admin: asyncpg.Connection, server: PostgresServer, tmp_path: Path
) -> AsyncIterator[Store]:
    await admin.execute("DROP SCHEMA public CASCADE")
    await admin.execute("CREATE SCHEMA public")
    async with open_store(server.address(), data_dir=tmp_path) as store:
        await store.workers.register(WORKER)
        yield store
        await name_replica(admin, "")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_module, "FLUSH_TIMEOUT_S", _SOON_S)
    monkeypatch.setattr(database_module, "COMMAND_TIMEOUT_S", _SOON_S)


async def name_replica(admin: asyncpg.Connection, name: str) -> None:
    """Commits wait for the replica of this name from now on; for none if it is empty."""
    await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    await admin.execute("SELECT pg_reload_conf()")

    async def is_so() -> bool:
        return bool(await admin.fetchval("SELECT current_setting('synchronous_standby_names') = $1", name))

    await until(f"the replica is {name!r}", is_so)


@asynccontextmanager
async def replica_away(admin: asyncpg.Connection) -> AsyncIterator[None]:
    await name_replica(admin, "away")
    yield
    await name_replica(admin, "")


async def test_g05_an_event_is_not_seen_before_the_replica_has_it(
    replicated: Store, admin: asyncpg.Connection, impatient: None
) -> None:
    held = await start(replicated, (await new_session(replicated)).id, "hi")
    await append(replicated, held, [ev.StepStarted(1, "m")])
    before = await admin.fetchval("SELECT max(number) FROM events")
    async with replica_away(admin):
        # The commit is given up, and the event is safe in this machine's spool.
        seen = [ev.TextDelta(1, "seen")]
        assert await replicated.journal.append(held.turn.id, held.epoch, before + 1, seen) == 0
        assert await admin.fetchval("SELECT max(number) FROM events") == before
    with anyio.fail_after(COMMAND_TIMEOUT_S):
        await replicated.journal.wait_delivered(held.turn.id, held.epoch)
    rows = await admin.fetch("SELECT count(*) FROM events GROUP BY number")
    assert {row[0] for row in rows} == {1}
    assert await admin.fetchval("SELECT max(number) FROM events") == before + 1


async def test_g05_a_write_that_the_replica_lacks_is_not_acknowledged(
    replicated: Store, admin: asyncpg.Connection, impatient: None
) -> None:
    async with replica_away(admin):
        with pytest.raises(OutcomeUnknown):
            await new_session(replicated)
        assert await admin.fetchval("SELECT count(*) FROM sessions") == 0


async def test_g05_a_backend_that_is_ended_while_it_waits_for_the_replica_acknowledges_nothing(
    replicated: Store, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is there then, but only on this server."""
    monkeypatch.setattr(database_module, "COMMAND_TIMEOUT_S", 3.0)

    async def waits() -> bool:
        return bool(await admin.fetchval(f"SELECT count(*) {_WAITING}"))

    async def end_it() -> None:
        await until("the commit waits for the replica", waits)
        await admin.execute(f"SELECT pg_terminate_backend(pid) {_WAITING}")

    async with replica_away(admin), anyio.create_task_group() as group:
        group.start_soon(end_it)
        with pytest.raises(OutcomeUnknown):
            await new_session(replicated)
    assert await admin.fetchval("SELECT count(*) FROM sessions") == 1


async def test_g05_workers_whose_leases_ran_out_together_do_not_take_each_others_turns(
    server: PostgresServer, admin: asyncpg.Connection, tmp_path: Path
) -> None:
    """Commits stood still for longer than a lease, as during a failover: whoever looks first waits for the others."""
    await admin.execute("DROP SCHEMA public CASCADE")
    await admin.execute("CREATE SCHEMA public")
    async with AsyncExitStack() as stack:
        clocks, stores = [FakeClock(), FakeClock()], []
        for name, clock in zip(("one", "two"), clocks, strict=True):
            stores.append(
                await stack.enter_async_context(
                    open_store(server.address(), data_dir=tmp_path / name, clock=clock)
                )
            )
            await stores[-1].workers.register(f"wrk_{name}")
        first, second = stores
        session = await new_session(first)
        held = await start(first, session.id, "hello", worker="wrk_one")

        await admin.execute("UPDATE workers SET lease_until = 1")
        for clock in clocks:
            await clock.jump(20)
        assert await second.workers.take_over("wrk_two") == 0  # its own lease ran out, too
        assert await second.workers.heartbeat("wrk_two")
        assert await second.workers.take_over("wrk_two") == 0  # the other one may be about to renew its own
        assert await first.workers.heartbeat("wrk_one")
        await append(first, held, [ev.TextDelta(1, "still mine")])

        await admin.execute("UPDATE workers SET lease_until = 1 WHERE id = 'wrk_one'")
        await clocks[1].jump(4)
        assert await second.workers.heartbeat("wrk_two")
        await clocks[1].jump(4)
        assert await second.workers.take_over("wrk_two") == 1  # that one is dead: it had its time
