"""The PostgreSQL database: each script is one transaction, appends go through the group commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import asyncpg

from everturn.domain.errors import (
    DiskFull,
    EverturnError,
    OutcomeUnknown,
    StoreAway,
    StoreBroken,
    StoreRefused,
    StoreTooNew,
)
from everturn.domain.events import Event
from everturn.domain.machine import Machine
from everturn.domain.probe import Moment
from everturn.store import sql
from everturn.store.context import StoreContext
from everturn.store.journal.journal import deliver_late
from everturn.store.postgres.connection import (
    COMMAND_TIMEOUT_S,
    LOST,
    SCHEMA,
    Connector,
    commit,
    explain_error,
    prepare,
)
from everturn.store.postgres.copy import copy_out
from everturn.store.postgres.flusher import Flusher, FlusherCallbacks
from everturn.store.postgres.notifications import ChangeNotifier
from everturn.store.postgres.transactions import READ_ENDS, READS, DeferredProbe, ScriptRunner, begin_write
from everturn.store.scripts.script import Append, Rows, Script, StoredEvents, Tx, Value

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS_MAX = 10
URGENT_CONNECTIONS_MAX = 2
TRIES_MAX = 6
IDLE_OF_LEASE = 0.6
STATUS_ASKS_MAX = 40
STATUS_ASK_S = 0.05
# Another transaction conflicted with this one, which was rolled back and may be tried again.
_IN_THE_WAY = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidCachedStatementError,
)


# Errors that mean that the database takes no writes now, not that it refused this one.
_TROUBLE = (StoreAway, DiskFull, StoreBroken, StoreRefused, StoreTooNew)


class PostgresDatabase:
    """Opened and closed by ``open_postgres``; all coroutines belong to the loop it was opened on."""

    dialect = "postgresql"

    def __init__(
        self,
        address: str,
        context: StoreContext,
        machine: Machine,
    ) -> None:
        self._address = address
        self._machine = machine.text
        self._connector = Connector(address)
        self.clock = context.clock
        self.ids = context.ids
        self.probe = context.probe
        self._hub = context.hub
        self._queries = sql.queries("postgresql")
        # Gone before the lease is: a take-over must not wait for the locks of the one it takes over from.
        self.idle_ms = round(context.settings.lease_s * IDLE_OF_LEASE * 1000)
        self._begin = begin_write(self.idle_ms)
        self._idle: list[asyncpg.Connection] = []
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)
        # Of their own: a renewal that queues behind all other work comes too late on a busy machine. Every
        # turn of the worker is then taken over by others, which makes those busier.
        self._urgent_places = asyncio.Semaphore(URGENT_CONNECTIONS_MAX)
        self._under_way: set[asyncio.Task[object]] = set()
        self._notifier = ChangeNotifier(
            self._hub, self._rows, context.settings.direct_url, self.ids.make("prc")
        )
        self.flusher = Flusher(
            self._connector,
            self._queries,
            f"{self._begin}; SELECT everturn_begin({SCHEMA})",
            context,
            FlusherCallbacks(
                publish=self._publish,
                look=self._hub.look,
                deliver_late=self._deliver_late,
                report_health=self._report_health,
            ),
        )
        self._is_open = False

    async def open(self) -> None:
        try:
            connection = await self._connector.connect()
        except StoreAway as away:
            # No retry follows: the process ends, or its caller starts it again.
            away.hint = "See whether the server runs and the address is right, then start Everturn again."
            raise
        try:
            await prepare(connection, self._address)
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)
        self._is_open = True
        self.flusher.start()
        self._notifier.start()

    async def close(self) -> None:
        self._is_open = False
        await self._notifier.close()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self.flusher.close()
        for connection in self._idle:
            await _close(connection)
        self._idle.clear()

    @property
    def writer(self) -> Flusher:
        """The writer whose figures the metrics show."""
        return self.flusher

    @property
    def is_away(self) -> bool:
        return self.flusher.is_away

    async def wait_delivered(self, turn_id: str, epoch: int) -> None:
        await self.flusher.wait_delivered(turn_id, epoch)

    async def append(self, append: Append) -> int:
        return await self.flusher.append(append)

    # --- writing -------------------------------------------------------------------------------------

    async def write(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``script(tx, *args)`` as one transaction; on return it is durable and published.

        If cancelled, the transaction goes on by itself and is published when it is durable. Raises
        StoreAway (nothing was written) and OutcomeUnknown.
        """
        self._refuse_closed()
        write = self._write(lambda tx: script(tx, *args, **kwargs), self._places)
        return await self._run_to_end(self._report_outcome(write), "everturn-write")

    async def write_urgent(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same as ``write``, on connections that other work never takes."""
        self._refuse_closed()
        write = self._write(lambda tx: script(tx, *args, **kwargs), self._urgent_places)
        return await self._run_to_end(self._report_outcome(write), "everturn-urgent")

    async def _report_outcome(self, write: Coroutine[None, None, T]) -> T:
        """Await the write, and report whether it was stored."""
        try:
            result = await write
        except _TROUBLE as error:
            self._report_health(error)
            raise
        self._report_health(None)
        return result

    def _end_away(self) -> None:
        """End a reported StoreAway: a read has just succeeded."""
        trouble = self._hub.trouble
        if trouble is not None and trouble.code == StoreAway.code:
            self._report_health(None)

    def _report_health(self, error: EverturnError | None) -> None:
        if error is None and self.flusher.is_away:
            return  # not everything is stored before the spool is empty
        if error is None or isinstance(error, _TROUBLE):
            self._hub.report_health(error)

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise StoreBroken("The store is not open.", hint="Enter it with 'async with'.")

    async def _run_to_end(self, work: Coroutine[None, None, T], name: str) -> T:
        """Finish the work even if the caller is cancelled: a cancelled query would cost its connection, and
        the outcome of a cancelled commit would be unknown."""
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, for a caller that has gone

    async def _write(self, start: Callable[[Tx], Script[T]], places: asyncio.Semaphore) -> T:
        for tries_left in reversed(range(TRIES_MAX)):
            deferred = DeferredProbe()
            tx = Tx("postgresql", self.clock.now_ms(), self.ids, deferred, self._machine)
            is_fresh = tries_left < TRIES_MAX - 1
            try:
                result = await self._transact(start(tx), deferred, places, is_fresh=is_fresh)
            except (*_IN_THE_WAY, *LOST) as error:
                # Lost before the commit: nothing of it is there, so it may be tried on a connection that
                # was not idle while the server went.
                if not tries_left or (is_fresh and isinstance(error, LOST)):
                    raise explain_error(error, self._address) from error
                continue
            except asyncpg.PostgresError as error:
                raise explain_error(error, self._address) from error
            await self.probe.reach(Moment.BATCH_COMMITTED)
            if tx.events or tx.changed:
                self._publish(tx.events, list(tx.changed.items()))
            for moment, subject in tx.moments:
                await self.probe.reach(moment, subject)
            return result
        raise AssertionError("the last try returns or raises")

    async def _transact(
        self, script: Script[T], deferred: DeferredProbe, places: asyncio.Semaphore, *, is_fresh: bool
    ) -> T:
        async with self._connection(places, is_fresh=is_fresh) as connection:
            await connection.execute(self._begin)
            name = await connection.fetchval(f"SELECT everturn_begin({SCHEMA})")
            result = await ScriptRunner(connection, self._queries).run(script, deferred, self.probe)
            await self.probe.reach(Moment.BATCH_WRITTEN)
            try:
                done = await commit(connection, COMMAND_TIMEOUT_S)
            except LOST as error:
                connection.terminate()
                lost = error
            else:
                if done != "COMMIT":
                    raise StoreBroken(f"PostgreSQL answered {done} to a commit. Nothing was written.")
                return result
        await self._find_out(name, lost)
        return result

    async def _find_out(self, name: str, lost: BaseException) -> None:
        """The answer to a commit was lost: ask the server what became of the transaction.

        Returns if it was committed. The timeline is compared because on another one, after a failover,
        the same number can name another transaction.
        """
        transaction, timeline = name.split(" ")
        for _ in range(STATUS_ASKS_MAX):
            try:
                status, now_on = (await self._rows("transaction_status", transaction))[0]
            except EverturnError as error:
                raise _outcome_unknown(error) from lost
            if status != "in progress":
                break
            await asyncio.sleep(STATUS_ASK_S)  # the server has not noticed yet that its client has gone
        if now_on != timeline or status not in ("committed", "aborted"):
            raise _outcome_unknown(lost) from lost
        if status == "aborted":
            raise StoreAway("The connection was lost and the write undone. Nothing was written.") from lost
        await self._wait_replicated()

    async def _wait_replicated(self) -> None:
        """Return when a synchronous replica, if there is one, has all that is committed. A server that goes
        down, or a backend that is ended, stops waiting for it, and a failover could lose the commit."""
        try:
            async with self._connection(self._places, is_fresh=True) as connection:
                await connection.execute(self._begin)
                await connection.execute("SELECT pg_logical_emit_message(true, 'everturn', '')")
                await commit(connection, COMMAND_TIMEOUT_S)
        except (*LOST, asyncpg.PostgresError, EverturnError) as error:
            raise _outcome_unknown(error) from error

    # --- reading -------------------------------------------------------------------------------------

    async def read(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._refuse_closed()

        async def act(connection: asyncpg.Connection) -> T:
            deferred = DeferredProbe()
            tx = Tx("postgresql", self.clock.now_ms(), self.ids, deferred, self._machine)
            runs = ScriptRunner(connection, self._queries)
            return await runs.run(script(tx, *args, **kwargs), deferred, self.probe)

        return await self._run_to_end(self._read(act), "everturn-read")

    async def _rows(self, name: str, *args: Value) -> Rows:
        """One query on a snapshot of its own."""

        async def act(connection: asyncpg.Connection) -> Rows:
            rows: Rows = await connection.fetch(self._queries[name], *args)
            return rows

        return await self._read(act)

    async def _read(self, act: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Reading again is harmless: one lost connection is not yet a database that is away."""
        for is_fresh in (False, True):
            try:
                async with self._connection(self._places, is_fresh=is_fresh) as connection:
                    await connection.execute(READS)
                    result = await act(connection)
                    await connection.execute(READ_ENDS)
                    self._end_away()
                    return result
            except StoreAway as error:
                self._report_health(error)
                raise
            except LOST as error:
                if is_fresh:
                    away = explain_error(error, self._address)
                    self._report_health(away)
                    raise away from error
            except asyncpg.PostgresError as error:
                raise explain_error(error, self._address) from error
        raise AssertionError("the second try returns or raises")

    async def copy_to(self, folder: Path) -> None:
        """A consistent copy made in one read transaction, then read back and checked."""
        connection = await self._connector.connect()
        try:
            await copy_out(connection, folder)
        except (*LOST, asyncpg.PostgresError) as error:
            raise explain_error(error, self._address) from error
        finally:
            await _close(connection)

    # --- connections ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(
        self, places: asyncio.Semaphore, *, is_fresh: bool = False
    ) -> AsyncIterator[asyncpg.Connection]:
        """A connection with no transaction open. One that is left inside a transaction is not used again:
        the server rolls back when it goes."""
        await places.acquire()
        connection: asyncpg.Connection | None = None
        try:
            while not is_fresh and self._idle and connection is None:
                connection = self._idle.pop()
                if connection.is_closed():
                    connection = None
            if connection is None:
                connection = await self._connector.connect()
            yield connection
        except BaseException as error:
            self._connector.learn_from(error)
            # A cancelled task cannot wait for a rollback: it would be cancelled again in there, and the
            # connection would go back with its transaction open.
            is_usable = isinstance(error, Exception) and not isinstance(error, LOST)
            if connection is not None and not (is_usable and await _try_roll_back(connection)):
                connection.terminate()
            raise
        finally:
            places.release()
            if connection is not None and not connection.is_closed():
                self._idle.append(connection)

    # --- notifying others ------------------------------------------------------------------------------

    def _publish(self, events: list[StoredEvents], changed: list[tuple[str, str]]) -> None:
        self._hub.publish(events, changed)
        self._notifier.notify({event.session_id for event in events}, changed)

    async def _deliver_late(self, turn_id: str, epoch: int, events: Sequence[Event]) -> int:
        return await self.write(deliver_late, turn_id, epoch, tuple(events))


def _outcome_unknown(error: BaseException) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"The connection was lost during the commit ({error}). Whether the write is stored is not known.",
        hint="Read again before repeating it; with an idempotency key it can simply be repeated.",
    )


async def _try_roll_back(connection: asyncpg.Connection) -> bool:
    """Whether the connection is good for another transaction."""
    if connection.is_closed():
        return False
    try:
        await connection.execute("ROLLBACK")
    except (*LOST, asyncpg.PostgresError):
        return False
    except BaseException:
        connection.terminate()
        raise
    return True


async def _close(connection: asyncpg.Connection) -> None:
    try:
        await connection.close(timeout=5)
    except LOST:
        connection.terminate()
