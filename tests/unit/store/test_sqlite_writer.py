"""The one writer: what it does with refusals, surprises, other processes and its own end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import apsw
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import (
    EverturnError,
    Fenced,
    Invalid,
    Stale,
    StoreAway,
    StoreBroken,
    StoreFault,
)
from everturn.domain.probe import Moment
from everturn.domain.sessions import SessionPatch
from everturn.domain.store_values import Request
from everturn.store import Store, open_store, sql
from everturn.store.scripts.script import Query, Script, Tx
from everturn.store.sqlite import SqliteDatabase, database
from everturn.store.sqlite.write_queue import URGENT_WORK_MIN_S
from everturn.testing import FakeClock, HoldingProbe
from everturn.testing.acting import ME, append, new_session, positions, say, start
from tests.conftest import OpenAnother
from tests.waiting import until

pytestmark = pytest.mark.anyio


class _ClockThatBreaks(FakeClock):
    is_broken = False

    def now_ms(self) -> int:
        if self.is_broken:
            raise RuntimeError("the clock fell off the wall")
        return super().now_ms()


async def test_after_an_unexpected_error_the_writer_refuses_the_write_and_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = _ClockThatBreaks()
    async with open_store(data_dir=tmp_path, clock=clock) as store:
        session = await new_session(store, "before")
        clock.is_broken = True
        with anyio.fail_after(60), pytest.raises(StoreFault) as refused:
            await say(store, session.id, "hello")
        assert isinstance(refused.value.__cause__, RuntimeError)
        assert "the clock fell off the wall" in caplog.text
        assert "now_ms" in caplog.text, "the log has the traceback"
        clock.is_broken = False
        assert (await store.sessions.get(ME, session.id)).queued == 0
        await say(store, session.id, "hello again")
        assert store.trouble is None
    async with open_store(data_dir=tmp_path) as store:
        assert (await store.sessions.get(ME, session.id)).queued == 1


def _breaks_after_writing(tx: Tx, session_id: str) -> Script[None]:
    """A script with a fault that nothing foresaw: one row is in, then SQLite cannot add up."""
    yield Query("record_put", (ME, "settings", f"of {session_id}", b"1", 1))
    raise apsw.SQLError("integer overflow")


def _breaks_the_commit(tx: Tx, session_id: str) -> Script[None]:
    yield Query("record_put", (ME, "settings", f"of {session_id}", b"1", 1))
    yield Query("fault")


@pytest.fixture
async def faulty(
    tmp_path: Path, probe: HoldingProbe, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    """A store with a query that leaves a row without its parent, which SQLite refuses at the commit only."""
    fault = "PRAGMA defer_foreign_keys=ON; UPDATE turns SET session_no = 999"
    queries = sql.queries
    monkeypatch.setattr(sql, "queries", lambda dialect: {**queries(dialect), "fault": fault})
    async with open_store(data_dir=tmp_path, probe=probe) as store:
        yield store


@pytest.mark.parametrize("script", [_breaks_after_writing, _breaks_the_commit])
async def test_in_one_commit_a_script_that_meets_a_fault_fails_alone(
    faulty: Store, probe: HoldingProbe, script: Callable[..., Script[None]]
) -> None:
    store = faulty
    session = await new_session(store, "kept")
    held = await start(store, session.id, "hello")
    sqlite = cast("SqliteDatabase", store.database)
    outcomes: dict[str, str] = {}

    async def act(name: str, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
            outcomes[name] = "stored"
        except EverturnError as error:
            outcomes[name] = error.code

    async with anyio.create_task_group() as group:
        probe.hold(Moment.BATCH_WRITTEN)
        group.start_soon(act, "first", say(store, session.id, "first"))
        await probe.reached(Moment.BATCH_WRITTEN)
        # These wait together, and are one batch.
        group.start_soon(act, "rename", store.sessions.change(ME, session.id, SessionPatch(title="new")))
        group.start_soon(act, "fault", sqlite.write(script, session.id))
        group.start_soon(act, "append", append(store, held, [ev.StepStarted(1, "m")]))
        await until("all three wait", lambda: sqlite.writer.waiting == 3)
        probe.release(Moment.BATCH_WRITTEN)
    assert outcomes == {"first": "stored", "rename": "stored", "fault": "store_fault", "append": "stored"}
    assert store.trouble is None
    assert (await store.sessions.get(ME, session.id)).title == "new"
    assert await store.records.get(ME, "settings", f"of {session.id}") is None
    assert (await say(store, session.id, "and on")).turn.text == "and on"
    assert await store.upkeep.check() == []


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_an_urgent_write_goes_first_and_its_transaction_ends_early(
    store: Store, probe: HoldingProbe
) -> None:
    sqlite = cast("SqliteDatabase", store.database)
    ran: list[tuple[str, int]] = []  # and how many transactions were committed before

    def script(tx: Tx, name: str, lasts_s: float = 0.0) -> Script[None]:
        ran.append((name, sqlite.writer.batches - before))
        until_s = time.perf_counter() + lasts_s
        while time.perf_counter() < until_s:
            pass  # works
        yield Query("record_put", (ME, "settings", name, b"1", 1))

    async with anyio.create_task_group() as group:
        probe.hold(Moment.BATCH_WRITTEN)
        group.start_soon(sqlite.write, script, "held")
        before = sqlite.writer.batches
        await probe.reached(Moment.BATCH_WRITTEN)
        for name in ("long", "next", "last"):
            group.start_soon(sqlite.write, script, name, 10 * URGENT_WORK_MIN_S if name == "long" else 0.0)
        group.start_soon(sqlite.write_urgent, script, "urgent")
        await until("all wait", lambda: sqlite.writer.waiting == 4)
        probe.release(Moment.BATCH_WRITTEN)
    assert ran == [("held", 0), ("urgent", 1), ("long", 1), ("next", 2), ("last", 2)]


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_an_urgent_write_joins_the_transaction_that_is_open(store: Store) -> None:
    sqlite = cast("SqliteDatabase", store.database)
    is_open, urgent_waits = threading.Event(), threading.Event()
    before = sqlite.writer.batches

    def first(tx: Tx) -> Script[None]:
        is_open.set()
        assert urgent_waits.wait(60)
        yield Query("record_put", (ME, "settings", "first", b"1", 1))

    def urgent(tx: Tx) -> Script[int]:
        yield Query("record_put", (ME, "settings", "urgent", b"1", 1))
        return sqlite.writer.batches - before

    async with anyio.create_task_group() as group:
        group.start_soon(sqlite.write, first)
        await anyio.to_thread.run_sync(is_open.wait, 60)
        stored = asyncio.ensure_future(sqlite.write_urgent(urgent))
        await until("it waits", lambda: sqlite.writer.waiting == 1)
        urgent_waits.set()
        assert await stored == 0


class Looks:
    """Counts the writer's lookups of turns, on every connection that is opened meanwhile, and can fail one."""

    def __init__(self) -> None:
        self.count = 0
        self.fails_next = False

    def watch(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._trace

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        if "LEFT JOIN writers" in statement:  # only the query append_look has it
            self.count += 1
            if self.fails_next:
                self.fails_next = False
                raise apsw.NoMemError("out of memory")
        return True


@pytest.fixture
def looks() -> Iterator[Looks]:
    counting = Looks()
    apsw.connection_hooks.append(counting.watch)
    yield counting
    apsw.connection_hooks.remove(counting.watch)


async def test_an_append_that_meets_a_fault_fails_alone(tmp_path: Path, looks: Looks) -> None:
    async with open_store(data_dir=tmp_path) as store:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        looks.fails_next = True
        with pytest.raises(StoreFault):
            await append(store, held, [ev.StepStarted(1, "m")])
        await append(store, held, [ev.StepStarted(1, "m")])
        assert store.trouble is None


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_read_that_meets_a_fault_does_not_call_the_store_broken(store: Store) -> None:
    def script(tx: Tx) -> Script[None]:
        raise apsw.SQLError("no such thing")
        yield

    with pytest.raises(StoreFault):
        await store.database.read(script)
    await new_session(store)


async def test_in_one_commit_a_refused_change_fails_alone(store: Store) -> None:
    session = await new_session(store, "zero")
    outcomes: list[str] = []

    async def rename(title: str, version: int | None) -> None:
        try:
            await store.sessions.change(ME, session.id, SessionPatch(title=title), version=version)
            outcomes.append(title)
        except Stale as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        group.start_soon(rename, "one", None)
        group.start_soon(rename, "never", session.version)
        group.start_soon(rename, "two", None)
    now = await store.sessions.get(ME, session.id)
    assert sorted(outcomes) == ["one", "stale_version", "two"]
    assert (now.title, now.version) == ("two", session.version + 2)
    assert await positions(store, session.id) == [1, 2]


async def test_another_process_s_commit_is_noticed_while_this_one_writes_without_a_pause(
    store: Store, open_another: OpenAnother
) -> None:
    other: Store = await open_another()
    quiet, loud = await new_session(store), await new_session(store)
    held = await start(store, loud.id, "talk")
    stream = store.journal.follow(ME, quiet.id, 0)

    async def talk() -> None:
        number = held.number
        while True:
            number = await append(store, held, [ev.TextDelta(1, "bla ")], number)

    heard: list[str] = []

    async def listen() -> None:
        heard.extend(event.kind for event in await anext(stream))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as talking:
            talking.start_soon(talk)
            async with anyio.create_task_group() as listening:
                listening.start_soon(listen)
                for _ in range(20):  # the listener is past its first look at the journal
                    await store.sessions.get(ME, quiet.id)
                await say(other, quiet.id, "can you hear me?")
            talking.cancel_scope.cancel()
    assert heard == ["turn.accepted"]
    await stream.aclose()


async def test_a_turn_that_streams_is_looked_up_again_only_after_others_have_written(
    tmp_path: Path, looks: Looks
) -> None:
    """Others: a script of this process, or any write of another process."""
    async with open_store(data_dir=tmp_path) as store, open_store(data_dir=tmp_path) as other:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        number = held.number

        async def looks_of_two_appends() -> int:
            nonlocal number
            looks.count = 0
            for _ in range(2):
                number = await append(store, held, [ev.TextDelta(1, "a")], number)
            return looks.count

        assert await looks_of_two_appends() == 1
        assert await looks_of_two_appends() == 0
        await store.sessions.change(ME, session.id, SessionPatch(title="one"))
        assert await looks_of_two_appends() == 1
        await other.sessions.change(ME, session.id, SessionPatch(title="two"))
        assert await looks_of_two_appends() == 1
        number = await append(other, held, [ev.TextDelta(1, "another's")], number)
        assert await looks_of_two_appends() == 1
        last = (await store.sessions.get(ME, session.id)).position
        assert await positions(store, session.id) == list(range(1, last + 1))
        await other.turns.cancel(ME, held.turn.id)
        with pytest.raises(Fenced):
            await append(store, held, [ev.TextDelta(1, "too late")], number)


async def test_a_write_to_a_closed_store_is_refused(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path) as store:
        pass
    with anyio.fail_after(60), pytest.raises(StoreBroken):
        await new_session(store)


async def test_writes_that_were_handed_over_before_the_end_are_written(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path) as store, anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(new_session, store, f"number {number}")
    async with open_store(data_dir=tmp_path) as store:
        assert len((await store.sessions.list(ME, limit=100)).items) == 50


@pytest.mark.parametrize("title", ["lone \ud800 surrogate", "\udcff"])
async def test_text_that_cannot_be_stored_is_refused_with_a_code(store: Store, title: str) -> None:
    session = await new_session(store, "kept")
    with pytest.raises(Invalid):
        await store.sessions.change(ME, session.id, SessionPatch(title=title))
    with pytest.raises(Invalid):
        await store.records.put(ME, "settings", title, 1)
    with pytest.raises(Invalid):
        await store.transcript.undo(ME, session.id, Request(key=title))
    assert (await store.sessions.get(ME, session.id)).title == "kept"


@pytest.mark.parametrize("cursor", ["9" * 30 + ".1", "1." + "9" * 30, "²³.1", "1", "", "a.b", "-1.5"])
async def test_an_invalid_list_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(Invalid):
        await store.sessions.list(ME, cursor=cursor)


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
async def test_nothing_is_acknowledged_that_goes_to_a_file_without_its_name(tmp_path: Path, how: str) -> None:
    async with open_store(data_dir=tmp_path / "data") as store:
        session = await new_session(store, "before")
        path = tmp_path / "data" / "everturn.db"
        content = path.read_bytes()
        path.unlink() if how == "deleted" else path.rename(tmp_path / "elsewhere.db")
        if how == "replaced":
            path.write_bytes(content)
        for _ in range(2):
            with pytest.raises(StoreBroken) as refused:
                await say(store, session.id, "hello")
        assert refused.value.hint
        assert (await store.sessions.get(ME, session.id)).title == "before"


async def test_a_database_that_another_program_locks_is_away_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everturn.store.sqlite.connection.BUSY_TIMEOUT_MS", 50)
    async with open_store(data_dir=tmp_path) as store:
        session = await new_session(store)
        stranger = apsw.Connection(str(tmp_path / "everturn.db"))
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreAway) as refused:
            await say(store, session.id, "hello", key="k")
        assert "Nothing was written" in refused.value.message
        assert (await store.sessions.get(ME, session.id)).queued == 0
        stranger.execute("ROLLBACK")
        stranger.close()
        assert not (await say(store, session.id, "hello", key="k")).is_repeat


async def test_under_steady_load_the_log_is_started_over_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers that never pause, readers that never pause: the log stays near its bound, not near the sum."""
    monkeypatch.setattr(database, "CHECKPOINT_EVERY_S", 0.01)
    monkeypatch.setattr(database, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(database, "LOG_BYTES_MAX", 1_000_000)
    log = tmp_path / "everturn.db-wal"
    sizes: list[int] = []
    async with open_store(data_dir=tmp_path) as store:

        async def write() -> None:
            held = await start(store, (await new_session(store)).id, "go")
            number = held.number
            for _ in range(300):
                number = await append(store, held, [ev.TextDelta(1, "x" * 8000)], number)
                sizes.append(log.stat().st_size)
                await store.sessions.list(ME)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(write)
    assert max(sizes) < 12_000_000  # of 30 MB and more
    assert min(sizes[len(sizes) // 2 :]) < 1_000_000
