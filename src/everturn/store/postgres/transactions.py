"""Runs scripts on a connection, one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import asyncpg

from everturn.domain.probe import Moment, Probe
from everturn.store.postgres.connection import LONG_TIMEOUT_S
from everturn.store.scripts.script import IndexBroken, Query, Rows, Script

T = TypeVar("T")

READS = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
READ_ENDS = "ROLLBACK"
# What a check or a repair asks of all rows.
_LONG = frozenset(
    {"index_clear", "index_create", "index_drop", "index_fill", "index_missing", "lists_differ", "orphans"}
    | {"tail_missing", "tails_behind"}
)


def begin_write(idle_ms: int) -> str:
    """How a write transaction begins.

    A client that is stopped during one, or cut off from the network, would keep its sessions locked, and no
    other worker could take its turns over. So the server ends the transaction after ``idle_ms`` of silence.
    In the middle of a statement it does not; the worker that takes over does (``writes_end_silent``).
    """
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit TO on; "
        f"SET LOCAL idle_in_transaction_session_timeout TO {idle_ms}"
    )


class DeferredProbe(Probe):
    """Collects the moments that a script passes; the driver reaches them, because a script cannot wait."""

    def __init__(self) -> None:
        self._passed: list[tuple[Moment, str]] = []

    def pass_by(self, moment: Moment, subject: str = "") -> None:
        self._passed.append((moment, subject))

    def take(self) -> list[tuple[Moment, str]]:
        passed, self._passed = self._passed, []
        return passed


class ScriptRunner:
    """Runs scripts inside the transaction that is open on a connection."""

    def __init__(self, connection: asyncpg.Connection, queries: dict[str, str]) -> None:
        self._connection = connection
        self._queries = queries

    async def run(self, script: Script[T], deferred: DeferredProbe, probe: Probe) -> T:
        """Drive a script to its end. An index query that fails is thrown back into it."""
        try:
            query = next(script)
            while True:
                for moment, subject in deferred.take():
                    await probe.reach(moment, subject)
                try:
                    rows = await self.query(query)
                except IndexBroken as failure:
                    query = script.throw(failure)
                else:
                    query = script.send(rows)
        except StopIteration as end:
            for moment, subject in deferred.take():
                await probe.reach(moment, subject)
            result: T = end.value
            return result

    async def query(self, query: Query) -> Rows:
        if query.name.startswith("index_"):
            return await self._index_query(query)
        return await self._query(query)

    async def _query(self, query: Query) -> Rows:
        text = self._queries[query.name]
        if query.many is None:
            timeout = LONG_TIMEOUT_S if query.name in _LONG else None
            rows: Rows = await self._connection.fetch(text, *_replace_zeros(query.args), timeout=timeout)
            return rows
        await self._connection.executemany(text, [_replace_zeros(args) for args in query.many])
        return ()

    async def _index_query(self, query: Query) -> Rows:
        """Run it in a savepoint: the index can be rebuilt; its failure must not undo the write beside it."""
        await self._connection.execute("SAVEPOINT derived")
        try:
            rows = await self._query(query)
        except (asyncpg.InternalServerError, asyncpg.SyntaxOrAccessError) as error:
            await self._connection.execute("ROLLBACK TO SAVEPOINT derived")
            raise IndexBroken(str(error)) from error
        await self._connection.execute("RELEASE SAVEPOINT derived")
        return rows


def _replace_zeros(args: Sequence[object]) -> Sequence[object]:
    """Replace the character zero, which PostgreSQL's text cannot hold and a tool's output may have, by a mark
    of the same length."""
    if any(type(arg) is str and "\0" in arg for arg in args):
        return [arg.replace("\0", "\ufffd") if type(arg) is str else arg for arg in args]
    return args
