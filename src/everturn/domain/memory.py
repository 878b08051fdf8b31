"""The contract of a memory provider: few methods, so that a plug-in is forty lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from everturn.domain.messages import Message
from everturn.domain.turns import Usage


class Segment(msgspec.Struct, frozen=True):
    """The completed turns that one commit hands over. ``key`` is the same for every attempt."""

    owner: str
    session_id: str
    session_key: str
    from_turn: str
    to_turn: str
    turns: tuple[str, ...]
    messages: tuple[Message, ...]

    @property
    def key(self) -> str:
        return f"{self.session_id}:{self.from_turn}:{self.to_turn}"


class NextCommit(msgspec.Struct, frozen=True):
    """The oldest owed segment of a session: whose it is, and whether somebody commits it now."""

    provider: str
    handle: str
    turns: int
    is_held: bool = False  # somebody else's commit is under way


class Begun(msgspec.Struct, frozen=True):
    """A commit that is durable as under way; every attempt at it has the same key."""

    segment: Segment
    provider: str
    attempts: int


class Owing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session that owes turns to memory, for lists and for whoever settles them."""

    session_id: str
    owner: str
    title: str
    turns: int
    since: int
    provider: str
    is_under_way: bool = False
    is_elsewhere: bool = False  # a handle of another living process saw some of it
    attempts: int = 0
    failed_at: int | None = None
    retry_at: int | None = None
    error: str | None = None


class Recalled(msgspec.Struct, frozen=True):
    """What a session was given at its first prompt, if it was, and how often its owner has made memory
    forget: whoever keeps what was recalled before that must not use it any more."""

    text: str | None = None
    forgotten: int = 0


class Ledger(Protocol):
    """What is owed to memory, durably. Nothing here raises for a session that is gone."""

    async def owe(
        self, owner: str, session_id: str, turn_id: str | None, provider: str, handle: str, worker: str
    ) -> bool:
        """Owe a completed turn (default: the head), once; False if there is nothing to owe."""
        ...

    async def next(self, owner: str, session_id: str, holder: str) -> NextCommit | None: ...

    async def begin(
        self, owner: str, session_id: str, found: NextCommit, handle: str, holder: str, held_ms: int
    ) -> Begun | None:
        """Make the commit of what was found durable as under way; None if it is not so any more."""
        ...

    async def settle(self, begun: Begun) -> int:
        """The provider has the segment. Return how many turns of the session are still owed."""
        ...

    async def failed(self, begun: Begun, holder: str, error: str, retry_at: int) -> None: ...

    async def owing(
        self,
        owner: str = "",
        *,
        worker: str = "",
        handle: str = "",
        limit: int = 200,
        quiet_since: int | None = None,
        is_elsewhere: bool = True,
    ) -> list[Owing]:
        """Who owes something, to anybody or to this handle; with ``quiet_since`` only who is due: quiet
        since then, or to be retried; with ``is_elsewhere`` False without what another living worker saw."""
        ...

    async def standing(self, owner: str) -> tuple[list[Owing], dict[str, Any] | None]:
        """What is owed and what was settled last, of one moment."""
        ...

    async def recalled(self, owner: str, session_id: str) -> Recalled: ...

    async def keep_recalled(self, owner: str, session_id: str, text: str) -> str:
        """Freeze what was recalled for the session; return what is frozen, the first one wins."""
        ...

    async def drop_recalled(self, owner: str) -> None:
        """Something was forgotten: nothing that was recalled before may be used again."""
        ...

    async def spend(self, owner: str, purpose: str, model: str, usage: Usage) -> None: ...


class MemoryProvider(Protocol):
    @property
    def name(self) -> str: ...

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        """What to put before the model for this prompt; empty if nothing fits."""
        ...

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        """A turn has completed. Cheap: the work belongs into ``commit``."""
        ...

    async def commit(self, segment: Segment) -> None:
        """Take the segment in. Called again with the same key after a failure or a crash."""
        ...

    async def close(self) -> None: ...
