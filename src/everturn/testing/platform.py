"""A platform in memory: it delivers what a test says, and keeps what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from everturn.domain.delivery import (
    Chat,
    ChatKind,
    ChatPlace,
    NewPart,
    OutgoingPart,
    RemoteFile,
    Update,
    UpdateKind,
)
from everturn.domain.errors import PlatformRefused
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits

ACCOUNT = "main"
PLAIN = Features(edits=False, buttons=False, files=False, typing=False)
RICH = Features(edits=True, buttons=True, files=True, typing=True)


class FakePlatform:
    """Delivers an update again until it was acknowledged. ``failures``: what the next sends raise; an error
    after which the message arrived all the same is in ``late_failures``."""

    name = "fake"

    def __init__(
        self,
        *,
        deduplicates: bool = False,
        limits: SendLimits | None = None,
        account: str = ACCOUNT,
        features: Features = PLAIN,
    ) -> None:
        self.promises = Promises(deduplicates=deduplicates, redelivers=True)
        self.limits = limits or SendLimits()
        self.features = features
        self.account = account
        self.arrived: list[OutgoingPart] = []  # what people see, in order
        self.file_bytes: list[tuple[str, bytes]] = []  # name and content of the files that arrived
        self.sends: list[str] = []  # ids of parts, each attempt
        self.edits: list[NewPart] = []  # bodies, each that succeeded
        self.edit_failures: list[Exception] = []
        self.deleted: set[str] = set()  # names of messages that people deleted
        self.typing: list[str] = []  # chats
        self.is_token_valid = True
        self.is_closed = False
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
        self.deliver_later(Update(update_id, place, sender, text, files))

    def press(self, update_id: str, data: str, chat: str = "42", *, sender: str = "ada") -> None:
        """Let a person press the button with this data."""
        place = ChatPlace(self.account, self.name, ChatKind.DIRECT, chat)
        self.deliver_later(Update(update_id, place, sender, kind=UpdateKind.PRESS, press=data))

    def deliver_later(self, update: Update) -> None:
        self._updates.append(update)
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

    async def identify(self) -> Identity:
        if not self.is_token_valid:
            raise PlatformRefused("The token is not valid.")
        return Identity("bot-1", "Test bot")

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
        known = [at for at, seen in enumerate(self.arrived) if seen.id == part.id]
        if not known or not self.promises.deduplicates:
            known = [len(self.arrived)]
            self.arrived.append(part)
            if part.file is not None:
                self.file_bytes.append((part.file.name, await anyio.Path(part.file.path).read_bytes()))
        if self.late_failures:
            raise self.late_failures.pop(0)
        return f"msg-{known[0]}"

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        if self.edit_failures:
            raise self.edit_failures.pop(0)
        at = int(external_id.removeprefix("msg-"))
        if external_id in self.deleted or self.arrived[at].chat.id != chat.id:
            raise PlatformRefused("The message is not there any more.")
        self.arrived[at] = msgspec.structs.replace(self.arrived[at], body=body)
        self.edits.append(body)

    async def show_typing(self, chat: Chat) -> None:
        self.typing.append(chat.place.chat)

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(paragraph) for paragraph in markdown.split("\n\n") if paragraph.strip()]

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        content = self.files.get(file.ref)
        if content is None:
            raise PlatformRefused(f"{file.name} is not there any more.")
        if len(content) > bytes_max:
            raise PlatformRefused(f"{file.name} has {len(content):,} bytes; the limit is {bytes_max:,}.")
        await anyio.Path(target).write_bytes(content)

    async def close(self) -> None:
        self.is_closed = True
