"""A complete platform: each file in the folder ``in`` is a message, one in ``out`` is a part of an answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.delivery import Chat, ChatKind, ChatPlace, NewPart, OutgoingPart, RemoteFile, Update
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits

SECRETS = ()  # names of the secrets that an account needs, such as ("token",)


class FolderSettings(msgspec.Struct, frozen=True):
    folder: Annotated[str, msgspec.Meta(description="The folder that has `in` and `out` in it.")]


def platform(account: str, settings: FolderSettings, secrets: Mapping[str, str], clock: Clock):
    return FolderPlatform(account, Path(settings.folder), clock)


class FolderPlatform:
    name = "folder"
    promises = Promises(deduplicates=True, redelivers=True)
    limits = SendLimits()
    features = Features(edits=False, buttons=False, files=False, typing=False)

    def __init__(self, account: str, folder: Path, clock: Clock) -> None:
        self._place = ChatPlace(account, self.name, ChatKind.DIRECT, "folder")
        self._in = anyio.Path(folder / "in")
        self._out = anyio.Path(folder / "out")
        self._clock = clock

    async def identify(self) -> Identity:
        return Identity(str(self._in), str(self._in))

    async def receive(self, deliver: Deliver) -> None:
        while True:
            for file in sorted([file async for file in self._in.glob("*.txt")]):
                await deliver(Update(file.name, self._place, "folder", await file.read_text()))
                await file.unlink()  # only now: if storing failed, the message is delivered again
            await self._clock.sleep(0.2)

    async def send(self, part: OutgoingPart) -> str:
        try:
            # A repeat has the same id: it replaces the file.
            await (self._out / f"{part.id}.txt").write_text(part.body.text)
        except FileNotFoundError as error:
            raise PlatformBusy("The folder is not there.") from error
        return part.id

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(markdown)] if markdown.strip() else []

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        raise PlatformRefused("Files are not changed.")

    async def show_typing(self, chat: Chat) -> None:
        pass

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        raise PlatformRefused("Messages have no files.")

    async def close(self) -> None:
        pass
