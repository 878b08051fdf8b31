"""Reads and writes how an account is set up, as one flat table."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.gateway import ACCOUNT_NAME, AccountSetup
from everturn.domain.json_types import JsonObject
from everturn.domain.settings import settings_of

_RESERVED: Final = frozenset({"parts", "platforms"})  # they are paths of the API


def read_setup(table: JsonObject) -> AccountSetup:
    """An account from its table. Raises msgspec.ValidationError."""
    known = settings_of(AccountSetup)
    fields = {key: value for key, value in table.items() if key in known}
    options = {key: value for key, value in table.items() if key not in known}
    return msgspec.convert({**fields, "options": options}, AccountSetup)


def write_setup(setup: AccountSetup) -> JsonObject:
    """The table that ``read_setup`` reads."""
    table: JsonObject = msgspec.to_builtins(setup)
    return {**table.pop("options"), **table}


def check_name(name: str) -> None:
    """Raises Invalid for a name that no account can have."""
    if not re.fullmatch(ACCOUNT_NAME.strip("^$"), name) or name in _RESERVED:
        raise Invalid(
            f"An account cannot have the name {name[:40]!r}.",
            hint="Use at most 32 lower-case letters, digits, - and _, such as 'telegram' or 'ops-bot'.",
        )
