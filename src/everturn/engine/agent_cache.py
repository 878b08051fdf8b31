"""The agent cache: what is expensive to build, or must stay byte-identical, kept per session key.

A warm agent belongs to no session: a turn binds it and releases it when it ends. About a session the cache
knows only its baseline: the transcript's version after the last turn that ran here, and the history at that
version. If the version has changed, another process has written, and the history is read again.

An evicted entry leaves the map at once. Closing its agent (committing what memory is owed, closing the
handle) runs in the background, so that no turn waits for a slow provider.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Generic, TypeVar

import anyio
import msgspec
from msgspec import Meta

from everturn.domain.clock import Clock
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Message
from everturn.domain.turns import Usage
from everturn.engine.context import Shown

A = TypeVar("A")

Start = Callable[..., object]  # (name, coroutine function, *arguments): run it in the background if possible


class CacheBounds(msgspec.Struct, frozen=True, kw_only=True):
    agents_max: Annotated[int, Meta(description="Sessions kept warm in memory.")] = 64
    bytes_max: Annotated[int, Meta(description="Memory for the prompts and histories of warm sessions.")] = (
        64_000_000
    )
    idle_s: Annotated[float, Meta(description="A warm session unused for this long is released.")] = 1800.0
    look_s: float = 45.0
    # When a provider should have a prefix in its cache: it saw it so recently, and it is long enough.
    provider_keeps_s: float = 300.0
    provider_tokens_min: int = 1024


class VersionSpan(msgspec.Struct, frozen=True):
    """A transcript's versions around a turn: when the turn began, when its end was written, and after it."""

    seen: int
    before: int
    after: int


class Baseline(msgspec.Struct, frozen=True):
    """A session as this process left it."""

    version: int
    history: tuple[Message, ...]
    size: int
    given: Shown | None = None  # what of it the last model call was given


class CacheEntry(Generic[A]):
    """One warm agent. ``agent`` None: it is still being built."""

    def __init__(self, key: str, signature: str, used_at: float) -> None:
        self.key = key
        self.signature = signature
        self.agent: A | None = None
        self.size = 0
        self.ready = anyio.Event()
        self.turns = 0  # that run with it now
        self.used_at = used_at
        self.is_doomed = False
        self.retiring: anyio.Event | None = None
        self.is_retired = False
        self.baselines: OrderedDict[str, Baseline] = OrderedDict()  # the least recently used first
        self._history_bytes = 0
        # An entry of an older release has one version and does not say of which session; or none at all.
        self.version_of_any: int | None = None
        self.is_tracked = True
        self.sent: dict[str, tuple[float, str, int]] = {}  # model -> when, session, input tokens

    @property
    def is_pending(self) -> bool:
        return self.agent is None

    @property
    def is_free(self) -> bool:
        return not self.is_pending and self.turns == 0

    @property
    def bytes(self) -> int:
        return self.size + self._history_bytes

    def keep(self, session_id: str, baseline: Baseline) -> None:
        self.drop(session_id)
        self.baselines[session_id] = baseline
        self._history_bytes += baseline.size

    def drop(self, session_id: str) -> None:
        before = self.baselines.pop(session_id, None)
        if before is not None:
            self._history_bytes -= before.size

    def read_again(self, session_id: str) -> None:
        """Note that the history may differ from what was last sent: only the prefix can be expected in the
        provider's cache."""
        for model, (at, sent_for, tokens) in self.sent.items():
            if sent_for == session_id:
                self.sent[model] = (at, "", tokens)

    def last_shown(self, session_id: str) -> Shown | None:
        baseline = self.baselines.get(session_id)
        return baseline.given if baseline is not None else None

    def is_foreign(self, session_id: str, version: int | None) -> bool:
        """True if another process has written the session since its baseline; False where that is unknown."""
        if not version or not self.is_tracked:
            return False
        baseline = self.baselines.get(session_id)
        if baseline is not None:  # guard: d04 d05
            return baseline.version != version
        return self.version_of_any is not None and self.version_of_any != version


class AgentCache(Generic[A]):
    """``retire`` ends an agent that left the cache; ``start`` runs that in the background."""

    def __init__(
        self,
        *,
        clock: Clock,
        retire: Callable[[A], Awaitable[None]],
        start: Start,
        bounds: CacheBounds | None = None,
    ) -> None:
        self._clock = clock
        self._retire = retire
        self._start = start
        self._bounds = bounds or CacheBounds()
        self._entries: OrderedDict[str, CacheEntry[A]] = OrderedDict()  # the least recently used first
        self._leaving: set[CacheEntry[A]] = set()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self._entries.values())

    def peek(self, key: str) -> CacheEntry[A] | None:
        return self._entries.get(key)

    def status(self) -> JsonObject:
        """Counters since the start, and how full the cache is."""
        return {
            "agents": len(self._entries),
            "leaving": len(self._leaving),
            "bytes": self.bytes,
            **{name: self.counts[name] for name in sorted(self.counts)},
        }

    # --- a turn ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def bind(
        self, key: str, signature: str, build: Callable[[], Awaitable[tuple[A, int]]]
    ) -> AsyncIterator[CacheEntry[A]]:
        """The key's agent for one turn. ``build`` makes it, with its size, if none has this signature.

        It is not evicted inside the context. Two turns that ask at once get one agent. Raises what ``build``
        raises.
        """
        entry = await self._take(key, signature, build)
        try:
            yield entry
        finally:
            entry.turns -= 1
            entry.used_at = self._clock.monotonic()
            if entry.is_doomed and entry.is_free:  # guard: d09
                self._start_closing(entry)
            self._trim()

    async def _take(
        self, key: str, signature: str, build: Callable[[], Awaitable[tuple[A, int]]]
    ) -> CacheEntry[A]:
        reason = "new"
        while True:
            entry = self._entries.get(key)
            if entry is None:  # guard: d01 always
                return await self._build(key, signature, build, reason)
            if entry.is_pending:  # guard: d07
                # Another turn is building it. If that fails, this one builds it.
                await entry.ready.wait()
                continue
            if entry.signature != signature:  # guard: d10
                reason = "changed"
                self.evict(key, "changed")
                continue
            self.counts["hits"] += 1
            entry.turns += 1
            self._touch(entry)
            return entry

    async def _build(
        self, key: str, signature: str, build: Callable[[], Awaitable[tuple[A, int]]], reason: str
    ) -> CacheEntry[A]:
        # In the map before the first await, so that a second turn sees that it is being built.
        entry = self._entries[key] = CacheEntry(key, signature, self._clock.monotonic())
        try:
            agent, size = await build()
        except BaseException:
            del self._entries[key]
            raise
        else:
            entry.agent, entry.size, entry.turns = agent, size, 1
            self.counts[f"builds_{reason}"] += 1
        finally:
            entry.ready.set()
        self._trim()
        return entry

    def _touch(self, entry: CacheEntry[A]) -> None:
        entry.used_at = self._clock.monotonic()
        self._entries.move_to_end(entry.key)  # guard: d09

    def put(
        self,
        key: str,
        signature: str,
        agent: A,
        *,
        size: int = 0,
        session_id: str | None = None,
        version: int | None = None,
    ) -> CacheEntry[A]:
        """Add an agent that was built elsewhere, e.g. by an older release.

        With a version but no session, the version is compared with that of the first session that uses it.
        Without a version it is never checked and gets no baseline.
        """
        if key in self._entries:
            self.evict(key, "replaced")
        entry = self._entries[key] = CacheEntry(key, signature, self._clock.monotonic())
        entry.agent, entry.size = agent, size
        entry.ready.set()
        entry.is_tracked = version is not None  # guard: d08
        if version is not None and session_id is not None:
            entry.keep(session_id, Baseline(version, (), 0))
        else:
            entry.version_of_any = version
        return entry

    # --- a session's history -----------------------------------------------------------------------

    async def history(
        self,
        entry: CacheEntry[A],
        session_id: str,
        version: int | None,
        load: Callable[[], Awaitable[Sequence[Message]]],
    ) -> tuple[Message, ...]:
        """The history of the baseline; loaded if there is none or another process has written since."""
        if entry.is_foreign(session_id, version):  # guard: d03
            self.counts["reloads_foreign"] += 1
            entry.drop(session_id)
            entry.read_again(session_id)
            return tuple(await load())
        baseline = entry.baselines.get(session_id)
        if baseline is None or not baseline.history:
            self.counts["reloads_first"] += 1
            entry.read_again(session_id)
            return tuple(await load())
        self.counts["histories_kept"] += 1
        entry.baselines.move_to_end(session_id)
        return baseline.history

    def refresh(
        self,
        entry: CacheEntry[A],
        session_id: str,
        versions: VersionSpan,
        *,
        history: Sequence[Message],
        given: Shown | None = None,
    ) -> None:
        """Make the end of a turn that completed here the session's new baseline, unless another process wrote
        while the turn ran: then our history is out of date."""
        if entry.is_pending or not entry.is_tracked:
            return
        if versions.seen != versions.before:  # guard: d03
            entry.drop(session_id)
            return
        kept = tuple(history)
        size = _size_after(entry.baselines.get(session_id), kept)
        entry.keep(session_id, Baseline(versions.after, kept, size, given))  # guard: d02
        entry.version_of_any = None
        self._trim()

    def forget_session(self, session_id: str) -> None:
        """Drop what is kept about a deleted session."""
        for entry in self._entries.values():
            entry.drop(session_id)

    # --- the provider's own cache ------------------------------------------------------------------

    def note_sent(
        self, entry: CacheEntry[A], model: str, session_id: str, usage: Usage, prefix_tokens: int
    ) -> bool:
        """Record a model call; True if its prefix should have been in the provider's cache and was not."""
        now = self._clock.monotonic()
        before = entry.sent.get(model)
        entry.sent[model] = (now, session_id, usage.input_tokens or 0)
        if before is None:
            return False
        if usage.cached_tokens is None:  # guard: d11
            return False
        at, last_session, last_tokens = before
        # In one session the whole request before is the beginning of this one; else only the prefix is.
        shared = max(prefix_tokens, last_tokens) if last_session == session_id else prefix_tokens
        bounds = self._bounds
        if now - at > bounds.provider_keeps_s or shared < bounds.provider_tokens_min:
            return False
        is_missed = usage.cached_tokens == 0
        self.counts["provider_misses" if is_missed else "provider_hits"] += 1
        return is_missed

    # --- leaving -----------------------------------------------------------------------------------

    def evict(self, key: str, reason: str) -> bool:
        """Remove the agent; False if there is none or it is still being built. A running turn keeps it."""
        entry = self._entries.get(key)
        if entry is None or entry.is_pending:
            return False
        del self._entries[key]  # guard: b14
        self.counts[f"evictions_{reason}"] += 1
        entry.is_doomed = True
        self._leaving.add(entry)
        if entry.is_free:
            self._start_closing(entry)
        return True

    def discard(self, agent: A) -> None:
        """Close an agent whose building failed, so that it never was in the cache."""
        entry: CacheEntry[A] = CacheEntry("", "", self._clock.monotonic())
        entry.agent = agent
        self._leaving.add(entry)
        self._start_closing(entry)

    def look(self) -> None:
        """Evict agents that have been idle for too long."""
        oldest = self._clock.monotonic() - self._bounds.idle_s
        for entry in list(self._entries.values()):
            if entry.is_free and entry.used_at <= oldest:
                self.evict(entry.key, "idle")

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._bounds.look_s)
            self.look()  # guard: d09

    async def close(self) -> None:
        """Evict all agents and wait until they are closed. No turn may be running."""
        for key in list(self._entries):
            self.evict(key, "closed")
        async with anyio.create_task_group() as group:
            for entry in list(self._leaving):
                if entry.is_free:
                    group.start_soon(self._close_entry, entry, name=f"retire {entry.key}")

    def _trim(self) -> None:
        """Enforce the limits. Histories go first, because loading them again is cheap."""
        if self._is_within_bounds():  # as a rule, several times in each turn
            return
        while self.bytes > self._bounds.bytes_max and self._drop_history():
            self.counts["histories_dropped"] += 1
        # Agents in use or being built stay. The limit is enforced when they are released.
        for oldest in [entry for entry in self._entries.values() if entry.is_free]:
            if self._is_within_bounds():
                return
            self.evict(oldest.key, "full")

    def _is_within_bounds(self) -> bool:
        return len(self._entries) <= self._bounds.agents_max and self.bytes <= self._bounds.bytes_max

    def _drop_history(self) -> bool:
        for entry in self._entries.values():
            if entry.baselines:
                entry.drop(next(iter(entry.baselines)))
                return True
        return False

    def _start_closing(self, entry: CacheEntry[A]) -> None:
        # During shutdown nothing is started here; ``close`` closes it.
        self._start(f"retire {entry.key}", self._close_entry, entry)

    async def _close_entry(self, entry: CacheEntry[A]) -> None:
        """Close the entry's agent once, or wait until another task has. If that was cancelled, try again."""
        while not entry.is_retired:
            if entry.retiring is not None:
                await entry.retiring.wait()
                continue
            ended = entry.retiring = anyio.Event()
            try:
                if entry.agent is not None:
                    await self._retire(entry.agent)
                entry.is_retired = True
                self._leaving.discard(entry)
            finally:
                entry.retiring = None
                ended.set()


def _size_after(before: Baseline | None, history: tuple[Message, ...]) -> int:
    """The approximate size of the history. Only new messages are counted if it extends the one before."""
    known = len(before.history) if before is not None else 0
    if before is None or not 0 < known <= len(history) or before.history[-1] is not history[known - 1]:
        return sum(map(_size_of, history))
    return before.size + sum(map(_size_of, history[known:]))


def _size_of(message: Message) -> int:
    """The approximate size of a message in memory."""
    return 200 + sum(200 + len(getattr(part, "text", "")) for part in message.parts)
