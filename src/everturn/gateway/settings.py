"""How an account is set up: a table ``[gateway.NAME]`` of config.toml, or a record of the store."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid
from everturn.domain.json_types import JsonObject
from everturn.domain.settings import settings_of
from everturn.domain.store_values import WhenBusy
from everturn.tools.profiles import DEFAULT

GUEST_PROFILE: Final = "guest"
NAME_PATTERN: Final = "^[a-z0-9][a-z0-9_-]{0,31}$"

_SenderId = Annotated[str, Meta(min_length=1, max_length=200)]
_SenderIds = Annotated[tuple[_SenderId, ...], Meta(max_length=1_000)]
_ProfileName = Annotated[str, Meta(min_length=1, max_length=100)]


class AccountSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields with a description are settings. ``options``: all others, which the platform checks."""

    platform: Annotated[str, Meta(min_length=1, max_length=64, description="The platform of the account.")]
    enabled: Annotated[bool, Meta(description="false: the account neither receives nor sends.")] = True
    profile: Annotated[_ProfileName, Meta(description="Profile of its sessions.")] = DEFAULT
    when_busy: Annotated[
        WhenBusy, Meta(description="What becomes of a message that arrives while a turn runs.")
    ] = WhenBusy.QUEUE
    when_unknown: Annotated[
        Literal["repeat", "hold"],
        Meta(
            description="A send whose outcome is unknown, where the platform recognises no repeats: send it "
            "once more, marked as a possible repeat, or hold it until you decide."
        ),
    ] = "repeat"
    allow: Annotated[_SenderIds, Meta(description="Ids of senders who are you.")] = ()
    members: Annotated[
        _SenderIds, Meta(description="Ids of senders who may talk to your agent, without being trusted.")
    ] = ()
    guests: Annotated[
        bool, Meta(description="Serve all other senders in private chats, each with sessions of their own.")
    ] = False
    guest_profile: Annotated[_ProfileName, Meta(description="Profile of guests.")] = GUEST_PROFILE
    options: JsonObject = {}


def read_setup(table: JsonObject) -> AccountSetup:
    """An account from its table. Raises msgspec.ValidationError."""
    known = settings_of(AccountSetup)
    fields = {key: value for key, value in table.items() if key in known}
    options = {key: value for key, value in table.items() if key not in known}
    return msgspec.convert({**fields, "options": options}, AccountSetup)


def write_setup(setup: AccountSetup) -> JsonObject:
    """The table that ``read_setup`` reads."""
    table: JsonObject = msgspec.to_builtins(setup)
    return {**table.pop("options", {}), **table}


def check_name(name: str) -> None:
    """Raises Invalid for a name that no account can have."""
    if not re.fullmatch(NAME_PATTERN.strip("^$"), name):
        raise Invalid(
            f"An account cannot have the name {name[:40]!r}.",
            hint="Use at most 32 lower-case letters, digits, - and _, such as 'telegram' or 'ops-bot'.",
        )
