"""The contract of a memory provider: few methods, so that a plug-in is forty lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.domain.messages import Message


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
