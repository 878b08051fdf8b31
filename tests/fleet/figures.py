"""What limits a fleet on one PostgreSQL: ``python -m tests.fleet.figures [--quick] [--memory]``.

Durable events/s by the number of worker processes, which share the processors with the database; and what
turns leave behind: bytes of WAL, of the journal, and of each table after pruning.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import asyncpg

from everturn.domain import events as ev
from everturn.domain.fold import fold
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Claim, Request, Submission
from everturn.domain.turns import FinishReason
from everturn.speed.figures import Report
from everturn.speed.store import DELTA, OWNER
from everturn.store import Store, StoreSettings, open_store
from everturn.testing.postgres_server import PostgresServer
from tests.postgres import make_tables

_TURNS = 120  # at once, shared by the workers
_TURNS_PER_SESSION = 10
_WORDS = 40  # of an answer, each its own event, as when a model streams slower than the store commits
_TURNS_AT_ONCE = 50


# --- events/s by workers --------------------------------------------------------------------------------


async def work(address: str, turns: int, outstanding: int, seconds: float) -> None:
    """One worker: prints ``ready``, waits for a line, then prints how many events it made durable."""
    with tempfile.TemporaryDirectory() as folder:
        settings = StoreSettings(direct_url=address)
        async with open_store(address, data_dir=folder, settings=settings) as store:
            worker = store.database.ids.worker()
            await store.workers.register(worker)
            held = [await _claimed(store, worker) for _ in range(turns)]
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            until = time.monotonic() + seconds
            counts = await asyncio.gather(*(_append(store, one, outstanding, until) for one in held))
            print(sum(counts), flush=True)


async def _claimed(store: Store, worker: str) -> Claim:
    session = await store.sessions.create(OWNER)
    await store.turns.accept(OWNER, session.id, Submission(text="go"))
    [held] = await store.turns.claim(worker, session_id=session.id)
    return held


async def _append(store: Store, held: Claim, outstanding: int, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        await store.journal.append(held.turn.id, held.epoch, held.number + 1 + count, [DELTA] * outstanding)
        count += outstanding
    return count


def rate(server: PostgresServer, workers: int, outstanding: int, seconds: float) -> float:
    with server.database() as address:
        command = [sys.executable, "-m", "tests.fleet.figures", "--worker", address]
        more = [str(_TURNS // workers), str(outstanding), str(seconds)]
        children = [
            subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(workers)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "ready"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        return sum(int(child.communicate()[0]) for child in children) / seconds


def rates(report: Report, given: argparse.Namespace) -> None:
    seconds = 0.5 if given.quick else 10.0
    with PostgresServer(in_memory=given.memory) as server:
        server.make_template(make_tables)
        for outstanding in (16, 1):
            for workers in (1,) if given.quick else (1, 2, 3):
                name = f"durable events/s, {_TURNS} turns, {outstanding} outstanding, {workers} worker(s)"
                report.say(name, rate(server, workers, outstanding, seconds), "1/s")


# --- what turns leave behind ----------------------------------------------------------------------------


async def growth(report: Report, server: PostgresServer, turns: int) -> None:
    with server.database() as address, tempfile.TemporaryDirectory() as folder:
        connection = await asyncpg.connect(address)
        async with open_store(address, data_dir=folder) as store:
            await store.workers.register("wrk_bench")
            before = await _sizes(connection)
            wal = await connection.fetchval("SELECT pg_current_wal_lsn()")
            limit = asyncio.Semaphore(_TURNS_AT_ONCE)
            sessions = turns // _TURNS_PER_SESSION
            await asyncio.gather(*(_talk(store, limit, nth) for nth in range(sessions)))
            written = await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", wal)
            while await store.search.index(limit=2_000):
                pass
            full = await _sizes(connection)
            while await store.upkeep.prune(older_than_ms=-60_000):
                pass
            left = await _sizes(connection)
        await connection.close()
    report.say(f"WAL, per turn of {_WORDS} words (of {turns:,} turns)", float(written) / turns, "bytes")
    journal = full["events"] - before["events"]
    report.say("journal, per turn, until it is pruned", journal / turns, "bytes")
    report.say("  scaled to a million turns", journal / turns / 1000, "GB")
    total = 0
    for table in sorted(left, key=lambda name: before[name] - left[name]):
        grown = left[table] - before[table]
        total += grown
        if grown > 0:
            report.say(f"  {table}, per turn, after pruning", grown / turns, "bytes")
    report.say("all tables with their indexes, per turn, after pruning", total / turns, "bytes")
    report.say("  scaled to a million turns", total / turns / 1000, "GB")


async def _sizes(connection: asyncpg.Connection) -> dict[str, int]:
    """Bytes of each table with its indexes, without dead rows."""
    await connection.execute("VACUUM FULL", timeout=3600)
    rows = await connection.fetch(
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    return {row[0]: row[1] for row in rows}


async def _talk(store: Store, limit: asyncio.Semaphore, nth: int) -> None:
    """A session of ten turns, with what the page sends: keys of requests, a title."""
    async with limit:
        session = await store.sessions.create(
            OWNER,
            NewSession(title=f"About the rivers of the north, {nth}"),
            request=Request(key=f"make-{nth}"),
        )
        for index in range(_TURNS_PER_SESSION):
            submission = Submission(
                text="What do you know about the rivers that flow to the north, and why?",
                key=f"01hzy{nth:012}{index:03}",
            )
            await store.turns.accept(OWNER, session.id, submission)
            [held] = await store.turns.claim("wrk_bench", session_id=session.id)
            await _answer(store, held)


async def _answer(store: Store, held: Claim) -> None:
    number = held.number
    words: list[ev.Payload] = [ev.TextDelta(1, "northern ") for _ in range(_WORDS)]
    steps: Sequence[ev.Payload] = [
        ev.StepStarted(1, "openai:gpt-x"),
        *words,
        ev.StepFinished(1, FinishReason.STOP),
    ]
    for payload in steps:
        number += 1
        await store.journal.append(held.turn.id, held.epoch, number, [payload])
    journal = await store.journal.of_turn(OWNER, held.turn.id)
    folded = fold(held.turn.id, journal, is_ended=True)
    await store.turns.complete(held.turn.id, held.epoch, number, folded, provider="notes", handle="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, for CI")
    parser.add_argument("--memory", action="store_true", help="on a memory file system: without the disk")
    parser.add_argument("--sizes", action="store_true", help="only what turns leave behind")
    parser.add_argument("--worker", nargs=4, metavar=("ADDRESS", "TURNS", "OUTSTANDING", "SECONDS"))
    given = parser.parse_args()
    if given.worker:
        address, turns, outstanding, seconds = given.worker
        asyncio.run(work(address, int(turns), int(outstanding), float(seconds)))
        return
    report = Report("A fleet on one PostgreSQL" + (" (short)" if given.quick else ""))
    if not given.sizes:
        rates(report, given)
    with PostgresServer() as server:  # in memory: bytes do not depend on the disk
        server.make_template(make_tables)
        asyncio.run(growth(report, server, 20 if given.quick else 1_000))
    report.close()


if __name__ == "__main__":
    main()
