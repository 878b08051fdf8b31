"""The group commit: one task that takes every append that waits, commits them once, wakes the waiters.

No timers: alone, an append is durable after one commit; under load, hundreds share one. When the database
is away, appends go to the spool, and are delivered in order when it is back, before anything newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import asyncpg
import msgspec

from everturn.domain.errors import (
    EverturnError,
    Fenced,
    Gone,
    NotFound,
    StoreAway,
    StoreBroken,
    WrongState,
)
from everturn.domain.events import Event
from everturn.domain.probe import Moment
from everturn.store.context import StoreContext
from everturn.store.journal.appends import EventRun, FactsCache, TurnFacts, TurnNow, plan
from everturn.store.journal.spool import Spool, SpoolRecord
from everturn.store.postgres.connection import LOST, Connector, commit, explain_error
from everturn.store.scripts.rows import kind_in
from everturn.store.scripts.script import Append, StoredEvents

_log = logging.getLogger("everturn.store")

FLUSH_EVENTS_MAX = 5_000
FLUSH_TIMEOUT_S = 8.0
SENDS_MAX = 2  # a batch is sent again, as formed, on a fresh connection before the database counts as away
RECONNECT_S = 0.25
DELIVER_RECORDS = 500
DELIVER_BYTES = 1 << 20  # what a slow connection sends in FLUSH_TIMEOUT_S; a larger flush would never end
FENCED_KEPT_MAX = 10_000
FACTS_MAX = 20_000

Publish = Callable[[list[StoredEvents], list[tuple[str, str]]], None]
DeliverLate = Callable[[str, int, Sequence[Event]], Awaitable[int]]


class FlushItem:
    """One caller's append."""

    __slots__ = ("append", "error", "future", "result")

    def __init__(self, append: Append, future: asyncio.Future[int] | None = None) -> None:
        self.append = append
        self.future = future
        self.result = 0
        self.error: EverturnError | None = None


class FlusherCallbacks(msgspec.Struct, frozen=True):
    """What the flusher reports to the database. ``look``: others may have written; readers read again."""

    publish: Publish
    look: Callable[[], None]
    deliver_late: DeliverLate
    report_health: Callable[[EverturnError | None], None]


class Flusher:
    def __init__(
        self,
        connector: Connector,
        queries: dict[str, str],
        begin: str,
        context: StoreContext,
        callbacks: FlusherCallbacks,
    ) -> None:
        self._connector = connector
        self._queries = queries
        self._begin = begin
        self._clock = context.clock
        self._probe = context.probe
        self._callbacks = callbacks
        self._known = FactsCache(FACTS_MAX)
        self._items: deque[FlushItem] = deque()
        self._has_items = asyncio.Event()
        self._connection: asyncpg.Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._spool: Spool | None = None
        self._spooled: set[tuple[str, int]] = set()  # (turn, epoch) with events in the spool
        self._fenced: dict[tuple[str, int], EverturnError] = {}  # found out while delivering
        self._is_back = asyncio.Event()
        self._is_back.set()
        self._is_closing = False
        self._broken: EverturnError | None = None
        self.batches = 0
        self.items_done = 0
        self.commit_seconds: deque[float] = deque(maxlen=512)
        self.log_trouble = ""  # there is no log of ours that could be in trouble

    # --- called by the database -------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        """Whether the database does not have everything that was acknowledged, or cannot be asked."""
        return not self._is_back.is_set() or (self._broken is not None and bool(self._spooled))

    @property
    def waiting(self) -> int:
        return len(self._items)

    def use_spool(self, spool: Spool | None) -> None:
        """Use this spool for events while the database is away."""
        self._spool = spool

    async def append(self, append: Append) -> int:
        if self._is_closing or self._broken is not None:
            raise self._broken or StoreBroken("The store is closed.", hint="Open it again.")
        item = FlushItem(append, asyncio.get_running_loop().create_future())
        self._items.append(item)
        self._has_items.set()
        assert item.future is not None  # noqa: S101 - given two lines above
        return await item.future

    async def wait_delivered(self, turn_id: str, epoch: int) -> None:
        """Return when nothing of this writer is in the spool; raise what its delivery met."""
        while (turn_id, epoch) in self._spooled:
            await self._is_back.wait()
            if self._broken is not None:
                raise self._broken
            if self._is_closing:
                raise StoreAway("The store was closed while events were in the spool; they are safe there.")
        error = self._fenced.get((turn_id, epoch))
        if error is not None:
            raise error

    async def deliver(self, spool: Spool) -> int:
        """Deliver a dead worker's spool, then remove it; return how many records it had."""
        connection = await self._connector.connect()
        try:
            return await self._deliver(connection, spool)
        finally:
            # Not close(): on a lost connection it would hang, or hide the first error behind another.
            connection.terminate()

    # --- life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="everturn-flusher")

    async def close(self) -> None:
        """Write or spool what waits, then end."""
        self._is_closing = True
        self._has_items.set()
        self._is_back.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._drop_connection()

    async def _run(self) -> None:
        while True:
            await self._has_items.wait()
            if not self._items and self._is_closing:
                return
            batch = self._take()
            try:
                await self._flush(batch)
            except EverturnError as error:
                self._callbacks.report_health(error)
                self._fail(batch, error)
            except BaseException as error:
                self._broken = StoreBroken(f"The flusher met an unexpected error: {error!r}.")
                self._broken.__cause__ = error
                if isinstance(error, Exception):
                    _log.error("nothing can be journaled any more", exc_info=error)
                self._callbacks.report_health(self._broken)
                self._fail([*batch, *self._items], self._broken)
                self._is_back.set()  # callers that wait for it raise what happened
                raise

    def _take(self) -> list[FlushItem]:
        batch: list[FlushItem] = []
        count = 0
        while self._items and count < FLUSH_EVENTS_MAX:
            item = self._items.popleft()
            count += len(item.append.data)
            batch.append(item)
        if not self._items and not self._is_closing:
            self._has_items.clear()
        return batch

    # --- writing -------------------------------------------------------------------------------------

    async def _flush(self, batch: list[FlushItem]) -> None:
        for _ in range(SENDS_MAX):
            try:
                await self._send(batch)
            except StoreAway as error:
                away = error
                await self._drop_connection()
                # Whether that commit happened is unknown. Sent again as formed, a batch that did is
                # recognised by its numbers; its events were never published, so readers must look.
                self._callbacks.look()
            else:
                self._callbacks.report_health(None)
                return
        await self._spool_until_back(batch, away)

    async def _send(self, batch: list[FlushItem]) -> None:
        if self._connection is None:
            self._connection = await self._connector.connect()
        started = time.perf_counter()
        stored = await self._transact(self._connection, batch)
        self.commit_seconds.append(time.perf_counter() - started)
        self.batches += 1
        self.items_done += len(batch)
        await self._probe.reach(Moment.BATCH_COMMITTED)
        self._answer(batch, stored)

    async def _transact(
        self, connection: asyncpg.Connection, batch: Sequence[FlushItem]
    ) -> list[StoredEvents]:
        """One transaction: lock the sessions in order, decide, write. Raises StoreAway when the
        connection breaks, also when that happens during the commit."""
        now = self._clock.now_ms()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await connection.execute(self._begin)
                found = await self._find(connection, list({item.append.turn_id for item in batch}))
                planned = plan(batch, found, now)
                if planned:
                    await connection.execute(self._queries["append_events"], *_columns(planned, now))
            await self._probe.reach(Moment.BATCH_WRITTEN)
            done = await commit(connection, FLUSH_TIMEOUT_S)
        except LOST as error:
            self._connector.learn_from(error)
            raise explain_error(error, self._connector.address) from error
        except asyncpg.PostgresError as error:
            await self._roll_back(connection)
            raise explain_error(error, self._connector.address) from error
        if done != "COMMIT":
            raise StoreBroken(f"PostgreSQL answered {done} to a commit. Nothing of this batch was written.")
        return [run.stored for runs in planned for run in runs]

    async def _find(self, connection: asyncpg.Connection, turn_ids: list[str]) -> dict[str, TurnNow]:
        """Lock the turns' sessions, then read the turns as they are under the locks."""
        unknown = self._known.unknown(turn_ids)
        if unknown:
            rows = await connection.fetch(self._queries["append_facts"], unknown)
            self._known.learn({row[0]: TurnFacts(*row[1:]) for row in rows})
        known = self._known.of(turn_ids)
        numbers = {facts.turn_no for facts in known.values()}
        session_nos = {facts.session_no for facts in known.values()}
        rows = await connection.fetch(self._queries["append_lock"], session_nos)
        positions: dict[int, int] = dict(rows)
        found: dict[str, TurnNow] = {}
        rows = await connection.fetch(self._queries["append_look"], numbers)
        for turn_no, turn_id, state, epoch, number in rows:
            # Otherwise a standby took over that never knew the turn, and gave its number to another.
            if turn_id in known and known[turn_id].turn_no == turn_no:
                facts = known.pop(turn_id)
                found[turn_id] = TurnNow(facts, state, epoch, number, positions[facts.session_no])
        for turn_id in known:
            self._known.forget(turn_id)  # not there any more
        return found

    async def _roll_back(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except LOST:
            await self._drop_connection()  # the server rolls back by itself

    def _answer(self, batch: Sequence[FlushItem], stored: list[StoredEvents]) -> None:
        """Publish, then answer, so that a caller cannot see its own write before a reader could."""
        if stored:
            self._callbacks.publish(stored, [])
        for item in batch:
            if item.future is None or item.future.done():
                continue  # delivered from a spool, or the caller was cancelled: the write stands
            if item.error is not None:
                item.future.set_exception(item.error)
            else:
                item.future.set_result(item.result)

    def _fail(self, batch: Sequence[FlushItem], error: EverturnError) -> None:
        for item in batch:
            item.error = error
        self._answer(batch, [])

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    # --- while the database is away ------------------------------------------------------------------

    async def _spool_until_back(self, batch: list[FlushItem], away: StoreAway) -> None:
        """Spool this batch and what follows, until the database is back and has it all."""
        self._is_back.clear()
        self._callbacks.report_health(away)
        await self._spool_batch(batch)
        while not await self._try_deliver():
            if self._is_closing:
                return  # the next process delivers the file
        self._spooled.clear()
        self._is_back.set()
        self._callbacks.report_health(None)
        self._callbacks.look()

    async def _try_deliver(self) -> bool:
        """Wait for a connection, spooling what comes meanwhile, then try to deliver the spool."""
        await self._spool_until_connected()
        if self._connection is None:
            return False  # closing
        try:
            if self._spool is not None:
                await self._deliver(self._connection, self._spool)
        except EverturnError as error:
            # Away again, or there and refusing, its disk full perhaps. What follows has to stay behind what
            # waits: sent past it, it would be refused for the gap, and the turn would fail.
            self._callbacks.report_health(error)
            await self._drop_connection()
            return False
        return True

    async def _spool_until_connected(self) -> None:
        reconnect = asyncio.create_task(self._reconnect(), name="everturn-reconnect")
        try:
            while not reconnect.done():
                waiter = asyncio.create_task(self._has_items.wait(), name="everturn-spooler")
                await asyncio.wait({waiter, reconnect}, return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                if self._items:
                    await self._spool_batch(self._take())
                elif self._is_closing:
                    return
        finally:
            reconnect.cancel()
            await asyncio.gather(reconnect, return_exceptions=True)

    async def _reconnect(self) -> None:
        while self._connection is None:
            await asyncio.sleep(RECONNECT_S)
            with contextlib.suppress(EverturnError):  # still away, which was reported when it began
                self._connection = await self._connector.connect()

    async def _spool_batch(self, batch: list[FlushItem]) -> None:
        spool = self._spool
        if spool is None:
            self._fail(batch, StoreAway("The database cannot be reached. Nothing was written."))
            return
        now = self._clock.now_ms()
        records = [
            SpoolRecord(a.turn_id, a.epoch, a.first_number, a.at or now, a.data)
            for a in (item.append for item in batch)
        ]
        try:
            await asyncio.to_thread(spool.append, records)
        except EverturnError as error:
            self._fail(batch, error)
            return
        await self._probe.reach(Moment.SPOOL_SYNCED)
        for item in batch:
            self._spooled.add((item.append.turn_id, item.append.epoch))
            item.error, item.result = None, 0
        self._answer(batch, [])

    # --- delivering ----------------------------------------------------------------------------------

    async def _deliver(self, connection: asyncpg.Connection, spool: Spool) -> int:
        """Bring a spool's records into the database, in order: into the journal where its worker still
        holds the turn, beside it where not. Delivering again adds nothing, so a crash in here is harmless."""
        records = await asyncio.to_thread(spool.read)
        former: dict[tuple[str, int], list[SpoolRecord]] = {}
        unwanted: list[SpoolRecord] = []
        for chunk in _chunks(records):
            items = [FlushItem(Append(r.turn_id, r.epoch, r.first_number, r.data, r.at)) for r in chunk]
            self._answer(items, await self._transact(connection, items))
            for item, record in zip(items, chunk, strict=True):
                if isinstance(item.error, Fenced):
                    former.setdefault((record.turn_id, record.epoch), []).append(record)
                    self._remember_fenced(item.error, record)
                elif isinstance(item.error, NotFound):
                    pass  # the session was deleted meanwhile, and stays deleted
                elif item.error is not None:
                    unwanted.append(record)
        unwanted += await self._deliver_former(former)
        if unwanted:
            await asyncio.to_thread(spool.set_aside, unwanted)
        await self._probe.reach(Moment.SPOOL_DELIVERED)
        await asyncio.to_thread(spool.clear)
        return len(records)

    async def _deliver_former(self, former: dict[tuple[str, int], list[SpoolRecord]]) -> list[SpoolRecord]:
        unwanted: list[SpoolRecord] = []
        for (turn_id, epoch), records in former.items():
            try:
                for chunk in _chunks(records):
                    await self._callbacks.deliver_late(turn_id, epoch, [e for r in chunk for e in _events(r)])
            except (NotFound, Gone):
                continue  # deleted meanwhile
            except WrongState:
                unwanted += records  # this database never gave that epoch: it is not the one that was away
        return unwanted

    def _remember_fenced(self, error: Fenced, record: SpoolRecord) -> None:
        if len(self._fenced) >= FENCED_KEPT_MAX:
            del self._fenced[next(iter(self._fenced))]
        self._fenced[record.turn_id, record.epoch] = error


def _chunks(records: Sequence[SpoolRecord]) -> Iterator[list[SpoolRecord]]:
    """Records in chunks that are bounded in count and bytes; each has at least one record."""
    chunk: list[SpoolRecord] = []
    size = 0
    for record in records:
        more = sum(map(len, record.data))
        if chunk and (len(chunk) == DELIVER_RECORDS or size + more > DELIVER_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += more
    if chunk:
        yield chunk


def _events(record: SpoolRecord) -> list[Event]:
    return [
        Event("", 0, record.turn_id, kind_in(data), record.at, data, record.epoch, number, is_late=True)
        for number, data in enumerate(record.data, start=record.first_number)
    ]


def _columns(planned: Sequence[Sequence[EventRun]], now: int) -> tuple[object, ...]:
    """The arguments of the query ``append_events``."""
    ends = [runs[-1] for runs in planned]
    tails = (_array(end.facts.session_no for end in ends), _array(end.last_position for end in ends), now)
    writers = (
        _array(end.facts.turn_no for end in ends),
        _array(end.epoch for end in ends),
        _array(end.last_number for end in ends),
    )
    columns: tuple[list[int], ...] = ([], [], [], [], [], [], [])
    sessions, positions, turns, epochs, numbers, times, crcs = columns
    owners: list[str] = []
    contents: list[bytes] = []
    for run in (run for runs in planned for run in runs):
        count = len(run.data)
        sessions += [run.facts.session_no] * count
        positions += range(run.position, run.position + count)
        turns += [run.facts.turn_no] * count
        epochs += [run.epoch] * count
        numbers += range(run.number, run.number + count)
        times += [run.at] * count
        crcs += map(zlib.crc32, run.data)
        owners += [run.facts.owner] * count
        contents += run.data
    return *tails, *writers, *map(_array, columns), owners, contents


def _array(numbers: Iterable[int]) -> str:
    """PostgreSQL's notation of an array: one text is encoded much faster than its elements one by one."""
    return "{" + ",".join(map(str, numbers)) + "}"
