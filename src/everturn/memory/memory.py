"""Memory: the boundaries at which what is owed is committed, and what a turn asks of a provider.

A boundary is a session that is left, idle or compacted, an agent that is evicted, the start, the end. The
commits themselves are in ``commits``.

Usable without the server: open a store, give this object a provider, register handles, commit, drain.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import anyio
import msgspec

from everturn.domain.clock import Clock, call_within
from everturn.domain.errors import EverturnError, NotFound
from everturn.domain.ids import Ids
from everturn.domain.memory import Ledger, MemoryProvider, Owing
from everturn.domain.messages import Message
from everturn.domain.probe import Probe
from everturn.memory.commits import NOTHING, CommitOutcome, CommitResult, Commits
from everturn.memory.providers import Providers
from everturn.memory.settings import MemorySettings
from everturn.memory.threaded_provider import ProviderFailed, ProviderState

T = TypeVar("T")

_log = logging.getLogger("everturn.memory")
_SEGMENTS_MAX = 200  # that one settling of a session hands over; the rest comes at the next boundary


class DrainResult(msgspec.Struct, frozen=True):
    committed: int  # turns
    left: int  # sessions that still owe something
    is_complete: bool


class _Act(Protocol):
    async def __call__(self, owner: str, session_id: str, /) -> CommitResult: ...


class Memory(Commits):
    """The commits of a process, made when they are due."""

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
        super().__init__(
            ledger, providers, clock=clock, ids=ids, settings=settings, probe=probe, worker=worker
        )
        self._spares: dict[str, MemoryProvider] = {}
        self.trouble = ""  # why the last look for what is owed failed, if it did

    # --- boundaries ----------------------------------------------------------------------------------

    async def commit_session(self, owner: str, session_id: str) -> CommitResult:
        """Commit all that the session owes, segment by segment. Opens a fresh handle for a segment whose
        own is not here, e.g. after a restart. For boundaries: the session is left, idle, compacted."""
        turns = 0
        done = NOTHING
        for _ in range(_SEGMENTS_MAX):
            moment = self._handles.moment
            done = await self.commit(owner, session_id)
            if done.outcome is CommitOutcome.NO_HANDLE:  # guard: b16
                done = await self._commit_with_spare(owner, session_id)
            turns += done.turns
            if done.outcome is CommitOutcome.NOTHING:
                self._handles.release_session(session_id, moment)
                return CommitResult(CommitOutcome.COMMITTED if turns else CommitOutcome.NOTHING, turns=turns)
            if done.outcome is not CommitOutcome.COMMITTED:
                break
        return msgspec.structs.replace(done, turns=turns)

    async def _commit_with_spare(self, owner: str, session_id: str) -> CommitResult:
        found = await self.ledger.next(owner, session_id, self._holder)
        if found is None:
            return NOTHING
        try:
            spare = await self._spare(found.provider)
        except NotFound as error:
            return CommitResult(CommitOutcome.NO_HANDLE, left=found.turns, error=error.message)
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
            await self._commit_owed_to(name)  # guard: b12
        # Also one whose turns are not owed any more, because they were undone while it runs.
        while (
            busy := next((each for each in self._under_way.values() if each.handle == name), None)
        ) is not None:
            await busy.ended.wait()
        # No await between the look above and this: no commit can have picked it since.
        if self._handles.detach(handle):  # guard: b12 always
            # Whoever released it at the same time finds it detached: it is closed once.
            await self._close(handle)  # guard: b12

    async def _commit_owed_to(self, name: str) -> None:
        """Commit until the handle owes nothing. A session's older segments of others come first; its newer
        ones are left alone."""
        rounds = _CommitRounds()
        while new := rounds.new(
            await self.ledger.owing(handle=name, limit=self.settings.owing_max + len(rounds.stuck))
        ):
            await self._commit_each(new, self.commit, rounds)

    async def _close(self, handle: MemoryProvider) -> None:
        try:
            await self._monitor.call(handle.name, "close", self.settings.close_timeout_s, handle.close)
        except ProviderFailed as error:
            _log.warning("%s", error.message)

    async def drain(self, within_s: float | None = None) -> DrainResult:
        """Settle everything owed by handles of this process or of nobody, within a bounded time.

        Waits for commits under way, then takes what became owed meanwhile. What does not fit stays owed.
        """
        limit = self.settings.drain_s if within_s is None else within_s
        rounds = _CommitRounds()
        try:
            await call_within(
                self._clock, limit, lambda: self._log_store_errors("drain", self._drain, rounds)
            )
        except TimeoutError:
            _log.warning("memory: not everything could be committed in %g s; it stays owed", limit)
        left = await self._log_store_errors("drain", self._owing)
        return DrainResult(rounds.turns, len(left or ()), left == [])

    async def _drain(self, rounds: _CommitRounds) -> None:
        while new := rounds.new(await self._owing(more=len(rounds.stuck))):
            await self._commit_each(new, self.commit_session, rounds)

    async def close(self) -> None:
        """Close the handles that were opened here for what a restart had left, after what they are doing,
        but within the time that a drain has."""
        try:
            await call_within(self._clock, self.settings.drain_s, self._close_spares)
        except TimeoutError:
            _log.warning("memory: a provider was still at work after %g s", self.settings.drain_s)

    async def _close_spares(self) -> None:
        spares, self._spares = self._spares, {}
        for handle in spares.values():
            await self.release(handle, is_last=True)

    # --- looking by itself -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Commit what a crash has left, then look for idle sessions and due retries, without end."""
        await self._log_store_errors("start-up", self._commit_leftovers)
        while True:
            await self._clock.sleep(self.settings.look_s)
            await self._log_store_errors("look", self.commit_due)

    async def commit_due(self) -> int:
        """Settle what is due now: sessions that are idle, commits that may be tried again."""
        quiet_since = self._clock.now_ms() - round(self.settings.idle_s * 1000)
        rounds = _CommitRounds()
        await self._commit_each(await self._owing(quiet_since), self.commit_session, rounds)
        return rounds.turns

    async def _commit_leftovers(self) -> None:
        await self._commit_each(await self._owing(), self.commit_session, _CommitRounds())

    async def _owing(self, quiet_since: int | None = None, more: int = 0) -> list[Owing]:
        """What is owed by handles of this process or of nobody who lives."""
        return await self.ledger.owing(
            worker=self._worker,
            limit=self.settings.owing_max + more,
            quiet_since=quiet_since,
            is_elsewhere=False,
        )

    async def _commit_each(self, sessions: Sequence[Owing], act: _Act, rounds: _CommitRounds) -> None:
        room = anyio.CapacityLimiter(self.settings.commits_at_once)
        async with anyio.create_task_group() as group:
            for owing in sessions:
                group.start_soon(
                    self._commit_one, owing, act, rounds, room, name=f"settle {owing.session_id}"
                )

    async def _commit_one(
        self, owing: Owing, act: _Act, rounds: _CommitRounds, room: anyio.CapacityLimiter
    ) -> None:
        async with room:
            what = f"commit of {owing.session_id}"
            rounds.record(owing, await self._log_store_errors(what, act, owing.owner, owing.session_id))

    async def _log_store_errors(self, what: str, act: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """The store may be away: that is said, and the next look tries again."""
        try:
            result = await act(*args)
        except EverturnError as error:
            self.trouble = error.message
            _log.warning("memory, %s: %s", what, error.message)
            return None
        self.trouble = ""
        return result

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
                await self._monitor.call(
                    handle.name, "look", self.settings.recall_timeout_s, lambda: ask(owner, recalled)
                )
            )
        except ProviderFailed as error:
            _log.warning("%s", error.message)
            return True

    async def recall(self, handle: MemoryProvider, owner: str, session_key: str, prompt: str) -> str:
        """What the provider has for this prompt; nothing if it fails or takes too long. Never raises."""
        try:
            text = await self._monitor.call(
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
            await self._monitor.call(
                handle.name,
                "observe",
                self.settings.observe_timeout_s,
                lambda: handle.observe(owner, session_id, messages),
            )
        except ProviderFailed as error:
            _log.warning("%s", error.message)

    def states(self) -> list[ProviderState]:
        """How the providers that were called behaved."""
        return self._monitor.states()

    def status(self) -> dict[str, Any]:
        """How memory is, for health pages: providers, commits under way, trouble with the store."""
        return {
            "provider": self.settings.provider,
            "providers": [msgspec.to_builtins(state) for state in self._monitor.states()],
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


class _CommitRounds:
    """What commits in rounds have come to, also when they are cut short: how many ``turns`` were settled, and
    who is ``stuck``: a session that could not be settled is tried again only when it owes more than then."""

    def __init__(self) -> None:
        self.turns = 0
        self.stuck: dict[str, int] = {}

    def new(self, owing: Sequence[Owing]) -> list[Owing]:
        return [each for each in owing if each.turns > self.stuck.get(each.session_id, 0)]

    def record(self, owing: Owing, done: CommitResult | None) -> None:
        self.turns += done.turns if done is not None else 0
        if done is not None and done.outcome is CommitOutcome.COMMITTED:
            self.stuck.pop(owing.session_id, None)  # guard: b11
        else:
            self.stuck[owing.session_id] = owing.turns  # guard: b11
