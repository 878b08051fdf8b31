"""Deletion with a way back: the store hides the session at once; here it is purged when its time has come."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Self

import anyio

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Gone, NotFound, WrongState
from everturn.domain.sessions import Deletion, Session
from everturn.domain.store import Sessions
from everturn.web.background import Background

_log = logging.getLogger("everturn.web.deletion")
_LOOK_S = 60.0  # how often the purge looks for sessions that a dead process left
_RETRY_S = 30.0


class _Pending:
    """``due_at`` is the stored wall-clock time; ``due`` is the same on the monotonic clock.

    A jump of the wall clock must not purge a session that can still be restored, nor one whose only answer
    is being written.
    """

    __slots__ = ("due", "due_at", "owner")

    def __init__(self, owner: str, due_at: int, clock: Clock) -> None:
        self.owner = owner
        self.due_at = due_at
        self.due = clock.monotonic() + (due_at - clock.now_ms()) / 1000


class Deletions(Background):
    """Knows when each deleted session is due, and purges it then."""

    def __init__(
        self,
        sessions: Sessions,
        clock: Clock,
        purge: Callable[[str, str], Awaitable[None]],
        *,
        undo_s: float,
    ) -> None:
        super().__init__()
        self._sessions = sessions
        self._clock = clock
        self._purge = purge
        self._undo_ms = round(undo_s * 1000)
        self._pending: dict[str, _Pending] = {}
        self._read_at: float | None = None
        self._news = anyio.Event()

    async def delete(self, owner: str, session_id: str) -> int:
        """Hide the session; return when it will be gone."""
        due_at = self._clock.now_ms() + self._undo_ms
        await self._sessions.mark_deleted(owner, session_id, due_at=due_at)
        self.schedule_purge(owner, session_id, due_at)
        return due_at

    def schedule_purge(self, owner: str, session_id: str, due_at: int) -> None:
        """Purge the session at that time, which is stored with it already."""
        self._pending[session_id] = _Pending(owner, due_at, self._clock)
        self._news.set()

    def forget(self, session_id: str) -> None:
        """The session is gone already: nothing is left to do."""
        self._pending.pop(session_id, None)

    async def restore(self, owner: str, session_id: str) -> Session:
        """Raises Gone if it came too late, WrongState if there is nothing to restore."""
        await self._read(at_most_s=0.0)
        pending = self._pending.get(session_id)
        if pending is not None and pending.owner == owner and pending.due <= self._clock.monotonic():
            raise Gone("session", session_id)
        # If the purge becomes due while this waits, the store decides: the first one wins.
        session = await self._sessions.restore(owner, session_id)
        self.forget(session_id)
        return session

    async def _read(self, *, at_most_s: float) -> None:
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < at_most_s:
            return
        self._read_at = now
        before = dict(self._pending)
        found = await self._sessions.deletions()
        # What was deleted or restored here while the list was read is not as the list says.
        since = {
            ident: pending for ident, pending in self._pending.items() if before.get(ident) is not pending
        }
        ended = before.keys() - self._pending.keys()
        known = {one.session_id: self._pending_of(one) for one in found if one.session_id not in ended}
        self._pending = known | since

    def _pending_of(self, found: Deletion) -> _Pending:
        known = self._pending.get(found.session_id)
        if known is not None and known.due_at == found.due_at:
            return known
        return _Pending(found.owner, found.due_at, self._clock)

    # --- the purge -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._read(at_most_s=0.0)
        return await super().__aenter__()

    def _begin(self) -> None:
        self.group.start_soon(self._run, name="purge of deleted sessions")

    async def _run(self) -> None:
        while True:
            self._news = anyio.Event()
            await self._purge_due()
            async with anyio.create_task_group() as group:
                # Whatever comes first: news, or the next one being due.
                group.start_soon(self._until_due, group.cancel_scope)
                await self._news.wait()
                group.cancel_scope.cancel()

    async def _until_due(self, scope: anyio.CancelScope) -> None:
        due = min((item.due for item in self._pending.values()), default=None)
        wait_s = _LOOK_S if due is None else due - self._clock.monotonic()
        await self._clock.sleep(max(0.0, min(_LOOK_S, wait_s)))
        scope.cancel()

    async def _purge_due(self) -> None:
        try:
            await self._read(at_most_s=_LOOK_S / 2)
            for ident, pending in list(self._pending.items()):
                if pending.due <= self._clock.monotonic():
                    await self._purge_one(ident, pending)
        except EverturnError as error:
            # The session stays deleted in the store; it is tried again when the store is back.
            _log.warning("deleted sessions could not be purged yet: %s", error.message)
            self._push_back()

    async def _purge_one(self, session_id: str, pending: _Pending) -> None:
        try:
            await self._purge(pending.owner, session_id)
        except (Gone, NotFound):
            _log.debug("session %s is already gone", session_id)
        except WrongState:
            _log.debug("session %s was restored by another process", session_id)
        if self._pending.get(session_id) is pending:
            del self._pending[session_id]

    def _push_back(self) -> None:
        later = self._clock.monotonic() + _RETRY_S
        for pending in self._pending.values():
            pending.due = max(pending.due, later)
