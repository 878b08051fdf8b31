"""The commits of one process. A session has at most one at a time.

The ledger in the store says what is owed. This class adds what only a process knows: its handles, and the
commits under way. No lock is held while a provider runs; a second commit of a session waits for the first or
returns BUSY. ``memory`` decides when to commit.
"""

from __future__ import annotations

import logging
from enum import StrEnum

import anyio
import msgspec

from everturn.domain.errors import EverturnError
from everturn.domain.memory import Begun, Ledger, MemoryProvider, NextCommit
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.memory.handles import Handles
from everturn.memory.provider_monitor import ProviderFailed, ProviderMonitor
from everturn.memory.providers import Providers
from everturn.memory.settings import MemorySettings

_log = logging.getLogger("everturn.memory")
_RACES_MAX = 20  # attempts to begin a commit while other processes change what is owed; then BUSY
_GRACE_MS = 10_000  # a hold outlasts the commit's timeout by this, so that the outcome can be written
_LAST_WRITE_S = 2.0


class CommitOutcome(StrEnum):
    COMMITTED = "settled"  # one segment was taken in; the value is what clients see
    NOTHING = "nothing"  # nothing is owed; no provider was called
    BUSY = "busy"  # another commit of the session is under way
    NO_HANDLE = "no_handle"  # owed, but the handle is not in this process, and none was given
    FAILED = "failed"  # the provider failed; everything is still owed


class CommitResult(msgspec.Struct, frozen=True):
    """The result of a commit. ``left``: turns of the session that are still owed, if known."""

    outcome: CommitOutcome
    turns: int = 0
    left: int = 0
    error: str = ""


NOTHING = CommitResult(CommitOutcome.NOTHING)
_BUSY = CommitResult(CommitOutcome.BUSY, error="Another commit of this session is under way.")


class _UnderWay:
    """A commit of a session by this process. ``handle``: the name of the handle it uses."""

    def __init__(self) -> None:
        self.handle = ""
        self.ended = anyio.Event()


class Commits:
    """Registers handles, marks turns as owed, and commits what is owed.

    ``worker``: the id of the registered worker that this belongs to, if there is one.
    """

    def __init__(
        self,
        ledger: Ledger,
        providers: Providers,
        runtime: Runtime,
        *,
        settings: MemorySettings | None = None,
        worker: str = "",
    ) -> None:
        self.ledger = ledger
        self.providers = providers
        self.settings = settings or MemorySettings()
        self._clock = runtime.clock
        self._probe = runtime.probe
        self._worker = worker
        self._holder = worker or runtime.ids.make("mem")  # under this name the ledger knows our commits
        self._handles = Handles(self._holder)
        self._monitor = ProviderMonitor(runtime.clock)
        self._under_way: dict[str, _UnderWay] = {}

    @property
    def provider(self) -> str | None:
        """The provider to which newly completed turns are owed; None if memory is off."""
        return self.settings.provider or None

    def assign_worker(self, worker: str) -> None:
        """Assign handles opened from now on to this worker: if it dies, others commit for it."""
        self._worker = self._holder = worker
        self._handles = Handles(worker)

    # --- handles -------------------------------------------------------------------------------------

    async def open(self, name: str | None = None) -> MemoryProvider:
        """A new handle, kept until it is released. Raises NotFound."""
        handle = self.providers.open(name or self.settings.provider)
        self._handles.attach(handle)
        return handle

    def register(self, session_id: str, handle: MemoryProvider) -> str:
        """Let the handle see the session's turns from now on; return its name in the ledger."""
        return self._handles.register(session_id, handle) if session_id else ""

    def unregister(self, session_id: str, handle: MemoryProvider) -> bool:
        """Stop using the handle. Turns stay owed; a commit that is given the handle can deliver them."""
        return self._handles.unregister(session_id, handle)

    def current(self, session_id: str) -> MemoryProvider | None:
        """The handle to which the session's next completed turn is owed."""
        found = self._handles.current(session_id)
        return found[1] if found else None

    def name_of(self, handle: MemoryProvider | None) -> str:
        """The handle's name in the ledger; empty for None and for an unknown handle."""
        return (self._handles.name_of(handle) or "") if handle is not None else ""

    def forget(self, session_id: str) -> None:
        """Drop everything about a session that was deleted."""
        self._handles.forget(session_id)

    @property
    def tracked(self) -> int:
        """The number of sessions, handles and commits that this process tracks."""
        return len(self._handles) + len(self._under_way)

    # --- owing ---------------------------------------------------------------------------------------

    async def mark_completed(
        self,
        owner: str,
        session_id: str,
        turn_id: str | None = None,
        handle: MemoryProvider | None = None,
    ) -> bool:
        """Owe a completed turn (default: the head) to the session's handle, durably, once.

        False if nothing is owed: the turn is not completed, the session is private, or one of them is
        unknown. The engine does not call this: completing a turn owes it in the same transaction.
        """
        if not session_id or self.provider is None:
            return False
        seen_by = handle if handle is not None else self.current(session_id)
        if seen_by is None:
            return await self.ledger.owe(owner, session_id, turn_id, self.provider, "", self._worker)
        with self._handles.hold(session_id, seen_by) as name:
            return await self.ledger.owe(owner, session_id, turn_id, seen_by.name, name, self._worker)

    async def has_uncommitted_work(self, owner: str, session_id: str) -> bool:
        return bool(session_id) and await self.ledger.next(owner, session_id, self._holder) is not None

    # --- committing ----------------------------------------------------------------------------------

    async def commit(
        self, owner: str, session_id: str, handle: MemoryProvider | None = None, *, wait: bool = True
    ) -> CommitResult:
        """Deliver the oldest owed segment to its own handle, or to ``handle`` if that one is not here.

        Opens no handle. With ``wait`` False, returns BUSY if a commit is under way. Cancelling leaves the
        segment owed; it is delivered again under the same key.
        """
        if not session_id:  # guard: b15
            return NOTHING
        while (under_way := self._under_way.get(session_id)) is not None:
            if not wait:  # guard: b10
                return _BUSY
            await under_way.ended.wait()  # guard: b10
        # No await between the check above and this line, so there is only one commit of the session.
        own = self._under_way[session_id] = _UnderWay()
        try:
            return await self._commit(owner, session_id, handle, own)
        finally:
            del self._under_way[session_id]  # guard: b17
            own.ended.set()

    async def _commit(
        self, owner: str, session_id: str, given: MemoryProvider | None, own: _UnderWay
    ) -> CommitResult:
        for _ in range(_RACES_MAX):
            use_count = self._handles.use_count
            found = await self.ledger.next(owner, session_id, self._holder)
            if found is None:
                self._handles.drop_idle(session_id, use_count)
                return NOTHING
            if found.is_held:  # guard: b10
                return _BUSY
            picked = self._pick(session_id, found, given)
            if picked is None:
                return CommitResult(CommitOutcome.NO_HANDLE, left=found.turns)
            # Set before the commit begins: a task that releases the handle from now on waits for it.
            own.handle, handle = picked
            begun = await self._begin(owner, session_id, found, own.handle)
            if begun is not None:
                return await self._deliver(begun, handle)
        return _BUSY

    async def _begin(self, owner: str, session_id: str, found: NextCommit, name: str) -> Begun | None:
        held_ms = round(self.settings.commit_timeout_s * 1000) + _GRACE_MS
        # Shielded: if cancelled after the write, we would not know that the commit has begun, could not
        # record its failure, and our hold would block other processes.
        with anyio.move_on_after(_GRACE_MS / 1000, shield=True):
            return await self.ledger.begin(owner, session_id, found, name, self._holder, held_ms)
        return None

    def _pick(
        self, session_id: str, found: NextCommit, given: MemoryProvider | None
    ) -> tuple[str, MemoryProvider] | None:
        """The handle that saw the segment; else the given one; else, if no handle saw it, the session's."""
        own = self._handles.find(session_id, found.handle)
        if own is not None:  # guard: b07
            return found.handle, own
        if (
            given is not None and given.name == found.provider  # guard: b09
        ):
            # Tracked before the attempt, so that a retry finds it if the attempt fails.
            return self._handles.keep(session_id, given), given
        current = self._handles.current(session_id)
        if not found.handle and current is not None and current[1].name == found.provider:
            return current
        return None

    async def _deliver(self, begun: Begun, handle: MemoryProvider) -> CommitResult:
        session_id = begun.segment.session_id
        is_recorded = False
        try:
            await self._probe.reach(Moment.MEMORY_STARTED, session_id)
            await self._monitor.call(
                begun.provider,
                "commit",
                self.settings.commit_timeout_s,
                lambda: handle.commit(begun.segment),
            )
            await self._probe.reach(Moment.MEMORY_RETURNED, session_id)
            use_count = self._handles.use_count
            left = await self.ledger.settle(begun)
            is_recorded = True
        except ProviderFailed as error:
            await self._record_failure(begun, error.message)
            is_recorded = True
            return CommitResult(CommitOutcome.FAILED, left=len(begun.segment.turns), error=error.message)
        finally:
            if not is_recorded:
                # Cancelled, or the store is unreachable: the outcome is unknown. Record that now if possible,
                # so that other processes need not wait for our hold to expire.
                with anyio.move_on_after(_LAST_WRITE_S, shield=True):
                    await self._record_failure(
                        begun, "It was interrupted; whether it was taken in is unknown."
                    )
        if not left:  # guard: b04 always
            self._handles.drop_idle(session_id, use_count)
        await self._probe.reach(Moment.MEMORY_SETTLED, session_id)
        return CommitResult(CommitOutcome.COMMITTED, turns=len(begun.segment.turns), left=left)

    async def _record_failure(self, begun: Begun, error: str) -> None:
        retry_at = self._clock.now_ms() + round(1000 * self._backoff_s(begun.attempts))
        try:
            await self.ledger.record_failure(begun, self._holder, error, retry_at)
        except EverturnError as trouble:
            # The commit is durable as begun and our hold expires: it is retried anyway, only later.
            _log.warning("commit of %s: %s", begun.segment.session_id, trouble.message)

    def _backoff_s(self, attempts: int) -> float:
        longest = self.settings.retry_longest_s
        return min(longest, self.settings.retry_first_s * 2.0 ** min(attempts - 1, 30))
