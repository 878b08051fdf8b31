"""The platform for programs: signed messages come in by HTTP, answers are posted to an address (F11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import anyio
import msgspec
from msgspec import Meta

from everturn.delivery.poster import PostAnswer, Poster, read_url
from everturn.delivery.settings import PrivateAddresses
from everturn.delivery.signatures import read_secret, sign, verify
from everturn.domain.clock import Clock
from everturn.domain.delivery import (
    Chat,
    ChatKind,
    ChatPlace,
    NewPart,
    OutgoingPart,
    RemoteFile,
    SenderRole,
    Update,
)
from everturn.domain.errors import Invalid, PlatformBusy, PlatformRefused
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits

TEXT_CHARS_MAX = 100_000


SECRETS: Final = ("secret",)
DEFAULT_ROLE: Final = SenderRole.MEMBER  # of everyone who knows the secret
CONFIG_ONLY: Final = ("private_addresses",)
SENT_TO: Final = ()  # the secret signs, and is never sent


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: Annotated[str, Meta(max_length=2_000, description="Where answers are posted.")]
    private_addresses: Annotated[
        PrivateAddresses,
        Meta(
            description="Addresses such as 127.0.0.1:9000 that may be reached although they are not public."
        ),
    ] = ()


_Name = Annotated[str, Meta(min_length=1, max_length=200)]


class _Incoming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
    chat: _Name = "main"
    thread: Annotated[str, Meta(max_length=200)] = ""
    sender: _Name = "webhook"


class _Outgoing(msgspec.Struct, frozen=True):
    chat: str
    thread: str
    text: str  # Markdown
    part: int
    type: str = "message"


_incoming = msgspec.json.Decoder(_Incoming)


class WebhookPlatform:
    name = "webhook"
    # Each part has its own id, by which the receiver recognises a repeat, as the specification asks of it.
    promises = Promises(deduplicates=True, redelivers=True)
    limits = SendLimits()
    features = Features(edits=False, buttons=False, files=False, typing=False)

    def __init__(
        self, account: str, settings: WebhookSettings, keys: tuple[bytes, ...], clock: Clock
    ) -> None:
        """``keys`` are the secrets' keys: the first signs, all are accepted."""
        self._account = account
        self._keys = keys
        self._clock = clock
        self._poster = Poster(settings.private_addresses)
        self._url = read_url(settings.url, "webhook")

    def read_update(self, headers: Mapping[str, str], body: bytes) -> Update:
        """The message in a request. Raises Denied unless it was signed for this account, Invalid."""
        now_ms = self._clock.now_ms()
        message_id = verify(self._keys, headers, body, now_ms / 1000)
        try:
            message = _incoming.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Invalid(
                f"The body of the webhook is not a message: {error}.",
                hint='Send JSON such as {"text": "…"}, and optionally chat, thread and sender.',
            ) from error
        place = ChatPlace(self._account, self.name, ChatKind.HOOK, message.chat, message.thread)
        return Update(message_id, place, message.sender, message.text)

    async def identify(self) -> Identity:
        """A webhook has no identity elsewhere: it is named by its account and the host of its answers."""
        return Identity(self._account, self._url.host)

    async def receive(self, deliver: Deliver) -> None:
        """Nothing to do: messages come in through the server's own address, on any worker."""
        await anyio.sleep_forever()

    async def send(self, part: OutgoingPart) -> str:
        place = part.chat.place
        body = msgspec.json.encode(_Outgoing(place.chat, place.thread, part.body.text, part.number))
        signed = sign(self._keys[0], part.id, self._clock.now_ms() // 1000, body)
        headers = {"Content-Type": "application/json", **signed}
        _check_answer(await self._poster.post(self._url, headers, body), self._clock)
        return part.id

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        raise PlatformRefused("A webhook cannot change what was sent.")

    async def show_typing(self, chat: Chat) -> None:
        """Do nothing: programs need no typing sign."""

    def render(self, markdown: str) -> Sequence[NewPart]:
        """Return the whole answer unchanged, because programs read it."""
        return [NewPart(markdown)] if markdown.strip() else []

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        raise PlatformRefused("A webhook carries no files.")

    async def close(self) -> None:
        """Nothing to close: each answer has a connection of its own."""


def platform(
    account: str, settings: WebhookSettings, secrets: Mapping[str, str], clock: Clock
) -> WebhookPlatform:
    """An account. While its secret is being changed it has two, separated by a space. Raises Invalid."""
    keys = tuple(read_secret(text) for text in secrets["secret"].split())
    return WebhookPlatform(account, settings, keys, clock)


def _check_answer(answer: PostAnswer, clock: Clock) -> None:
    """Raise what the answer means for the part, unless it was taken."""
    if answer.is_taken:
        return
    message = f"The webhook answered {answer.status}."
    if answer.is_busy:
        # With a 500 it may have been accepted. Repeating is harmless: the receiver recognises its id.
        raise PlatformBusy(message, after_s=answer.retry_after(clock))
    raise PlatformRefused(message)
