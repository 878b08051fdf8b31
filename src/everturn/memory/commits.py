"""The commits of one process: which handles live here, what is owed to them, and the one commit of a session.

The ledger in the store is the truth about what is owed. This adds what only a process can know: which handles
live here, and which commit is under way. No lock is held while a provider runs; a second commit of the same
session waits for the first or is told. When to commit is not decided here (``memory``).
"""

from __future__ import annotations

import logging
from enum import StrEnum

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError
from everturn.domain.ids import Ids
from everturn.domain.memory import Begun, Ledger, MemoryProvider, NextCommit
from everturn.domain.probe import Moment, Probe
from everturn.memory.handles import Handles
from everturn.memory.providers import Providers
from everturn.memory.settings import MemorySettings
from everturn.memory.threaded_provider import ProviderFailed, ProviderMonitor

_log = logging.getLogger("everturn.memory")
_RACES_MAX = 20  # other processes that may change what is owed while we look; then the caller is told
_GRACE_MS = 10_000  # a holder's word outlives its timeout by this, so that it can write the outcome
_LAST_WORD_S = 2.0


class CommitOutcome(StrEnum):
    COMMITTED = "settled"  # one segment was taken in
    NOTHING = "nothing"  # nothing is owed; no provider was called
    BUSY = "busy"  # another commit of the session is under way
    NO_HANDLE = "no_handle"  # owed, but nobody here has the handle, and none was given
    FAILED = "failed"  # the provider failed; everything is still owed


class CommitResult(msgspec.Struct, frozen=True):
    """What a commit came to. ``left``: turns of the session that are still owed, where known."""

    outcome: CommitOutcome
    turns: int = 0
    left: int = 0
    error: str = ""


NOTHING = CommitResult(CommitOutcome.NOTHING)
_BUSY = CommitResult(CommitOutcome.BUSY, error="Somebody else commits it just now.")


class _UnderWay:
    """A commit of a session by this process; ``handle`` is the name of the one that it works with."""

    def __init__(self) -> None:
        self.handle = ""
        self.ended = anyio.Event()


class Commits:
    """``worker``: the id of the registered worker this belongs to, where there is one."""

    def __init__(
        self,
        ledger: Ledger,
        providers: Providers,
        *,
        clock: Clock,
        ids: Ids,
        settings: MemorySettings | None = None,
        probe: Probe | None = None,
        worker: str = "",
    ) -> None:
        self.ledger = ledger
        self.providers = providers
        self.settings = settings or MemorySettings()
        self._clock = clock
        self._probe = probe or Probe()
        self._worker = worker
        self._holder = worker or ids.make("mem")
        self._handles = Handles(self._holder)
        self._monitor = ProviderMonitor(clock)
        self._under_way: dict[str, _UnderWay] = {}

    @property
    def provider(self) -> str | None:
        """To whom turns are owed that complete now; None: memory is switched off."""
        return self.settings.provider or None

    def assign_worker(self, worker: str) -> None:
        """Let the handles opened from now on be this worker's: if it dies, others commit for it."""
        self._worker = self._holder = worker
        self._handles = Handles(worker)

    # --- handles -------------------------------------------------------------------------------------

    async def open(self, name: str | None = None) -> MemoryProvider:
        """A fresh handle, attached until ``close``. Raises NotFound."""
        handle = self.providers.open(name or self.settings.provider)
        self._handles.attach(handle)
        return handle

    def register(self, session_id: str, handle: MemoryProvider) -> str:
        """The session's turns are this handle's from now on; return the handle's name in the ledger."""
        return self._handles.register(session_id, handle) if session_id else ""

    def unregister(self, session_id: str, handle: MemoryProvider) -> bool:
        """Let go of the handle. What is owed stays owed; a commit that supplies it settles it."""
        return self._handles.unregister(session_id, handle)

    def current(self, session_id: str) -> MemoryProvider | None:
        """The handle to which the session's next completed turn is owed."""
        found = self._handles.current(session_id)
        return found[1] if found else None

    def name_of(self, handle: MemoryProvider | None) -> str:
        """How the ledger calls the handle; empty for none and for one that is not known here."""
        return (self._handles.name_of(handle) or "") if handle is not None else ""

    def forget(self, session_id: str) -> None:
        """The session was deleted: keep nothing about it."""
        self._handles.forget(session_id)

    @property
    def tracked(self) -> int:
        """How many sessions, handles and commits this process keeps track of."""
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

        False, and nothing is owed, if the turn is not completed, the session is private, or both are
        unknown. The engine has no need of it: completing a turn owes it in the same step.
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
        """Hand the oldest owed segment to its own handle, or to ``handle`` if that one is not here.

        Opens no handle. With ``wait`` False, a commit that is under way is told (BUSY). Cancelling leaves
        the segment owed, to be offered again under the same key.
        """
        if not session_id:  # guard: b15
            return NOTHING
        while (under_way := self._under_way.get(session_id)) is not None:
            if not wait:  # guard: b10
                return _BUSY
            await under_way.ended.wait()  # guard: b10
        # No await between the look above and the mark below: that is what makes it the only one here.
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
            moment = self._handles.moment
            found = await self.ledger.next(owner, session_id, self._holder)
            if found is None:
                self._handles.drop_idle(session_id, moment)
                return NOTHING
            if found.is_held:  # guard: b10
                return _BUSY
            picked = self._pick(session_id, found, given)
            if picked is None:
                return CommitResult(CommitOutcome.NO_HANDLE, left=found.turns)
            # Said before the commit is begun: whoever releases the handle from now on waits for it.
            own.handle, handle = picked
            begun = await self._begin(owner, session_id, found, own.handle)
            if begun is not None:
                return await self._deliver(begun, handle)
        return _BUSY

    async def _begin(self, owner: str, session_id: str, found: NextCommit, name: str) -> Begun | None:
        held_ms = round(self.settings.commit_timeout_s * 1000) + _GRACE_MS
        # Not cut short: whoever does not hear that it has begun cannot say that it was given up, and our hold
        # on it would keep others from it.
        with anyio.move_on_after(_GRACE_MS / 1000, shield=True):
            return await self.ledger.begin(owner, session_id, found, name, self._holder, held_ms)
        return None

    def _pick(
        self, session_id: str, found: NextCommit, given: MemoryProvider | None
    ) -> tuple[str, MemoryProvider] | None:
        """The handle that saw the segment; else the one given; else, for a segment that no handle saw,
        the session's own."""
        own = self._handles.find(session_id, found.handle)
        if own is not None:  # guard: b07
            return found.handle, own
        if (
            given is not None and given.name == found.provider  # guard: b09
        ):
            # Kept from before the attempt on, so that a retry finds it if the attempt fails.
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
            moment = self._handles.moment
            left = await self.ledger.settle(begun)
            is_recorded = True
        except ProviderFailed as error:
            await self._record_failure(begun, error.message)
            is_recorded = True
            return CommitResult(CommitOutcome.FAILED, left=len(begun.segment.turns), error=error.message)
        finally:
            if not is_recorded:
                # Cancelled, or the store went away: the outcome is unknown. Said at once where possible, so
                # that nobody waits for our hold to run out.
                with anyio.move_on_after(_LAST_WORD_S, shield=True):
                    await self._record_failure(
                        begun, "It was interrupted; whether it was taken in is unknown."
                    )
        if not left:  # guard: b04 always
            self._handles.drop_idle(session_id, moment)
        await self._probe.reach(Moment.MEMORY_SETTLED, session_id)
        return CommitResult(CommitOutcome.COMMITTED, turns=len(begun.segment.turns), left=left)

    async def _record_failure(self, begun: Begun, error: str) -> None:
        retry_at = self._clock.now_ms() + round(1000 * self._backoff_s(begun.attempts))
        try:
            await self.ledger.failed(begun, self._holder, error, retry_at)
        except EverturnError as trouble:
            # The range is durable and our hold on it runs out: it is retried all the same, only later.
            _log.warning("commit of %s: %s", begun.segment.session_id, trouble.message)

    def _backoff_s(self, attempts: int) -> float:
        longest = self.settings.retry_longest_s
        return min(longest, self.settings.retry_first_s * 2.0 ** min(attempts - 1, 30))
