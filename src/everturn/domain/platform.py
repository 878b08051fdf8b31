"""The contract of a platform: it receives and sends. Everything durable is the business of ``delivery``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from everturn.domain.delivery import Chat, ChatKind, NewPart, OutgoingPart, RemoteFile, SeenChat, Update

# Stores an update; the platform acknowledges it when this has returned, and never if it raises.
Deliver = Callable[[Update], Awaitable[None]]


class Promises(msgspec.Struct, frozen=True):
    """What a platform itself guarantees. The docs show it, and the conformance suite checks it."""

    deduplicates: bool  # a part that is sent twice with one id arrives once
    redelivers: bool  # an update that was not acknowledged is delivered again
    keeps_updates_s: float | None = None  # for this long; None: not known


class SendLimits(msgspec.Struct, frozen=True):
    """How fast an account may send. 0: no limit of ours."""

    per_s_max: float = 0
    chat_spacing_s: float = 0
    group_spacing_s: float = 0  # in groups, where it is longer

    def spacing_s(self, kind: ChatKind) -> float:
        """How long after a part the next one may follow in a chat of this kind."""
        return max(self.chat_spacing_s, self.group_spacing_s if kind is ChatKind.GROUP else 0)


class Features(msgspec.Struct, frozen=True):
    """What a platform can show beyond text."""

    edits: bool
    buttons: bool
    files: bool
    typing: bool


class Identity(msgspec.Struct, frozen=True):
    """Who an account is on its platform. ``link``: where people find it, if there is such an address."""

    id: str
    name: str
    link: str = ""


# The account's chats, as far as they are stored.
FindSeen = Callable[[], Awaitable[Sequence[SeenChat]]]


@runtime_checkable
class ReadsHistory(Protocol):
    """A platform that keeps no updates for an account that is offline, and whose history can be read
    later."""

    def use_history(self, find_seen: FindSeen) -> None:
        """Deliver, at the start of each connection, what was written in these chats meanwhile."""
        ...


class Platform(Protocol):
    """One account on a platform. Used by one worker at a time."""

    @property
    def name(self) -> str:
        """The platform's name in session keys, such as ``telegram``."""
        ...

    @property
    def promises(self) -> Promises: ...

    @property
    def limits(self) -> SendLimits: ...

    @property
    def features(self) -> Features: ...

    async def identify(self) -> Identity:
        """Ask the platform who the account is. Raises PlatformRefused with the platform's reason if its
        token is wrong, PlatformBusy."""
        ...

    async def receive(self, deliver: Deliver) -> None:
        """Deliver updates, those of one chat in their order, until cancelled.

        Returning is a failure like raising: it is called again after a pause. A press is acknowledged like
        a message, after ``deliver`` has returned. A kind of update that is not known is acknowledged and
        counted, never an error.
        """
        ...

    async def send(self, part: OutgoingPart) -> str:
        """Send one part; return the platform's name of the message.

        Raises PlatformBusy if the platform certainly did not take it, PlatformRefused if it never will. After
        any other error, and if cancelled, it is unknown whether it arrived.
        """
        ...

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        """Change a message of ours. Calling it twice is harmless, and a text that is there already is a
        success. Raises PlatformRefused if the message is gone or cannot be edited, PlatformBusy."""
        ...

    async def show_typing(self, chat: Chat) -> None:
        """Show in the chat for a moment that an answer is being written. Callers ignore its errors."""
        ...

    def render(self, markdown: str) -> Sequence[NewPart]:
        """An answer as the parts in which the platform shows it."""
        ...

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        """Write a file of an update to ``target``. Raises PlatformRefused if it is gone or too large,
        PlatformBusy."""
        ...

    async def close(self) -> None:
        """Close connections. Nothing else is called afterwards."""
        ...
