"""The SQLite database: writes go through the one writer, reads have connections of their own."""

from __future__ import annotations

import asyncio
import queue
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from everturn.domain.errors import DiskFull, StoreBroken
from everturn.store import sql
from everturn.store.context import StoreContext
from everturn.store.scripts.script import Append, Script, Tx
from everturn.store.sqlite.connection import explain_error, open_connection, prepare
from everturn.store.sqlite.write_queue import AppendItem, ScriptItem
from everturn.store.sqlite.writer import CHECKPOINT_PAGES, ScriptRunner, Writer

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4
CHECKPOINT_EVERY_S = 0.25
PAGE_BYTES = 4096
LOG_BYTES_MAX = 64 * 1024 * 1024


class SqliteDatabase:
    """Opened and closed by ``open_store``; all coroutines belong to the loop it was opened on."""

    dialect = "sqlite"

    def __init__(self, path: Path, context: StoreContext) -> None:
        self.path = path
        self.clock = context.clock
        self.ids = context.ids
        self.probe = context.probe
        self._context = context
        self._vfs = context.disk.vfs
        self._queries = _number_parameters(sql.queries("sqlite"))
        self._readers: queue.SimpleQueue[tuple[apsw.Connection, ScriptRunner]] = queue.SimpleQueue()
        self._connections: list[apsw.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="everturn-reader")
        self._writer: Writer | None = None
        self._checkpointer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(self._pool, lambda: prepare(self.path, vfs=self._vfs))
        self._writer = Writer(connection, self.path, self._queries, self._context)
        for _ in range(READERS):
            reader = open_connection(self.path, vfs=self._vfs, is_reader=True)
            self._connections.append(reader)
            self._readers.put((reader, ScriptRunner(reader, self._queries)))
        connection = open_connection(self.path, vfs=self._vfs)
        connection.execute("PRAGMA wal_autocheckpoint=0")
        self._connections.append(connection)
        self._checkpointer = asyncio.create_task(
            self._checkpoint_often(connection), name="everturn-checkpointer"
        )

    async def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.cancel()
            await asyncio.gather(self._checkpointer, return_exceptions=True)
        if self._writer is not None:
            self._writer.stop()
            await asyncio.to_thread(self._writer.join)
        self._pool.shutdown(wait=True)
        for connection in self._connections:
            try:
                connection.close()  # the last one copies the log into the database
            except apsw.Error as error:
                raise explain_error(error, self.path) from error

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            raise StoreBroken("The store is not open.", hint="Enter it with 'async with'.")
        return self._writer

    async def write(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._submit(lambda tx: script(tx, *args, **kwargs), is_urgent=False)

    async def write_urgent(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._submit(lambda tx: script(tx, *args, **kwargs), is_urgent=True)

    async def _submit(self, start: Callable[[Tx], Script[T]], *, is_urgent: bool) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        item = ScriptItem(future, start, is_urgent=is_urgent)
        self.writer.submit(item)
        result = await future
        for moment, subject in item.tx.moments if item.tx else ():
            await self.probe.reach(moment, subject)
        return result

    async def append(self, append: Append) -> int:
        item = AppendItem(asyncio.get_running_loop().create_future(), append)
        self.writer.submit(item)
        return await item.future

    async def wait_delivered(self, turn_id: str, epoch: int) -> None:
        """There is no spool: what an append returned for is in the database."""

    @property
    def is_away(self) -> bool:
        return False

    async def read(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._read, lambda tx: script(tx, *args, **kwargs))

    def _read(self, start: Callable[[Tx], Script[T]]) -> T:
        connection, runs = self._readers.get()
        tx = Tx("sqlite", self.clock.now_ms(), self.ids, self.probe)
        try:
            connection.execute("BEGIN")
            try:
                return runs.run(start(tx))
            finally:
                connection.execute("COMMIT")
        except apsw.Error as error:
            raise explain_error(error, self.path, connection.system_errno) from error
        finally:
            self._readers.put((connection, runs))

    # --- upkeep --------------------------------------------------------------------------------------

    async def copy_to(self, folder: Path) -> None:
        """A consistent copy made in one read transaction, then opened and checked."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._copy_to, folder)

    def _copy_to(self, folder: Path) -> None:
        target = folder / self.path.name
        connection, runs = self._readers.get()
        try:
            connection.execute("PRAGMA query_only=OFF")
            connection.execute("VACUUM INTO ?", (str(target),))
            target.chmod(0o600)
        except apsw.Error as error:
            if isinstance(error, apsw.FullError):
                raise DiskFull(f"Could not write the backup {target.name}: the disk is full.") from error
            raise explain_error(error, target, connection.system_errno) from error
        finally:
            connection.execute("PRAGMA query_only=ON")
            self._readers.put((connection, runs))
        verify_copy(target)

    async def _checkpoint_often(self, connection: apsw.Connection) -> None:
        """Move the log into the database, outside the commit path."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY_S)
            await loop.run_in_executor(self._pool, self._checkpoint, connection)

    def _checkpoint(self, connection: apsw.Connection) -> None:
        wal = self.path.with_name(self.path.name + "-wal")
        try:
            size = wal.stat().st_size
            if size > CHECKPOINT_PAGES * PAGE_BYTES:
                pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if size > LOG_BYTES_MAX and pages - moved < CHECKPOINT_PAGES:
                    self.writer.empty_log()
            self.writer.log_trouble = ""
        except (apsw.BusyError, FileNotFoundError):
            return  # another process is checkpointing, or there is no log yet
        except (apsw.Error, OSError) as error:
            # Nothing is lost: the log keeps everything. The next round tries again; the metrics show it.
            self.writer.log_trouble = str(error)


def verify_copy(target: Path) -> None:
    copy = open_connection(target)
    try:
        rows = copy.execute("PRAGMA integrity_check").fetchall()
        if rows != [("ok",)]:
            raise StoreBroken(f"The backup {target.name} did not verify: {rows[0][0]}.")
    finally:
        copy.close()


def _number_parameters(queries: dict[str, str]) -> dict[str, str]:
    """SQLite's name for $1 is ?1."""

    return {name: re.sub(r"\$(\d+)", r"?\1", text) for name, text in queries.items()}
