"""What is PostgreSQL's own: gates, poolers, lost connections, lost commits, other processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import asyncpg
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.errors import (
    Fenced,
    NotADatabase,
    NotFound,
    OutcomeUnknown,
    StoreAway,
    StoreBroken,
    StoreRefused,
    StoreTooNew,
    WrongState,
)
from everturn.domain.fold import fold
from everturn.domain.probe import Moment, Probe
from everturn.domain.sessions import NewSession, SessionFilter, SessionPatch
from everturn.domain.store_values import Claim, Request, Submission
from everturn.domain.turns import MOVES, Failure
from everturn.store import Store, StoreSettings, open_store, sql
from everturn.store.journal.spool import Spool
from everturn.store.postgres import restore_postgres
from everturn.store.postgres.connection import refuse_unsafe
from everturn.store.postgres.copy import copy_out, verify_copy
from everturn.store.postgres.flusher import DELIVER_BYTES
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.sqlite.connection import SCHEMA, open_connection
from everturn.testing import FakeClock, HoldingProbe, within
from everturn.testing.postgres_proxy import PostgresProxy
from everturn.testing.postgres_server import PostgresServer
from tests.waiting import reader_waits, task_waits_in, watcher_waits

pytestmark = pytest.mark.anyio

OWNER = "local"
OpenStore = Callable[..., Awaitable[Store]]
READ_ONLY = """
CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction', MESSAGE = 'read-only'; END $$;
CREATE TRIGGER read_only BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()
"""
# Sequences are not rolled back: they count tries.
ONE_DEADLOCK = """
CREATE SEQUENCE tries;
CREATE FUNCTION lose_once() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('tries') = 1 THEN
    RAISE EXCEPTION USING ERRCODE = 'deadlock_detected', MESSAGE = 'deadlock detected';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER lose_once BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION lose_once()
"""
IDLE_IN_TRANSACTION = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"


@pytest.fixture
def store_kind() -> str:
    return "postgresql"


async def running(store: Store, worker: str = "wrk_a") -> Claim:
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="go"))
    await store.workers.register(worker)
    [claim] = await store.turns.claim(worker, session_id=session.id)
    return claim


def deltas(*words: str) -> list[ev.Payload]:
    return [ev.TextDelta(1, word) for word in words]


# --- the gate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        (130_000, "on", "on", "UTF8", False),
        (180_000, "off", "on", "UTF8", False),
        (180_000, "on", "off", "UTF8", False),
        (180_000, "on", "on", "SQL_ASCII", False),
        (180_000, "on", "on", "UTF8", True),
    ],
    ids=["old", "fsync", "full_page_writes", "encoding", "replica"],
)
def test_a_server_that_could_lose_something_is_refused(facts: tuple[int, str, str, str, bool]) -> None:
    with pytest.raises(StoreRefused):
        refuse_unsafe(*facts, address="here")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_running_server_with_its_durability_off_is_refused(setting: str, data_dir: Path) -> None:
    with PostgresServer(settings={setting: "off"}) as server:
        with pytest.raises(StoreRefused, match=f"{setting}=off"):
            async with open_store(server.address(), data_dir=data_dir):
                pass
        connection = await asyncpg.connect(server.address())
        assert await connection.fetchval("SELECT to_regclass('meta')") is None  # it was not touched
        await connection.close()


async def test_an_address_where_nothing_listens_is_away(data_dir: Path) -> None:
    with pytest.raises(StoreAway) as away:
        async with open_store("postgresql://unknown@127.0.0.1:1/nothing", data_dir=data_dir):
            pass
    assert "start Everturn again" in away.value.hint, "opening is not retried"


async def test_a_database_of_something_else_is_not_touched(
    postgres: PostgresServer, postgres_url: str, data_dir: Path
) -> None:
    connection = await asyncpg.connect(postgres.address())
    await connection.execute("CREATE DATABASE foreign_one")
    other = await asyncpg.connect(postgres.address("foreign_one"))
    try:
        await other.execute("CREATE TABLE messages (mine TEXT)")
        with pytest.raises(NotADatabase):
            async with open_store(postgres.address("foreign_one"), data_dir=data_dir):
                pass
        assert await other.fetchval("SELECT count(*) FROM pg_class WHERE relname = 'sessions'") == 0
    finally:
        await other.close()
        await connection.execute("DROP DATABASE foreign_one WITH (FORCE)")
        await connection.close()


async def test_a_newer_schema_is_refused_at_opening_and_inside_every_write(
    store: Store, store_url: str, data_dir: Path
) -> None:
    claim = await running(store)
    connection = await asyncpg.connect(store_url)
    await connection.execute("UPDATE meta SET value = '999' WHERE name LIKE 'schema%'")
    await connection.close()
    with pytest.raises(StoreTooNew):
        await store.sessions.create(OWNER)
    with pytest.raises(StoreTooNew):
        await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("a"))
    with pytest.raises(StoreTooNew):
        async with open_store(store_url, data_dir=data_dir):
            pass


async def test_a_migration_waits_for_the_writes_under_way(
    store: Store, store_url: str, probe: HoldingProbe
) -> None:
    """A write that checked the schema commits before the schema changes."""
    probe.hold(Moment.BATCH_WRITTEN)
    async with asyncio.TaskGroup() as group:
        write = group.create_task(store.sessions.create(OWNER))
        await probe.reached(Moment.BATCH_WRITTEN)
        connection = await asyncpg.connect(store_url)
        assert not await connection.fetchval("SELECT pg_try_advisory_xact_lock(6009011)")
        probe.release(Moment.BATCH_WRITTEN)
        await write
        assert await connection.fetchval("SELECT pg_try_advisory_xact_lock(6009011)")
        await connection.close()


async def test_processes_that_start_together_make_the_tables_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(postgres.address())
    await connection.execute("CREATE DATABASE empty_one")

    async def one(number: int) -> None:
        async with open_store(postgres.address("empty_one"), data_dir=tmp_path / str(number)) as store:
            await store.sessions.create(OWNER)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(one(number))
    finally:
        await connection.execute("DROP DATABASE empty_one WITH (FORCE)")
        await connection.close()


# --- the same tables -----------------------------------------------------------------------------------


# Derived for the search, or files of the data folder in SQLite's case.
POSTGRES_ONLY = {"message_words", "unindexed", "secrets", "secret_holders", "notes"}


async def test_both_stores_have_the_same_tables_and_columns(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(store_url)
    rows = await connection.fetch(
        "SELECT table_name::TEXT, column_name::TEXT FROM information_schema.columns "
        "WHERE table_schema = current_schema()"
    )
    await connection.close()
    here = {(table, column) for table, column in rows if table not in POSTGRES_ONLY}
    sqlite = open_connection(tmp_path / "other.db")
    for number in range(1, SCHEMA + 1):
        sqlite.execute(sql.schema(number, "sqlite"))
    there = {
        (table, column)
        for table, column in sqlite.execute(
            "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' "
            "AND m.name NOT LIKE '%~_index%' ESCAPE '~' AND m.name NOT LIKE 'sqlite_%'"
        )
    }
    sqlite.close()
    assert there - here == {("events", "seq")}  # PostgreSQL's heap is in arrival order by itself
    assert {pair for pair in here - there if pair[0] != "pack_bytes"} == {
        ("titles", "grams")  # SQLite's index makes the pieces itself; its packs are files
    }


async def test_the_schema_repeats_the_table_of_moves(store_url: str, store: Store) -> None:
    connection = await asyncpg.connect(store_url)
    rows = await connection.fetch("SELECT old, new FROM moves")
    await connection.close()
    assert {(old, new) for old, new in rows} == {(old, new) for old in MOVES for new in MOVES[old]}


async def test_a_move_that_is_not_in_the_table_is_refused(store: Store) -> None:
    claim = await running(store)
    await store.turns.cancel(OWNER, claim.turn.id)

    def revive(tx: Tx) -> Script[None]:
        [row] = yield q("turn_row", claim.turn.id)
        yield q("turn_wait", row[0])

    with pytest.raises(WrongState):
        await store.database.write(revive)


# --- behind a pooler -----------------------------------------------------------------------------------


async def test_a_session_lives_while_connections_are_swapped_after_every_transaction(
    postgres: PostgresServer, store_url: str, data_dir: Path
) -> None:
    async with PostgresProxy(postgres.port, swaps=True) as proxy:
        async with open_store(proxy.address(store_url), data_dir=data_dir) as store:
            claim = await running(store)
            for number in range(2, 12):
                await store.journal.append(claim.turn.id, claim.epoch, number, deltas(f"{number} "))
            folded = fold(claim.turn.id, await store.journal.of_turn(OWNER, claim.turn.id))
            await store.turns.complete(claim.turn.id, claim.epoch, 11, folded)
            await store.search.index()
            assert len(await store.search.find(OWNER, "go")) == 1
            await store.workers.heartbeat("wrk_a")
            await store.transcript.undo(OWNER, claim.session.id, Request(key="u"))
            await store.upkeep.backup(data_dir.parent / "backup")
            assert await store.upkeep.check() == []
        assert proxy.swapped >= 20


async def test_a_pooler_that_was_not_recognised_is_found_out_and_hurts_nothing(
    postgres: PostgresServer, store_url: str, data_dir: Path
) -> None:
    """Statements stay prepared unless a pooler swaps connections."""
    async with PostgresProxy(postgres.port, swaps=True) as proxy:
        proxy.is_swapping = False
        async with open_store(proxy.address(store_url), data_dir=data_dir) as store:
            claim = await running(store)
            await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("a"))
            proxy.is_swapping = True
            for number in range(3, 9):
                await store.journal.append(claim.turn.id, claim.epoch, number, deltas("b"))
                await store.sessions.change(OWNER, claim.session.id, SessionPatch(title=f"{number}"))
                assert (await store.sessions.get(OWNER, claim.session.id)).title == f"{number}"
            journal = await store.journal.of_turn(OWNER, claim.turn.id)
            assert [e.number for e in journal if e.kind == "text.delta"] == list(range(2, 9))


# --- lost connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored"])
async def test_a_batch_whose_commit_was_lost_is_sent_again_and_stored_once(
    spooling: Store, proxy: PostgresProxy, is_stored: bool
) -> None:
    claim = await running(spooling)
    lost = proxy.lose_commit(is_stored=is_stored)
    await spooling.journal.append(claim.turn.id, claim.epoch, 2, deltas("once"))
    assert lost.is_set()
    journal = await spooling.journal.of_turn(OWNER, claim.turn.id)
    assert [e.number for e in journal if e.kind == "text.delta"] == [2]
    assert not spooling.is_away


async def test_readers_see_a_batch_whose_commit_was_lost(spooling: Store, proxy: PostgresProxy) -> None:
    claim = await running(spooling)
    after = (await spooling.sessions.get(OWNER, claim.session.id)).position
    follower = spooling.journal.follow(OWNER, claim.session.id, after)
    proxy.lose_commit(is_stored=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(spooling.journal.append(claim.turn.id, claim.epoch, 2, deltas("seen")))
        with anyio.fail_after(60):
            batch = await anext(follower)
    assert [event.kind for event in batch] == ["text.delta"]
    await follower.aclose()


async def test_a_write_whose_answer_was_lost_is_looked_up(spooling: Store, proxy: PostgresProxy) -> None:
    """The server says that the transaction was committed, so the caller hears its result."""
    session = await spooling.sessions.create(OWNER)
    lost = proxy.lose_commit(is_stored=True)
    changed = await spooling.sessions.change(OWNER, session.id, SessionPatch(title="Kept"))
    assert lost.is_set()
    assert changed.title == "Kept"
    assert (await spooling.sessions.get(OWNER, session.id)).title == "Kept"


async def test_a_write_that_never_arrived_is_reported_as_not_stored(
    spooling: Store, proxy: PostgresProxy
) -> None:
    session = await spooling.sessions.create(OWNER)
    proxy.lose_commit(is_stored=False)
    with pytest.raises(StoreAway, match="undone"):
        await spooling.sessions.change(OWNER, session.id, SessionPatch(title="Lost"))
    assert (await spooling.sessions.get(OWNER, session.id)).title == ""


async def test_an_outcome_that_cannot_be_determined_is_reported_as_unknown(
    spooling: Store, proxy: PostgresProxy, store: Store
) -> None:
    session = await spooling.sessions.create(OWNER)
    lost = proxy.lose_commit(is_stored=True)
    async with asyncio.TaskGroup() as group:
        write = group.create_task(
            _outcome(spooling.sessions.change(OWNER, session.id, SessionPatch(title="?")))
        )
        await lost.wait()
        proxy.go_away()
        error = await write
    assert isinstance(error, OutcomeUnknown)
    assert (await store.sessions.get(OWNER, session.id)).title == "?"


async def _outcome(work: Awaitable[Any]) -> Exception | None:
    try:
        await work
    except Exception as error:
        return error
    return None


async def test_scripts_say_away_and_work_again_when_the_database_is_back(
    spooling: Store, proxy: PostgresProxy
) -> None:
    proxy.go_away()
    with pytest.raises(StoreAway):
        await spooling.sessions.create(OWNER)
    with pytest.raises(StoreAway):
        await spooling.sessions.list(OWNER)
    proxy.come_back()
    assert (await spooling.sessions.create(OWNER)).version == 1


async def test_an_append_without_a_worker_is_refused_while_the_database_is_away(
    spooling: Store, proxy: PostgresProxy, store: Store
) -> None:
    claim = await running(store)
    proxy.go_away()
    with pytest.raises(StoreAway):
        await spooling.journal.append(claim.turn.id, claim.epoch, 2, deltas("x"))
    proxy.come_back()


async def test_a_cancelled_caller_leaves_its_write_whole(store: Store, probe: HoldingProbe) -> None:
    probe.hold(Moment.BATCH_WRITTEN)
    write = asyncio.create_task(store.sessions.create(OWNER, NewSession(title="stays")))
    await probe.reached(Moment.BATCH_WRITTEN)
    write.cancel()
    await asyncio.gather(write, return_exceptions=True)
    assert write.cancelled()
    probe.release(Moment.BATCH_WRITTEN)
    with anyio.fail_after(60):
        while not (await store.sessions.list(OWNER)).items:
            await anyio.lowlevel.checkpoint()


async def test_a_reader_that_is_cancelled_anywhere_leaves_no_transaction_open(store: Store) -> None:
    """Cancelled as a task group cancels: again and again, at every await, until the task ends."""
    claim = await running(store)
    for rounds in range(60):
        async with anyio.create_task_group() as group:
            group.start_soon(store.turns.get, OWNER, claim.turn.id)
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await store.sessions.change(OWNER, claim.session.id, SessionPatch(title=f"{rounds}"))
        assert (await store.sessions.get(OWNER, claim.session.id)).title == f"{rounds}"


async def test_a_closed_store_refuses_and_leaves_no_connection(store_url: str, data_dir: Path) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        claim = await running(store)
    with pytest.raises(StoreBroken):
        await store.sessions.create(OWNER)
    with pytest.raises(StoreBroken):
        await store.sessions.get(OWNER, claim.session.id)
    with pytest.raises(StoreBroken):
        await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("x"))
    connection = await asyncpg.connect(store_url)
    with anyio.fail_after(60):
        while (
            await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            )
            > 1
        ):
            await anyio.lowlevel.checkpoint()
    await connection.close()


async def test_a_client_that_falls_silent_inside_a_transaction_loses_it_and_its_locks(
    store: Store, open_another: OpenStore, probe: HoldingProbe
) -> None:
    """The silent one held the session's lock; the other gets it before any lease runs out."""
    silent = await open_another(settings=StoreSettings(lease_s=0.5))
    session = await store.sessions.create(OWNER)
    probe.hold(Moment.BATCH_WRITTEN)
    async with asyncio.TaskGroup() as group:
        change = silent.sessions.change(OWNER, session.id, SessionPatch(title="slow"))
        slow = group.create_task(_outcome(change))
        await probe.reached(Moment.BATCH_WRITTEN)
        with anyio.fail_after(60):
            changed = await store.sessions.change(OWNER, session.id, SessionPatch(title="quick"))
        assert changed.title == "quick"
        probe.release(Moment.BATCH_WRITTEN)
        error = await slow
    assert isinstance(error, StoreAway)
    assert "undone" in error.message
    assert (await store.sessions.get(OWNER, session.id)).title == "quick"


async def test_a_batch_whose_transaction_the_server_has_ended_is_sent_again(
    open_another: OpenStore, store: Store, probe: HoldingProbe, postgres_url: str
) -> None:
    """Several times: the server's last words and the end of the connection come in either order."""
    silent = await open_another(settings=StoreSettings(lease_s=1.0))
    claim = await running(silent)
    watcher = await asyncpg.connect(postgres_url)
    for number in range(2, 7):
        probe.hold(Moment.BATCH_WRITTEN)
        async with asyncio.TaskGroup() as group:
            append = silent.journal.append(claim.turn.id, claim.epoch, number, deltas("once"))
            written = group.create_task(append)
            await probe.reached(Moment.BATCH_WRITTEN)
            with anyio.fail_after(60):
                while await watcher.fetchval(IDLE_IN_TRANSACTION):
                    await anyio.lowlevel.checkpoint()
            probe.release(Moment.BATCH_WRITTEN)
        assert written.result()
    await watcher.close()
    journal = await store.journal.of_turn(OWNER, claim.turn.id)
    assert [event.number for event in journal if event.kind == "text.delta"] == list(range(2, 7))


async def test_a_client_that_falls_silent_in_the_middle_of_a_statement_is_ended_by_who_takes_over(
    store: Store, open_another: OpenStore, store_url: str
) -> None:
    """It has sent a statement's text, and never sends its arguments: to the server it is not idle."""
    session = await store.sessions.create(OWNER)
    other = await open_another(settings=StoreSettings(lease_s=0.1))
    await other.workers.register("wrk_b")
    silent, slow = await asyncpg.connect(store_url), await asyncpg.connect(store_url)
    await silent.execute(f"BEGIN; SELECT everturn_begin({SCHEMA})")
    await silent.execute("SELECT 1 FROM sessions FOR UPDATE; SELECT 1 FROM tails FOR UPDATE")
    for connection in (silent, slow):
        await connection.prepare("SELECT 1")
    with anyio.fail_after(60):
        while not silent.is_closed():
            await other.workers.take_over("wrk_b")
    changed = await store.sessions.change(OWNER, session.id, SessionPatch(title="goes on"))
    assert changed.title == "goes on"
    assert await slow.fetchval("SELECT 1") == 1  # wrote nothing, blocks no other, and is left alone
    await slow.close()


async def test_a_store_opens_while_a_write_hangs(
    store: Store, open_another: OpenStore, probe: HoldingProbe
) -> None:
    probe.hold(Moment.BATCH_WRITTEN)
    async with asyncio.TaskGroup() as group:
        write = group.create_task(store.sessions.create(OWNER))
        await probe.reached(Moment.BATCH_WRITTEN)
        with anyio.fail_after(60):
            another = await open_another()
        assert await another.sessions.list(OWNER)
        probe.release(Moment.BATCH_WRITTEN)
        await write


async def test_a_batch_that_is_in_a_deadlock_is_sent_again(store: Store, postgres_url: str) -> None:
    """The server ends the first transaction as it ends the victim of a deadlock. Two transactions that lock
    each other out would not do: which of them the server chooses depends on how soon the other begins to
    wait."""
    claim = await running(store)
    admin = await asyncpg.connect(postgres_url)
    try:
        await admin.execute(ONE_DEADLOCK)
        position = await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("once"))
        assert await admin.fetchval("SELECT last_value FROM tries") == 2
    finally:
        await admin.close()
    journal = await store.journal.of_turn(OWNER, claim.turn.id)
    found = [(event.number, event.position) for event in journal if event.kind == "text.delta"]
    assert found == [(2, position)]


async def test_a_server_that_takes_no_writes_for_a_while_gets_the_events_later(
    spooling: Store, postgres_url: str
) -> None:
    """What a switch to another primary looks like from here."""
    claim = await running(spooling)
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(READ_ONLY)
    assert await spooling.journal.append(claim.turn.id, claim.epoch, 2, deltas("later")) == 0
    await admin.execute("DROP TRIGGER read_only ON events")
    await admin.close()
    with anyio.fail_after(60):
        await spooling.journal.wait_delivered(claim.turn.id, claim.epoch)
    journal = await spooling.journal.of_turn(OWNER, claim.turn.id)
    assert [event.number for event in journal if event.kind == "text.delta"] == [2]


async def test_asks_expire_although_the_session_of_one_is_being_deleted(
    store: Store, open_another: OpenStore, probe: HoldingProbe, clock: FakeClock, postgres_url: str
) -> None:
    """Expiry waits for the lock of a session that is gone when it gets it, then goes on with the others."""
    other = await open_another(probe=Probe())
    for name in ("ask_1", "ask_2"):
        claim = await running(store)
        ask = Ask(name, claim.session.id, claim.turn.id, AskTopic.QUESTION, 0, expires_at=clock.now_ms())
        await store.turns.wait(claim.turn.id, claim.epoch, claim.number + 1, [ask], [])
    doomed = (await store.asks.get(OWNER, "ask_1")).session_id
    watcher = await asyncpg.connect(postgres_url)
    probe.hold(Moment.BATCH_WRITTEN)
    async with asyncio.TaskGroup() as group:
        group.create_task(store.sessions.delete(OWNER, doomed))
        await probe.reached(Moment.BATCH_WRITTEN)
        expiry = group.create_task(other.asks.expire(clock.now_ms()))
        with anyio.fail_after(60):
            while not await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                assert not expiry.done()
        probe.release(Moment.BATCH_WRITTEN)
    await watcher.close()
    assert expiry.result() == 1
    assert (await store.asks.get(OWNER, "ask_2")).answer == "expired"


# --- several processes ---------------------------------------------------------------------------------


async def test_two_processes_creating_with_one_key_make_one_session(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    made = await asyncio.gather(
        *(one.sessions.create(OWNER, request=Request(key="same")) for one in (store, other) for _ in range(5))
    )
    assert len({session.id for session in made}) == 1


async def test_workers_claim_every_turn_once(store: Store, open_another: OpenStore) -> None:
    other = await open_another()
    for _ in range(20):
        session = await store.sessions.create(OWNER)
        await store.turns.accept(OWNER, session.id, Submission(text="go"))
    await store.workers.register("wrk_a")
    await other.workers.register("wrk_b")
    claimed: list[str] = []

    async def claim(one: Store, worker: str) -> None:
        while claims := await one.turns.claim(worker, limit=3):
            claimed.extend(claim.turn.id for claim in claims)

    await asyncio.gather(claim(store, "wrk_a"), claim(other, "wrk_b"))
    claimed += [c.turn.id for c in await store.turns.claim("wrk_a", limit=50)]
    assert len(claimed) == len(set(claimed)) == 20


async def test_concurrent_writers_of_many_sessions_never_lock_each_other_out(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    claims = [await running(store, "wrk_a") for _ in range(8)]

    async def stream(claim: Claim) -> None:
        for number in range(2, 22):
            await store.journal.append(claim.turn.id, claim.epoch, number, deltas("x"))

    async def rename(claim: Claim) -> None:
        for number in range(10):
            await other.sessions.change(OWNER, claim.session.id, SessionPatch(title=f"{number}"))

    await asyncio.gather(*(act(claim) for claim in claims for act in (stream, rename)))
    for claim in claims:
        events = await store.journal.after(OWNER, claim.session.id, 0)
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        assert sum(event.kind == "text.delta" for event in events) == 20
    assert await store.upkeep.check() == []


async def _first_batch(store: Store, session_id: str, after: int) -> list[str]:
    with anyio.fail_after(60):
        async for batch in store.journal.follow(OWNER, session_id, after):
            return [event.kind for event in batch]
    raise AssertionError("a stream has no end")


@pytest.mark.parametrize("is_listening", [False, True], ids=["polling", "listening"])
async def test_a_reader_sees_what_another_process_writes(
    open_another: OpenStore, store_url: str, is_listening: bool
) -> None:
    settings = StoreSettings(direct_url=store_url if is_listening else None)
    store, other = await open_another(settings=settings), await open_another(settings=settings)
    claim = await running(store)
    after = (await store.sessions.get(OWNER, claim.session.id)).position
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(_first_batch(other, claim.session.id, after))
        await reader_waits()
        await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("x"))
    assert reader.result() == ["text.delta"]


@pytest.mark.parametrize("is_listening", [False, True], ids=["polling", "listening"])
async def test_a_list_watcher_sees_what_another_process_changes(
    open_another: OpenStore, store_url: str, is_listening: bool
) -> None:
    settings = StoreSettings(direct_url=store_url if is_listening else None)
    store, other = await open_another(settings=settings), await open_another(settings=settings)
    session = await store.sessions.create(OWNER)
    changes = other.changes(OWNER)

    async def until_renamed() -> None:
        with anyio.fail_after(60):
            async for _ in changes:
                if (await other.sessions.get(OWNER, session.id)).title:
                    return

    async with asyncio.TaskGroup() as group:
        group.create_task(until_renamed())
        await watcher_waits()
        await store.sessions.change(OWNER, session.id, SessionPatch(title="New"))
    await changes.aclose()


async def test_a_turn_that_a_standby_never_knew_does_not_write_into_the_one_with_its_number(
    store: Store, store_url: str
) -> None:
    """The primary is lost with its last transactions, and its standby gives their numbers to others."""
    claim = await running(store)
    await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("mine"))
    other_id = "trn_" + "0" * 26
    connection = await asyncpg.connect(store_url)
    await connection.execute("UPDATE turns SET id = $1 WHERE id = $2", other_id, claim.turn.id)
    await connection.close()
    # In one batch with the turn that has its number now, in either order.
    for number in range(3, 7):
        ids = [claim.turn.id, other_id] if number % 2 else [other_id, claim.turn.id]
        appends = [store.journal.append(id_, claim.epoch, number, deltas(f"{id_} {number}")) for id_ in ids]
        outcomes = dict(zip(ids, await asyncio.gather(*appends, return_exceptions=True), strict=True))
        assert isinstance(outcomes[claim.turn.id], NotFound)
        assert isinstance(outcomes[other_id], int)
    told = [e.payload.text for e in await store.journal.of_turn(OWNER, other_id) if e.kind == "text.delta"]
    assert told == ["mine", *(f"{other_id} {number}" for number in range(3, 7))]


@pytest.mark.parametrize("fate", ["hand_over", "interrupt", "fail"])
async def test_a_turn_gets_no_fate_of_its_worker_before_what_it_spooled_is_delivered(
    store: Store, spooling: Store, proxy: PostgresProxy, fate: str
) -> None:
    """The database is back, and a fate that asks at once would be faster than the spool."""
    claim = await running(spooling)
    proxy.go_away()
    await spooling.journal.append(claim.turn.id, claim.epoch, 2, [ev.StepStarted(1, "m"), *deltas("spooled")])
    proxy.come_back()
    failure = () if fate == "hand_over" else (Failure("why", "Because."),)
    with within("the fate is taken"):
        while True:
            try:
                turn = await getattr(spooling.turns, fate)(claim.turn.id, claim.epoch, *failure)
                break
            except StoreAway:
                await anyio.lowlevel.checkpoint()
    told = [e.payload.text for e in await store.journal.of_turn(OWNER, turn.id) if e.kind == "text.delta"]
    assert told == ["spooled"]


async def test_a_spool_of_long_texts_is_delivered_in_pieces_that_a_slow_line_can_take(
    spooling: Store, proxy: PostgresProxy, probe: HoldingProbe
) -> None:
    """In one piece each try would take too long, and the next one would begin with it again."""
    claim = await running(spooling)
    proxy.go_away()
    for number in range(2, 5):
        await spooling.journal.append(claim.turn.id, claim.epoch, number, deltas("x" * (DELIVER_BYTES - 100)))
    before = probe.passings(Moment.BATCH_WRITTEN)
    proxy.come_back()
    with within("the spool is delivered"):
        await spooling.journal.wait_delivered(claim.turn.id, claim.epoch)
    assert probe.passings(Moment.BATCH_WRITTEN) - before == 3
    assert [event.number for event in await spooling.journal.of_turn(OWNER, claim.turn.id)][-3:] == [2, 3, 4]


async def test_what_comes_too_late_is_delivered_in_such_pieces_too(
    store: Store, spooling: Store, proxy: PostgresProxy, probe: HoldingProbe
) -> None:
    """Another process has cancelled the turn while its worker was cut off."""
    claim = await running(spooling)
    proxy.go_away()
    for number in range(2, 5):
        await spooling.journal.append(claim.turn.id, claim.epoch, number, deltas("x" * (DELIVER_BYTES - 100)))
    await store.turns.cancel(OWNER, claim.turn.id)
    before = probe.passings(Moment.BATCH_WRITTEN)
    proxy.come_back()
    with within("the spool is delivered"), pytest.raises(Fenced):
        await spooling.journal.wait_delivered(claim.turn.id, claim.epoch)
    # Three that are found fenced, one by one, then three beside the journal.
    assert probe.passings(Moment.BATCH_WRITTEN) - before == 6
    late = [e.number for e in await store.journal.of_turn(OWNER, claim.turn.id) if e.kind == "text.delta"]
    assert late == [2, 3, 4]


async def test_waiters_for_the_spool_learn_that_the_flusher_broke(
    spooling: Store, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = await running(spooling)
    flusher = spooling.database.flusher  # type: ignore[attr-defined]  # only PostgreSQL has one
    proxy.go_away()
    await spooling.journal.append(claim.turn.id, claim.epoch, 2, deltas("spooled"))

    def unreadable(spool: Spool) -> None:
        raise OSError("the spool cannot be read")

    monkeypatch.setattr(Spool, "read", unreadable)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(heard(spooling.journal.wait_delivered(claim.turn.id, claim.epoch)))
        await task_waits_in(flusher.wait_delivered)
        proxy.come_back()
    assert "the spool cannot be read" in waiting.result()
    with pytest.raises(StoreBroken):
        await spooling.journal.append(claim.turn.id, claim.epoch, 3, deltas("more"))
    # Nor does the turn get its end from here: that would seal its journal before what was spooled.
    with pytest.raises(StoreAway):
        await spooling.turns.interrupt(claim.turn.id, claim.epoch, Failure("why", "Because."))


async def heard(waiting: Awaitable[None]) -> str:
    """The message of the error that the waiting caller gets."""
    with anyio.fail_after(60), pytest.raises(StoreBroken) as told:
        await waiting
    return told.value.message


# --- search --------------------------------------------------------------------------------------------


async def test_a_message_that_commits_after_a_later_one_was_indexed_is_found(
    store: Store, open_another: OpenStore, probe: HoldingProbe
) -> None:
    """Numbers are given before their transactions commit: a watermark would pass the slower one by."""
    other = await open_another()
    first, second = await store.sessions.create(OWNER), await store.sessions.create(OWNER)
    probe.hold(Moment.ACCEPT_WRITTEN)
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(store.turns.accept(OWNER, first.id, Submission(text="tortoise")))
        await probe.reached(Moment.ACCEPT_WRITTEN)
        await other.turns.accept(OWNER, second.id, Submission(text="hare"))
        assert await other.search.index() == 1
        probe.release(Moment.ACCEPT_WRITTEN)
        await slow
    assert await other.search.index() == 1
    assert len(await store.search.find(OWNER, "tortoise")) == 1


async def test_a_huge_message_is_indexed_within_the_bounds(store: Store) -> None:
    session = await store.sessions.create(OWNER)
    text = " ".join(f"word{number}" for number in range(90_000))
    await store.turns.accept(OWNER, session.id, Submission(text=text))
    assert await store.search.index() == 1
    assert len(await store.search.find(OWNER, "word49999")) == 1


async def test_a_missing_index_is_found_and_rebuilt(store: Store, store_url: str) -> None:
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="needle"))
    await store.search.index()
    connection = await asyncpg.connect(store_url)
    await connection.execute("DROP INDEX message_words_index")
    await connection.execute("DELETE FROM message_words")
    await connection.close()
    assert {finding.what for finding in await store.upkeep.check()} == {"search index broken"}
    repaired = await store.upkeep.repair()
    assert all(finding.is_repaired for finding in repaired)
    assert len(await store.search.find(OWNER, "needle")) == 1


# --- copies --------------------------------------------------------------------------------------------


async def test_a_backup_restores_into_an_empty_database(
    store: Store, postgres: PostgresServer, tmp_path: Path
) -> None:
    claim = await running(store)
    await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("naïve\u2028", "x" * 3000))
    backup = await store.upkeep.backup(tmp_path / "backup")
    with postgres.database() as address:
        await restore_postgres(address, backup)
        async with open_store(address, data_dir=tmp_path / "restored") as restored:
            events = await store.journal.after(OWNER, claim.session.id, 0)
            assert await restored.journal.after(OWNER, claim.session.id, 0) == events
            assert await restored.sessions.get(OWNER, claim.session.id) == await store.sessions.get(
                OWNER, claim.session.id
            )
            assert await restored.search.index() == 1
            assert len(await restored.search.find(OWNER, "go")) == 1
            await restored.sessions.create(OWNER)  # numbers go on after the restored ones
            assert await restored.upkeep.check() == []
        with pytest.raises(NotADatabase):
            await restore_postgres(address, backup)


async def test_a_backup_of_an_older_schema_restores_into_a_database_without_tables(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with postgres.database() as address:
        connection = await asyncpg.connect(address)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        for number in (1, 2, 3):
            await connection.execute(sql.schema(number, "postgresql"))
        await connection.execute(
            "INSERT INTO sessions (id, owner, key, version, created_at, title, is_title_given, pinned, archived, "
            "private, tags, is_unread) VALUES ($1, $2, '', 1, 1, 'From long ago', 1, 0, 0, 0, '[]', 0)",
            "ses_old",
            OWNER,
        )
        await connection.execute("INSERT INTO tails SELECT session_no, owner, 0, 0, 1 FROM sessions")
        await copy_out(connection, tmp_path)
        await connection.close()
    with postgres.database() as address:
        with pytest.raises(NotADatabase, match="tables of schema"):
            await restore_postgres(address, tmp_path)
        connection = await asyncpg.connect(address)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        await restore_postgres(address, tmp_path)
        async with open_store(address, data_dir=tmp_path / "restored") as restored:
            listed = await restored.sessions.list(OWNER, SessionFilter(query="long ago"))
            assert [found.id for found in listed.items] == ["ses_old"]
            assert await restored.upkeep.check() == []


async def test_what_takes_longer_the_more_data_there_is_is_not_held_to_a_commands_time(
    store: Store, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup, its restoration, a migration and a repair: each would fail for good once there is enough."""
    asked: list[tuple[str, float]] = []

    def noted(name: str) -> None:
        act = getattr(asyncpg.Connection, name)

        async def call(self: asyncpg.Connection, text: str, *args: Any, **more: Any) -> Any:
            asked.append((f"{name} {text}", more.get("timeout") or 0.0))
            return await act(self, text, *args, **more)

        monkeypatch.setattr(asyncpg.Connection, name, call)

    for name in ("copy_from_table", "copy_to_table", "execute", "fetch"):
        noted(name)
    await running(store)
    backup = await store.upkeep.backup(tmp_path / "backup")
    with postgres.database() as address:
        connection = await asyncpg.connect(address)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        await restore_postgres(address, backup)
    await store.upkeep.repair()
    copies, indexes = (
        ("copy_from_table events", "copy_to_table events"),
        ("CREATE INDEX message_words_index ",),
    )
    for part in (*copies, "CREATE TABLE events", *indexes):
        found = [timeout for text, timeout in asked if part in text]
        assert found, part
        assert min(found) >= 3600, part


async def test_a_damaged_backup_is_refused(store: Store, tmp_path: Path) -> None:
    await store.sessions.create(OWNER)
    backup = await store.upkeep.backup(tmp_path / "backup")
    path = backup / "postgresql" / "sessions.rows"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="did not verify"):
        verify_copy(backup)


async def test_a_fenced_worker_learns_it_from_its_next_append(store: Store, open_another: OpenStore) -> None:
    claim = await running(store)
    other = await open_another()
    await other.turns.cancel(OWNER, claim.turn.id)
    with pytest.raises(Fenced):
        await store.journal.append(claim.turn.id, claim.epoch, 2, deltas("x"))


# --- search ----------------------------------------------------------------------------------------------


async def test_a_rare_word_is_found_by_the_index_and_not_by_reading_every_message(
    store: Store, postgres_url: str
) -> None:
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="go"))
    connection = await asyncpg.connect(postgres_url)
    try:
        # The needles are the oldest: a search from the newest on passes all the others first.
        await connection.execute(
            "INSERT INTO messages (owner, session_no, turn_no, ordinal, role, flags, model, created_at, text) "
            "SELECT 'local', 1, 1, n, 'assistant', 0, '', 0, "
            "CASE WHEN n <= 30 THEN 'needle' ELSE 'hay' END FROM generate_series(1, 20000) n"
        )
        await connection.execute(
            "WITH gone AS (DELETE FROM unindexed RETURNING message_no) "
            "INSERT INTO message_words SELECT m.message_no, m.session_no, m.owner, array_to_tsvector(ARRAY[m.text]) "
            "FROM gone JOIN messages m USING (message_no)"
        )
        await connection.execute("ANALYZE message_words")
        assert len(await store.search.find(OWNER, "needle")) == 20
        query = sql.queries("postgresql")["search_newest"]
        [[plan]] = await connection.fetch(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", "'needle':*", OWNER, 20, "", "", 0, 0, "", ""
        )
    finally:
        await connection.close()
    assert _rows_passed_by(json.loads(plan)[0]["Plan"]) < 1_000


def _rows_passed_by(plan: dict[str, Any]) -> int:
    below = sum(_rows_passed_by(part) for part in plan.get("Plans", ()))
    return below + int(plan.get("Rows Removed by Filter", 0))
