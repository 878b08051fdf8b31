"""The platforms behind the two accounts of devices: one sends to browsers and webhooks, one by Apprise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from everturn.delivery.notifications import apprise_child, web_push
from everturn.delivery.poster import PostAnswer, Poster, read_url
from everturn.delivery.signatures import read_secret, sign
from everturn.domain.clock import Clock
from everturn.domain.delivery import Chat, NewPart, OutgoingPart, RemoteFile
from everturn.domain.errors import FileMissing, NotFound, PlatformBusy, PlatformRefused
from everturn.domain.notifications import (
    ABOUT_ASKS,
    DEVICES_ACCOUNT,
    KEEP_MS,
    SERVICES_ACCOUNT,
    Device,
    DeviceKind,
    NoticeMessage,
)
from everturn.domain.notifications import Devices as DeviceRows
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits
from everturn.domain.redaction import redact
from everturn.domain.secrets import Secrets

SECRETS_KIND: Final = "push"  # push/vapid, push/<device>
ATTEMPTS_MAX: Final = 12  # of Apprise, which does not say whether an error will pass
_GONE: Final = frozenset((404, 410))
_message = msgspec.json.Decoder(NoticeMessage)


class TargetServices(msgspec.Struct, frozen=True):
    """``contact``: how a push service reaches the operator of this server. ``page_url``: empty if it is
    not known.
    ``private``: addresses that may be reached although they are not public."""

    devices: DeviceRows
    secrets: Secrets
    clock: Clock
    poster: Poster
    contact: str
    page_url: str = ""
    private: tuple[str, ...] = ()


class _Devices:
    """What both platforms share: nothing is received, and only parts are sent."""

    name = "device"
    limits = SendLimits()
    features = Features(edits=False, buttons=False, files=False, typing=False)

    def __init__(self, services: TargetServices) -> None:
        self._services = services

    async def identify(self) -> Identity:
        return Identity(self.name, self.name)

    async def receive(self, deliver: Deliver) -> None:
        await anyio.sleep_forever()

    async def send(self, part: OutgoingPart) -> str:
        devices = self._services.devices
        device = await devices.get(part.chat.owner, part.chat.place.chat)
        if device.ended_at is not None:
            raise PlatformRefused(f"{device.name} is gone.")
        try:
            await self._send_to(device, part, _message.decode(part.body.text))
        except (FileMissing, NotFound):
            raise
        except Exception as error:  # any error: the person sees why nothing arrives
            is_ended = isinstance(error, _Gone)
            reason = redact(str(error)) or type(error).__name__
            await devices.note_error(device.id, reason, is_ended=is_ended)
            raise
        await devices.note_sent(device.id)
        return part.id

    async def _send_to(self, device: Device, part: OutgoingPart, message: NoticeMessage) -> None:
        raise NotImplementedError

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        raise PlatformRefused("A notification is replaced, not changed.")

    async def show_typing(self, chat: Chat) -> None:
        """Devices have no typing sign."""

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(markdown)] if markdown.strip() else []

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        raise PlatformRefused("A notification carries no files.")

    async def close(self) -> None:
        """Nothing to close: each message has a connection of its own."""


class BrowsersAndWebhooks(_Devices):
    account = DEVICES_ACCOUNT
    # A browser shows one notification per tag, and the receiver of a webhook recognises its id.
    promises = Promises(deduplicates=True, redelivers=False)

    async def _send_to(self, device: Device, part: OutgoingPart, message: NoticeMessage) -> None:
        if device.kind is DeviceKind.BROWSER:
            await self._push(device, part, message)
        else:
            await self._post(device, part, message)

    async def _push(self, device: Device, part: OutgoingPart, message: NoticeMessage) -> None:
        services = self._services
        subscription = msgspec.json.decode(device.address, type=web_push.Subscription)
        key = _vapid(services.secrets)
        if key is None or key.public != subscription.vapid:
            raise PlatformBusy("This server does not have the key with which the browser subscribed.")
        url = read_url(subscription.endpoint, "push service")
        now_s = services.clock.now_ms() // 1000
        left_s = max(0, part.give_up_at // 1000 - now_s)
        headers = {
            "Authorization": key.authorization(url, now_s, services.contact),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(min(left_s, KEEP_MS // 1000)),
            "Urgency": "high" if message.kind in ABOUT_ASKS and not message.is_gone else "normal",
            "Topic": web_push.topic_of(message.tag),
        }
        body = web_push.encrypt(msgspec.json.encode(message), subscription)
        _check(await services.poster.post(url, headers, body), "push service", services.clock)

    async def _post(self, device: Device, part: OutgoingPart, message: NoticeMessage) -> None:
        services = self._services
        url = read_url(msgspec.json.decode(device.address, type=dict[str, str])["url"], "webhook")
        secret = services.secrets.get(f"{SECRETS_KIND}/{device.id}")
        if secret is None:
            raise PlatformBusy("This server does not have the secret of the webhook.")
        body = msgspec.json.encode(_hook_body(message, services.page_url, services.clock.now_ms()))
        signed = sign(read_secret(secret.reveal()), part.id, services.clock.now_ms() // 1000, body)
        headers = {"Content-Type": "application/json", **signed}
        _check(await services.poster.post(url, headers, body), "webhook", services.clock)


class ByApprise(_Devices):
    account = SERVICES_ACCOUNT
    promises = Promises(deduplicates=False, redelivers=False)

    async def _send_to(self, device: Device, part: OutgoingPart, message: NoticeMessage) -> None:
        services = self._services
        secret = services.secrets.get(f"{SECRETS_KIND}/{device.id}")
        if secret is None:
            raise PlatformBusy("This server does not have the address of the service.")
        link = f"{services.page_url.rstrip('/')}/{message.link}" if services.page_url else ""
        text = "\n".join(filter(None, (message.text, link))) or message.title
        order = apprise_child.Order(secret.reveal(), message.title, text, services.private)
        outcome = await apprise_child.run(order)
        if outcome.is_refused or part.attempts >= ATTEMPTS_MAX:
            raise PlatformRefused(outcome.problem)
        if outcome.problem:
            raise PlatformBusy(outcome.problem)


class _Gone(PlatformRefused):
    """The service says that the device does not exist any more."""


class _HookBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """``type``: ``notification.replaced`` if its cause is gone; then the same tag came before."""

    type: str
    timestamp: int  # milliseconds
    kind: str
    tag: str
    title: str
    text: str = ""
    session: str = ""
    link: str = ""


def _hook_body(message: NoticeMessage, page_url: str, now_ms: int) -> _HookBody:
    return _HookBody(
        type="notification.replaced" if message.is_gone else "notification",
        timestamp=now_ms,
        kind=message.kind.value,
        tag=message.tag,
        title=message.title,
        text=message.text,
        session=message.session,
        link=f"{page_url.rstrip('/')}/{message.link}" if page_url else "",
    )


def _check(answer: PostAnswer, what: str, clock: Clock) -> None:
    """Raise what the answer means for the part, unless it was taken."""
    if answer.is_taken:
        return
    message = f"The {what} answered {answer.status}."
    if answer.status in _GONE and (what == "push service" or answer.status == 410):
        raise _Gone(message)
    if answer.is_busy:
        raise PlatformBusy(message, after_s=answer.retry_after(clock))
    raise PlatformRefused(message)


def _vapid(secrets: Secrets) -> web_push.VapidKey | None:
    found = secrets.get(f"{SECRETS_KIND}/vapid")
    return None if found is None else web_push.VapidKey.read(found.reveal())


def secrets_of(device_id: str, text: str | None) -> Mapping[str, str | None]:
    return {f"{SECRETS_KIND}/{device_id}": text}
