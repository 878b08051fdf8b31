"""The contracts of memory: what a provider implements, and the ledger of what is owed to providers.

``MemoryProvider`` has few methods, so that a plug-in is forty lines. An object that implements it is called a
handle. docs/memory.md explains the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Message
from everturn.domain.turns import Usage


class Segment(msgspec.Struct, frozen=True):
    """The completed turns of one commit.

    ``key`` is the same for every attempt. So ``from_turn`` and ``to_turn`` are those of the first attempt,
    even if one of its turns was undone since and is no longer in ``turns``.
    """

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
    """What the next commit of a session delivers: to which provider and handle, and how many turns."""

    provider: str
    handle: str
    turns: int
    is_held: bool = False  # another process is committing it


class Begun(msgspec.Struct, frozen=True):
    """A commit that the ledger has recorded as under way, and that its holder may now deliver."""

    segment: Segment
    provider: str
    attempts: int


class Owing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session that owes turns to memory, for lists and for the commits that are due."""

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
    """What was recalled for a session's first prompt, if anything was, and how often its owner has deleted
    from memory. What was recalled before the last deletion must not be used any more."""

    text: str | None = None
    forgotten: int = 0


class Ledger(Protocol):
    """What is owed to memory, durably. Nothing here raises for a session that is gone."""

    async def owe(
        self, owner: str, session_id: str, turn_id: str | None, provider: str, handle: str, worker: str
    ) -> bool:
        """Owe a completed turn (default: the head), once; False if there is nothing to owe."""
        ...

    async def next(self, owner: str, session_id: str, holder: str) -> NextCommit | None:
        """The segment to commit next: that of the last attempt, if it was not settled, else the oldest.
        None if nothing is owed. ``holder``: the process that asks, whose own commits do not count as held."""
        ...

    async def begin(
        self, owner: str, session_id: str, found: NextCommit, handle: str, holder: str, held_ms: int
    ) -> Begun | None:
        """Mark the commit of the found segment as under way, durably; None if it has changed since.

        ``handle``: the one that will take it. The commit is held for ``held_ms``: until then no other
        process commits for this session, unless the holder is known to be dead.
        """
        ...

    async def settle(self, begun: Begun) -> int:
        """Record that the provider has the segment: its turns are not owed any more, and the commit is over.
        Return how many turns of the session are still owed."""
        ...

    async def record_failure(self, begun: Begun, holder: str, error: str, retry_at: int) -> None:
        """Record why the commit failed and when to try again. Its turns stay owed, under the same key."""
        ...

    async def list_owing(
        self,
        owner: str = "",
        *,
        worker: str = "",
        handle: str = "",
        limit: int = 200,
        quiet_since: int | None = None,
        is_elsewhere: bool = True,
    ) -> list[Owing]:
        """Sessions that owe turns, to any handle or to this one. With ``quiet_since``, only those now due:
        idle since then, or to be retried. ``is_elsewhere`` False leaves out what another live worker saw."""
        ...

    async def read_status(self, owner: str) -> tuple[list[Owing], JsonObject | None]:
        """What is owed and what was committed last, read at one moment."""
        ...

    async def get_recalled(self, owner: str, session_id: str) -> Recalled: ...

    async def keep_recalled(self, owner: str, session_id: str, text: str) -> str:
        """Store what was recalled for the session; return what is stored. The first call wins."""
        ...

    async def drop_recalled(self, owner: str) -> None:
        """The owner deleted from memory: discard what was recalled before."""
        ...

    async def spend(self, owner: str, purpose: str, model: str, usage: Usage) -> None: ...


class StoredPage(msgspec.Struct, frozen=True):
    """A page of notes as the store has it. ``is_whole``: its content has the hash that the store names."""

    sha256: str
    content: bytes
    is_whole: bool = True


class NotePages(Protocol):
    """The pages of notes in the store, by owner and name (PostgreSQL)."""

    async def hashes(self, owner: str) -> dict[str, str]:
        """The names of the owner's pages, with the hashes of their contents."""
        ...

    async def read(self, owner: str, names: Sequence[str]) -> dict[str, StoredPage]: ...

    async def replace(
        self, owner: str, expected: Mapping[str, str], changes: Mapping[str, bytes | None]
    ) -> bool:
        """Write pages and delete those that are None, in one transaction, if the hashes are as expected.

        False, and nothing is written, if they are not: another process has changed the notes.
        """
        ...


class MemoryProvider(Protocol):
    @property
    def name(self) -> str: ...

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        """The text to give the model for this prompt; empty if there is none."""
        ...

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        """Called after a completed turn. Must be quick: the work belongs in ``commit``."""
        ...

    async def commit(self, segment: Segment) -> None:
        """Store the segment. Called again with the same key after a failure or a crash."""
        ...

    async def close(self) -> None: ...
