"""Notifications of this server: one task composes them, one for each account of devices sends them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import importlib.util
import logging
import secrets as randomness
from collections.abc import Sequence
from typing import Self

import anyio
import msgspec

from everturn.delivery.bell import Bell
from everturn.delivery.context import AccountContext, AccountServices
from everturn.delivery.notifications import apprise_child, web_push
from everturn.delivery.notifications.notifier import RECORD_KIND, RECORD_NAME, Notifier, read_settings
from everturn.delivery.notifications.targets import (
    SECRETS_KIND,
    BrowsersAndWebhooks,
    ByApprise,
    TargetServices,
    secrets_of,
)
from everturn.delivery.pace import Pace
from everturn.delivery.poster import Poster, read_url
from everturn.delivery.sender import Sender
from everturn.delivery.settings import AccountSettings, NotificationSettings
from everturn.delivery.signatures import read_secret
from everturn.delivery.traces import is_unexpected
from everturn.domain.delivery import AccountLease, Chat
from everturn.domain.errors import Invalid, LeaseLost, PlatformBusy, PlatformRefused, Retry
from everturn.domain.ids import Ids
from everturn.domain.json_types import JsonObject
from everturn.domain.notifications import (
    KEEP_MS,
    BrowserAddress,
    Device,
    DeviceKind,
    NewDevice,
    NewTarget,
    NoticeKind,
    NoticeSettings,
    PushKey,
)
from everturn.domain.secrets import Secrets
from everturn.domain.timezones import find_zone

_SECRET_BYTES = 32
_APPRISE_HINT = "See https://github.com/caronc/apprise for the forms of addresses."
_PRIVATE_HINT = "Set private_addresses in [notifications] to allow it."
_SETTINGS = AccountSettings(age_max_s=KEEP_MS / 1000, send_timeout_s=25.0, wake_s=0.1)
_log = logging.getLogger("everturn.delivery")


class NotificationService:
    """Implements ``domain.notifications.Notifications``. Sends while it is entered, by a server only."""

    def __init__(
        self,
        services: AccountServices,
        secrets: Secrets,
        ids: Ids,
        settings: NotificationSettings,
        sending: AccountSettings = _SETTINGS,
    ) -> None:
        self._services = services
        self._secrets = secrets
        self._ids = ids
        self._devices = services.store.delivery.devices
        self._poster = Poster(settings.private_addresses)
        self._private = settings.private_addresses
        self._making_key = anyio.Lock()
        self._task: asyncio.Task[None] | None = None
        targets = TargetServices(
            self._devices,
            secrets,
            services.clock,
            self._poster,
            settings.contact or _contact(services.page_url),
            services.page_url,
            settings.private_addresses,
        )
        self.senders = [
            _DeviceSender(platform, services, sending)
            for platform in (BrowsersAndWebhooks(targets), ByApprise(targets))
        ]
        bells = [sender.bell for sender in self.senders]
        self.notifier = Notifier(services.store, services.clock, bells, services.page_url)

    async def __aenter__(self) -> Self:
        # Not a task group, which would wrap errors from the body.
        self._task = asyncio.create_task(self.run(), name="notifications")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Sends that have begun are finished first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.notifier.run, name="notifications: compose")
            for sender in self.senders:
                group.start_soon(sender.run, name=f"notifications: {sender.account}")

    # --- the contract ---------------------------------------------------------------------------------

    async def key(self) -> PushKey:
        if importlib.util.find_spec("cryptography") is None:
            return PushKey("", web_push.MISSING)
        async with self._making_key:
            found = self._secrets.get(f"{SECRETS_KIND}/vapid")
            if found is None:
                await self._secrets.refresh()
                found = self._secrets.get(f"{SECRETS_KIND}/vapid")
            if found is None:
                made = web_push.VapidKey.generate()
                await self._secrets.change({f"{SECRETS_KIND}/vapid": made.text()})
                return PushKey(made.public)
        return PushKey(web_push.VapidKey.read(found.reveal()).public)

    @property
    def services_problem(self) -> str:
        return "" if apprise_child.is_installed() else apprise_child.MISSING

    async def devices(self, owner: str) -> Sequence[Device]:
        return await self._devices.list(owner)

    async def chats(self, owner: str) -> Sequence[Chat]:
        return await self._services.store.delivery.chats.list(owner)

    async def add(self, owner: str, target: NewTarget) -> tuple[Device, str]:
        device_id = self._ids.make("dev")
        if target.browser is not None:
            return await self._add_browser(owner, device_id, target, target.browser), ""
        if target.webhook is not None:
            return await self._add_webhook(owner, device_id, target, target.webhook)
        if target.service is not None:
            return await self._add_service(owner, device_id, target, target.service), ""
        if target.chat is None:
            raise Invalid("Nothing was given to send to.", hint="Give browser, webhook, service or chat.")
        new = self._new(device_id, DeviceKind.CHAT, target, f"chat {target.chat}")
        return await self._devices.add(owner, msgspec.structs.replace(new, chat_id=target.chat)), ""

    async def change(
        self, owner: str, device_id: str, *, name: str | None, kinds: Sequence[NoticeKind] | None
    ) -> Device:
        return await self._devices.change(owner, device_id, name=name, kinds=kinds)

    async def remove(self, owner: str, device_id: str) -> None:
        device = await self._devices.get(owner, device_id)
        # The device before its secret: without it sending would only fail.
        await self._devices.remove(owner, device_id)
        if device.kind in (DeviceKind.WEBHOOK, DeviceKind.SERVICE):
            await self._secrets.change(secrets_of(device_id, None))

    async def test(self, owner: str, device_id: str) -> None:
        await self._services.store.delivery.notices.put_test(owner, device_id)
        self.notifier.bell.ring()

    async def settings(self, owner: str) -> NoticeSettings:
        return await read_settings(self._services.store, owner)

    async def put_settings(self, owner: str, settings: NoticeSettings) -> None:
        if settings.quiet is not None:
            find_zone(settings.quiet.timezone)
        value = msgspec.to_builtins(settings)
        await self._services.store.records.put(owner, RECORD_KIND, RECORD_NAME, value)

    def status(self) -> JsonObject:
        return {
            "serving": sum(sender.is_serving for sender in self.senders),
            "failed_total": sum(sender.failures for sender in self.senders),
        }

    # --- adding ---------------------------------------------------------------------------------------

    async def _add_browser(
        self, owner: str, device_id: str, target: NewTarget, browser: BrowserAddress
    ) -> Device:
        key = await self.key()
        if key.problem:
            raise Invalid(key.problem, hint="Install it, and restart the server.")
        if browser.key != key.key:
            raise Invalid(
                "The browser subscribed with another key than this server's.",
                hint="Reload the page, and add the browser again.",
            )
        url = read_url(browser.endpoint, "push service")
        if url.scheme != "https" and f"{url.host}:{url.port}" not in self._private:
            raise Invalid("The address of the push service is not https.", hint="Use another browser.")
        subscription = web_push.Subscription(browser.endpoint, browser.p256dh, browser.auth, browser.key)
        web_push.check_subscription(subscription)
        await self._check_address(browser.endpoint, "push service")
        new = self._new(device_id, DeviceKind.BROWSER, target, browser.endpoint)
        address = msgspec.json.encode(subscription).decode()
        return await self._devices.add(owner, msgspec.structs.replace(new, address=address))

    async def _add_webhook(
        self, owner: str, device_id: str, target: NewTarget, url: str
    ) -> tuple[Device, str]:
        await self._check_address(url, "webhook")
        secret = target.secret or "whsec_" + _base64(randomness.token_bytes(_SECRET_BYTES))
        read_secret(secret)
        new = self._new(device_id, DeviceKind.WEBHOOK, target, f"webhook {url} {device_id}")
        address = msgspec.json.encode({"url": url}).decode()
        # Its secret first: a message without it would not be signed.
        await self._secrets.change(secrets_of(device_id, secret))
        device = await self._devices.add(owner, msgspec.structs.replace(new, address=address))
        return device, secret

    async def _add_service(self, owner: str, device_id: str, target: NewTarget, url: str) -> Device:
        if self.services_problem:
            raise Invalid(self.services_problem, hint="Install it, and restart the server.")
        outcome = await apprise_child.run(apprise_child.Order(url, "", "", self._private, is_check=True))
        if outcome.problem:
            raise Invalid(outcome.problem, hint=_APPRISE_HINT)
        new = self._new(device_id, DeviceKind.SERVICE, target, f"service {url}")
        await self._secrets.change(secrets_of(device_id, url))
        device = await self._devices.add(owner, new)
        if device.id != device_id:  # it was there already
            await self._secrets.change({**secrets_of(device_id, None), **secrets_of(device.id, url)})
        return device

    async def _check_address(self, text: str, what: str) -> None:
        """Refuse an address that no message could reach. It is checked again with each message."""
        try:
            await self._poster.check(read_url(text, what))
        except PlatformRefused as error:
            raise Invalid(error.message, hint=_PRIVATE_HINT) from error
        except PlatformBusy as error:
            raise Invalid(error.message, hint="Nothing was added. Try again.") from error

    def _new(self, device_id: str, kind: DeviceKind, target: NewTarget, about: str) -> NewDevice:
        """``about``: what distinguishes it from others. Only its digest is kept, because it may hold a
        password."""
        mark = hashlib.sha256(about.encode()).hexdigest()
        name = " ".join(target.name.split()) or kind.value.capitalize()
        return NewDevice(
            id=device_id,
            kind=kind,
            name=name,
            kinds=target.kinds,
            mark=mark,
            has_buttons=target.has_buttons,
        )


class _DeviceSender:
    """Sends for one account of devices while this worker has its lease."""

    def __init__(
        self, platform: BrowsersAndWebhooks | ByApprise, services: AccountServices, settings: AccountSettings
    ) -> None:
        self.account = platform.account
        self.bell = Bell(services.clock)
        self.is_serving = False
        self.failures = 0
        pace = Pace(services.clock, 0, has_pauses=False)
        self._services = services
        self._settings = settings
        self.context = AccountContext(self.account, platform, settings, services, self.bell, pace)

    async def run(self) -> None:
        leases = self._services.store.delivery.leases
        while True:
            try:
                lease = await leases.take(self.account, self._services.worker)
                if lease is not None:
                    await self._serve(lease)
            except Exception as error:  # the root of its task: it must continue
                self.failures += 1
                _log.warning("account %s: %r", self.account, error, exc_info=is_unexpected(error))
            await self._services.clock.sleep(self._settings.take_s)

    async def _serve(self, lease: AccountLease) -> None:
        self.is_serving = True
        try:
            await Sender(self.context, lease).run()
        finally:
            self.is_serving = False
            with anyio.CancelScope(shield=True):
                try:
                    await self._services.store.delivery.leases.release(lease)
                except (LeaseLost, Retry) as error:
                    _log.info("account %s: the lease was not released: %s", self.account, error)


def _contact(page_url: str) -> str:
    return page_url if page_url.startswith("https://") else "mailto:everturn@localhost"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
