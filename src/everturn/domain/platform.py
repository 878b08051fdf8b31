"""The contract of a platform: it receives and sends. Everything durable about that is not its business."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from everturn.domain.delivery import NewPart, OutgoingPart, RemoteFile, Update

# Stores an update; the platform acknowledges it when this has returned, and never if it raises.
Deliver = Callable[[Update], Awaitable[None]]


class Promises(msgspec.Struct, frozen=True):
    """What a platform keeps, whatever we do. The docs show it, and the conformance suite checks it."""

    deduplicates: bool  # a part that is sent twice with one id arrives once
    redelivers: bool  # an update that was not acknowledged is delivered again
    keeps_updates_s: float | None = None  # for so long; None: not known


class SendLimits(msgspec.Struct, frozen=True):
    """How fast an account may send. 0: no limit of ours."""

    per_s_max: float = 0
    chat_spacing_s: float = 0


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

    async def receive(self, deliver: Deliver) -> None:
        """Deliver updates, those of one chat in their order, until cancelled.

        Returning is a failure like raising: it is called again after a pause.
        """
        ...

    async def send(self, part: OutgoingPart) -> str:
        """Send one part; return the platform's name of the message.

        Raises PlatformBusy if the platform certainly did not take it, PlatformRefused if it never will. After
        any other error, and if cancelled, nobody knows whether it arrived.
        """
        ...

    def render(self, markdown: str) -> Sequence[NewPart]:
        """An answer as the parts in which the platform shows it."""
        ...

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        """Write a file of an update to ``target``. Raises PlatformRefused if it is gone or too large,
        PlatformBusy."""
        ...
