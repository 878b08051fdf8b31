"""Waits for facts about what other tasks, threads and processes do. Each fails by name if its fact never comes.

Not ``anyio.wait_all_tasks_blocked``: it counts a task that waits for a thread or a socket as blocked, and the
tasks of a store always wait for one or the other.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import anyio.abc
import asyncpg

from everturn.store import Store
from everturn.store.journal.hub import Follower, Watcher
from everturn.testing.waiting import within

_POLL_S = (
    0.001  # how often a fact is looked at; a busy loop would take the processor from the threads it waits for
)
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def until(what: str, is_so: Callable[[], object]) -> None:
    """Wait until a fact is so. ``is_so`` may be a coroutine function."""
    with within(what):
        while True:
            found = is_so()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return
            await anyio.sleep(_POLL_S)


async def task_waits_in(function: Callable[..., Any], tasks: int = 1) -> None:
    """Wait until a task (or so many) is inside ``function`` and waits there for another task.

    That is for an event, a lock or a condition. A task that waits for the database or a thread will go on by
    itself, so it does not count.
    """
    await until(
        f"{tasks} task(s) wait in {function.__qualname__}",
        lambda: sum(_waits_in(task, function) for task in asyncio.all_tasks()) >= tasks,
    )


async def task_ended(name: str) -> None:
    """Wait until no task has this name."""
    await until(
        f"the task {name!r} ends", lambda: all(task.get_name() != name for task in asyncio.all_tasks())
    )


def _waits_in(task: asyncio.Task[Any], function: Callable[..., Any]) -> bool:
    codes = [code for awaited in _await_chain(task.get_coro()) if (code := _code_of(awaited)) is not None]
    waits_for_task = bool(codes) and codes[-1].co_filename == asyncio.locks.__file__
    waits_for_future = bool(codes) and codes[-1] is _code_of_function(function)
    return (waits_for_task or waits_for_future) and _code_of_function(function) in codes


def _code_of_function(function: Callable[..., Any]) -> Any:
    return inspect.unwrap(getattr(function, "__func__", function)).__code__


def _code_of(awaited: object) -> Any:
    return getattr(awaited, "cr_code", None) or getattr(awaited, "ag_code", None)


def _await_chain(awaited: object) -> Iterator[object]:
    """The coroutines in which a task is suspended, outermost first."""
    while awaited is not None:
        yield awaited
        inner = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
        if inner is None and _code_of(awaited) is None:
            # The step of an async generator names its generator to the garbage collector alone.
            inner = next((each for each in gc.get_referents(awaited) if inspect.isasyncgen(each)), None)
        awaited = inner


async def reader_waits() -> None:
    """Wait until a session's reader has read everything and waits for the next commit."""
    await task_waits_in(Follower.next)


async def watcher_waits() -> None:
    """Wait until a reader of the session list waits for the next change."""
    await task_waits_in(Watcher.next)


class HeldUp:
    """Starts writes that have to wait for a transaction which a test holds open."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def start(
        self,
        group: anyio.abc.TaskGroup,
        store: Store,
        act: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
    ) -> None:
        """Start a write of ``store``; return when it waits."""
        database: Any = store.database
        if store.kind == "postgresql":
            await self._start_on_postgres(group, database, act, *args)
            return
        writer = database.writer
        before = writer.unanswered
        group.start_soon(act, *args)
        await until("the write waits", lambda: writer.unanswered > before)

    async def _start_on_postgres(
        self,
        group: anyio.abc.TaskGroup,
        database: Any,
        act: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
    ) -> None:
        connection = await asyncpg.connect(self._address)

        async def waiting() -> int:
            return int(await connection.fetchval(_WAITING)) + int(database.flusher.waiting)

        async def one_more_waits() -> bool:
            return await waiting() > before

        try:
            before = await waiting()
            group.start_soon(act, *args)
            await until("the write waits for a lock, or behind a batch that does", one_more_waits)
        finally:
            await connection.close()
