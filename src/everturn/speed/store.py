"""The store's figures on SQLite: ``python -m everturn.speed.store [--quick] [--fsync-ms 5]``.

Every ratio compares with the raw baseline of the same run: SQLite itself, with the same tables, the same
statements and the same batches, without our writer around it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw

from everturn.domain import events as ev
from everturn.domain.fold import Fold
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Claim, SearchOrder, Submission
from everturn.domain.turns import FinishReason
from everturn.speed.figures import Report, median, percentile
from everturn.store import Store, open_store
from everturn.store.files.disk import Disk
from everturn.store.scripts.rows import crc_of
from everturn.store.sqlite import SqliteDatabase

OWNER = "local"
TURNS = 100
DELTA = ev.TextDelta(1, "x" * 164)  # 200 bytes as stored
WORDS = [
    "river",
    "stone",
    "light",
    "engine",
    "paper",
    "window",
    "garden",
    "signal",
    "copper",
    "morning",
    "winter",
    "harbour",
    "little",
    "question",
    "answer",
    "backup",
    "server",
    "kernel",
    "packet",
    "socket",
    "thread",
    "memory",
    "journal",
    "cursor",
    "vector",
]


class SlowSyncFile(apsw.VFSFile):
    delay_s = 0.0

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        time.sleep(self.delay_s)
        super().xSync(flags)


class SlowSync(apsw.VFS):
    """A disk whose sync takes a given time: real disks need 1-10 ms."""

    def __init__(self, delay_ms: float) -> None:
        SlowSyncFile.delay_s = delay_ms / 1000
        super().__init__(name="slow-sync", base="")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return SlowSyncFile("", name, flags)


@asynccontextmanager
async def fresh(base: Path, vfs: str | None = None) -> AsyncIterator[Store]:
    folder = Path(tempfile.mkdtemp(dir=base))
    async with open_store(data_dir=folder, disk=Disk(vfs)) as store:
        await store.workers.register("wrk_bench")
        yield store
    shutil.rmtree(folder)


async def claims(store: Store, count: int) -> list[Claim]:
    for _ in range(count):
        session = await store.sessions.create(OWNER)
        await store.turns.accept(OWNER, session.id, Submission(text="go"))
    return await store.turns.claim("wrk_bench", limit=count)


async def append_all(store: Store, held: list[Claim], events: int, outstanding: int) -> float:
    """Seconds to make ``events`` per turn durable, each turn with at most this many outstanding."""

    async def one(claim: Claim) -> None:
        number = claim.number + 1
        left = events
        while left:
            count = min(outstanding, left)
            await store.journal.append(claim.turn.id, claim.epoch, number, [DELTA] * count)
            number += count
            left -= count

    started = time.perf_counter()
    await asyncio.gather(*(one(claim) for claim in held))
    return time.perf_counter() - started


async def throughput(report: Report, base: Path, events: int, vfs: str | None) -> None:
    rates = {}
    sizes = {}
    for outstanding in (16, 1):
        async with fresh(base, vfs) as store:
            held = await claims(store, TURNS)
            database = store.database
            assert isinstance(database, SqliteDatabase)
            before = database.writer.batches
            seconds = await append_all(store, held, events, outstanding)
            batches = database.writer.batches - before
            rates[outstanding] = TURNS * events / seconds
            sizes[outstanding] = TURNS * events / max(1, batches)
    raw = {n: raw_rate(base, TURNS * events, int(sizes[n]), vfs) for n in (16, 1)}
    if vfs is None:
        report.at_least(
            "durable events/s, 100 turns, 16 outstanding", rates[16], "1/s", 50_000, floor=raw[16]
        )
        report.at_least("durable events/s, 100 turns, 1 outstanding", rates[1], "1/s", 20_000, floor=raw[1])
    else:
        report.say("durable events/s, 100 turns, 16 outstanding", rates[16], "1/s", floor=raw[16])
        report.say("durable events/s, 100 turns, 1 outstanding", rates[1], "1/s", floor=raw[1])
    report.say("  events per commit (16 / 1 outstanding)", sizes[16], f"/ {sizes[1]:.0f}")
    report.at_least("  of raw SQLite, same tables and batches, 16 outstanding", rates[16] / raw[16], "x", 0.5)
    report.at_least("  of raw SQLite, same tables and batches, 1 outstanding", rates[1] / raw[1], "x", 0.5)
    peer = hermes_rate(base)
    if peer is None:
        print("  (hermes-agent is not installed: no figure beside ours)")
    else:
        report.at_least("  of hermes-agent's append, 16 outstanding", rates[16] / peer, "x", 20)


def raw_rate(base: Path, total: int, batch: int, vfs: str | None) -> float:
    """SQLite alone: the same inserts and updates, the same number of events per commit."""
    folder = Path(tempfile.mkdtemp(dir=base))

    async def make() -> None:
        async with open_store(data_dir=folder) as store:
            await store.workers.register("wrk_raw")
            await claims(store, TURNS)

    _in_new_loop(make)
    connection = apsw.Connection(str(folder / "everturn.db"), vfs=vfs)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    insert = (
        "INSERT INTO events (session_no, position, turn_no, epoch, number, owner, is_late, at, crc, data)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    tail = "UPDATE tails SET position = ?2, updated_at = ?3 WHERE session_no = ?1"
    number_of_turn = "UPDATE writers SET number = ?3 WHERE turn_no = ?1 AND epoch = ?2"
    data = ev.encode(DELTA)
    done = 0
    started = time.perf_counter()
    while done < total:
        rows = []
        for index in range(done, min(done + batch, total)):
            turn = index % TURNS + 1
            rows.append(
                (turn, 10 + index // TURNS, turn, 1, index // TURNS, OWNER, 0, done, crc_of(data), data)
            )
        touched = {turn: (position, number) for turn, position, _, _, number, *_ in rows}
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, rows)
        connection.executemany(tail, [(no, position, done) for no, (position, _) in touched.items()])
        connection.executemany(number_of_turn, [(no, 1, last) for no, (_, last) in touched.items()])
        connection.execute("COMMIT")
        done += len(rows)
    seconds = time.perf_counter() - started
    connection.close()
    shutil.rmtree(folder)
    return total / seconds


def _in_new_loop(make) -> None:  # type: ignore[no-untyped-def]  # any async function
    failure: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(make())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def hermes_rate(base: Path) -> float | None:
    """hermes-agent's own append, where that package is installed."""
    if importlib.util.find_spec("hermes_state") is None:
        return None
    from hermes_state import SessionDB  # type: ignore[import-not-found]  # installed only to compare

    folder = Path(tempfile.mkdtemp(dir=base))
    database = SessionDB(folder / "state.db")
    database.create_session("bench", source="cli")
    started = time.perf_counter()
    for _ in range(2_000):
        database.append_message("bench", role="assistant", content="x" * 164)
    seconds = time.perf_counter() - started
    shutil.rmtree(folder, ignore_errors=True)
    return 2_000 / seconds


async def latency(
    report: Report, base: Path, seconds: float, vfs: str | None, limits: tuple[float, float]
) -> None:
    """Hand-over to durable to delivered at a follower: 100 turns, 50 tokens/s each."""
    async with fresh(base, vfs) as store:
        held = await claims(store, TURNS)
        handed: dict[tuple[str, int], float] = {}
        taken: list[float] = []
        count = int(50 * seconds)

        async def produce(claim: Claim, offset: float) -> None:
            number = claim.number + 1
            begin = time.perf_counter() + offset
            for index in range(count):
                await asyncio.sleep(max(0.0, begin + index / 50 - time.perf_counter()))
                handed[(claim.turn.id, number)] = time.perf_counter()
                await store.journal.append(claim.turn.id, claim.epoch, number, [DELTA])
                number += 1

        async def follow(claim: Claim) -> None:
            seen = 0
            async for batch in store.journal.follow(OWNER, claim.session.id, claim.session.position):
                now = time.perf_counter()
                for event in batch:
                    begun = handed.pop((event.turn_id or "", event.number), None)
                    if begun is not None:
                        taken.append(now - begun)
                        seen += 1
                if seen == count:
                    return

        async with asyncio.TaskGroup() as group:
            for claim in held:
                group.create_task(follow(claim))
            for index, claim in enumerate(held):
                group.create_task(produce(claim, index / TURNS / 50))
        half, most = percentile(taken, 0.5) * 1000, percentile(taken, 0.99) * 1000
        report.at_most("hand-over to durable to follower, 100 turns x 50/s, p50", half, "ms", limits[0])
        report.at_most("hand-over to durable to follower, 100 turns x 50/s, p99", most, "ms", limits[1])


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


async def completed_turn(store: Store, session_id: str, said: str, answer: str) -> None:
    await store.turns.accept(OWNER, session_id, Submission(text=said))
    [claim] = await store.turns.claim("wrk_bench", session_id=session_id)
    payloads = [ev.StepStarted(1, "m"), ev.TextDelta(1, answer), ev.StepFinished(1, FinishReason.STOP)]
    await store.journal.append(claim.turn.id, claim.epoch, 2, payloads)
    fold = Fold(claim.turn.id)
    for number, payload in enumerate(payloads, start=2):
        fold.feed(
            ev.Event(session_id, 0, claim.turn.id, ev.kind_of(payload), 0, ev.encode(payload), 1, number)
        )
    await store.turns.complete(claim.turn.id, claim.epoch, 4, fold.result())


async def session_of(store: Store, turns: int, rng: random.Random) -> str:
    session = await store.sessions.create(OWNER)
    for _ in range(turns):
        await completed_turn(store, session.id, text(rng, 12), text(rng, 60))
    return session.id


async def length_cost(report: Report, base: Path, long_turns: int) -> None:
    """The cost of one more event, in a long session compared with a short one."""
    rng = random.Random(1)
    async with fresh(base) as store:
        short, long = await session_of(store, 5, rng), await session_of(store, long_turns, rng)
        database = store.database
        assert isinstance(database, SqliteDatabase)
        wal = database.path.with_name(database.path.name + "-wal")
        costs: dict[str, tuple[float, float]] = {}
        held = {}
        for name, session_id in (("short", short), ("long", long)):
            await store.turns.accept(OWNER, session_id, Submission(text="go"))
            [held[name]] = await store.turns.claim("wrk_bench", session_id=session_id)
        times: dict[str, list[float]] = {"short": [], "long": []}
        grown: dict[str, int] = {"short": 0, "long": 0}
        rounds = 600
        for index in range(rounds):
            for name in ("short", "long") if index % 2 else ("long", "short"):
                claim = held[name]
                before = wal.stat().st_size
                started = time.perf_counter()
                await store.journal.append(claim.turn.id, claim.epoch, 2 + index, [DELTA])
                times[name].append(time.perf_counter() - started)
                grown[name] += max(0, wal.stat().st_size - before)
        for name in times:
            costs[name] = (median(times[name]), grown[name] / rounds)
        messages = long_turns * 2
        label = f"one more event, {messages:,}-message session ÷ 10-message"
        report.at_most(f"{label}, time", costs["long"][0] / costs["short"][0], "x", 1.2)
        if costs["short"][1]:
            report.at_most(f"{label}, WAL bytes", costs["long"][1] / costs["short"][1], "x", 1.05)
        report.say("WAL bytes per 200-byte event, alone", costs["short"][1], "bytes")
        opened = []
        for _ in range(50):
            started = time.perf_counter()
            await store.transcript.messages(OWNER, long, limit=50)
            opened.append(time.perf_counter() - started)
        report.at_most(
            f"open a {messages:,}-message session (last page), p50", median(opened) * 1000, "ms", 8
        )


async def lists(report: Report, base: Path, sessions: int) -> None:
    async with fresh(base) as store:
        for index in range(0, sessions, 500):
            await asyncio.gather(
                *(
                    store.sessions.create(OWNER, NewSession(title=f"Session {index + i}"))
                    for i in range(min(500, sessions - index))
                )
            )
        taken = []
        for _ in range(100):
            started = time.perf_counter()
            await store.sessions.list(OWNER, limit=50)
            taken.append(time.perf_counter() - started)
        report.at_most(f"session list, {sessions:,} sessions, first page, p50", median(taken) * 1000, "ms", 5)


async def measure_search(report: Report, base: Path, messages: int) -> None:
    rng = random.Random(2)
    async with fresh(base) as store:
        session_ids = [(await store.sessions.create(OWNER)).id for _ in range(100)]
        for _ in range(0, messages // 2, 100):
            await asyncio.gather(
                *(
                    completed_turn(store, session_ids[i % 100], text(rng, 12), text(rng, 40))
                    for i in range(100)
                )
            )
        while await store.search.index(limit=5000):
            pass
        for label, order, query, limit in (
            ("common word, newest first", SearchOrder.NEWEST, "river", 5.0),
            ("common word, by relevance", SearchOrder.RELEVANCE, "river", 150.0),
            ("prefix", SearchOrder.NEWEST, "riv", 50.0),
        ):
            taken = []
            for _ in range(30):
                started = time.perf_counter()
                found = await store.search.find(OWNER, query, order=order)
                taken.append(time.perf_counter() - started)
                assert found
            report.at_most(f"search {messages:,} messages, {label}, p50", median(taken) * 1000, "ms", limit)
        await _bytes_on_disk(report, store)


async def _bytes_on_disk(report: Report, store: Store) -> None:
    while await store.upkeep.prune(older_than_ms=-1, limit=5000):
        pass
    database = store.database
    assert isinstance(database, SqliteDatabase)
    connection = apsw.Connection(str(database.path))
    connection.set_busy_timeout(30_000)  # the store may still be emptying its log
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.execute("PRAGMA incremental_vacuum").fetchall()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    rows = connection.execute("SELECT sum(length(CAST(text AS BLOB))) FROM messages").fetchall()
    connection.close()
    size = database.path.stat().st_size
    report.at_most(
        "bytes on disk ÷ bytes of text, pruned, index included", size / float(str(rows[0][0])), "x", 2.5
    )


async def recovery(report: Report, base: Path, turns: int) -> None:
    """All turns of a dead worker have a stated fate: released, then claimed by another."""
    folder = Path(tempfile.mkdtemp(dir=base))
    async with open_store(data_dir=folder) as store:
        await store.workers.register("wrk_dead")
        for _ in range(turns):
            session = await store.sessions.create(OWNER)
            await store.turns.accept(OWNER, session.id, Submission(text="go"))
        held = await store.turns.claim("wrk_dead", limit=turns)
        payloads = [ev.StepStarted(1, "m"), *[DELTA] * 20]
        await asyncio.gather(*(store.journal.append(c.turn.id, c.epoch, 2, payloads) for c in held))
        store.workers.close()  # what a kill -9 does to its lock
    started = time.perf_counter()
    async with open_store(data_dir=folder) as store:
        await store.workers.register("wrk_next")
        released = await store.workers.take_over("wrk_next")
        stated = time.perf_counter() - started
        again = await store.turns.claim("wrk_next", limit=turns)
        seconds = time.perf_counter() - started
        assert released == len(again) == turns
    shutil.rmtree(folder)
    report.at_most(f"{turns:,} turns of a dead worker: opened, all with a stated fate", stated, "s", 3)
    report.say(f"{turns:,} turns of a dead worker: all claimed again", seconds, "s")


async def run(arguments: argparse.Namespace) -> int:
    base = Path(arguments.folder)
    scale = 50 if arguments.quick else 1
    report = Report("Store on SQLite" + (" (short)" if arguments.quick else ""))
    await throughput(report, base, 1_000 // scale, None)
    await latency(report, base, 0.5 if arguments.quick else 5, None, (5, 25))
    await length_cost(report, base, 5_000 // scale)
    await lists(report, base, 10_000 // scale)
    await measure_search(report, base, 100_000 // scale)
    await recovery(report, base, 1_000 // scale)
    if arguments.fsync_ms:
        print(f"\n  with a sync of {arguments.fsync_ms:g} ms")
        vfs = SlowSync(arguments.fsync_ms)
        await throughput(report, base, 500 // scale, "slow-sync")
        await latency(report, base, 0.3 if arguments.quick else 3, "slow-sync", (15, 40))
        vfs.unregister()
    return report.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the work, for CI")
    parser.add_argument("--fsync-ms", type=float, default=5.0, help="also with this sync delay; 0: not")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where to write: a real disk")
    sys.exit(0 if asyncio.run(run(parser.parse_args())) >= 0 else 1)


if __name__ == "__main__":
    main()
