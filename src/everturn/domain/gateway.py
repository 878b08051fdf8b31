"""Accounts on messaging platforms: who may talk to them, how they are doing, and the contract that the web
uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from everturn.domain.delivery import SenderRole, Update
from everturn.domain.words import Words


class Admission(msgspec.Struct, frozen=True):
    """A sender who is served. ``owner``: of the sessions that they talk to."""

    owner: str
    role: SenderRole
    profile: str  # of a chat that is new


# Decides about the sender of an update. None: not allowed, and only a count is kept of the update (F05).
Admit = Callable[[Update], Awaitable[Admission | None]]


@runtime_checkable
class TakesHooks(Protocol):
    """A platform whose updates are posted to this server."""

    def read_update(self, headers: Mapping[str, str], body: bytes) -> Update | None:
        """The update in a request; None if there is none in it. Raises Denied unless it proves where it came
        from, Invalid."""
        ...


class AccountOrigin(Words):
    CONFIG = "config"  # config.toml: can be changed only there
    STORE = "store"  # made on the page or on the command line


class AccountState(Words):
    OFF = "off"  # switched off by its owner
    STARTING = "starting"
    CONNECTED = "connected"
    FAILING = "failing"


class AccountHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an account is doing, on whichever server serves it."""

    state: AccountState
    since: int | None = None  # in this state
    error: str = ""  # the last one
    error_at: int | None = None
    strangers: int = 0  # messages from senders who are not allowed, since it was started
    worker: str = ""  # that serves it


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    platform: str
    origin: AccountOrigin
    health: AccountHealth


class Gateway(Protocol):
    """The accounts of this server."""

    async def accounts(self) -> Sequence[Account]:
        """All accounts, by name."""
        ...

    async def take_hook(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Store the update that was posted for an account. Durable on return; a repeat changes nothing.

        ``headers`` have names in lower case. Raises HookDenied, Invalid, Retry.
        """
        ...
