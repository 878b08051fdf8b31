"""What stored bytes cost: ``python -m everturn.speed.blobs [--megabytes 100] [--quick]``.

A large file is stored and read back, from the data folder and from PostgreSQL. The floor is a plain read of
the same bytes in pieces of a mebibyte, from the file or from the rows, in alternating runs; both find the
bytes in memory. Memory is that of the whole process, before and after the large file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import asyncpg

from everturn.speed.figures import Report, median, peak_mb
from everturn.store import Store, open_store
from everturn.testing.postgres_server import PostgresServer

PIECE = 1 << 20
ROUNDS = 5
_PIECE_OF = "SELECT data FROM pack_bytes WHERE pack = $1 AND number = $2"


class Cost(NamedTuple):
    """Seconds by the clock, and of this process on a processor."""

    wall: float
    cpu: float

    @classmethod
    def since(cls, start: Cost) -> Cost:
        return cls(time.perf_counter() - start.wall, time.process_time() - start.cpu)

    @classmethod
    def now(cls) -> Cost:
        return cls(time.perf_counter(), time.process_time())


def read_raw(path: Path) -> Cost:
    start = Cost.now()
    with path.open("rb") as file:
        while file.read(PIECE):
            pass
    return Cost.since(start)


async def read_rows(address: str) -> Cost:
    """The rows of all packs, in the order of their pieces."""
    connection = await asyncpg.connect(address)
    try:
        pieces = await connection.fetch("SELECT pack, number FROM pack_bytes ORDER BY pack, number")
        start = Cost.now()
        for pack, number in pieces:
            await connection.fetchval(_PIECE_OF, pack, number)
        return Cost.since(start)
    finally:
        await connection.close()


async def table_bytes(address: str) -> int:
    """What the bytes take in the database, with their indexes."""
    connection = await asyncpg.connect(address)
    try:
        return int(await connection.fetchval("SELECT pg_total_relation_size('pack_bytes')"))
    finally:
        await connection.close()


async def read_blob(store: Store, sha256: str) -> Cost:
    start = Cost.now()
    async for _ in store.blobs.read(sha256):
        pass
    return Cost.since(start)


def write_random(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))


async def measure(report: Report, where: str, address: str | None, folder: Path, megabytes: int) -> None:
    small, large = folder / "small", folder / "large"
    write_random(small, 4)
    write_random(large, megabytes)
    async with open_store(address, data_dir=folder / "data") as store:
        first = await store.blobs.put(small)
        await read_blob(store, first.sha256)
        before = peak_mb()
        blob = await store.blobs.put(large)
        walls, cpus = [], []
        for _ in range(ROUNDS):
            floor = read_raw(large) if address is None else await read_rows(address)
            took = await read_blob(store, blob.sha256)
            walls.append(took.wall / floor.wall)
            cpus.append(took.cpu / floor.cpu)
        report.at_most(f"download of {megabytes} MB, times a raw read, {where}", median(walls), "x", 2)
        report.say(f"the same in processor time, {where}", median(cpus), "x")
        report.at_most(f"memory that a file of {megabytes} MB adds, {where}", peak_mb() - before, "MB", 30)
        await store.blobs.put_many([large, small])  # nothing new
        if address is None:
            packs = sum(path.stat().st_blocks * 512 for path in (folder / "data" / "blobs").iterdir())
        else:
            packs = await table_bytes(address)
        unique = (megabytes + 4) * 1_000_000
        report.at_most(f"disk, times unique bytes, {where}", packs / unique, "x", 1.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    megabytes = 8 if chosen.quick else chosen.megabytes
    report = Report("Stored bytes")
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as made:
        for where in ("folder", "PostgreSQL"):
            Path(made, where).mkdir()
        asyncio.run(measure(report, "folder", None, Path(made, "folder"), megabytes))
        with PostgresServer() as server:
            address = server.address("postgres")
            asyncio.run(measure(report, "PostgreSQL", address, Path(made, "PostgreSQL"), megabytes))
    return 1 if report.close() and not chosen.quick else 0


if __name__ == "__main__":
    sys.exit(main())
