"""How figures grow with the number of sessions: ``python -m everturn.speed.growth [--quick] [--postgres]``.

The rows of 1,000, 10,000 and 100,000 sessions (seven messages each, with a realistic distribution of
words) are inserted directly into the database; then all queries go through the store. ``--keep FOLDER`` keeps
SQLite's data for the next run, to compare two versions on the same rows. ``--large`` is 100,000 sessions with
fifty messages each, beside 1,000 of that kind.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw

from everturn.app import App, open_app
from everturn.config import read_config
from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.sessions import MessageFilter, SessionFilter
from everturn.domain.store_values import ImportedSession, SearchOrder, Submission
from everturn.speed.figures import Report, median
from everturn.speed.http import long_session as long_session_of
from everturn.speed.store import OWNER, completed_turn
from everturn.store import Store, open_store
from everturn.store.sessions.titles import grams_of, titles_of

SESSIONS = (1_000, 10_000, 100_000)
TURNS_EACH = 3.56  # two messages each
LARGE_TURNS_EACH = 25.0
_COMPLETE = "complete"  # a file in the folder of data that were made to the end
PHRASES = 50_000  # messages are made of so many: choosing each word would take minutes
VOCABULARY = 20_000
COMMON, RARE = 5, 15_000  # ranks of words: one that occurs often, one that occurs in a few messages
_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu", "wa")
_SESSION = (
    "INSERT INTO sessions (session_no, id, owner, key, version, created_at, title, is_title_given, head_no, "
    "pinned, archived, private, tags, is_unread, last_state, messages, preview) "
    "VALUES (?, ?, ?, '', 2, ?, ?, 0, ?, 0, 0, 0, '[]', 0, 'completed', ?, ?)"
)
_TURN = (
    "INSERT INTO turns (turn_no, id, owner, session_no, parent_no, has_parent, kind, state, epoch, is_ready, "
    "created_at, ended_at, first_position, is_pruned) "
    "VALUES (?, ?, ?, ?, ?, 1, 'message', 'completed', 1, 0, ?, ?, 0, 1)"
)
_MESSAGE = (
    "INSERT INTO messages (owner, session_no, turn_no, ordinal, role, flags, model, created_at, text) "
    "VALUES (?, ?, ?, ?, ?, 0, '', ?, ?)"
)
_TAIL = "INSERT INTO tails (session_no, owner, archived, position, updated_at) VALUES (?, ?, 0, 0, ?)"
_STATEMENTS = (_SESSION, _TAIL, _TURN, _MESSAGE)


class RankedWords:
    """Random words by rank. Frequent words have low ranks, as in natural language."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.known = ["".join(parts) for parts in itertools.product(_SYLLABLES, repeat=4)][:VOCABULARY]
        self._rng.shuffle(self.known)
        self._weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(VOCABULARY)))

        self._phrases = [self.some(3, 20) for _ in range(PHRASES)]

    def message(self, phrases: int) -> str:
        return " ".join(self._rng.choices(self._phrases, k=phrases))

    def some(self, fewest: int, most: int) -> str:
        count = self._rng.randint(fewest, most)
        return " ".join(self._rng.choices(self.known, cum_weights=self._weights, k=count))

    def turns(self, mean: float) -> int:
        return int(mean) + (self._rng.random() < mean % 1)


class FilledSession(NamedTuple):
    session_no: int
    id: str
    owner: str
    at: int
    title: str
    head_no: int
    messages: int
    preview: str


class Rows(NamedTuple):
    """Rows of four tables, each in the order of its statement."""

    sessions: list[FilledSession]
    tails: list[tuple[int, str, int]]
    turns: list[tuple[int, str, str, int, int | None, int, int]]
    messages: list[tuple[str, int, int, int, str, int, str]]

    @property
    def tables(self) -> Sequence[Sequence[tuple[str | int | None, ...]]]:
        return self.sessions, self.tails, self.turns, self.messages


def rows_of(sessions: int, turns_each: float, batch: int = 1_000) -> Iterator[Rows]:
    """Rows of sessions, tails, turns and messages, in batches of sessions."""
    words, ids, turn_no = RankedWords(1), Ids(SystemClock()), 0
    start = SystemClock().now_ms() - sessions * 1_000
    for first in range(1, sessions + 1, batch):
        rows = Rows([], [], [], [])
        for session_no in range(first, min(first + batch, sessions + 1)):
            at, last, count = start + session_no * 1_000, "", words.turns(turns_each)
            parent: int | None = None
            for _ in range(count):
                turn_no += 1
                rows.turns.append((turn_no, ids.turn(), OWNER, session_no, parent, at, at))
                last = words.message(3)
                for ordinal, (role, said) in enumerate((("user", words.message(1)), ("assistant", last))):
                    rows.messages.append((OWNER, session_no, turn_no, ordinal, role, at, said))
                parent = turn_no
            title, session_id = words.some(3, 6), ids.session()
            rows.sessions.append(
                FilledSession(session_no, session_id, OWNER, at, title, turn_no, count * 2, last[:160])
            )
            rows.tails.append((session_no, OWNER, at))
        yield rows


def titles_in(rows: Rows) -> list[tuple[int, str]]:
    return titles_of((row.session_no, row.title, "[]") for row in rows.sessions)


def fill_sqlite(path: Path, sessions: int, turns_each: float) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous=OFF")
    with connection:
        for rows in rows_of(sessions, turns_each):
            for statement, part in zip(_STATEMENTS, rows.tables, strict=True):
                connection.cursor().executemany(statement, part)
            titles = titles_in(rows)
            connection.cursor().executemany("INSERT INTO titles (session_no, text) VALUES (?, ?)", titles)
        connection.execute("INSERT INTO title_index(title_index) VALUES ('rebuild')")
    connection.close()


async def fill_postgres(address: str, sessions: int, turns_each: float) -> None:
    import asyncpg

    connection = await asyncpg.connect(address)
    for rows in rows_of(sessions, turns_each):
        for statement, part in zip(_STATEMENTS, rows.tables, strict=True):
            numbered = statement
            for number in range(1, statement.count("?") + 1):
                numbered = numbered.replace("?", f"${number}", 1)
            await connection.executemany(numbered, part)
        titles = [(number, text, grams_of(text)) for number, text in titles_in(rows)]
        await connection.executemany(
            "INSERT INTO titles (session_no, text, grams) VALUES ($1, $2, $3)", titles
        )
    for table in ("sessions", "turns"):
        column = f"{table[:-1]}_no"
        newest = f"(SELECT max({column}) FROM {table})"
        await connection.execute(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {newest})")
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def timed_ms(act: Callable[[], Awaitable[object]], times: int = 20) -> float:
    await act()
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        await act()
        taken.append(time.perf_counter() - started)
    return median(taken) * 1000


async def measure(report: Report, store: Store, sessions: int) -> None:
    label = f"{sessions:,} sessions"
    words = RankedWords(1).known
    common, rare = words[COMMON], words[RARE]
    page = await store.sessions.list(OWNER)
    opened = page.items[0].id

    async def figure(name: str, act: Callable[[], Awaitable[object]], limit_ms: float) -> None:
        report.at_most(
            f"{label}: {name}, p50", await timed_ms(act), "ms", limit_ms, on=(f"{name}, p50", sessions)
        )

    await figure("list", lambda: store.sessions.list(OWNER), 5)
    await figure("open", lambda: store.transcript.messages(OWNER, opened, limit=50), 5)
    await figure("a whole turn", lambda: completed_turn(store, opened, "hello", "hi"), 20)
    for name, query in {
        "common word": common,
        "rare word": rare,
        "two words": f"{common} {words[COMMON + 1]}",
        "part of a word": rare[1:6],
        "two letters": common[:2],
        "two rare letters": "yz",
        "no match": "xyzzy",
    }.items():
        await figure(f"q= {name}", partial(store.sessions.list, OWNER, SessionFilter(query=query)), 20)
    tag = SessionFilter(tag="unused")
    await figure("a tag that no session has", partial(store.sessions.list, OWNER, tag), 20)
    await figure("labels", partial(store.sessions.labels, OWNER), 250)
    for order, limit_ms in ((SearchOrder.NEWEST, 10.0), (SearchOrder.RELEVANCE, 150.0)):
        for name, query in {
            "common word": common,
            "rare word": rare,
            "two words": f"{common} {words[COMMON + 1]}",
            "common and rare word": f"{common} {rare}",
            "prefix": common[:3],
            "no match": "xyzzy",
        }.items():
            await figure(
                f"search, {order}, {name}",
                partial(store.search.find, OWNER, query, order=order),
                limit_ms,
            )
    for name, within in {
        "a user's": MessageFilter(role="user"),
        "before all": MessageFilter(until=1),
        "a tag that no session has": MessageFilter(tag="unused"),
    }.items():
        for word, query in {"common word": common, "rare word": rare}.items():
            await figure(
                f"search, {word}, {name}", partial(store.search.find, OWNER, query, within=within), 1_000
            )


async def make_sqlite(folder: Path, sessions: int, turns_each: float) -> None:
    """Create indexed data of this many sessions in the folder, or reuse the data of an earlier run."""
    if (folder / _COMPLETE).exists():
        return
    if folder.exists():
        shutil.rmtree(folder)  # left by an interrupted run
    async with open_store(data_dir=folder):
        pass
    await asyncio.to_thread(fill_sqlite, folder / "everturn.db", sessions, turns_each)
    async with open_store(data_dir=folder) as store:
        while await store.search.index(limit=20_000):
            pass
    (folder / _COMPLETE).touch()


async def on_sqlite(report: Report, folder: Path, sessions: int) -> None:
    await make_sqlite(folder, sessions, TURNS_EACH)
    async with open_store(data_dir=folder) as store:
        await measure(report, store, sessions)


async def on_postgres(report: Report, address: str, folder: Path, sessions: int) -> None:
    async with open_store(address, data_dir=folder):
        pass
    await fill_postgres(address, sessions, TURNS_EACH)
    async with open_store(address, data_dir=folder) as store:
        await store.workers.register("wrk_bench")
        while await store.search.index(limit=5_000):
            pass
        await measure(report, store, sessions)


# --- a long session ------------------------------------------------------------------------------------

_ANSWER = b"".join(
    b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"
    for choice in ({"delta": {"content": "hi"}}, {"delta": {}, "finish_reason": "stop"})
)


LONG_CONFIG = """
model = "openai:m"
[engine]
makes_titles = false
[memory]
provider = ""
[models.settings."openai:m"]
context_tokens = 100000000
"""


async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A model server that reads the whole request and answers at once."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            left = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            while left:
                left -= len(await reader.read(min(left, 1 << 20)))
            body = _ANSWER if head.startswith(b"post") else b'{"object": "list", "data": [{"id": "m"}]}'
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def first_token_ms(app: App, session_id: str, times: int) -> float:
    """From submitting a message to the first word on the stream, over OpenAI's wire."""
    taken = []
    for _ in range(times):
        started, first = time.perf_counter(), 0.0
        accepted = await app.engine.submit(OWNER, session_id, Submission(text="hello"))
        async for batch in app.engine.follow(OWNER, session_id, accepted.cursor):
            for event in batch:
                if event.kind == "text.delta":
                    first = first or time.perf_counter() - started
            if batch[-1].kind == "turn.completed":
                break
        taken.append(first)
    return median(taken[len(taken) // 5 :]) * 1000


async def long_session(report: Report, folder: Path, messages: int, times: int) -> None:
    server = await asyncio.start_server(provide, "127.0.0.1", 0, limit=1 << 24)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    environ = {**os.environ, "OPENAI_BASE_URL": base, "OPENAI_API_KEY": "none"}
    async with open_app(read_config(folder, environ), environ=environ) as app:
        ids = Ids(SystemClock())
        figures = []
        for count in (10, messages):
            made = long_session_of(ids, SystemClock(), count)
            session = await app.store.transcript.import_session(OWNER, ImportedSession(*made))
            figures.append(await first_token_ms(app, session.id, times))
        report.say("first token in a session of 10 messages, p50", figures[0], "ms")
        report.say(f"first token in a session of {messages:,} messages, p50", figures[1], "ms")
        report.at_most(f"first token, {messages:,} messages ÷ 10", figures[1] / figures[0], "x", 1.5)
    server.close()


async def _do_nothing(address: str) -> None:
    """Do nothing: the store creates its tables itself."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 sessions only, for CI")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    parser.add_argument(
        "--keep", type=Path, help="keep SQLite's data in this folder, and use it if it is there"
    )
    parser.add_argument("--sessions", type=int, action="append", help="so many sessions only")
    arguments = parser.parse_args()
    sizes = arguments.sessions or (SESSIONS[:1] if arguments.quick else SESSIONS)
    report = Report("Growth on " + ("PostgreSQL" if arguments.postgres else "SQLite"))
    for sessions in sizes:
        with nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory() as base:
            folder = Path(base) / str(sessions)
            if not arguments.postgres:
                asyncio.run(on_sqlite(report, folder, sessions))
                continue
            from everturn.testing.postgres_server import PostgresServer

            with PostgresServer() as server:
                server.make_template(_do_nothing)
                with server.database() as address:
                    asyncio.run(on_postgres(report, address, folder, sessions))
    if not arguments.postgres and not arguments.sessions:
        with tempfile.TemporaryDirectory() as base:
            (Path(base) / "config.toml").write_text(LONG_CONFIG)
            messages, times = (1_000, 5) if arguments.quick else (10_000, 40)
            asyncio.run(long_session(report, Path(base), messages, times))
    report.close()
    sys.exit(0)


if __name__ == "__main__":
    main()
