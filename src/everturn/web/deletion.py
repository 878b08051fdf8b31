"""Deletion with a way back: hidden at once, purged a little later, and the wait survives a restart."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

import anyio

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Gone, NotFound, WrongState
from everturn.domain.sessions import Session, SessionPatch
from everturn.domain.store import Records, Sessions
from everturn.web.access.identity import SYSTEM
from everturn.web.background import Background

_log = logging.getLogger("everturn.web.deletion")
_KIND = "deletion"
_BELIEVE_S = 2.0  # how long what other processes hide may go unseen
_LOOK_S = 60.0  # how often the purge looks for what a process left behind that died
_RETRY_S = 30.0

EPHEMERAL = "ephemeral:"  # key of sessions that only ever serve one answer


def is_ephemeral(session: Session) -> bool:
    return session.key.startswith(EPHEMERAL)


class _Pending:
    """``due_at`` is the date that is stored; ``due`` the same by a clock that nobody sets. A jump of the wall
    clock must not purge what can still be restored, nor a session whose one answer is being written."""

    __slots__ = ("due", "due_at", "owner", "was_archived")

    def __init__(self, owner: str, due_at: int, was_archived: bool, clock: Clock) -> None:
        self.owner = owner
        self.due_at = due_at
        self.due = clock.monotonic() + (due_at - clock.now_ms()) / 1000
        self.was_archived = was_archived


class Deletions(Background):
    """The row is archived too: lists of every process leave it out at once, without asking here."""

    def __init__(
        self,
        records: Records,
        sessions: Sessions,
        clock: Clock,
        purge: Callable[[str, str], Awaitable[None]],
        *,
        undo_s: float,
    ) -> None:
        super().__init__()
        self._records = records
        self._sessions = sessions
        self._clock = clock
        self._purge = purge
        self._undo_ms = round(undo_s * 1000)
        self._pending: dict[str, _Pending] = {}
        self._read_at: float | None = None
        self._news = anyio.Event()

    async def delete(self, owner: str, session: Session) -> int:
        """Hide the session; return when it will be gone. The record comes first: from then on it ends."""
        due_at = self._clock.now_ms() + self._undo_ms
        await self.put_off(owner, session.id, due_at, was_archived=session.archived)
        if not session.archived:
            await self._sessions.change(owner, session.id, SessionPatch(archived=True))
        return due_at

    async def put_off(self, owner: str, session_id: str, due_at: int, *, was_archived: bool = True) -> None:
        """Have a session deleted at that time, whatever happens to this process."""
        value = {"owner": owner, "due_at": due_at, "was_archived": was_archived}
        await self._records.put(SYSTEM, _KIND, session_id, value)
        self._pending[session_id] = _Pending(owner, due_at, was_archived, self._clock)
        self._news.set()

    async def forget(self, session_id: str) -> None:
        """The session is gone already: nothing is left to do."""
        await self._records.delete(SYSTEM, _KIND, session_id)
        self._pending.pop(session_id, None)

    async def restore(self, owner: str, session_id: str) -> Session:
        """Raises Gone if it came too late, WrongState if there is nothing to restore."""
        await self._read(at_most_s=0.0)
        pending = self._pending.get(session_id)
        if pending is None or pending.owner != owner:
            await self._sessions.get(owner, session_id)
            raise WrongState(f"Session {session_id} is not deleted.", hint="There is nothing to restore.")
        if pending.due <= self._clock.monotonic():
            raise Gone("session", session_id)
        # Out of the list before anything is awaited: the purge may become due while we wait.
        del self._pending[session_id]
        if not await self._records.delete(SYSTEM, _KIND, session_id):
            raise Gone("session", session_id)
        return await self._sessions.change(owner, session_id, SessionPatch(archived=pending.was_archived))

    async def is_hidden(self, session_id: str) -> bool:
        await self._read(at_most_s=_BELIEVE_S)
        return session_id in self._pending

    async def hidden(self) -> frozenset[str]:
        await self._read(at_most_s=_BELIEVE_S)
        return frozenset(self._pending)

    async def _read(self, *, at_most_s: float) -> None:
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < at_most_s:
            return
        self._read_at = now
        before = set(self._pending)
        found = await self._records.list(SYSTEM, _KIND)
        # What was hidden or taken back here while the list was read is not as the list says.
        since = {ident: pending for ident, pending in self._pending.items() if ident not in before}
        ended = before - set(self._pending)
        self._pending = since | {
            ident: self._known(ident, value) for ident, value in found.items() if ident not in ended
        }

    def _known(self, ident: str, value: Any) -> _Pending:
        known = self._pending.get(ident)
        if known is not None and known.due_at == value["due_at"]:
            return known
        return _Pending(value["owner"], value["due_at"], value["was_archived"], self._clock)

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
            # The record stays, so nothing is forgotten; it is tried again when the store is back.
            _log.warning("deleted sessions could not be purged yet: %s", error.message)
            self._push_back()

    async def _purge_one(self, session_id: str, pending: _Pending) -> None:
        # Another process may have restored it since we read the list.
        if await self._records.get(SYSTEM, _KIND, session_id) is not None:
            try:
                await self._purge(pending.owner, session_id)
            except (Gone, NotFound):
                _log.debug("session %s is already gone", session_id)
            await self._records.delete(SYSTEM, _KIND, session_id)
        self._pending.pop(session_id, None)

    def _push_back(self) -> None:
        later = self._clock.monotonic() + _RETRY_S
        for pending in self._pending.values():
            pending.due = max(pending.due, later)
