"""A store that grew for years: ``python -m everturn.speed.large [--quick] [--keep FOLDER]``.

100,000 sessions with 5 million messages (2.5 GB, several minutes to make), beside 1,000 sessions with as many
messages each. The data stay in the folder of ``--keep`` or of EVERTURN_SPEED_DATA for the next run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everturn.app import App, open_app
from everturn.config import read_config
from everturn.domain.sessions import SessionFilter
from everturn.domain.store_values import SearchOrder, Submission
from everturn.speed.figures import Report, median
from everturn.speed.growth import (
    COMMON,
    LARGE_TURNS_EACH,
    LONG_CONFIG,
    RARE,
    RankedWords,
    first_token_ms,
    make_sqlite,
    provide,
    timed_ms,
)
from everturn.speed.store import OWNER

DATA = "EVERTURN_SPEED_DATA"
SMALL, LARGE = 1_000, 100_000


class Times(NamedTuple):
    accept_ms: float
    first_token_ms: float


async def queries(report: Report, app: App, sessions: int) -> None:
    label, words = f"{sessions:,} sessions", RankedWords(1).known
    common, rare = words[COMMON], words[RARE]
    store = app.store
    opened = (await store.sessions.list(OWNER)).items[0].id

    async def figure(name: str, act: Callable[[], Awaitable[object]], limit_ms: float) -> None:
        report.at_most(
            f"{label}: {name}, p50", await timed_ms(act), "ms", limit_ms, on=(f"{name}, p50", sessions)
        )

    await figure("list", partial(store.sessions.list, OWNER), 5)
    await figure("open", partial(store.transcript.messages, OWNER, opened, limit=50), 8)
    named = {
        "common word": common,
        "rare word": rare,
        "two words": f"{common} {words[COMMON + 1]}",
        "no match": "xyzzy",
    }
    for name, query in {**named, "part of a word": rare[1:6]}.items():
        await figure(f"q= {name}", partial(store.sessions.list, OWNER, SessionFilter(query=query)), 20)
    for name, query in {**named, "prefix": common[:3]}.items():
        find = partial(store.search.find, OWNER, query, order=SearchOrder.NEWEST)
        await figure(f"search newest first, {name}", find, 10)


async def accept_ms(app: App, times: int) -> float:
    """From a message to its acceptance, in a new session each time."""
    taken = []
    for _ in range(times):
        session = await app.engine.create_session(OWNER)
        started = time.perf_counter()
        accepted = await app.engine.submit(OWNER, session.id, Submission(text="hello"))
        taken.append((time.perf_counter() - started) * 1000)
        async for batch in app.engine.follow(OWNER, session.id, accepted.cursor):
            if batch[-1].kind in ("turn.completed", "turn.failed"):
                break
    return median(taken)


def start_s(folder: Path) -> float:
    """Measure the time from the command until the server reports that it is ready; best of three."""
    environ = {**os.environ, "EVERTURN_HOME": str(folder), "OPENAI_API_KEY": "none"}
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        command = [sys.executable, "-m", "everturn", "serve", "--port", "0"]
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            taken.append(time.perf_counter() - started)
            process.terminate()
    return min(taken)


@asynccontextmanager
async def open_filled(folder: Path, sessions: int, address: str) -> AsyncIterator[App]:
    await make_sqlite(folder, sessions, LARGE_TURNS_EACH)
    (folder / "config.toml").write_text(LONG_CONFIG)
    environ = {**os.environ, "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
    async with open_app(read_config(folder, environ), environ=environ) as app:
        while await app.store.search.index(limit=20_000):  # the turns of a run before
            pass
        yield app


async def compare(small: App, large: App, rounds: int) -> tuple[Times, Times]:
    """Measure both in alternation, so that other load on the machine affects both."""
    accepted: tuple[list[float], list[float]] = ([], [])
    answered: tuple[list[float], list[float]] = ([], [])
    apps = (small, large)
    oldest = [(await app.store.sessions.list(OWNER)).items[-1].id for app in apps]
    for _ in range(rounds):
        for index, app in enumerate(apps):
            accepted[index].append(await accept_ms(app, 4))
            answered[index].append(await first_token_ms(app, oldest[index], 5))
    first, second = (Times(median(accepted[index]), median(answered[index])) for index in range(len(apps)))
    return first, second


async def main(base: Path, *, is_quick: bool) -> None:
    report = Report("A large store")
    sizes = (20, 200) if is_quick else (SMALL, LARGE)
    folders = [base / f"large-{sessions}" for sessions in sizes]
    server = await asyncio.start_server(provide, "127.0.0.1", 0, limit=1 << 24)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with (
        open_filled(folders[0], sizes[0], address) as small_app,
        open_filled(folders[1], sizes[1], address) as large_app,
    ):
        await queries(report, small_app, sizes[0])
        await queries(report, large_app, sizes[1])
        small, large = await compare(small_app, large_app, 3 if is_quick else 20)
    server.close()
    label, beside = f"{sizes[1]:,} sessions", f"÷ {sizes[0]:,} sessions"
    report.say(f"{label}: accept, p50", large.accept_ms, "ms", floor=small.accept_ms)
    report.at_most(f"{label}: accept {beside}", large.accept_ms / small.accept_ms, "x", 1.3)
    report.say(f"{label}: first token, p50", large.first_token_ms, "ms", floor=small.first_token_ms)
    ratio = large.first_token_ms / small.first_token_ms
    report.at_most(f"{label}: first token {beside}", ratio, "x", 1.3)
    starts = [await asyncio.to_thread(start_s, folder) for folder in folders]
    report.at_most(f"{label}: server ready after start", starts[1], "s", 1, floor=starts[0])
    report.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 and 200 sessions")
    parser.add_argument("--keep", type=Path, default=os.environ.get(DATA) and Path(os.environ[DATA]))
    arguments = parser.parse_args()
    with nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory() as kept:
        asyncio.run(main(Path(kept), is_quick=arguments.quick))
