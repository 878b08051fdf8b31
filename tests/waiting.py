"""Waits for what a store does beside the event loop, in its threads and on its sockets.

Not ``anyio.wait_all_tasks_blocked``: there a task counts as blocked that waits for a thread or a socket and is
under way, and the tasks of a store are never all at rest. Each of these waits for one thing, and fails by its
name if that does not come.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel

from everturn.store import Store
from everturn.testing.waiting import within

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def until(what: str, is_so: Callable[[], object]) -> None:
    with within(what):
        while not is_so():
            await anyio.lowlevel.checkpoint()


async def others_have_gone_on(store: Store) -> None:
    """As long as tasks need that ask the store a question or two: then they are where they wait."""
    for _ in range(5):
        await store.ledger.owing()


async def reader_waits(store: Store, session_id: str) -> None:
    """Whoever follows the session has read all that is there, and waits for the next commit."""
    followers = store.hub._followers
    await until("the session's reader waits", lambda: _all_wait(followers.get(session_id, ())))


async def watcher_waits(store: Store) -> None:
    """Whoever watches the session list waits for the next change."""
    await until("the list's watcher waits", lambda: _all_wait(store.hub._watchers))


def _all_wait(readers: Any) -> bool:
    return bool(readers) and all(reader._waiter is not None for reader in readers)


async def start_held_up(
    group: anyio.abc.TaskGroup, store: Store, act: Callable[..., Awaitable[Any]], *args: Any, by: Store
) -> None:
    """Start a write of ``store``, and return when it waits for the transaction that is held open in ``by``."""
    database: Any = store.database
    if store.kind == "postgresql":
        await _start_held_up_by_lock(group, database, act, *args)
    elif store is by:
        before = database.writer.waiting
        group.start_soon(act, *args)
        await until("the write is in the queue", lambda: database.writer.waiting > before)
    else:
        tried: list[bool] = []
        look = database.writer._refuse_moved_file  # the last thing before the transaction begins
        database.writer._refuse_moved_file = lambda: (tried.append(True), look())
        group.start_soon(act, *args)
        await until("the write is about to begin", lambda: tried)


async def _start_held_up_by_lock(
    group: anyio.abc.TaskGroup, database: Any, act: Callable[..., Awaitable[Any]], *args: Any
) -> None:
    connection = await database._connector.connect()
    try:
        before = await connection.fetchval(_WAITING) + database.flusher.waiting
        group.start_soon(act, *args)
        with within("the write waits for a lock, or behind a batch that does"):
            while await connection.fetchval(_WAITING) + database.flusher.waiting <= before:
                pass
    finally:
        await connection.close()
