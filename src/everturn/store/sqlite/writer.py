"""The one writer: a thread that takes everything that is waiting, commits it once, wakes the waiters.

Natural group commit, no timers: alone, a write is durable after one fsync; under load, hundreds share
one. Items of a batch do not affect each other: an item that is refused, or that meets a fault, is rolled back
and fails alone. Only a failure of the database itself fails the whole batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, TypeVarTuple
from zlib import crc32

import apsw

from everturn.domain.errors import (
    EverturnError,
    Invalid,
    StoreBroken,
    StoreFault,
    StoreTooNew,
    WrongState,
)
from everturn.domain.probe import Moment
from everturn.store.context import StoreContext
from everturn.store.journal.appends import EventRun, FactsCache, TurnFacts, TurnNow, plan
from everturn.store.scripts.schema_range import refuse_newer
from everturn.store.scripts.script import IndexBroken, Query, Rows, Script, StoredEvents, Tx, Value
from everturn.store.sqlite.connection import BUSY_TIMEOUT_MS, SCHEMA, explain_error
from everturn.store.sqlite.write_queue import AnyItem, AppendItem, Batch, ScriptItem, WriteQueue

_log = logging.getLogger("everturn.store")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OTHERS_POLL_S = 0.05  # how soon another process's commit is noticed
TRY_AGAIN_S = 1.0  # how often a store that refused a write is asked whether it takes one again
CHECKPOINT_PAGES = 4_000
LOG_READERS_WAIT_MS = 20  # how long emptying the log may wait for readers; a backup reads for longer
EMPTY_AGAIN_S = 1.0  # between attempts to empty a log that holds deleted data
FACTS_MAX = 20_000


class ScriptRunner:
    """Runs scripts on one connection."""

    def __init__(self, connection: apsw.Connection, queries: dict[str, str]) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._queries = queries

    def run(self, script: Script[T]) -> T:
        """Drive a script to its end. An index query that fails is thrown back into it."""
        rows: Rows = ()
        failure: IndexBroken | None = None
        try:
            query = next(script)
            while True:
                try:
                    is_derived = query.name.startswith("index_")
                    rows = self._index_query(query) if is_derived else self.query(query)
                except IndexBroken as error:
                    failure = error
                query = script.throw(failure) if failure else script.send(rows)
                failure = None
        except StopIteration as end:
            result: T = end.value
            return result

    def _index_query(self, query: Query) -> Rows:
        """Run it in a savepoint: the index can be rebuilt, and its failure must not undo the write beside it.

        FTS5 keeps what it is given in memory until a savepoint is opened or the transaction commits. The
        second savepoint makes it write now: otherwise its damage would fail the whole commit.
        """
        self._cursor.execute("SAVEPOINT derived")
        try:
            rows = self.query(query)
            self._cursor.execute("SAVEPOINT flushed")
            self._cursor.execute("RELEASE flushed")
            self._cursor.execute("RELEASE derived")
        except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
            self._cursor.execute("ROLLBACK TO derived")
            self._cursor.execute("RELEASE derived")
            raise IndexBroken(str(error)) from error
        return rows

    def query(self, query: Query) -> Rows:
        text = self._queries[query.name]
        try:
            if query.many is not None:
                self._cursor.executemany(text, query.many)
                return ()
            return self._cursor.execute(text, query.args).fetchall()
        except (UnicodeEncodeError, OverflowError) as error:
            raise Invalid(
                f"A text or a number in the request cannot be stored ({error}).",
                hint="Remove characters that are no text, and numbers beyond 64 bits.",
            ) from error


class Writer:
    """Owns the write connection; callers submit items."""

    def __init__(
        self, connection: apsw.Connection, path: Path, queries: dict[str, str], context: StoreContext
    ) -> None:
        self._connection = connection
        self._path = path
        self._place = path.resolve()  # wherever the process goes afterwards
        self._file = _file_at(self._place)
        self._runs = ScriptRunner(connection, queries)
        self._queries = queries
        self._clock = context.clock
        self._ids = context.ids
        self._probe = context.probe
        self._hub = context.hub
        self._loop = asyncio.get_running_loop()
        self._items = WriteQueue()
        self._is_stopping = False
        self._commit_s = 0.0  # of the last commit
        self._is_log_long = False
        self._forgets = False  # the log holds pages of what was deleted
        self._emptied_at = float("-inf")
        self._broken: EverturnError | None = None
        self._has_trouble = False
        self._tried_at = 0.0
        # Data versions, which other processes' commits move: the last that readers were woken for, and the
        # last that the cache of turns includes.
        self._noticed_version = self._read_data_version()
        self._known_version: int | None = None
        self._looked_at = time.monotonic()
        self._appends = _Appends(connection, queries)
        self._thread = threading.Thread(target=self._run, name="everturn-writer", daemon=True)
        self.unanswered = 0  # items whose callers wait; counted on the event loop alone
        self.batches = 0
        self.items_done = 0
        self.log_trouble = ""
        self.commit_seconds: deque[float] = deque(maxlen=512)
        self._thread.start()

    # --- called on the event loop --------------------------------------------------------------------

    def submit(self, item: AnyItem) -> None:
        if self._is_stopping:
            raise StoreBroken("The store is closed.", hint="Open it again.")
        self.unanswered += 1
        self._items.put(item)

    def stop(self) -> None:
        """Take nothing more; write what is waiting, then end the thread.

        Called on the event loop, as ``submit`` is, so nothing can be queued after the end.
        """
        self._is_stopping = True
        self._items.put(None)

    def empty_log(self) -> None:
        """Ask the thread to reset the log between two transactions. Under steady load only the writer can: a
        checkpoint beside it never quite catches up, and the log would grow without end."""
        self._is_log_long = True

    def join(self) -> None:
        """Wait for the end of the thread. Blocks; call it from a thread."""
        self._thread.join()

    @property
    def waiting(self) -> int:
        return len(self._items)

    # --- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._items.is_over or len(self._items):
            self._items.wait(OTHERS_POLL_S)
            if len(self._items):
                self._write(Batch(self._items, self._commit_s))
            if self._is_log_due() and self._broken is None:
                self._empty_log()
            if self._items.is_over:
                continue
            if time.monotonic() - self._looked_at >= OTHERS_POLL_S:
                self._look_for_others()
            if self._has_trouble and self._broken is None:
                self._try_again()
        self._connection.close()

    def _write(self, batch: Batch) -> None:
        if self._broken is not None:
            self._fail(batch.take_all(), self._broken)
            return
        started = time.perf_counter()
        try:
            stored = self._transact(batch)
        except Exception as error:
            # The thread lives on, whatever it was: a caller must never wait for a writer that has gone.
            trouble = self._explain_error(error)
            items = batch.take_all()
            if isinstance(trouble, StoreFault):
                self._isolate(items, trouble)
            else:
                self._give_up(items, trouble)
            return
        self.commit_seconds.append(time.perf_counter() - started)
        self.batches += 1
        self.items_done += len(batch.items)
        self._probe.pass_by(Moment.BATCH_COMMITTED)
        self._end_trouble()
        self._wake(batch.items, stored)

    def _transact(self, batch: Batch) -> list[StoredEvents]:
        self._refuse_moved_file()
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        # Under the lock: unless another process wrote since, turns are as this writer left them.
        if (version := self._read_data_version()) != self._known_version:
            self._refuse_newer_schema()  # guard: g04
            self._appends.forget_standing()
            self._known_version = version
        now = self._clock.now_ms()
        stored: list[StoredEvents] = []
        run: list[AppendItem] = []
        for item in batch:
            if isinstance(item, AppendItem):
                run.append(item)
                continue
            if run:
                self._appends.write(run, now, stored)
                run = []
            self._script(cursor, item, now, stored)
        if run:
            self._appends.write(run, now, stored)
        self._probe.pass_by(Moment.BATCH_WRITTEN)
        started = time.perf_counter()
        cursor.execute("COMMIT")  # guard: a02
        self._commit_s = time.perf_counter() - started
        return stored

    def _isolate(self, batch: list[AnyItem], fault: StoreFault) -> None:
        """One of these items cannot be written. Write them one by one, so that it fails alone."""
        self._roll_back(fault)
        if self._broken is not None:
            self._begin_trouble(self._broken)
            self._fail(batch, self._broken)
        elif len(batch) == 1:
            _log.error("a write failed: %s", fault.message, exc_info=fault)
            self._fail(batch, fault)
        else:
            for item in batch:
                item.error = item.tx = None
                alone = WriteQueue()
                alone.put(item)
                self._write(Batch(alone, 0.0))

    def _explain_error(self, error: Exception) -> EverturnError:
        if isinstance(error, EverturnError):
            return error
        if isinstance(error, apsw.Error):
            trouble = explain_error(error, self._path, self._connection.system_errno)
        else:
            trouble = StoreFault(f"A write met an unexpected error: {error!r}. Nothing of it was stored.")
        trouble.__cause__ = error
        return trouble

    def _is_log_due(self) -> bool:
        """Whether the log has grown long, or holds pages of what was deleted."""
        return self._is_log_long or (self._forgets and time.monotonic() - self._emptied_at >= EMPTY_AGAIN_S)

    def _empty_log(self) -> None:
        """Most of the log is in the database already; this moves the rest and cuts the file."""
        self._is_log_long = False
        self._emptied_at = time.monotonic()
        self._connection.set_busy_timeout(LOG_READERS_WAIT_MS)
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._forgets = False
        except apsw.BusyError:
            return  # a long reader needs it: the checkpointer will ask again
        except apsw.Error as error:
            # Nothing is lost: the log keeps everything. The checkpointer asks again; the metrics show it.
            self.log_trouble = str(error)
        finally:
            self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)

    def _script(self, cursor: apsw.Cursor, item: ScriptItem[T], now: int, stored: list[StoredEvents]) -> None:
        """Run one script inside a savepoint, so that its refusal leaves the batch as it was."""
        tx = Tx("sqlite", now, self._ids, self._probe)
        self._appends.forget_standing()
        cursor.execute("SAVEPOINT item")
        try:
            item.result = self._runs.run(item.start(tx))
        except apsw.ConstraintError as error:
            cursor.execute("ROLLBACK TO item")
            item.error = WrongState(f"The store refused the change: {error}.")
        except apsw.Error:
            raise  # it may be the database that is in trouble: the transaction ends
        except Exception as error:
            cursor.execute("ROLLBACK TO item")
            item.error = error
        else:
            item.tx = tx
            stored.extend(tx.events)
            self._forgets = self._forgets or tx.forgets
        cursor.execute("RELEASE item")

    def _refuse_moved_file(self) -> None:
        """Refuse to write to a file that was moved or deleted: all of it would be lost."""
        if _file_at(self._place) != self._file:
            raise StoreBroken(
                f"{self._path.name} was moved, deleted or replaced while it was open. Writing has stopped.",
                hint="Put the file back or restore a backup, then restart.",
            )

    def _refuse_newer_schema(self) -> None:
        """Another process may have migrated the database since this one opened it."""
        schema, schema_min = self._connection.execute(self._queries["schema_range"]).get
        refuse_newer(self._path.name, int(schema), int(schema_min), SCHEMA)

    def _give_up(self, batch: list[AnyItem], error: EverturnError) -> None:
        """Fail the batch: its transaction did not happen, or its outcome is unknown. Nothing is published.

        After a failed sync this process stops writing, because a commit that was refused that way can
        reappear when the file is opened again: only a fresh start tells what is there.
        """
        self._roll_back(error)
        if isinstance(error, (StoreBroken, StoreTooNew)):
            self._broken = error
        self._begin_trouble(self._broken or error)
        self._fail(batch, self._broken or error)

    def _roll_back(self, error: EverturnError) -> None:
        self._appends.forget_standing()
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error as second:
                self._broken = StoreBroken(f"{error.message} Rolling back failed too: {second}.")
                self._broken.__cause__ = error

    def _begin_trouble(self, error: EverturnError) -> None:
        self._has_trouble = True
        self._tried_at = time.monotonic()
        self._on_loop(self._hub.report_health, error)

    def _end_trouble(self) -> None:
        if self._has_trouble:
            self._has_trouble = False
            self._on_loop(self._hub.report_health, None)

    def _try_again(self) -> None:
        """Test whether writes are stored again, so that no caller has to fail to find out.

        The schema's number is written once more as it is: a real page and a real sync.
        """
        if time.monotonic() - self._tried_at < TRY_AGAIN_S:
            return
        self._tried_at = time.monotonic()
        try:
            self._refuse_moved_file()
            self._connection.execute("BEGIN IMMEDIATE")
            self._refuse_newer_schema()
            self._connection.execute(self._queries["schema_touch"])
            self._connection.execute("COMMIT")
        except (apsw.Error, EverturnError) as error:
            self._give_up([], self._explain_error(error))
        else:
            self._end_trouble()

    def _fail(self, batch: list[AnyItem], error: EverturnError) -> None:
        for item in batch:
            item.error = error
            item.tx = None
        self._wake(batch, [])

    def _wake(self, batch: list[AnyItem], stored: list[StoredEvents]) -> None:
        self._on_loop(self._resolve, batch, stored)

    def _on_loop(self, act: Callable[[*Ts], None], *args: *Ts) -> None:
        try:
            self._loop.call_soon_threadsafe(act, *args)
        except RuntimeError:
            # The loop is closed: no caller waits any more, and what was committed is durable.
            if not self._loop.is_closed():
                raise

    def _resolve(self, batch: list[AnyItem], stored: list[StoredEvents]) -> None:
        """On the event loop: publish, then answer. Publishing first keeps a caller from seeing its own
        write before a reader could."""
        self.unanswered -= len(batch)
        changed: dict[str, str] = {}
        for item in batch:
            if item.tx is not None and item.tx.changed:
                changed.update(item.tx.changed)
        if stored or changed:
            self._hub.publish(stored, list(changed.items()))
        for item in batch:
            if item.future.done():
                continue  # the caller was cancelled; the write stands
            if item.error is not None:
                item.future.set_exception(item.error)
            else:
                item.future.set_result(item.result)

    # --- other processes ------------------------------------------------------------------------------

    def _look_for_others(self) -> None:
        self._looked_at = time.monotonic()
        try:
            version = self._read_data_version()
        except apsw.BusyError:
            return  # another process is recovering the log; look again later
        except apsw.Error as error:
            self._give_up([], self._explain_error(error))
            return
        if version != self._noticed_version:
            self._noticed_version = version
            self._on_loop(self._hub.look)

    def _read_data_version(self) -> int:
        version: int = self._connection.execute("PRAGMA data_version").get
        return version


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file the path names now, if any."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class _Appends:
    """Writes a run of appends: one look at all their turns, one insert for all events.

    A turn that was read stays as this writer left it until something else may have written: another process,
    a script, a transaction that failed. So a turn that streams is not read again for each batch.
    """

    def __init__(self, connection: apsw.Connection, queries: dict[str, str]) -> None:
        self._cursor = connection.cursor()
        self._queries = queries
        self._known = FactsCache(FACTS_MAX)
        self._standing: dict[str, TurnNow] = {}

    def forget_standing(self) -> None:
        self._standing.clear()

    def write(self, items: list[AppendItem], now: int, stored: list[StoredEvents]) -> None:
        turn_ids = list({item.append.turn_id: None for item in items})
        events: list[tuple[Value, ...]] = []
        tails: list[tuple[int, int, int]] = []
        numbers: list[tuple[int, int, int]] = []
        for runs in plan(items, self._stand(turn_ids), now):
            for run in runs:
                stored.append(run.stored)
                events += _rows(run)
            last = runs[-1]
            facts, number, position = last.facts, last.last_number, last.last_position
            tails.append((facts.session_no, position, now))
            numbers.append((facts.turn_no, last.epoch, number))
            self._standing[last.turn_id] = TurnNow(facts, "running", last.epoch, number, position)
        if events:
            self._cursor.executemany(self._queries["event_insert"], events)
            self._cursor.executemany(self._queries["append_tail"], tails)
            self._cursor.executemany(self._queries["writer_number"], numbers)

    def _stand(self, turn_ids: list[str]) -> dict[str, TurnNow]:
        """The turns as they are now, under the lock of the transaction."""
        standing = self._standing
        unknown = [turn_id for turn_id in turn_ids if turn_id not in standing]
        if unknown:
            if len(standing) > FACTS_MAX:
                standing.clear()
                unknown = turn_ids
            standing.update(self._look(unknown))
        return standing

    def _look(self, turn_ids: list[str]) -> dict[str, TurnNow]:
        self._known.learn(dict(self._facts(self._known.unknown(turn_ids))))
        by_no = {facts.turn_no: (turn_id, facts) for turn_id, facts in self._known.of(turn_ids).items()}
        asked = f"[{','.join(map(str, by_no))}]"
        found: dict[str, TurnNow] = {}
        for turn_no, *rest in self._cursor.execute(self._queries["append_look"], (asked,)):
            turn_id, facts = by_no.pop(turn_no)
            found[turn_id] = TurnNow(facts, *rest)
        for turn_id, _ in by_no.values():
            self._known.forget(turn_id)  # deleted since it was looked up
        return found

    def _facts(self, turn_ids: list[str]) -> Iterator[tuple[str, TurnFacts]]:
        for turn_id in turn_ids:
            rows: Rows = self._cursor.execute(self._queries["append_facts"], (turn_id,)).fetchall()
            for row in rows:
                yield turn_id, TurnFacts(*row)


def _rows(run: EventRun) -> list[tuple[Value, ...]]:
    """The arguments of the query ``event_insert`` for each event."""
    turn_no, session_no, _, owner = run.facts
    epoch, position, number, at = run.epoch, run.position, run.number, run.at
    return [
        (session_no, position + i, turn_no, epoch, number + i, owner, 0, at, crc32(data), data)
        for i, data in enumerate(run.data)
    ]
