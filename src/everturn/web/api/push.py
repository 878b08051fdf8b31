"""Notifications: the devices that they go to, what each of them gets, and a test."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.notifications import (
    CHOICES,
    BrowserAddress,
    Device,
    DeviceKind,
    NewTarget,
    NoticeKind,
    NoticeSettings,
    Notifications,
    QuietHours,
)
from everturn.domain.words import read_word
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_Name = Annotated[str, Meta(max_length=80)]
_Url = Annotated[str, Meta(pattern=r"^[!-~]{1,2000}$(?!\n)")]
_Kinds = Annotated[tuple[str, ...], Meta(max_length=20)]
_REFUSALS = (e.Invalid, e.NotFound, e.WrongState, e.Limit, e.SecretKeyWrong)


class ShownDevice(msgspec.Struct, frozen=True):
    """``ended_at``: its service says that it is gone; nothing is sent there. ``error``: why the last message
    did not arrive; empty if it did. ``chat_id``: of a device that is a chat."""

    id: str
    kind: DeviceKind
    name: str
    kinds: tuple[NoticeKind, ...]
    has_buttons: bool
    created_at: int
    sent_at: int | None
    ended_at: int | None
    error: str
    chat_id: str | None


class ChatToAdd(msgspec.Struct, frozen=True):
    id: str
    account: str
    title: str


class Push(msgspec.Struct, frozen=True):
    """``key``: what a browser subscribes with. ``chats``: those that can be added. The problems say why
    browsers or other services cannot be added on this server; they are empty if they can."""

    devices: tuple[ShownDevice, ...]
    kinds: tuple[NoticeKind, ...]
    key: str
    browser_problem: str
    service_problem: str
    settings: NoticeSettings
    chats: tuple[ChatToAdd, ...]


class AddDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Give one of ``browser``, ``webhook``, ``service`` and ``chat``. ``webhook``: its address. ``service``:
    an address of Apprise, such as ntfy://topic. ``chat``: the id of a chat. ``kinds`` left out: all."""

    name: _Name = ""
    kinds: _Kinds | None = None
    browser: BrowserAddress | None = None
    has_buttons: bool = False
    webhook: _Url | None = None
    secret: Annotated[str, Meta(pattern=r"^[!-~]{1,200}$(?!\n)")] | None = None
    service: _Url | None = None
    chat: Annotated[str, Meta(max_length=40)] | None = None


class AddedDevice(msgspec.Struct, frozen=True):
    """``secret``: what signs the messages of a webhook. It is shown only now."""

    device: ShownDevice
    secret: str


class ChangeDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays."""

    name: _Name | UnsetType = UNSET
    kinds: _Kinds | UnsetType = UNSET


class PutNoticeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``quiet``: hours in which only what holds up work comes through; null: none. ``shows_content`` off: a
    message says only that Everturn needs you, or has news."""

    quiet: QuietHours | None
    shows_content: bool


class PushApi:
    def __init__(self, notifications: Notifications, audit: Audit) -> None:
        self._notifications = notifications
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        return [*self._of_all("notifications"), *self._of_one("notifications")]

    def _of_all(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/push",
                run=self.get,
                summary="The devices that notifications go to, and what each of them gets.",
                tag=tag,
                answer=Push,
                errors=(e.SecretKeyWrong,),
            ),
            Endpoint(
                method="POST",
                path="/api/push",
                run=self.add,
                summary="Add a browser, a webhook, another service or a chat.",
                tag=tag,
                scope=Scope.ADMIN,
                body=AddDevice,
                answer=AddedDevice,
                status=201,
                errors=_REFUSALS,
            ),
            Endpoint(
                method="PUT",
                path="/api/push/settings",
                run=self.put_settings,
                summary="Set quiet hours, and whether messages show content.",
                tag=tag,
                scope=Scope.ADMIN,
                body=PutNoticeSettings,
                answer=Push,
                errors=(e.Invalid, e.SecretKeyWrong),
            ),
        ]

    def _of_one(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="PATCH",
                path="/api/push/{device}",
                run=self.change,
                summary="Rename a device, or choose what it gets.",
                tag=tag,
                scope=Scope.ADMIN,
                body=ChangeDevice,
                answer=ShownDevice,
                errors=(e.Invalid, e.NotFound),
            ),
            Endpoint(
                method="DELETE",
                path="/api/push/{device}",
                run=self.remove,
                summary="Remove a device with everything that waits for it.",
                tag=tag,
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound, e.SecretKeyWrong),
            ),
            Endpoint(
                method="POST",
                path="/api/push/{device}/test",
                run=self.test,
                summary="Send a test to a device.",
                tag=tag,
                scope=Scope.ADMIN,
                status=202,
                errors=(e.NotFound, e.WrongState),
            ),
        ]

    async def get(self, call: ApiCall[Nothing, Nothing]) -> Push:
        return await self._push(call.owner)

    async def add(self, call: ApiCall[Nothing, AddDevice]) -> AddedDevice:
        body = call.body
        given = [body.browser, body.webhook, body.service, body.chat]
        if sum(one is not None for one in given) != 1:
            raise e.Invalid("Give one of browser, webhook, service and chat.")
        target = NewTarget(
            name=body.name,
            kinds=CHOICES if body.kinds is None else _read_kinds(body.kinds),
            browser=body.browser,
            has_buttons=body.has_buttons,
            webhook=body.webhook,
            secret=body.secret,
            service=body.service,
            chat=body.chat,
        )
        device, secret = await self._notifications.add(call.owner, target)
        await self._audit.note("device.added", call.caller, f"{device.id} ({device.kind})")
        return AddedDevice(_show(device), secret)

    async def change(self, call: ApiCall[Nothing, ChangeDevice]) -> ShownDevice:
        body = call.body
        name = None if isinstance(body.name, UnsetType) else body.name
        kinds = None if isinstance(body.kinds, UnsetType) else _read_kinds(body.kinds)
        device_id = call.path["device"]
        device = await self._notifications.change(call.owner, device_id, name=name, kinds=kinds)
        what = "" if kinds is None else f": {', '.join(device.kinds)}"
        await self._audit.note("device.changed", call.caller, f"{device.id} ({device.kind}){what}")
        return _show(device)

    async def remove(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._notifications.remove(call.owner, call.path["device"])
        await self._audit.note("device.removed", call.caller, call.path["device"])

    async def test(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._notifications.test(call.owner, call.path["device"])

    async def put_settings(self, call: ApiCall[Nothing, PutNoticeSettings]) -> Push:
        settings = NoticeSettings(call.body.quiet, call.body.shows_content)
        await self._notifications.put_settings(call.owner, settings)
        words = (
            f"quiet {_describe(settings.quiet)}, content {'shown' if settings.shows_content else 'hidden'}"
        )
        await self._audit.note("notifications.changed", call.caller, words)
        return await self._push(call.owner)

    async def _push(self, owner: str) -> Push:
        notifications = self._notifications
        key = await notifications.key()
        devices = tuple(map(_show, await notifications.devices(owner)))
        settings = await notifications.settings(owner)
        chats = tuple(
            ChatToAdd(chat.id, chat.place.account, chat.title or chat.place.chat)
            for chat in await notifications.chats(owner)
        )
        services_problem = notifications.services_problem
        return Push(devices, CHOICES, key.key, key.problem, services_problem, settings, chats)


def _read_kinds(words: tuple[str, ...]) -> tuple[NoticeKind, ...]:
    kinds = {read_word(NoticeKind, word, "kind") for word in words}
    return tuple(kind for kind in CHOICES if kind in kinds)


def _describe(quiet: QuietHours | None) -> str:
    return "never" if quiet is None else f"{quiet.start} to {quiet.end} {quiet.timezone}"


def _show(device: Device) -> ShownDevice:
    return ShownDevice(
        device.id,
        device.kind,
        device.name,
        device.kinds,
        device.has_buttons,
        device.created_at,
        device.sent_at,
        device.ended_at,
        device.error,
        device.chat_id if device.kind is DeviceKind.CHAT else None,
    )
