"""The platform for programs: signed messages come in by HTTP, answers are posted to an address (F11)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import anyio
import httpcore2
import httpx2
import msgspec
from msgspec import Meta

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
from everturn.gateway.signatures import read_secret, sign, verify
from everturn.tools.schema import ToolFailed
from everturn.tools.web.fetch import CheckedNetwork

TEXT_CHARS_MAX = 100_000
_TIMEOUTS = {"connect": 10.0, "read": 20.0, "write": 20.0, "pool": 10.0}
_RETRY_AFTER_MAX_S = 24 * 3600.0


SECRETS: Final = ("secret",)
DEFAULT_ROLE: Final = SenderRole.MEMBER  # of everyone who knows the secret
CONFIG_ONLY: Final = ("private_addresses",)
SENT_TO: Final = ()  # the secret signs, and is never sent


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: Annotated[str, Meta(max_length=2_000, description="Where answers are posted.")]
    private_addresses: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[0-9A-Fa-f.:\[\]]+:[0-9]{1,5}$")], ...],
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
        """``keys``: of the secrets; the first signs, all are accepted."""
        self._account = account
        self._keys = keys
        self._clock = clock
        self._network = CheckedNetwork(frozenset(map(_split_address, settings.private_addresses)), _resolve)
        self._url = _check_url(settings.url)

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
        _check_answer(await self._post(signed, body))
        return part.id

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        raise PlatformRefused("A webhook cannot change what was sent.")

    async def show_typing(self, chat: Chat) -> None:
        """Programs do not wait for a sign."""

    def render(self, markdown: str) -> Sequence[NewPart]:
        """Programs take the whole answer as it was written."""
        return [NewPart(markdown)] if markdown.strip() else []

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        raise PlatformRefused("A webhook carries no files.")

    async def close(self) -> None:
        """Nothing to close: each answer has a connection of its own."""

    async def _post(self, signed: Mapping[str, str], body: bytes) -> httpcore2.Response:
        """The head of the answer; its body is not read."""
        url = self._url
        headers = {"Host": url.netloc.decode("ascii"), "Content-Type": "application/json", **signed}
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        context = await _tls() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=self._network) as pool,
                pool.stream(
                    "POST",
                    target,
                    headers=list(headers.items()),
                    content=body,
                    extensions={"timeout": _TIMEOUTS},
                ) as response,
            ):
                return response
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise PlatformBusy(f"{url.host} cannot be reached: {str(error) or 'no answer'}.") from error
        except ToolFailed as error:
            raise PlatformRefused(str(error)) from error


def platform(
    account: str, settings: WebhookSettings, secrets: Mapping[str, str], clock: Clock
) -> WebhookPlatform:
    """An account. While its secret is being changed it has two, separated by a space. Raises Invalid."""
    keys = tuple(read_secret(text) for text in secrets["secret"].split())
    return WebhookPlatform(account, settings, keys, clock)


def _split_address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def _check_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise Invalid(f"The address of the webhook is not valid: {error}.", hint="Correct it.") from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise Invalid(
            "The address of the webhook is not valid.",
            hint="Use an http or https address without a password.",
        )
    return url


def _check_answer(response: httpcore2.Response) -> None:
    """Raise what the answer means for the part, unless it was taken."""
    status = response.status
    if 200 <= status < 300:
        return
    message = f"The webhook answered {status}."
    if status in (408, 425, 429) or status >= 500:
        # With a 500 it may have been accepted. Repeating is harmless: the receiver recognises its id.
        raise PlatformBusy(message, after_s=_retry_after(response))
    raise PlatformRefused(message)


def _retry_after(response: httpcore2.Response) -> float | None:
    for name, value in response.headers:
        text = value.decode("latin-1").strip()
        if name.lower() == b"retry-after" and text.isascii() and text.isdigit():
            return min(float(text), _RETRY_AFTER_MAX_S)
    return None


async def _resolve(host: str, port: int) -> list[str]:
    """Unlike in web fetch, a name that is not found is worth a retry."""
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"the name {host[:100]} cannot be resolved") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _tls() -> ssl.SSLContext:
    return await anyio.to_thread.run_sync(ssl.create_default_context)
