"""Thousands of turns at once over HTTP: ``python -m everturn.speed.crowd [--quick]``.

Each turn has a reader. The turns are accepted first; their tokens then come at an even pace. Every token says
when the model made it, so the delay that is measured is the whole way: engine, store, sync, stream, socket.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import httpx2

from everturn.speed.figures import Report, percentile
from everturn.speed.http import CLOCK_MS, SpeedServer, client, new_session, open_server, send
from everturn.web.server import raise_file_limit

_TOKEN = re.compile(rb" word(\d{7})")
_AT_ONCE = 20  # requests under way while sessions are made and turns sent
_SETTLE_S = 2.0  # after the first tokens, before the measured time


class Crowd(NamedTuple):
    turns: int
    per_second: float
    tokens: int  # of each turn
    window_s: float
    p99_ms: float  # the target

    @property
    def name(self) -> str:
        return f"{self.turns:,} turns at once, {self.per_second:g} tokens/s, a reader each"

    @property
    def ramp_s(self) -> float:
        """Return how long accepting the turns may take on a busy machine."""
        return 5 + self.turns / 150


class CrowdReader(asyncio.Protocol):
    """A reader that is as cheap as possible, because it shares the processors with the server."""

    def __init__(self, path: str, port: int) -> None:
        self._head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        self.tokens = 0
        self.delays: list[tuple[float, float]] = []  # when it came (time.time), and how late in ms
        self.is_open = asyncio.Event()
        self.is_done = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._head)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open.set()
        self.is_done.set()

    def data_received(self, data: bytes) -> None:
        now = time.time()
        now_ms = now * 1000 % CLOCK_MS
        for found in _TOKEN.finditer(data):
            self.tokens += 1
            self.delays.append((now, (now_ms - int(found[1]) + 1) % CLOCK_MS - 1))
        if not self.is_open.is_set() and b"retry: 1000" in data:
            self.is_open.set()
        if b"turn.completed" in data or b"turn.failed" in data:
            self.is_done.set()


async def measure(report: Report, crowd: Crowd) -> None:
    async with open_server() as server, client(server) as http:
        sessions = await _in_parts(crowd.turns, lambda _: new_session(http))
        readers = await _open_readers(server, sessions)
        before, begin = server.cpu_s, time.time() + crowd.ramp_s
        await _send_all(http, crowd, sessions, begin)
        report.say(f"{crowd.name}: CPU to accept one", (server.cpu_s - before) / crowd.turns * 1e3, "ms")
        await asyncio.sleep(max(0.0, begin - time.time()) + _SETTLE_S)
        await _measure_window(report, crowd, server, readers)
        await asyncio.gather(*(reader.is_done.wait() for reader in readers))
        missing = sum(reader.tokens != crowd.tokens for reader in readers)
        report.at_most(f"{crowd.name}: incomplete", missing, "", 0)


async def _measure_window(
    report: Report, crowd: Crowd, server: SpeedServer, readers: Sequence[CrowdReader]
) -> None:
    """Measure the cost and the delay of tokens while all turns run."""
    cpu, tokens, start = server.cpu_s, sum(reader.tokens for reader in readers), time.time()
    await asyncio.sleep(crowd.window_s)
    cpu, tokens, end = server.cpu_s - cpu, sum(reader.tokens for reader in readers) - tokens, time.time()
    delays = [late for reader in readers for at, late in reader.delays if start <= at <= end]
    report.say(f"{crowd.name}: tokens read", tokens / (end - start), "1/s")
    report.say(f"{crowd.name}: model to reader, p50", percentile(delays, 0.5), "ms")
    report.at_most(f"{crowd.name}: model to reader, p99", percentile(delays, 0.99), "ms", crowd.p99_ms)
    report.at_most(f"{crowd.name}: server CPU per token", cpu / max(1, tokens) * 1e6, "µs", 70)
    report.at_most(f"{crowd.name}: RSS", server.rss_kb / 1024, "MB", 400)


async def _in_parts(count: int, make) -> list[str]:  # type: ignore[no-untyped-def]  # any async function of a number
    made: list[str] = []
    for start in range(0, count, _AT_ONCE):
        made += await asyncio.gather(*map(make, range(start, min(start + _AT_ONCE, count))))
    return made


async def _open_readers(server: SpeedServer, sessions: Sequence[str]) -> list[CrowdReader]:
    loop = asyncio.get_running_loop()
    readers: list[CrowdReader] = []
    for session_id in sessions:
        path = f"/api/sessions/{session_id}/events"
        _, reader = await loop.create_connection(
            lambda path=path: CrowdReader(path, server.port),  # type: ignore[misc]  # bound now
            "127.0.0.1",
            server.port,
        )
        readers.append(reader)
        if len(readers) % 100 == 0:
            await reader.is_open.wait()
    await asyncio.gather(*(reader.is_open.wait() for reader in readers))
    return readers


async def _send_all(http: httpx2.AsyncClient, crowd: Crowd, sessions: Sequence[str], begin: float) -> None:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(session_id: str) -> None:
        # Spread over the time between two tokens: real turns do not begin together.
        start = begin + random.random() / crowd.per_second
        async with places:
            await send(http, session_id, f"{crowd.tokens}/{crowd.per_second}/{start}")

    await asyncio.gather(*map(one, sessions))


async def main(quick: bool) -> int:
    report = Report("A crowd over HTTP")
    crowds = (
        [Crowd(100, 10, 50, 2, 300)]
        if quick
        else [Crowd(1_000, 10, 150, 8, 300), Crowd(5_000, 5, 100, 10, 500)]
    )
    for crowd in crowds:
        await measure(report, crowd)
    return report.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    raise_file_limit()
    asyncio.run(main(parser.parse_args().quick))
