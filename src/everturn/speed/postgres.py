"""The store's figures on PostgreSQL: ``python -m everturn.speed.postgres [--quick] [--memory]``.

The benchmark starts a server on a real disk, with durable settings, which shares the
same cores. The raw baseline is PostgreSQL itself: the same rows of the same tables, as many per commit, one
connection.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from everturn.domain import events as ev
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Claim, SearchOrder, Submission
from everturn.speed.figures import Report, median, percentile
from everturn.speed.store import DELTA, OWNER, TURNS, append_all, claims, session_of, text
from everturn.store import Store, open_store, sql
from everturn.store.postgres import PostgresDatabase
from everturn.store.scripts.rows import crc_of
from everturn.testing.postgres_server import PostgresServer

WORKER = "wrk_bench"


@asynccontextmanager
async def fresh(server: PostgresServer) -> AsyncIterator[tuple[Store, str]]:
    with server.database() as address, tempfile.TemporaryDirectory() as folder:
        async with open_store(address, data_dir=folder) as store:
            await store.workers.register(WORKER)
            yield store, address


def flushes(store: Store) -> int:
    database = store.database
    assert isinstance(database, PostgresDatabase)
    return database.flusher.batches


async def throughput(report: Report, server: PostgresServer, events: int) -> None:
    for outstanding in (16, 1):
        async with fresh(server) as (store, address):
            held = await claims(store, TURNS)
            before = flushes(store)
            seconds = await append_all(store, held, events, outstanding)
            rate = TURNS * events / seconds
            per_commit = TURNS * events / max(1, flushes(store) - before)
            raw = await raw_rate(address, TURNS * events, round(per_commit))
        name = f"durable events/s, 100 turns, {outstanding} outstanding"
        report.at_least(name, rate, "1/s", 10_000, floor=raw)
        report.say("  events per commit", per_commit, "")
        name = f"  of raw PostgreSQL, same rows per commit, {outstanding} outstanding"
        report.at_least(name, rate / raw, "x", 0.6)


_RAW = """
WITH moved AS (
  UPDATE tails SET position = v.position FROM unnest($1::BIGINT[], $2::BIGINT[]) AS v (no, position)
  WHERE tails.session_no = v.no
), numbered AS (
  UPDATE writers SET number = v.number FROM unnest($1::BIGINT[], $2::BIGINT[]) AS v (no, number)
  WHERE writers.turn_no = v.no AND writers.epoch = 1
)
INSERT INTO events (session_no, position, turn_no, epoch, number, owner, is_late, at, crc, data)
SELECT v.no, v.position, v.no, 1, v.position, 'local', 0, 0, v.crc, v.data
FROM unnest($3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BYTEA[]) AS v (no, position, crc, data)
"""


async def raw_rate(address: str, total: int, batch: int) -> float:
    """One connection that writes the same rows, as many per commit: events of all turns, and for each turn
    its session's position and its writer's number."""
    connection = await asyncpg.connect(address)
    data = ev.encode(DELTA)
    first = 1_000_000
    started = time.perf_counter()
    for start in range(first, first + total, batch):
        turns = [start + index for index in range(batch)]
        numbers = [place % TURNS + 1 for place in turns]
        places = [place // TURNS + first for place in turns]
        last = dict(zip(numbers, places, strict=True))
        async with connection.transaction():
            await connection.execute(
                _RAW,
                list(last),
                list(last.values()),
                numbers,
                places,
                [crc_of(data) for _ in turns],
                [data] * batch,
            )
    seconds = time.perf_counter() - started
    await connection.close()
    return total / seconds


async def latency(report: Report, server: PostgresServer, seconds: float) -> None:
    """Hand-over to durable: 100 turns, 50 tokens/s each."""
    async with fresh(server) as (store, _):
        held = await claims(store, TURNS)
        taken: list[float] = []

        async def produce(claim: Claim, offset: float) -> None:
            begin = time.perf_counter() + offset
            for index in range(int(50 * seconds)):
                await asyncio.sleep(max(0.0, begin + index / 50 - time.perf_counter()))
                handed = time.perf_counter()
                await store.journal.append(claim.turn.id, claim.epoch, claim.number + 1 + index, [DELTA])
                taken.append(time.perf_counter() - handed)

        await asyncio.gather(*(produce(claim, index / TURNS / 50) for index, claim in enumerate(held)))
    report.say("hand-over to durable, 100 turns x 50/s, p50", percentile(taken, 0.5) * 1000, "ms")
    report.say("hand-over to durable, 100 turns x 50/s, p99", percentile(taken, 0.99) * 1000, "ms")


async def length_cost(report: Report, server: PostgresServer, long_turns: int) -> None:
    rng = random.Random(1)
    async with fresh(server) as (store, _):
        short, long = await session_of(store, 5, rng), await session_of(store, long_turns, rng)
        held = {}
        for session_id in (short, long):
            await store.turns.accept(OWNER, session_id, Submission(text="go"))
            [held[session_id]] = await store.turns.claim(WORKER, session_id=session_id)
        times: dict[str, list[float]] = {short: [], long: []}
        for index in range(300):
            for session_id in (short, long) if index % 2 else (long, short):
                claim = held[session_id]
                started = time.perf_counter()
                await store.journal.append(claim.turn.id, claim.epoch, 2 + index, [DELTA])
                times[session_id].append(time.perf_counter() - started)
        label = f"{long_turns * 2:,}-message session"
        report.at_most(
            f"one more event, {label} ÷ 10-message, time",
            median(times[long]) / median(times[short]),
            "x",
            1.2,
        )
        taken = await time_ms(lambda: store.transcript.messages(OWNER, long, limit=50))
        report.say(f"open a {label} (last page), p50", taken, "ms")


async def time_ms(act) -> float:  # type: ignore[no-untyped-def]  # any async function
    taken = []
    for _ in range(30):
        started = time.perf_counter()
        await act()
        taken.append(time.perf_counter() - started)
    return median(taken) * 1000


async def lists(report: Report, server: PostgresServer, sessions: int) -> None:
    async with fresh(server) as (store, _):
        for index in range(0, sessions, 100):
            await asyncio.gather(
                *(store.sessions.create(OWNER, NewSession(title=f"S {index + i}")) for i in range(100))
            )
        taken = await time_ms(lambda: store.sessions.list(OWNER, limit=50))
        report.at_most(f"session list, {sessions:,} sessions, first page, p50", taken, "ms", 5)


async def measure_search(report: Report, server: PostgresServer, messages: int) -> None:
    rng = random.Random(2)
    async with fresh(server) as (store, address):
        session = await store.sessions.create(OWNER)
        await store.turns.accept(OWNER, session.id, Submission(text="go"))
        connection = await asyncpg.connect(address)
        said = [text(rng, 26) + (" needle" if index % 997 == 0 else "") for index in range(messages)]
        await connection.execute(
            "INSERT INTO messages "
            "(owner, session_no, turn_no, ordinal, role, flags, model, created_at, text) "
            "SELECT 'local', 1, 1, v.nth, 'assistant', 0, '', 0, v.text "
            "FROM unnest($1::TEXT[]) WITH ORDINALITY AS v (text, nth)",
            said,
        )
        await connection.close()
        started = time.perf_counter()
        while await store.search.index(limit=5000):
            pass
        report.say("messages indexed per second", messages / (time.perf_counter() - started), "1/s")
        for label, order, query, limit in (
            ("common word, newest first", SearchOrder.NEWEST, "river", 5.0),
            ("rare word, newest first", SearchOrder.NEWEST, "needle", 5.0),
            ("common word, by relevance", SearchOrder.RELEVANCE, "river", 150.0),
            ("prefix", SearchOrder.NEWEST, "riv", 50.0),
        ):
            assert await store.search.find(OWNER, query, order=order)
            taken = await time_ms(lambda o=order, q=query: store.search.find(OWNER, q, order=o))
            report.at_most(f"search {messages:,} messages, {label}, p50", taken, "ms", limit)


async def recovery(report: Report, server: PostgresServer, turns: int) -> None:
    """All turns of a dead worker have a stated fate: released, then claimed by another."""
    with server.database() as address, tempfile.TemporaryDirectory() as folder:
        async with open_store(address, data_dir=folder) as store:
            await store.workers.register(WORKER)
            held = await claims(store, turns)
            payloads = [ev.StepStarted(1, "m"), *[DELTA] * 20]
            await asyncio.gather(*(store.journal.append(c.turn.id, c.epoch, 2, payloads) for c in held))
            store.workers.close()  # what a kill -9 does to its lock
        started = time.perf_counter()
        async with open_store(address, data_dir=folder) as store:
            await store.workers.register("wrk_next")
            released = await store.workers.take_over("wrk_next")
            stated = time.perf_counter() - started
            again = await store.turns.claim("wrk_next", limit=turns)
            seconds = time.perf_counter() - started
            assert released == len(again) == turns
    report.at_most(f"{turns:,} turns of a dead worker: opened, all with a stated fate", stated, "s", 3)
    report.say(f"{turns:,} turns of a dead worker: all claimed again", seconds, "s")


async def make_tables(address: str) -> None:
    connection = await asyncpg.connect(address)
    await connection.execute(sql.schema(1, "postgresql"))
    await connection.close()


async def run(arguments: argparse.Namespace, server: PostgresServer) -> int:
    scale = 50 if arguments.quick else 1
    report = Report("Store on PostgreSQL" + (" (short)" if arguments.quick else ""))
    await throughput(report, server, 1_000 // scale)
    await latency(report, server, 0.5 if arguments.quick else 5)
    await length_cost(report, server, 1_000 // scale)
    await lists(report, server, 10_000 // scale)
    await measure_search(report, server, 100_000 // scale)
    await recovery(report, server, 1_000 // scale)
    return report.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the work, for CI")
    parser.add_argument("--memory", action="store_true", help="on a memory file system: without the disk")
    arguments = parser.parse_args()
    with PostgresServer(in_memory=arguments.memory) as server:
        server.make_template(make_tables)
        asyncio.run(run(arguments, server))
    sys.exit(0)


if __name__ == "__main__":
    main()
