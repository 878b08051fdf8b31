"""Decides when owed turns are committed, and calls the provider for a running turn.

Commits are due when a session is left, idle, cleared or compacted, when an agent is evicted, at the start and
at the end. How a commit is made is in ``commits``; ``Memory`` extends that class, because a program without a
server uses both as one object.

Usable without the server: open a store, give this object a provider, register handles, commit, drain.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

import anyio
import msgspec

from everturn.domain.clock import call_within
from everturn.domain.errors import EverturnError, NotFound
from everturn.domain.json_types import JsonObject
from everturn.domain.memory import Ledger, MemoryProvider, Owing
from everturn.domain.messages import Message
from everturn.domain.runtime import Runtime
from everturn.memory.commits import NOTHING, CommitOutcome, CommitResult, Commits
from everturn.memory.provider_monitor import ProviderFailed, ProviderState
from everturn.memory.providers import Providers
from everturn.memory.settings import MemorySettings

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger("everturn.memory")
_SEGMENTS_MAX = 200  # per ``commit_session``; the rest is committed next time


class DrainResult(msgspec.Struct, frozen=True):
    committed: int  # turns
    left: int  # sessions that still owe something
    is_complete: bool


class _Act(Protocol):
    async def __call__(self, owner: str, session_id: str, /) -> CommitResult: ...


class Memory(Commits):
    """Makes the commits of a process when they are due."""

    def __init__(
        self,
        ledger: Ledger,
        providers: Providers,
        runtime: Runtime,
        *,
        settings: MemorySettings | None = None,
        worker: str = "",
    ) -> None:
        super().__init__(ledger, providers, runtime, settings=settings, worker=worker)
        self._spares: dict[str, MemoryProvider] = {}  # provider -> a handle that belongs to no agent
        self.trouble = ""  # why the store could not be asked what is owed; empty if it could

    # --- commits that are due ------------------------------------------------------------------------

    async def commit_session(self, owner: str, session_id: str) -> CommitResult:
        """Commit everything that the session owes, segment by segment.

        Opens a new handle for a segment whose own is not in this process, for example after a restart.
        """
        turns = 0
        done = NOTHING
        for _ in range(_SEGMENTS_MAX):
            use_count = self._handles.use_count
            done = await self.commit(owner, session_id)
            if done.outcome is CommitOutcome.NO_HANDLE:  # guard: b16
                done = await self._commit_with_spare(owner, session_id)
            turns += done.turns
            if done.outcome is CommitOutcome.NOTHING:
                self._handles.release_session(session_id, use_count)
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
        """Commit every session that owes turns to an evicted agent's handle, then close the handle, once.

        Waits for commits under way. Turns whose commit fails stay owed, for another handle. ``is_last``: a
        drain has just committed what it could, so only close the handle.
        """
        name = self._handles.name_of(handle)
        if name is None:
            return
        if not is_last:
            await self._commit_owed_to(name)  # guard: b12
        # Also wait for a commit whose turns were undone meanwhile and are no longer owed.
        while (
            busy := next((each for each in self._under_way.values() if each.handle == name), None)
        ) is not None:
            await busy.ended.wait()
        # No await between the check above and this line, so no commit can have picked the handle since.
        if self._handles.detach(handle):  # guard: b12 always
            # A task that releases it at the same time finds it detached, so it is closed once.
            await self._close(handle)  # guard: b12

    async def _commit_owed_to(self, name: str) -> None:
        """Commit until nothing is owed to the handle.

        Older segments of other handles come first in a session; newer ones are left alone.
        """
        rounds = _CommitRounds()
        while new := rounds.new(
            await self.ledger.list_owing(handle=name, limit=self.settings.owing_max + len(rounds.stuck))
        ):
            await self._commit_each(new, self.commit, rounds)

    async def _close(self, handle: MemoryProvider) -> None:
        try:
            await self._monitor.call(handle.name, "close", self.settings.close_timeout_s, handle.close)
        except ProviderFailed as error:
            _log.warning("%s", error.message)

    async def drain(self, within_s: float | None = None) -> DrainResult:
        """Commit what is owed to handles of this process or of no living one, within a time limit.

        Waits for commits under way, then commits what became owed meanwhile. The rest stays owed.
        """
        limit = self.settings.drain_s if within_s is None else within_s
        rounds = _CommitRounds()
        try:
            await call_within(
                self._clock, limit, lambda: self._log_store_errors("drain", self._drain, rounds)
            )
        except TimeoutError:
            # A command that ends logs this to a terminal: nothing is lost, and there is nothing to do.
            _log.warning(
                "memory: the last turns were not searched within %g s for what to remember; "
                "the next start goes on",
                limit,
            )
        left = await self._log_store_errors("drain", self._list_owing)
        return DrainResult(rounds.turns, len(left or ()), left == [])

    async def _drain(self, rounds: _CommitRounds) -> None:
        while new := rounds.new(await self._list_owing(more=len(rounds.stuck))):
            await self._commit_each(new, self.commit_session, rounds)

    async def close(self) -> None:
        """Close the spare handles after their current commits, within the time limit of a drain."""
        try:
            await call_within(self._clock, self.settings.drain_s, self._close_spares)
        except TimeoutError:
            _log.warning("memory: a provider was still working after %g s", self.settings.drain_s)

    async def _close_spares(self) -> None:
        spares, self._spares = self._spares, {}
        for handle in spares.values():
            await self.release(handle, is_last=True)

    # --- the background task ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Commit what a crash left owed, then check for idle sessions and due retries, without end."""
        await self._log_store_errors("start-up", self._commit_leftovers)
        while True:
            await self._clock.sleep(self.settings.look_s)
            await self._log_store_errors("check", self.commit_due)

    async def commit_due(self) -> int:
        """Commit idle sessions and retry failed commits that are due; return the number of turns."""
        quiet_since = self._clock.now_ms() - round(self.settings.idle_s * 1000)
        rounds = _CommitRounds()
        await self._commit_each(await self._list_owing(quiet_since), self.commit_session, rounds)
        return rounds.turns

    async def _commit_leftovers(self) -> None:
        await self._commit_each(await self._list_owing(), self.commit_session, _CommitRounds())

    async def _list_owing(self, quiet_since: int | None = None, more: int = 0) -> list[Owing]:
        """Sessions that owe turns to handles of this process or of no living one."""
        return await self.ledger.list_owing(
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
                    self._commit_one, owing, act, rounds, room, name=f"commit {owing.session_id}"
                )

    async def _commit_one(
        self, owing: Owing, act: _Act, rounds: _CommitRounds, room: anyio.CapacityLimiter
    ) -> None:
        async with room:
            what = f"commit of {owing.session_id}"
            rounds.record(owing, await self._log_store_errors(what, act, owing.owner, owing.session_id))

    async def _log_store_errors(
        self, what: str, act: Callable[P, Awaitable[T]], *args: P.args, **named: P.kwargs
    ) -> T | None:
        """The result of ``act``; None, and a log line, if the store cannot be reached."""
        try:
            result = await act(*args, **named)
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
        """Recall facts for a session's first prompt and keep the text: later turns send the same bytes."""
        text = await self.recall(handle, owner, session_key, prompt)
        return await self.ledger.keep_recalled(owner, session_id, text)

    async def holds(self, handle: MemoryProvider, owner: str, recalled: str) -> bool:
        """Whether recalled text may still be used.

        A provider whose users can delete facts has a method ``holds(owner, recalled)``. Without it, or if it
        fails, the text may be used.
        """
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
        """The provider's text for this prompt; empty if it fails or takes too long. Does not raise."""
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
        # A provider is foreign code: its text is bounded and cleaned before it reaches the model and the
        # store.
        return text.replace("\x00", "")[: self.settings.recall_chars_max]

    async def observe(
        self, handle: MemoryProvider, owner: str, session_id: str, messages: Sequence[Message]
    ) -> None:
        """Pass a finished turn to the handle. Does not raise."""
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
        """The condition of every provider that was called."""
        return self._monitor.states()

    def status(self) -> JsonObject:
        """The state of memory for health pages: providers, commits under way, store errors."""
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
        raise TypeError(f"it returned a {type(text).__name__} instead of a text")
    return text.encode("utf-8", "replace").decode()


class _CommitRounds:
    """The result of commits in rounds, valid also if they are interrupted.

    ``turns``: how many were committed. ``stuck``: sessions whose commit failed, with the number of turns they
    owed; they are tried again only when they owe more.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.stuck: dict[str, int] = {}

    def new(self, owing: Sequence[Owing]) -> list[Owing]:
        return [each for each in owing if each.turns > self.stuck.get(each.session_id, 0)]

    def record(self, owing: Owing, done: CommitResult | None) -> None:
        self.turns += done.turns if done is not None else 0
        if done is not None and done.outcome is CommitOutcome.COMMITTED:  # guard: b11
            self.stuck.pop(owing.session_id, None)
        else:
            self.stuck[owing.session_id] = owing.turns  # guard: b11
