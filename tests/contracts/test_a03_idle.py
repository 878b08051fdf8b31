"""A03: where nothing happens, nothing is written."""

from __future__ import annotations

import asyncpg
import pytest

from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answered, append, ask, new_session, start, wish
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def count_writes(url: str) -> None:
    """PostgreSQL: let the first word of every write transaction count. The server's own numbers of
    transactions do not tell: its vacuum takes some too."""
    connection = await asyncpg.connect(url)
    try:
        body = await connection.fetchval("SELECT pg_get_functiondef('everturn_begin'::REGPROC)")
        counting = body.replace("\nBEGIN\n", "\nBEGIN\n  PERFORM nextval('writes');\n")
        assert counting != body
        await connection.execute(f"CREATE SEQUENCE writes; {counting}")
    finally:
        await connection.close()


async def writes_so_far(store: Store, url: str) -> int:
    if store.kind == "sqlite":
        return int(store.database.writer.batches)
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT last_value FROM writes"))
    finally:
        await connection.close()


async def test_a03_looking_for_work_writes_nothing_when_there_is_none(
    store: Store, store_url: str, open_another: OpenAnother, clock: FakeClock
) -> None:
    other = await open_another()
    if store.kind == "postgresql":
        await count_writes(store_url)
    await store.workers.register("wrk_one")
    await other.workers.register("wrk_two")
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    running = await start(store, session.id, "b")
    waits = await new_session(store)
    held = await start(store, waits.id, "c")
    number = await append(store, held, wish(is_started=False))
    await store.turns.wait(held.turn.id, held.epoch, number + 1, [ask("ask_1", held.turn.id, waits.id)], [])
    while await store.search.index():
        pass
    before = await writes_so_far(store, store_url)
    assert before > 5
    for _ in range(20):
        await clock.advance(60)
        assert await store.turns.claim("wrk_one", limit=10) == []
        assert await store.workers.take_over("wrk_one") == 0
        assert await store.search.index() == 0
        assert await store.files.sweep() == 0
        assert await store.asks.expire(clock.now_ms()) == 0
        assert await store.upkeep.prune(older_than_ms=10**12) == 0
        assert not await store.journal.recover(ME, session.id)
        assert await store.turns.take_steering(running.turn.id, running.epoch, running.number + 1) == []
        assert await store.turns.find_lost([(running.turn.id, running.epoch)]) == []
        await store.sessions.list(ME)
        await store.transcript.messages(ME, session.id)
    assert await writes_so_far(store, store_url) == before
