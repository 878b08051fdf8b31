"""A platform in memory: it delivers what a test says, and keeps what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from everturn.domain.delivery import ChatKind, ChatPlace, NewPart, OutgoingPart, RemoteFile, Update
from everturn.domain.errors import PlatformRefused
from everturn.domain.platform import Deliver, Promises, SendLimits

ACCOUNT = "main"


class FakePlatform:
    """Delivers an update again until it was acknowledged. ``failures``: what the next sends raise; an error
    after which the message arrived all the same is in ``late_failures``."""

    name = "fake"

    def __init__(
        self, *, deduplicates: bool = False, limits: SendLimits | None = None, account: str = ACCOUNT
    ) -> None:
        self.promises = Promises(deduplicates=deduplicates, redelivers=True)
        self.limits = limits or SendLimits()
        self.account = account
        self.arrived: list[OutgoingPart] = []  # what people see, in order
        self.sends: list[str] = []  # ids of parts, each attempt
        self.failures: list[Exception] = []
        self.late_failures: list[Exception] = []
        self.files: dict[str, bytes] = {}
        self.held_chats: set[str] = set()  # sends to these do not return until released
        self._released = anyio.Event()
        self._updates: list[Update] = []
        self._said = anyio.Event()

    def say(
        self,
        update_id: str,
        text: str = "hello",
        chat: str = "42",
        *,
        sender: str = "ada",
        files: tuple[RemoteFile, ...] = (),
    ) -> None:
        """Let a person write this, to be delivered until it is acknowledged."""
        place = ChatPlace(self.account, self.name, ChatKind.DIRECT, chat)
        self._updates.append(Update(update_id, place, sender, text, files))
        self._said.set()

    @property
    def unacknowledged(self) -> int:
        return len(self._updates)

    def texts(self, chat: str = "42") -> list[str]:
        """What people in the chat have read."""
        return [part.body.text for part in self.arrived if part.chat.place.chat == chat]

    def release(self) -> None:
        self.held_chats.clear()
        self._released.set()

    async def receive(self, deliver: Deliver) -> None:
        while True:
            while self._updates:
                await deliver(self._updates[0])
                self._updates.pop(0)
            self._said = anyio.Event()
            await self._said.wait()

    async def send(self, part: OutgoingPart) -> str:
        self.sends.append(part.id)
        while part.chat.place.chat in self.held_chats:
            await self._released.wait()
        if self.failures:
            raise self.failures.pop(0)
        is_known = self.promises.deduplicates and any(seen.id == part.id for seen in self.arrived)
        if not is_known:
            self.arrived.append(part)
        if self.late_failures:
            raise self.late_failures.pop(0)
        return f"msg-{part.id}"

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(paragraph) for paragraph in markdown.split("\n\n") if paragraph.strip()]

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        content = self.files.get(file.ref)
        if content is None:
            raise PlatformRefused(f"{file.name} is not there any more.")
        if len(content) > bytes_max:
            raise PlatformRefused(f"{file.name} has {len(content):,} bytes; the limit is {bytes_max:,}.")
        await anyio.Path(target).write_bytes(content)
