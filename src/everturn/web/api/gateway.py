"""Accounts on messaging platforms, what a person has to decide about their messages, and posted updates."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from everturn.domain import errors as e
from everturn.domain.delivery import Chat, PartState, PartStatus, SenderRole
from everturn.domain.delivery_store import Delivery
from everturn.domain.gateway import (
    ACCOUNT_NAME,
    Account,
    AccountSetup,
    Gateway,
    PairingCode,
    Person,
    PlatformForm,
)
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity
from everturn.domain.store_values import WhenBusy
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.problems import BodyTooLarge, BodyTooSlow
from everturn.web.http.routing import JSON, Answer, AnyEndpoint, ApiCall, Endpoint, Nothing, collect

_HOOK_BYTES_MAX = 1_000_000  # before the signature is checked: strangers get no more of our memory
_HOOK_TIMEOUT_S = 10.0
_REFUSALS = (e.Invalid, e.NotFound, e.WrongState, e.AccountRefused, e.PlatformBusy, e.SecretKeyWrong)

_SecretName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,31}$(?!\n)")]
_SecretText = Annotated[str, Meta(pattern=r"^[ -~]{1,2000}$(?!\n)")]
_SenderIds = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=1_000)]
_ProfileName = Annotated[str, Meta(min_length=1, max_length=100)]


class UndecidedPart(msgspec.Struct, frozen=True):
    """A message that is held, because it is not known whether it arrived, or that was not delivered."""

    id: str
    account: str
    platform: str
    chat_id: str
    chat_title: str
    state: PartState
    changed_at: int
    error: str | None
    session_id: str | None
    turn_id: str | None
    excerpt: str  # how its text begins; empty for a file


class AccountsOut(msgspec.Struct, frozen=True):
    accounts: tuple[Account, ...]
    platforms: tuple[str, ...]
    undecided: tuple[UndecidedPart, ...]


class AddAccount(AccountSetup, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``secrets`` cannot be read back. ``options``: the settings of the platform."""

    name: Annotated[str, Meta(pattern=ACCOUNT_NAME + r"(?!\n)")]
    secrets: dict[_SecretName, _SecretText] = msgspec.field(default_factory=dict)


class ChangeAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change; what is left out stays. A secret that is null is deleted."""

    enabled: bool | UnsetType = UNSET
    profile: _ProfileName | UnsetType = UNSET
    when_busy: WhenBusy | UnsetType = UNSET
    when_unknown: Literal["repeat", "hold"] | UnsetType = UNSET
    live: bool | UnsetType = UNSET
    allow: _SenderIds | UnsetType = UNSET
    members: _SenderIds | UnsetType = UNSET
    guests: bool | UnsetType = UNSET
    guest_profile: _ProfileName | UnsetType = UNSET
    options: JsonObject | UnsetType = UNSET
    secrets: dict[_SecretName, _SecretText | None] = {}

    @property
    def settings(self) -> dict[str, object]:
        given: dict[str, object] = msgspec.to_builtins(self)
        return {name: value for name, value in given.items() if name != "secrets"}


class MakeCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["owner", "member"] = "owner"


class ChangePerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["owner", "member"]


class OnePerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sender: Annotated[str, Meta(min_length=1, max_length=200)]


class GatewayApi:
    def __init__(self, gateway: Gateway, delivery: Delivery, audit: Audit) -> None:
        self._gateway = gateway
        self._delivery = delivery
        self._audit = audit

    def endpoints(self) -> list[AnyEndpoint]:
        tag = "gateway"
        return [
            *self._of_accounts(tag),
            *self._of_one(tag),
            *self._of_people(tag),
            *self._of_messages(tag),
        ]

    def _of_accounts(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/gateway",
                run=self.accounts,
                summary="The accounts and their health, and messages that a person has to decide about.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=AccountsOut,
            ),
            Endpoint(
                method="POST",
                path="/api/gateway",
                run=self.add,
                summary="Add an account. If the platform refuses it, nothing is stored.",
                tag=tag,
                scope=Scope.ADMIN,
                body=AddAccount,
                answer=Account,
                status=201,
                errors=_REFUSALS,
            ),
            Endpoint(
                method="GET",
                path="/api/gateway/platforms/{platform}",
                run=self.platform,
                summary="What an account on a platform needs.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=PlatformForm,
                errors=(e.Invalid,),
            ),
        ]

    def _of_one(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/gateway/{account}",
                run=self.account,
                summary="One account.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=Account,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="PATCH",
                path="/api/gateway/{account}",
                run=self.change,
                summary="Change an account. Of one in config.toml, only its secrets.",
                tag=tag,
                scope=Scope.ADMIN,
                body=ChangeAccount,
                answer=Account,
                errors=_REFUSALS,
            ),
            Endpoint(
                method="DELETE",
                path="/api/gateway/{account}",
                run=self.remove,
                summary="Remove an account with its secrets. Its sessions stay.",
                tag=tag,
                scope=Scope.ADMIN,
                status=204,
                errors=(e.NotFound, e.WrongState, e.SecretKeyWrong),
            ),
            Endpoint(
                method="POST",
                path="/api/gateway/{account}/test",
                run=self.test,
                summary="Ask the platform who the account is.",
                tag=tag,
                scope=Scope.ADMIN,
                answer=Identity,
                errors=(e.NotFound, e.Invalid, e.AccountRefused, e.PlatformBusy),
            ),
        ]

    def _of_people(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/gateway/{account}/pair",
                run=self.pair,
                summary="Make a pairing code. The first sender of the code gets the role.",
                tag=tag,
                scope=Scope.ADMIN,
                body=MakeCode,
                answer=PairingCode,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="PATCH",
                path="/api/gateway/{account}/people",
                run=self.change_person,
                summary="Give a sender who was paired another role.",
                tag=tag,
                scope=Scope.ADMIN,
                query=OnePerson,
                body=ChangePerson,
                answer=Person,
                errors=(e.NotFound,),
            ),
            Endpoint(
                method="DELETE",
                path="/api/gateway/{account}/people",
                run=self.remove_person,
                summary="Remove a sender who was paired.",
                tag=tag,
                scope=Scope.ADMIN,
                query=OnePerson,
                status=204,
                errors=(e.NotFound,),
            ),
        ]

    def _of_messages(self, tag: str) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/api/gateway/parts/{part}/resend",
                run=self.resend,
                summary="Send a held or undelivered message again.",
                tag=tag,
                scope=Scope.CHAT,
                answer=PartStatus,
                errors=(e.NotFound, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/api/gateway/parts/{part}/arrived",
                run=self.confirm_arrived,
                summary="Say that a held message has arrived.",
                tag=tag,
                scope=Scope.CHAT,
                answer=PartStatus,
                errors=(e.NotFound, e.WrongState),
            ),
            Endpoint(
                method="POST",
                path="/hooks/{account}",
                run=self.take_hook,
                summary="Post an update for an account. Its signature is checked; a repeat changes nothing.",
                tag=tag,
                scope=None,
                takes=(JSON,),
                body_bytes_max=_HOOK_BYTES_MAX,
                status=202,
                errors=(e.HookDenied, e.Invalid, BodyTooLarge, BodyTooSlow),
            ),
        ]

    async def accounts(self, call: ApiCall[Nothing, Nothing]) -> AccountsOut:
        return AccountsOut(
            tuple(await self._gateway.accounts()),
            tuple(self._gateway.platforms()),
            await undecided_parts(self._delivery, call.owner),
        )

    async def account(self, call: ApiCall[Nothing, Nothing]) -> Account:
        return await self._gateway.account(call.path["account"])

    async def platform(self, call: ApiCall[Nothing, Nothing]) -> PlatformForm:
        return await self._gateway.platform(call.path["platform"])

    async def add(self, call: ApiCall[Nothing, AddAccount]) -> Account:
        body = call.body
        setup = msgspec.convert(body, AccountSetup, from_attributes=True)
        added = await self._gateway.add(body.name, setup, body.secrets)
        await self._audit.note("gateway.added", call.caller, f"{body.name} ({body.platform})")
        return added

    async def change(self, call: ApiCall[Nothing, ChangeAccount]) -> Account:
        name, settings, secrets = call.path["account"], call.body.settings, call.body.secrets
        changed = await self._gateway.change(name, settings, secrets)
        if settings or secrets:
            what = ", ".join([*settings, *(f"secret {secret}" for secret in secrets)])
            await self._audit.note("gateway.changed", call.caller, f"{name}: {what}")
        return changed

    async def remove(self, call: ApiCall[Nothing, Nothing]) -> None:
        await self._gateway.remove(call.path["account"])
        await self._audit.note("gateway.removed", call.caller, call.path["account"])

    async def test(self, call: ApiCall[Nothing, Nothing]) -> Identity:
        return await self._gateway.test(call.path["account"])

    async def pair(self, call: ApiCall[Nothing, MakeCode]) -> PairingCode:
        name, role = call.path["account"], SenderRole(call.body.role)
        code = await self._gateway.pair(name, role)
        await self._audit.note("gateway.code", call.caller, f"{name}: {role}")
        return code

    async def change_person(self, call: ApiCall[OnePerson, ChangePerson]) -> Person:
        name, sender, role = call.path["account"], call.query.sender, SenderRole(call.body.role)
        changed = await self._gateway.change_role(name, sender, role)
        await self._audit.note("gateway.role", call.caller, f"{name}: {sender}: {role}")
        return changed

    async def remove_person(self, call: ApiCall[OnePerson, Nothing]) -> None:
        name, sender = call.path["account"], call.query.sender
        await self._gateway.remove_person(name, sender)
        await self._audit.note("gateway.unpaired", call.caller, f"{name}: {sender}")

    async def resend(self, call: ApiCall[Nothing, Nothing]) -> PartStatus:
        part = await self._delivery.outbox.send_again(call.owner, call.path["part"])
        await self._audit.note("gateway.resend", call.caller, call.path["part"])
        return part

    async def confirm_arrived(self, call: ApiCall[Nothing, Nothing]) -> PartStatus:
        part = await self._delivery.outbox.confirm_arrived(call.owner, call.path["part"])
        await self._audit.note("gateway.arrived", call.caller, call.path["part"])
        return part

    async def take_hook(self, call: ApiCall[Nothing, Nothing]) -> Answer:
        """Answers once the update is stored: the sender may forget it then."""
        length = call.headers.get("content-length")
        body = await collect(call.receive, _HOOK_BYTES_MAX, _HOOK_TIMEOUT_S, length)
        await self._gateway.take_hook(call.path["account"], call.headers, body)
        return Answer(None)


async def undecided_parts(delivery: Delivery, owner: str) -> tuple[UndecidedPart, ...]:
    """Messages about which the owner has to decide."""
    chats: dict[str, Chat] = {}
    found = []
    for part in await delivery.outbox.list_undecided(owner):
        if part.chat_id not in chats:
            chats[part.chat_id] = await delivery.chats.get(owner, part.chat_id)
        found.append(_undecided_part(part, chats[part.chat_id]))
    return tuple(found)


def _undecided_part(part: PartStatus, chat: Chat) -> UndecidedPart:
    place = chat.place
    return UndecidedPart(
        id=part.id,
        account=place.account,
        platform=place.platform,
        chat_id=chat.id,
        chat_title=chat.title or place.chat,
        state=part.state,
        changed_at=part.changed_at,
        error=part.error,
        session_id=chat.session_id,
        turn_id=part.turn_id,
        excerpt=part.excerpt,
    )
