"""The hub wakes readers after each commit. It is a hint: the journal is what they read.

It lives on one event loop and is touched only there. A reader's backlog is bounded; when it overflows,
the backlog is dropped and the reader goes back to the journal, so a slow one never slows a turn and
never loses anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from everturn.domain.errors import EverturnError
from everturn.domain.events import Event
from everturn.domain.store_values import Trouble
from everturn.store.scripts.rows import make_events
from everturn.store.scripts.script import StoredEvents

BACKLOG_EVENTS_MAX = 2_000
BACKLOG_CHANGES_MAX = 2_000


class Follower:
    """One reader of one session. ``next`` gives committed events, or None: look into the journal."""

    __slots__ = ("_backlog", "_count", "_must_look", "_waiter")

    def __init__(self) -> None:
        self._backlog: deque[Sequence[Event]] = deque()
        self._count = 0
        self._must_look = False
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, events: Sequence[Event]) -> None:
        self._count += len(events)
        if self._count > BACKLOG_EVENTS_MAX:
            self._backlog.clear()
            self._count = 0
            self._must_look = True  # guard: c10
        else:
            self._backlog.append(events)
        self._wake()

    def look(self) -> None:
        """Make the follower read the journal: another process wrote, which this hub did not see."""
        self._must_look = True
        self._wake()

    async def next(self) -> Sequence[Event] | None:
        while not self._backlog and not self._must_look:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._must_look:
            self._must_look = False
            self._backlog.clear()
            self._count = 0
            return None
        if len(self._backlog) == 1:
            events = self._backlog.popleft()
        else:
            events = [event for batch in self._backlog for event in batch]
            self._backlog.clear()
        self._count = 0
        return events

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watcher:
    """One reader of the session list: collects ids of sessions whose row changed."""

    __slots__ = ("_changed", "_must_look", "_waiter", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._changed: dict[str, None] = {}
        self._must_look = False
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, session_id: str) -> None:
        if len(self._changed) < BACKLOG_CHANGES_MAX:
            self._changed[session_id] = None
        else:
            self._must_look = True
        self._wake()

    def look(self) -> None:
        self._must_look = True
        self._wake()

    async def next(self) -> list[str] | None:
        """Ids of changed sessions, or None: anything may have changed."""
        while not self._changed and not self._must_look:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        changed = list(self._changed)
        must_look = self._must_look
        self._changed.clear()
        self._must_look = False
        return None if must_look else changed

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    def __init__(self) -> None:
        self._followers: dict[str, list[Follower]] = {}
        self._watchers: list[Watcher] = []
        self._positions: dict[str, int] = {}  # the newest position that a followed session's readers know of
        self.events_total = 0  # made durable by this process
        self._trouble: Trouble | None = None
        self._health_moved = asyncio.Event()  # a new one after each change
        self._changes = 0  # of any session, as far as this process knows
        self._change_seen = asyncio.Event()  # a new one after each change

    def follow(self, session_id: str) -> Follower:
        follower = Follower()
        self._followers.setdefault(session_id, []).append(follower)
        return follower

    def unfollow(self, session_id: str, follower: Follower) -> None:
        followers = self._followers[session_id]
        followers.remove(follower)
        if not followers:
            del self._followers[session_id]
            self._positions.pop(session_id, None)

    def watch(self, owner: str) -> Watcher:
        watcher = Watcher(owner)
        self._watchers.append(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    @property
    def streams(self) -> int:
        return sum(map(len, self._followers.values()))

    def publish(self, events: Iterable[StoredEvents], changed: Iterable[tuple[str, str]]) -> None:
        """Called once per commit, after it is durable."""
        by_session: dict[str, list[Event]] = {}
        for stored in events:
            self.events_total += len(stored.data)
            session_id = stored.session_id
            if session_id not in self._followers:
                continue
            if (batch := by_session.get(session_id)) is None:
                by_session[session_id] = make_events(stored)
            else:
                batch.extend(make_events(stored))
        for session_id, batch in by_session.items():
            self._positions[session_id] = max(self._positions.get(session_id, 0), batch[-1].position)
            for follower in self._followers[session_id]:
                follower.offer(batch)
        for session_id, owner in changed:
            if session_id not in by_session:
                # A change without an event, such as a deletion: the follower finds out by reading.
                for follower in self._followers.get(session_id, ()):
                    follower.look()
            for watcher in self._watchers:
                if watcher.owner == owner:
                    watcher.offer(session_id)
            self._count_change()

    # --- changes of any session --------------------------------------------------------------------------

    async def wait_for_change(self, known: int) -> int:
        """Wait until the number of changes differs from ``known``, then return it."""
        while self._changes == known:
            await self._change_seen.wait()
        return self._changes

    def _count_change(self) -> None:
        self._changes += 1
        self._change_seen.set()
        self._change_seen = asyncio.Event()

    # --- whether writes are stored -----------------------------------------------------------------------

    @property
    def trouble(self) -> Trouble | None:
        return self._trouble

    def report_health(self, error: EverturnError | None) -> None:
        """Record why the last write failed; None if it was stored."""
        trouble = None if error is None else Trouble(error.code, error.message, error.hint)
        if trouble != self._trouble:
            self._trouble = trouble
            self._health_moved.set()
            self._health_moved = asyncio.Event()

    async def health_changed(self, known: Trouble | None) -> Trouble | None:
        """Wait until the trouble differs from ``known``, then return it."""
        while self._trouble == known:
            await self._health_moved.wait()
        return self._trouble

    # --- what a store's own look at the database needs -------------------------------------------------

    def list_followed(self) -> list[str]:
        """Sessions that have followers."""
        return list(self._followers)

    def list_watched(self) -> list[str]:
        """Owners whose session list is watched."""
        return list({watcher.owner for watcher in self._watchers})

    def notice(self, session_id: str, position: int | None = None) -> bool:
        """Wake the session's followers, unless they have seen the journal up to this position.

        True if the journal has grown since a position that was known before.
        """
        self._count_change()
        known = self._positions.get(session_id)
        if position is not None and (known or 0) >= position:
            return False
        for follower in self._followers.get(session_id, ()):
            follower.look()
        if position is not None and session_id in self._followers:
            self._positions[session_id] = position
        return position is not None and known is not None

    def notice_list(self, owner: str) -> None:
        for watcher in self._watchers:
            if watcher.owner == owner:
                watcher.look()

    def look(self, session_id: str | None = None) -> None:
        """Wake followers and watchers after another process wrote to this session, or to an unknown one."""
        self._count_change()
        chosen = self._followers if session_id is None else {session_id: self._followers.get(session_id, [])}
        for followers in chosen.values():
            for follower in followers:
                follower.look()
        for watcher in self._watchers:
            watcher.look()
