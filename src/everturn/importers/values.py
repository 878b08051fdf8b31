"""A conversation of another system, in one form for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from everturn.domain.events import Payload
from everturn.domain.messages import AnyPart, Role


class ForeignFile(msgspec.Struct, frozen=True):
    """An attachment. ``read`` gives its bytes; None if the export does not have them."""

    name: str
    read: Callable[[], bytes] | None = None


class ForeignMessage(msgspec.Struct, frozen=True):
    """``id`` and ``parent`` are those of the other system: they make a tree. ``at``: milliseconds."""

    id: str
    parent: str | None
    role: Role
    parts: tuple[AnyPart, ...]
    at: int
    model: str = ""
    files: tuple[ForeignFile, ...] = ()


class CutOff(msgspec.Struct, frozen=True):
    """A turn that was under way when the other system stopped: the events that its journal has."""

    message_id: str  # the user's message
    events: tuple[tuple[Payload, int], ...]


class Conversation(msgspec.Struct, frozen=True):
    """``current``: the message that it ends with; None: the last one. ``notes``: what does not come over."""

    source: str
    id: str
    title: str
    created_at: int
    updated_at: int
    messages: tuple[ForeignMessage, ...]
    current: str | None = None
    is_pinned: bool = False
    is_archived: bool = False
    tags: tuple[str, ...] = ()
    cut_off: CutOff | None = None
    notes: tuple[str, ...] = ()


class Unreadable(msgspec.Struct, frozen=True):
    """A conversation that cannot be read, and why."""

    id: str
    title: str
    why: str


class History(Protocol):
    """An opened export."""

    @property
    def total(self) -> int:
        """How many conversations it seems to have."""
        ...

    def __iter__(self) -> Iterator[Conversation | Unreadable]: ...

    def close(self) -> None: ...
