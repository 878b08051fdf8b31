"""C04: the journal may become visible late."""

from __future__ import annotations

from pathlib import Path

import anyio
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import StoreAway
from everturn.domain.fold import fold
from everturn.domain.probe import Moment
from everturn.domain.turns import FinishReason, Recovery, TurnState
from everturn.store import Store, open_store
from everturn.store.files.disk import Disk
from everturn.store.journal.spool import Spool
from everturn.store.postgres.flusher import Flusher
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import (
    CRASHED,
    ME,
    WORKER,
    answer,
    append,
    claim,
    complete,
    late,
    new_session,
    start,
    words,
)
from everturn.testing.postgres_proxy import PostgresProxy
from tests.waiting import task_waits_in

pytestmark = pytest.mark.anyio
on_postgresql = pytest.mark.parametrize("store_kind", ["postgresql"])
PATIENCE_S = 60

FULL_DISK = """
CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'no space left'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()
"""

PART: list[ev.Payload] = [ev.StepStarted(1, "m"), ev.TextDelta(1, "one ")]


def spool_of(store: Store, worker: str = WORKER) -> Spool:
    return Spool(store.data_dir / "spool" / f"{worker}.spool", Disk())


@on_postgresql
async def test_c04_spooled_events_are_synced_and_not_visible(
    store: Store, spooling: Store, proxy: PostgresProxy
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    number = await append(spooling, held, PART)
    position = (await store.sessions.get(ME, session.id)).position
    proxy.go_away()
    spooled = [ev.TextDelta(1, "two "), ev.TextDelta(1, "three")]
    assert await spooling.journal.append(held.turn.id, held.epoch, number + 1, spooled) == 0
    assert spooling.is_away
    assert [record.first_number for record in spool_of(spooling).read()] == [number + 1]
    assert (await store.sessions.get(ME, session.id)).position == position
    with pytest.raises(StoreAway):
        await spooling.sessions.get(ME, session.id)


@on_postgresql
async def test_c04_spooled_events_are_delivered_in_order_when_the_database_is_back(
    store: Store, spooling: Store, proxy: PostgresProxy
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    number = await append(spooling, held, PART)
    proxy.go_away()
    for word in ("two ", "three ", "four "):
        number = await append(spooling, held, [ev.TextDelta(1, word)], number)
    proxy.come_back()
    with anyio.fail_after(PATIENCE_S):
        await spooling.journal.wait_delivered(held.turn.id, held.epoch)
    assert not spooling.is_away
    assert spool_of(spooling).is_empty
    number = await append(
        spooling, held, [ev.TextDelta(1, "five"), ev.StepFinished(1, FinishReason.STOP)], number
    )
    await complete(spooling, held, number)
    journal = await store.journal.of_turn(ME, held.turn.id)
    assert not any(event.is_late for event in journal)
    assert await words(store, session.id) == ["hello", "one two three four five"]


@on_postgresql
async def test_c04_a_database_that_is_back_and_refuses_gets_everything_in_order_later(
    store: Store, spooling: Store, proxy: PostgresProxy, postgres_url: str
) -> None:
    """It went away because its disk was full, and it still is when it comes back."""
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    number = await append(spooling, held, PART)
    proxy.go_away()
    number = await append(spooling, held, [ev.TextDelta(1, "two ")], number)
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(FULL_DISK)
        proxy.come_back()
        with anyio.fail_after(PATIENCE_S):
            trouble = await spooling.health_changed(spooling.trouble)
        assert trouble is not None
        assert trouble.code == "disk_full"
        # What comes now stands behind what waits: sent past it, it would be refused for the gap.
        later = [ev.TextDelta(1, "three")]
        assert await spooling.journal.append(held.turn.id, held.epoch, number + 1, later) == 0
        await connection.execute("DROP TRIGGER full_disk ON events")
    finally:
        await connection.close()
    with anyio.fail_after(PATIENCE_S):
        await spooling.journal.wait_delivered(held.turn.id, held.epoch)
    number = await append(spooling, held, [ev.StepFinished(1, FinishReason.STOP)], number + 1)
    await complete(spooling, held, number)
    assert await words(store, session.id) == ["hello", "one two three"]
    assert spooling.trouble is None


@on_postgresql
async def test_c04_a_reader_gets_spooled_events_once_they_are_delivered(
    store: Store, spooling: Store, proxy: PostgresProxy
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    position = (await store.sessions.get(ME, session.id)).position
    proxy.go_away()
    await append(spooling, held, PART)
    proxy.come_back()
    with anyio.fail_after(PATIENCE_S):
        async for batch in spooling.journal.follow(ME, session.id, position):
            assert [event.kind for event in batch] == ["step.started", "text.delta"]
            break


@on_postgresql
async def test_c04_nothing_may_be_started_until_the_spool_is_delivered(
    store: Store, spooling: Store, proxy: PostgresProxy
) -> None:
    """``settled`` is what a worker waits for before a model call or a tool."""
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    await spooling.journal.wait_delivered(held.turn.id, held.epoch)  # nothing spooled: at once
    proxy.go_away()
    await append(spooling, held, PART)
    started = False

    async def start_tool() -> None:
        nonlocal started
        await spooling.journal.wait_delivered(held.turn.id, held.epoch)
        started = True

    async with anyio.create_task_group() as group:
        group.start_soon(start_tool)
        await task_waits_in(Flusher.wait_delivered)
        assert not started
        proxy.come_back()
    assert started
    proxy.go_away()
    with pytest.raises(StoreAway):
        await spooling.workers.heartbeat(WORKER)


@on_postgresql
async def test_c04_a_dead_workers_spool_is_delivered_by_the_next_start_in_its_folder(
    store: Store, proxy: PostgresProxy, postgres_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    folder = tmp_path / "elsewhere"
    session = await new_session(store)
    async with open_store(proxy.address(postgres_url), data_dir=folder, clock=clock) as first:
        await first.workers.register(WORKER)
        held = await start(first, session.id, "hello")
        number = await append(first, held, PART)
        proxy.go_away()
        await append(first, held, [ev.TextDelta(1, "two")], number)
        with pytest.raises(StoreAway):
            await first.workers.unregister(WORKER)  # the process ends; its lock goes, its spool stays
    proxy.come_back()
    async with open_store(proxy.address(postgres_url), data_dir=folder, clock=clock) as second:
        await second.workers.register("wrk_two")
        assert await second.workers.take_over("wrk_two") == 1
        resumed = await claim(second, "wrk_two")
        assert resumed.reason == "crash"
        folded = fold(held.turn.id, resumed.journal)
        assert [message.text for message in folded.messages] == ["one two"]
        assert spool_of(second).is_empty
        # Sealed: a repeat of the same spool adds nothing.
        repeat = late(held, number + 1, [ev.TextDelta(1, "two"), ev.TextDelta(1, "more")])
        assert await second.journal.deliver_late(held.turn.id, held.epoch, repeat) == 0


@on_postgresql
async def test_c04_a_crash_after_delivery_and_before_the_file_is_gone_adds_nothing_twice(
    store: Store, spooling: Store, proxy: PostgresProxy, probe: HoldingProbe
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    proxy.go_away()
    await append(spooling, held, PART)
    probe.hold(Moment.SPOOL_DELIVERED)
    proxy.come_back()
    await probe.reached(Moment.SPOOL_DELIVERED)
    delivered = await store.journal.of_turn(ME, held.turn.id)
    assert [event.kind for event in delivered][-2:] == ["step.started", "text.delta"]
    records = spool_of(spooling).read()
    assert records != []
    probe.release(Moment.SPOOL_DELIVERED)
    await spooling.journal.wait_delivered(held.turn.id, held.epoch)
    # What a restart would find: the same file once more.
    left = spool_of(spooling, "wrk_dead")
    left.append(records)
    await spooling.workers.take_over(WORKER)
    assert await store.journal.of_turn(ME, held.turn.id) == delivered
    assert left.is_empty


@on_postgresql
async def test_c04_a_deleted_session_takes_no_late_delivery(
    store: Store, spooling: Store, proxy: PostgresProxy
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    proxy.go_away()
    await append(spooling, held, PART)
    await store.sessions.delete(ME, session.id)
    proxy.come_back()
    with anyio.fail_after(PATIENCE_S):
        await spooling.journal.wait_delivered(held.turn.id, held.epoch)
    assert spool_of(spooling).is_empty
    assert list((spooling.data_dir / "spool").iterdir()) == []
    assert await store.upkeep.check() == []


async def test_c04_while_late_events_may_come_the_notice_says_so(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, PART)
    turn = await store.turns.interrupt(held.turn.id, None, CRASHED)
    assert turn.state is TurnState.INTERRUPTED
    assert turn.recovery is Recovery.PENDING
    [notice] = [
        e.payload for e in await store.journal.after(ME, session.id, 0) if e.kind == "turn.interrupted"
    ]
    assert isinstance(notice, ev.TurnInterrupted)
    assert notice.recovery == "pending"
    await store.journal.recover(ME, session.id)
    assert (await store.turns.get(ME, held.turn.id)).recovery is Recovery.PENDING


async def test_c04_a_journal_is_sealed_when_its_worker_recorded_the_end(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, answer("hi"))
    await complete(store, held, number)
    extra = late(held, number + 2, [ev.TextDelta(1, " and more")])
    assert await store.journal.deliver_late(held.turn.id, held.epoch, extra) == 0
    await store.journal.recover(ME, session.id)
    assert await words(store, session.id) == ["hello", "hi"]


async def test_c04_a_journal_is_sealed_when_its_worker_says_that_nothing_more_comes(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, PART)
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await store.journal.seal(held.turn.id, held.epoch)
    assert await store.journal.deliver_late(held.turn.id, held.epoch, late(held, 9, PART)) == 0


@on_postgresql
async def test_c04_a_worker_that_registers_again_with_an_empty_spool_seals_what_it_wrote(
    store: Store, spooling: Store, store_url: str
) -> None:
    session = await new_session(store)
    await spooling.workers.register(WORKER)
    held = await start(spooling, session.id, "hello")
    await append(spooling, held, PART)
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await spooling.workers.register(WORKER)
    assert await store.journal.recover(ME, session.id)
    assert await store.journal.deliver_late(held.turn.id, held.epoch, late(held, 9, PART)) == 0
