"""Memory: who is owed what, and the commits that settle it.

The ledger in the store is the truth about what is owed. This object adds what only a process can know:
which handles live here, and which commit is under way. It holds no lock while a provider runs; a second
commit of the same session waits for the first or is told.

Usable without the server: open a store, give this object a provider, register handles, commit, drain.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, NotFound
from everturn.domain.ids import Ids
from everturn.domain.messages import Message
from everturn.domain.probe import Moment, Probe
from everturn.domain.remembering import Begun, Ledger, MemoryProvider, NextCommit, Owing
from everturn.memory.containing import ProviderFailed, ProviderState, Watch, call_within
from everturn.memory.handles import Handles
from everturn.memory.providers import Providers
from everturn.memory.settings import MemorySettings

_log = logging.getLogger("everturn.memory")
_SEGMENTS_MAX = 200  # that one settling of a session hands over; the rest comes at the next boundary
_RACES_MAX = 20  # other processes that may change what is owed while we look; then the caller is told
_GRACE_MS = 10_000  # a holder's word outlives its timeout by this, so that it can write the outcome
_LAST_WORD_S = 2.0


class Outcome(StrEnum):
    SETTLED = "settled"  # one segment was taken in
    NOTHING = "nothing"  # nothing is owed; no provider was called
    BUSY = "busy"  # another commit of the session is under way
    NO_HANDLE = "no_handle"  # owed, but nobody here has the handle, and none was given
    FAILED = "failed"  # the provider failed; everything is still owed


class Committed(msgspec.Struct, frozen=True):
    """What a commit came to. ``left``: turns of the session that are still owed, where known."""

    outcome: Outcome
    turns: int = 0
    left: int = 0
    error: str = ""


class Drained(msgspec.Struct, frozen=True):
    settled: int  # turns
    left: int  # sessions that still owe something
    is_complete: bool


_NOTHING = Committed(Outcome.NOTHING)
_BUSY = Committed(Outcome.BUSY)


class Memory:
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
        self._watch = Watch(clock)
        self._under_way: dict[str, anyio.Event] = {}
        self._at_work: dict[str, set[str]] = {}  # handle -> sessions whose commit it runs now
        self._spares: dict[str, MemoryProvider] = {}
        self.trouble = ""  # why the last look for what is owed failed, if it did

    @property
    def provider(self) -> str | None:
        """To whom turns are owed that complete now; None: memory is switched off."""
        return self.settings.provider or None

    def belong_to(self, worker: str) -> None:
        """Let the handles opened from now on be this worker's: if it dies, others commit for it."""
        self._worker = self._holder = worker
        self._handles = Handles(worker)

    # --- handles -------------------------------------------------------------------------------------

    async def open(self, name: str | None = None) -> MemoryProvider:
        """A fresh handle, attached until ``close``. Raises NotFound, ProviderFailed."""
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
        return len(self._handles) + len(self._under_way) + len(self._at_work)

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
        current = self._handles.current(session_id)
        if handle is not None:
            name, provider = self._handles.keep(session_id, handle), handle.name
        elif current is not None:
            name, provider = current[0], current[1].name
        else:
            name, provider = "", self.provider
        return await self.ledger.owe(owner, session_id, turn_id, provider, name, self._worker)

    async def has_uncommitted_work(self, owner: str, session_id: str) -> bool:
        return bool(session_id) and await self.ledger.next(owner, session_id, self._holder) is not None

    # --- committing ----------------------------------------------------------------------------------

    async def commit(
        self, owner: str, session_id: str, handle: MemoryProvider | None = None, *, wait: bool = True
    ) -> Committed:
        """Hand the oldest owed segment to its own handle, or to ``handle`` if that one is not here.

        Opens no handle. With ``wait`` False, a commit that is under way is told (BUSY). Cancelling leaves
        the segment owed, to be offered again under the same key.
        """
        if not session_id:
            return _NOTHING
        while (under_way := self._under_way.get(session_id)) is not None:
            if not wait:
                return _BUSY
            await under_way.wait()
        # No await between the look above and the mark below: that is what makes it the only one here.
        ended = self._under_way[session_id] = anyio.Event()
        try:
            return await self._commit(owner, session_id, handle)
        finally:
            del self._under_way[session_id]
            ended.set()

    async def _commit(self, owner: str, session_id: str, given: MemoryProvider | None) -> Committed:
        for _ in range(_RACES_MAX):
            found = await self.ledger.next(owner, session_id, self._holder)
            if found is None:
                self._handles.nothing_owed(session_id)
                return _NOTHING
            if found.is_held:
                return _BUSY
            picked = self._pick(session_id, found, given)
            if picked is None:
                return Committed(Outcome.NO_HANDLE, left=found.turns)
            name, handle = picked
            held_ms = round(self.settings.commit_timeout_s * 1000) + _GRACE_MS
            begun = await self.ledger.begin(owner, session_id, found, name, self._holder, held_ms)
            if begun is not None:
                return await self._working(begun, name, handle)
        return _BUSY

    async def _working(self, begun: Begun, name: str, handle: MemoryProvider) -> Committed:
        sessions = self._at_work.setdefault(name, set())
        sessions.add(begun.segment.session_id)
        try:
            return await self._hand_over(begun, name, handle)
        finally:
            sessions.discard(begun.segment.session_id)
            if not sessions:
                self._at_work.pop(name, None)

    def _pick(
        self, session_id: str, found: NextCommit, given: MemoryProvider | None
    ) -> tuple[str, MemoryProvider] | None:
        """The handle that saw the segment; else the one given; else, for a segment that no handle saw,
        the session's own."""
        own = self._handles.find(session_id, found.handle)
        if own is not None:
            return found.handle, own
        if given is not None and given.name == found.provider:
            # Kept from before the attempt on, so that a retry finds it if the attempt fails.
            return self._handles.keep(session_id, given), given
        current = self._handles.current(session_id)
        if not found.handle and current is not None and current[1].name == found.provider:
            return current
        return None

    async def _hand_over(self, begun: Begun, name: str, handle: MemoryProvider) -> Committed:
        session_id = begun.segment.session_id
        await self._probe.reach(Moment.MEMORY_STARTED, session_id)
        is_told = False
        try:
            await self._watch.call(
                begun.provider,
                "commit",
                self.settings.commit_timeout_s,
                lambda: handle.commit(begun.segment),
            )
            await self._probe.reach(Moment.MEMORY_RETURNED, session_id)
            left = await self.ledger.settle(begun)
            is_told = True
        except ProviderFailed as error:
            await self._failed(begun, error.message)
            is_told = True
            return Committed(Outcome.FAILED, left=len(begun.segment.turns), error=error.message)
        finally:
            if not is_told:
                # Cancelled, or the store went away: the outcome is unknown. Said at once where possible, so
                # that nobody waits for our hold to run out.
                with anyio.move_on_after(_LAST_WORD_S, shield=True):
                    await self._failed(begun, "It was interrupted; whether it was taken in is unknown.")
        self._handles.settled(session_id, name)
        await self._probe.reach(Moment.MEMORY_SETTLED, session_id)
        return Committed(Outcome.SETTLED, turns=len(begun.segment.turns), left=left)

    async def _failed(self, begun: Begun, error: str) -> None:
        retry_at = self._clock.now_ms() + round(1000 * self._backoff_s(begun.attempts))
        try:
            await self.ledger.failed(begun, self._holder, error, retry_at)
        except EverturnError as trouble:
            # The range is durable and our hold on it runs out: it is retried all the same, only later.
            _log.warning("commit of %s: %s", begun.segment.session_id, trouble.message)

    def _backoff_s(self, attempts: int) -> float:
        longest = self.settings.retry_longest_s
        return min(longest, self.settings.retry_first_s * 2.0 ** min(attempts - 1, 30))

    # --- boundaries ----------------------------------------------------------------------------------

    async def settle(self, owner: str, session_id: str) -> Committed:
        """Commit all that the session owes, segment by segment. Opens a fresh handle for a segment whose
        own is not here, e.g. after a restart. For boundaries: the session is left, idle, compacted."""
        turns = 0
        done = _NOTHING
        for _ in range(_SEGMENTS_MAX):
            done = await self.commit(owner, session_id)
            if done.outcome is Outcome.NO_HANDLE:
                done = await self._commit_with_spare(owner, session_id)
            turns += done.turns
            if done.outcome is Outcome.SETTLED and done.left:
                continue
            if done.outcome in (Outcome.SETTLED, Outcome.NOTHING):
                self._handles.forget(session_id)
                return Committed(Outcome.SETTLED if turns else Outcome.NOTHING, turns=turns)
            break
        return msgspec.structs.replace(done, turns=turns)

    async def _commit_with_spare(self, owner: str, session_id: str) -> Committed:
        found = await self.ledger.next(owner, session_id, self._holder)
        if found is None:
            return _NOTHING
        try:
            spare = await self._spare(found.provider)
        except NotFound as error:
            return Committed(Outcome.NO_HANDLE, left=found.turns, error=error.message)
        return await self.commit(owner, session_id, spare)

    async def _spare(self, provider: str) -> MemoryProvider:
        """A handle that belongs to no agent, opened when it is first needed."""
        spare = self._spares.get(provider)
        if spare is None:
            spare = self._spares[provider] = await self.open(provider)
        return spare

    async def release(self, handle: MemoryProvider, *, is_last: bool = False) -> None:
        """An agent is evicted: commit every session that owes something to its handle, wait for commits
        under way, then close the handle, once. What fails stays owed, to be committed by another.

        ``is_last``: everything that fits was drained just now; only close it.
        """
        name = self._handles.name_of(handle)
        if name is None:
            return
        if not is_last:
            await self._settle_for(name)
        # Also one whose turns are not owed any more, because they were undone while it runs.
        for session_id in list(self._at_work.get(name, ())):
            under_way = self._under_way.get(session_id)
            if under_way is not None:
                await under_way.wait()
        if self._handles.detach(handle):
            # Whoever released it at the same time finds it detached: it is closed once.
            await self._close(handle)

    async def _settle_for(self, name: str) -> None:
        room = anyio.CapacityLimiter(self.settings.commits_at_once)
        async with anyio.create_task_group() as group:
            for owing in await self._owing_to(name):
                group.start_soon(self._release_session, owing, name, room, name=f"settle {owing.session_id}")

    async def _owing_to(self, name: str) -> list[Owing]:
        return await self.ledger.owing(handle=name, limit=self.settings.owing_max)

    async def _release_session(self, owing: Owing, name: str, room: anyio.CapacityLimiter) -> None:
        async with room:
            await self._contained(f"commit of {owing.session_id}", self._settle_handle, owing, name)

    async def _settle_handle(self, owing: Owing, name: str) -> None:
        """Commit until this handle owes nothing in this session; older segments of others come first."""
        for _ in range(_SEGMENTS_MAX):
            done = await self.commit(owing.owner, owing.session_id)
            if done.outcome is not Outcome.SETTLED:
                return
            if not any(left.session_id == owing.session_id for left in await self._owing_to(name)):
                return

    async def _close(self, handle: MemoryProvider) -> None:
        try:
            await self._watch.call(handle.name, "close", self.settings.close_timeout_s, handle.close)
        except ProviderFailed as error:
            _log.warning("%s", error.message)

    async def drain(self, within_s: float | None = None) -> Drained:
        """Settle everything owed by handles of this process or of nobody, within a bounded time.

        Waits for commits under way, then takes what became owed meanwhile. What does not fit stays owed.
        """
        limit = self.settings.drain_s if within_s is None else within_s
        count = _Count()
        try:
            await call_within(self._clock, limit, lambda: self._drain(count))
        except TimeoutError:
            _log.warning("memory: not everything could be committed in %g s; it stays owed", limit)
        left = [owing for owing in await self._owing() if not owing.is_elsewhere]
        return Drained(count.turns, len(left), not left)

    async def _drain(self, count: _Count) -> None:
        tried: set[tuple[str, int]] = set()
        while True:
            found = [owing for owing in await self._owing() if not owing.is_elsewhere]
            # A session is tried again only if it owes more than when it was tried: new turns came.
            new = [owing for owing in found if (owing.session_id, owing.turns) not in tried]
            if not new:
                return
            tried.update((owing.session_id, owing.turns) for owing in new)
            await self._settle_all(new, count)

    async def close(self) -> None:
        """Close the handles that were opened here for what a restart had left."""
        spares, self._spares = self._spares, {}
        for handle in spares.values():
            self._handles.detach(handle)
            await self._close(handle)

    # --- looking by itself -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Commit what a crash has left, then look for idle sessions and due retries, without end."""
        await self._contained("start-up", self._settle_left)
        while True:
            await self._clock.sleep(self.settings.look_s)
            await self._contained("look", self.look)

    async def look(self) -> int:
        """Settle what is due now: sessions that are idle, commits that may be tried again."""
        quiet_since = self._clock.now_ms() - round(self.settings.idle_s * 1000)
        due = await self._owing(quiet_since)
        count = _Count()
        await self._settle_all([owing for owing in due if not owing.is_elsewhere], count)
        return count.turns

    async def _settle_left(self) -> None:
        await self._settle_all([owing for owing in await self._owing() if not owing.is_elsewhere], _Count())

    async def _owing(self, quiet_since: int | None = None) -> list[Owing]:
        return await self.ledger.owing(
            worker=self._worker, limit=self.settings.owing_max, quiet_since=quiet_since
        )

    async def _settle_all(self, sessions: Sequence[Owing], count: _Count) -> None:
        room = anyio.CapacityLimiter(self.settings.commits_at_once)
        async with anyio.create_task_group() as group:
            for owing in sessions:
                group.start_soon(self._settle_one, owing, room, count, name=f"settle {owing.session_id}")

    async def _settle_one(self, owing: Owing, room: anyio.CapacityLimiter, count: _Count) -> None:
        async with room:
            await self._contained(f"commit of {owing.session_id}", self._settle_counted, owing, count)

    async def _settle_counted(self, owing: Owing, count: _Count) -> None:
        count.turns += (await self.settle(owing.owner, owing.session_id)).turns

    async def _contained(self, what: str, act: Any, *args: Any) -> None:
        """The store may be away: that is said, and the next look tries again."""
        try:
            await act(*args)
            self.trouble = ""
        except EverturnError as error:
            self.trouble = error.message
            _log.warning("memory, %s: %s", what, error.message)

    # --- for a turn ------------------------------------------------------------------------------------

    async def recall_frozen(
        self, handle: MemoryProvider, owner: str, session_id: str, session_key: str, prompt: str
    ) -> str:
        """Recall for a session's first prompt and keep it: every later turn sends the same bytes."""
        text = await self.recall(handle, owner, session_key, prompt)
        return await self.ledger.keep_recalled(owner, session_id, text)

    async def holds(self, handle: MemoryProvider, owner: str, recalled: str) -> bool:
        """Whether what was recalled before may still be used. A provider whose user can delete things by
        himself has a method ``holds(owner, recalled)``; without one, or if it fails, it may."""
        ask = getattr(handle, "holds", None)
        if not recalled or ask is None:
            return True
        try:
            return bool(
                await self._watch.call(
                    handle.name, "look", self.settings.recall_timeout_s, lambda: ask(owner, recalled)
                )
            )
        except ProviderFailed as error:
            _log.warning("%s", error.message)
            return True

    async def recall(self, handle: MemoryProvider, owner: str, session_key: str, prompt: str) -> str:
        """What the provider has for this prompt; nothing if it fails or takes too long. Never raises."""
        try:
            text = await self._watch.call(
                handle.name,
                "recall",
                self.settings.recall_timeout_s,
                lambda: _text_from(handle, owner, session_key, prompt),
            )
        except ProviderFailed as error:
            _log.warning("%s", error.message)
            return ""
        # It goes before the model and into the store, whoever wrote the provider.
        return text.replace("\x00", "")[: self.settings.recall_chars_max]

    async def observe(
        self, handle: MemoryProvider, owner: str, session_id: str, messages: Sequence[Message]
    ) -> None:
        """Tell the handle of a finished turn. Never raises."""
        try:
            await self._watch.call(
                handle.name,
                "observe",
                self.settings.observe_timeout_s,
                lambda: handle.observe(owner, session_id, messages),
            )
        except ProviderFailed as error:
            _log.warning("%s", error.message)

    def states(self) -> list[ProviderState]:
        """How the providers that were called behaved."""
        return self._watch.states()

    def status(self) -> dict[str, Any]:
        """How memory is, for health pages: providers, commits under way, trouble with the store."""
        return {
            "provider": self.settings.provider,
            "providers": [msgspec.to_builtins(state) for state in self._watch.states()],
            "under_way": len(self._under_way),
            "sessions_under_way": sorted(self._under_way),
            "tracked": self.tracked,
            "trouble": self.trouble,
        }


async def _text_from(handle: MemoryProvider, owner: str, session_key: str, prompt: str) -> str:
    text: object = await handle.recall(owner, session_key, prompt)
    if not isinstance(text, str):
        raise TypeError(f"it gave a {type(text).__name__} instead of a text")
    return text.encode("utf-8", "replace").decode()


class _Count:
    """How many turns were settled, also when the counting task is cut short."""

    def __init__(self) -> None:
        self.turns = 0
