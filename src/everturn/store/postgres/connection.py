"""Connections to PostgreSQL: checks of the server's version and settings, migrations, error messages.

Nothing in this folder relies on a database session: no SET but SET LOCAL, no lock but a transaction's. So a
transaction-mode pooler may stand in between. Only where there is certainly none are statements kept prepared,
which saves half of the round trips.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import asyncpg

from everturn.domain.errors import (
    DiskFull,
    EverturnError,
    Invalid,
    NotADatabase,
    StoreAway,
    StoreBroken,
    StoreRefused,
    WrongState,
)
from everturn.store import sql
from everturn.store.scripts.schema_range import refuse_newer, too_new
from everturn.store.sessions.titles import grams_of, titles_of

SCHEMA = 14
SERVER_MIN = 140_000  # as server_version_num counts
CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 30.0
LONG_TIMEOUT_S = (
    24 * 3600.0
)  # of what takes longer the more data there is: migrations, copies, indexes, checks
STATEMENTS_KEPT = 256
MIGRATION_LOCK = 6009011  # the key that everturn_begin shares

_GATE = """
SELECT current_setting('server_version_num')::INTEGER, current_setting('fsync'),
  current_setting('full_page_writes'), current_setting('server_encoding'), pg_is_in_recovery()
"""
# A statement that was prepared is not there, or is there although it was not: connections are swapped.
SWAPPED = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
# What a broken or refused connection raises: our side, the operating system, the server going down. The same
# is done about all of these: the transaction is tried again on another connection.
LOST = (
    *SWAPPED,
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # an unexpected message from the server: it ended the connection
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
)


class Connector:
    """Makes connections to one address, after finding out once whether a pooler stands in between."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._is_pooled: bool | None = None

    def learn_from(self, error: BaseException) -> None:
        """Remember that there is a pooler, if a prepared statement was gone."""
        if isinstance(error, SWAPPED):
            self._is_pooled = True

    async def connect(self) -> asyncpg.Connection:
        """A connection with no transaction open. Raises StoreAway, StoreRefused."""
        try:
            if self._is_pooled is None:
                self._is_pooled = await self._looks_pooled()
            return await self._open(0 if self._is_pooled else STATEMENTS_KEPT)
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
            raise StoreRefused(
                f"PostgreSQL at {redact(self.address)} refused the connection: {error}.",
                hint="Check user, password and database name in EVERTURN_DATABASE_URL.",
            ) from error
        except (*LOST, asyncpg.PostgresError) as error:
            raise explain_error(error, self.address) from error

    async def _open(self, statements: int) -> asyncpg.Connection:
        return await asyncpg.connect(
            self.address,
            statement_cache_size=statements,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
        )

    async def _looks_pooled(self) -> bool:
        """A server sends its process number and keeps it; a pooler does not."""
        connection = await self._open(0)
        try:
            introduced = connection.get_server_pid()
            numbers = set()
            for _ in range(2):
                async with connection.transaction():
                    numbers.add(await connection.fetchval("SELECT pg_backend_pid()"))
        finally:
            connection.terminate()
        return numbers != {introduced}


async def prepare(connection: asyncpg.Connection, address: str, upto: int = SCHEMA) -> None:
    """Refuse a server that could lose what it acknowledged; make or migrate the tables. ``upto``: an older
    schema, for a copy that was made of one."""
    try:
        async with connection.transaction():
            refuse_unsafe(*(await connection.fetchrow(_GATE)), address=redact(address))
        if await _is_ready(connection):
            return  # without taking the lock: a write that hangs must not keep other processes from starting
        async with connection.transaction():
            # Waits until every write transaction under way has ended, and holds new ones back.
            await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            version = await _schema_version(connection)
            if version > SCHEMA:
                oldest = await _schema_min(connection)
                refuse_newer(f"The database at {redact(address)}", version, oldest, SCHEMA)
            for number in range(version + 1, upto + 1):
                await connection.execute(sql.schema(number, "postgresql"), timeout=LONG_TIMEOUT_S)
                if number == 4:
                    await _fill_titles(connection)
    except (*LOST, asyncpg.PostgresError) as error:
        raise explain_error(error, address) from error


async def _fill_titles(connection: asyncpg.Connection) -> None:
    rows = await connection.fetch("SELECT session_no, title, tags FROM sessions", timeout=LONG_TIMEOUT_S)
    texts = titles_of((row[0], row[1], row[2]) for row in rows)
    await connection.executemany(
        "INSERT INTO titles (session_no, text, grams) VALUES ($1, $2, $3)",
        [(number, text, grams_of(text)) for number, text in texts],
        timeout=LONG_TIMEOUT_S,
    )


async def commit(connection: asyncpg.Connection, timeout_s: float) -> str:
    """Return the server's answer to COMMIT. Raises TimeoutError after this time and ends the connection.

    Not with asyncpg's own timeout or a cancellation, because both send a cancel request. A commit that waits
    for its synchronous replica would stop waiting: everyone sees it then, but a failover loses it.
    """
    answer = asyncio.ensure_future(connection.execute("COMMIT", timeout=LONG_TIMEOUT_S))
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(answer)
    finally:
        if not answer.done():
            connection.terminate()  # closes the socket, which a waiting commit does not notice
            await asyncio.gather(answer, return_exceptions=True)


def refuse_unsafe(
    version: int, fsync: str, full_pages: str, encoding: str, is_replica: bool, *, address: str
) -> None:
    if version < SERVER_MIN:
        raise StoreRefused(
            f"PostgreSQL at {address} is version {version // 10_000}; {SERVER_MIN // 10_000} is the oldest "
            "that Everturn works with.",
            hint="Upgrade the server.",
        )
    for setting, value in (("fsync", fsync), ("full_page_writes", full_pages)):
        if value != "on":
            raise StoreRefused(
                f"PostgreSQL at {address} runs with {setting}={value}: a power cut could lose or damage what "
                "was acknowledged.",
                hint=f"Set {setting}=on in postgresql.conf.",
            )
    if encoding != "UTF8":
        raise StoreRefused(
            f"The database at {address} has the encoding {encoding}, which cannot hold every text.",
            hint="Create it with ENCODING 'UTF8'.",
        )
    if is_replica:
        raise StoreRefused(f"PostgreSQL at {address} is a replica.", hint="Name the primary server.")


async def _is_ready(connection: asyncpg.Connection) -> bool:
    try:
        rows = await connection.fetch("SELECT name, value FROM meta WHERE name IN ('schema', 'schema_min')")
    except asyncpg.SyntaxOrAccessError:
        return False  # no such table, or a foreign one: the full check says which
    found = {row[0]: int(row[1]) for row in rows}
    return found.get("schema", 0) >= SCHEMA >= found.get("schema_min", 0)


async def _schema_min(connection: asyncpg.Connection) -> int:
    """The oldest schema that a program must know to write to this database, which has a newer one."""
    return int(await connection.fetchval("SELECT value FROM meta WHERE name = 'schema_min'"))


async def _schema_version(connection: asyncpg.Connection) -> int:
    if await connection.fetchval("SELECT to_regclass('meta') IS NOT NULL"):
        value = await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'")
        if value is not None:
            return int(value)
    foreign = await connection.fetchval(
        "SELECT name FROM unnest($1::TEXT[]) AS name WHERE to_regclass(name) IS NOT NULL LIMIT 1",
        ["meta", "sessions", "turns", "events", "messages", "records"],
    )
    if foreign is not None:
        raise NotADatabase(
            f"The database has a table {foreign!r} that is not Everturn's. It was not touched.",
            hint="Give Everturn a database of its own.",
        )
    return 0


def redact(address: str) -> str:
    """The address without its password, for messages."""
    parts = urlsplit(address)
    return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"


def explain_error(error: BaseException, address: str) -> EverturnError:
    """PostgreSQL's error as an EverturnError that says what is safe and what to do."""
    if isinstance(error, LOST):
        return StoreAway(
            f"The database at {redact(address)} cannot be reached ({type(error).__name__}: {error}). Nothing "
            "was written.",
            hint="It is tried again; see whether the server runs.",
        )
    if isinstance(error, asyncpg.TransactionRollbackError):
        return StoreAway(
            f"Other transactions at {redact(address)} were in the way ({error}). Nothing was written.",
            hint="It is tried again.",
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        # A server that was the primary until a moment ago: the next connection may reach the new one.
        return StoreAway(
            f"The database at {redact(address)} takes no writes now (it is a replica or read-only). Nothing "
            "was written.",
            hint="It is tried again; name the primary server in EVERTURN_DATABASE_URL.",
        )
    if isinstance(error, asyncpg.DiskFullError):
        return DiskFull("The database server's disk is full. Nothing of this write is stored.")
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return WrongState(f"The store refused the change: {error}.")
    if isinstance(error, asyncpg.DataError):
        return Invalid(
            f"A text or a number in the request cannot be stored ({error}).",
            hint="Remove characters that are no text, and numbers beyond 64 bits.",
        )
    if getattr(error, "sqlstate", "") == "EV001":
        oldest = getattr(error, "detail", None) or str(error)
        return too_new(f"The database at {redact(address)}", str(error), oldest, SCHEMA)
    if isinstance(error, asyncpg.UndefinedFunctionError) and "everturn_begin" in str(error):
        return too_new(f"The database at {redact(address)}", "unknown here", "unknown here", SCHEMA)
    return StoreBroken(f"PostgreSQL at {redact(address)} refused: {error}.", hint="See the server's log.")
