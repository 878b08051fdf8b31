"""Leases across machines, OS locks within a data folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.probe import Moment, Probe
from everturn.store import Store, StoreSettings, open_store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, WORKER, append, claim, late, new_session, say, start
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio
OpenStore = Callable[..., Awaitable[Store]]


@pytest.fixture
def store_kind() -> str:
    return "postgresql"


async def leases(address: str) -> dict[str, int]:
    connection = await asyncpg.connect(address)
    rows = await connection.fetch(
        "SELECT id, lease_until - (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT FROM workers"
    )
    await connection.close()
    return dict(rows)


async def set_lease(address: str, worker: str, lease_until: int) -> None:
    connection = await asyncpg.connect(address)
    await connection.execute("UPDATE workers SET lease_until = $2 WHERE id = $1", worker, lease_until)
    await connection.close()


async def test_a_lease_lasts_by_the_databases_clock_and_is_renewed(
    open_another: OpenStore, store_url: str
) -> None:
    store = await open_another(settings=StoreSettings(lease_s=60))
    await store.workers.register(WORKER)
    assert 50_000 < (await leases(store_url))[WORKER] <= 60_000
    await set_lease(store_url, WORKER, 5)
    assert await store.workers.heartbeat(WORKER)  # late, but no worker has taken over
    assert 50_000 < (await leases(store_url))[WORKER] <= 60_000


async def test_a_worker_of_another_machine_keeps_its_turns_while_its_lease_holds(
    store: Store, open_another: OpenStore, tmp_path: Path
) -> None:
    other = await open_another(data_dir=tmp_path / "elsewhere")
    session = await new_session(store)
    await store.workers.register(WORKER)
    await start(store, session.id, "hello")
    await other.workers.register("wrk_two")
    assert await other.workers.take_over("wrk_two") == 0
    assert await store.workers.heartbeat(WORKER)


async def test_an_expired_lease_is_taken_over_once_and_its_journal_stays_open(
    store: Store, open_another: OpenStore, store_url: str, tmp_path: Path
) -> None:
    other = await open_another(data_dir=tmp_path / "elsewhere")
    session = await new_session(store)
    await store.workers.register(WORKER)
    held = await start(store, session.id, "hello")
    await other.workers.register("wrk_two")
    await set_lease(store_url, WORKER, 1)
    assert await other.workers.take_over("wrk_two") == 1
    assert await other.workers.take_over("wrk_two") == 0
    assert not await store.workers.heartbeat(WORKER)
    spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "late")])
    assert await other.journal.deliver_late(held.turn.id, held.epoch, spooled) == 2


async def test_a_renewal_that_comes_before_the_take_over_wins(
    store: Store,
    open_another: OpenStore,
    store_url: str,
    tmp_path: Path,
    probe: HoldingProbe,
    held_up: HeldUp,
) -> None:
    """Both want the worker's row; the first to get it decides, and the other looks again."""
    other = await open_another(data_dir=tmp_path / "elsewhere")
    await store.workers.register(WORKER)
    await start(store, (await new_session(store)).id, "hello")
    await other.workers.register("wrk_two")
    await set_lease(store_url, WORKER, 1)
    probe.hold(Moment.BATCH_WRITTEN)

    async with anyio.create_task_group() as group:
        renewed: list[bool] = []
        taken: list[int] = []

        async def renew() -> None:
            renewed.append(await store.workers.heartbeat(WORKER))

        async def take() -> None:
            taken.append(await other.workers.take_over("wrk_two"))

        group.start_soon(renew)
        await probe.reached(Moment.BATCH_WRITTEN)  # the renewal holds the row and is not committed
        await held_up.start(group, other, take)
        probe.release(Moment.BATCH_WRITTEN)
    assert renewed == [True]
    assert taken == [0]


async def test_a_dead_worker_of_the_same_folder_is_taken_over_at_once_and_sealed(
    store: Store, store_url: str, data_dir: Path, clock: object
) -> None:
    session = await new_session(store)
    async with open_store(store_url, data_dir=data_dir) as first:
        await first.workers.register(WORKER)
        held = await start(first, session.id, "hello")
        await append(first, held, [ev.StepStarted(1, "m")])
        first.workers.close()  # what the death of its process does
    await store.workers.register("wrk_two")
    assert await store.workers.take_over("wrk_two") == 1
    assert (await claim(store, "wrk_two")).reason == "crash"
    assert WORKER not in await leases(store_url)
    assert await store.journal.deliver_late(held.turn.id, held.epoch, late(held, 9, [])) == 0


async def test_a_lock_that_can_be_taken_here_says_nothing_about_another_machine(
    store: Store, open_another: OpenStore, tmp_path: Path
) -> None:
    """Its data folder may have the same path there: only the same folder counts."""
    other = await open_another(data_dir=tmp_path / "elsewhere")
    await store.workers.register(WORKER)
    await start(store, (await new_session(store)).id, "hello")
    # A copy of the other machine's folder, without its lock.
    assert not (tmp_path / "elsewhere" / "workers" / f"{WORKER}.lock").exists()
    await other.workers.register("wrk_two")
    assert await other.workers.take_over("wrk_two") == 0


async def test_a_retired_worker_leaves_nothing(store: Store, store_url: str, data_dir: Path) -> None:
    await store.workers.register(WORKER)
    await start(store, (await new_session(store)).id, "hello")
    await store.workers.unregister(WORKER)
    assert await leases(store_url) == {}
    assert list((data_dir / "workers").glob("*.lock")) == []
    assert (await claim(store, "wrk_two")).reason == "handed_over"


async def test_a_worker_that_ends_while_it_claims_leaves_no_turn_behind(
    store: Store, open_another: OpenStore, probe: HoldingProbe, store_url: str
) -> None:
    """Its claim is written and not committed: ending the worker waits for it, then releases it too."""
    other = await open_another(probe=Probe())
    session = await new_session(store)
    await store.workers.register(WORKER)
    accepted = await say(store, session.id, "hello")
    probe.hold(Moment.BATCH_WRITTEN)
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(store.turns.claim(WORKER))
        await probe.reached(Moment.BATCH_WRITTEN)
        ending = group.create_task(other.workers.unregister(WORKER))
        await done_or_waiting(store_url, ending)
        probe.release_all()
    assert [claim.turn.id for claim in claiming.result()] == [accepted.turn.id]
    assert (await store.turns.get(ME, accepted.turn.id)).is_ready
    assert await store.turns.list_held(WORKER) == []


async def done_or_waiting(address: str, task: asyncio.Task[None]) -> None:
    """Return when the task is done or a connection waits for a lock in the database."""
    connection = await asyncpg.connect(address)
    try:
        with anyio.fail_after(60):
            while not task.done():
                if await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    return
    finally:
        await connection.close()


async def test_a_worker_whose_lease_ran_out_claims_nothing_before_it_has_renewed_it(
    store: Store, store_url: str
) -> None:
    session = await new_session(store)
    await store.workers.register(WORKER)
    await say(store, session.id, "hello")
    await set_lease(store_url, WORKER, 0)
    assert await store.turns.claim(WORKER) == []
    assert not await store.workers.heartbeat(WORKER)
    await store.workers.register(WORKER)
    assert len(await store.turns.claim(WORKER)) == 1
