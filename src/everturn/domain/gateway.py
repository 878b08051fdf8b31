"""Accounts on messaging platforms: their settings, who may talk to them, their health, and the contract
that the web uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from everturn.domain.delivery import SenderRole, Update
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity
from everturn.domain.store_values import WhenBusy
from everturn.domain.words import Words

ACCOUNT_NAME: Final = "^[a-z0-9][a-z0-9_-]{0,31}$"

_SenderId = Annotated[str, Meta(min_length=1, max_length=200)]
_SenderIds = Annotated[tuple[_SenderId, ...], Meta(max_length=1_000)]
_ProfileName = Annotated[str, Meta(min_length=1, max_length=100)]


class AccountSetup(msgspec.Struct, frozen=True, kw_only=True):
    """How an account is set up: a table ``[gateway.NAME]`` of config.toml, or a record of the store.

    Fields with a description are settings. ``options``: all others, which the platform checks.
    """

    platform: Annotated[str, Meta(min_length=1, max_length=64, description="The platform of the account.")]
    enabled: Annotated[bool, Meta(description="false: the account neither receives nor sends.")] = True
    profile: Annotated[_ProfileName, Meta(description="Profile of its sessions.")] = "default"
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
    live: Annotated[
        bool,
        Meta(
            description="While a turn runs, show in one message what it does and writes, where messages can "
            "be edited. The answer replaces it."
        ),
    ] = False
    allow: Annotated[_SenderIds, Meta(description="Ids of senders who are you.")] = ()
    members: Annotated[
        _SenderIds, Meta(description="Ids of senders who may talk to your agent, without being trusted.")
    ] = ()
    guests: Annotated[
        bool, Meta(description="Serve all other senders in private chats, each with sessions of their own.")
    ] = False
    guest_profile: Annotated[_ProfileName, Meta(description="Profile of guests.")] = "guest"
    options: JsonObject = {}


class Admission(msgspec.Struct, frozen=True):
    """A sender who is served. ``owner``: of the sessions that they talk to."""

    owner: str
    role: SenderRole
    profile: str  # of a chat that is new
    is_paired_now: bool = False  # the update was a pairing code; it is not a message to the agent


# Decides about the sender of an update. None: not allowed, and only a count is kept of the update (F05).
Admit = Callable[[Update], Awaitable[Admission | None]]
# The present role of the sender of a stored update. None: the sender may no longer talk.
RoleNow = Callable[[Update], Awaitable[SenderRole | None]]


@runtime_checkable
class TakesHooks(Protocol):
    """A platform whose updates are posted to this server."""

    def read_update(self, headers: Mapping[str, str], body: bytes) -> Update | None:
        """The update in a request; None if there is none in it. Raises Denied if it does not prove its
        origin, Invalid."""
        ...


class AccountOrigin(Words):
    CONFIG = "config"  # config.toml: can be changed only there
    STORE = "store"  # made on the page or on the command line


class AccountState(Words):
    OFF = "off"  # switched off by its owner
    STARTING = "starting"
    CONNECTED = "connected"
    FAILING = "failing"


class AccountHealth(msgspec.Struct, frozen=True):
    """The health of an account on the server that serves it."""

    state: AccountState
    since: int | None = None  # in this state
    error: str = ""  # the last one, even if it is over
    error_at: int | None = None
    strangers: int = 0  # messages from senders who are not allowed, since the account was started
    worker: str = ""
    seen_at: int | None = None  # when another server, which serves it, last wrote this
    is_stale: bool = False  # that server seems to have stopped, and no other has taken over yet


class AccountFigures(msgspec.Struct, frozen=True):
    """What the store knows about an account's messages."""

    received: int = 0  # since the moment that was asked about
    last_received_at: int | None = None
    waiting: int = 0  # parts that are not sent yet
    waiting_since: int | None = None  # the oldest of them, or of messages that are not turns yet
    undecided: int = 0  # parts that a person has to decide about


class Person(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sender who was paired with an account."""

    id: str
    role: SenderRole
    name: str = ""
    paired_at: int | None = None


class PairingCode(msgspec.Struct, frozen=True):
    """The first sender of this text in a private chat with the account gets the role."""

    code: str
    role: SenderRole
    expires_at: int
    link: str = ""  # where the account is found


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """``secrets``: those that it needs, and whether they are set. ``hook``: the path that updates are posted
    to; empty if the platform posts none."""

    name: str
    origin: AccountOrigin
    settings: AccountSetup
    secrets: dict[str, bool]
    health: AccountHealth
    figures: AccountFigures
    people: tuple[Person, ...] = ()
    identity: Identity | None = None
    hook: str = ""


class PlatformOption(msgspec.Struct, frozen=True):
    name: str
    about: str
    is_required: bool
    is_config_only: bool  # can be set in config.toml only


class PlatformForm(msgspec.Struct, frozen=True):
    """What an account on a platform needs."""

    name: str
    secrets: tuple[str, ...]
    options: tuple[PlatformOption, ...]


class Gateway(Protocol):
    """The accounts of this server. Changes are durable on return."""

    async def accounts(self) -> Sequence[Account]:
        """All accounts, by name."""
        ...

    async def account(self, name: str) -> Account:
        """Raises NotFound."""
        ...

    def platforms(self) -> Sequence[str]:
        """The names of all platforms."""
        ...

    async def platform(self, name: str) -> PlatformForm:
        """Raises Invalid if there is no such platform, or if it cannot be used here."""
        ...

    async def add(self, name: str, setup: AccountSetup, secrets: Mapping[str, str]) -> Account:
        """Add an account, after asking the platform who it is. Raises Invalid, WrongState if there is one of
        this name, AccountRefused if the platform refuses it, PlatformBusy; then nothing is stored."""
        ...

    async def change(
        self, name: str, changes: Mapping[str, object], secrets: Mapping[str, str | None]
    ) -> Account:
        """Change settings and secrets; a secret that is None is deleted. Raises as ``add``, and NotFound.

        Of an account of config.toml only the secrets can be changed here.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove an account with its secrets, its people and everything that it still had to send; its
        sessions stay. Raises NotFound, WrongState if it is in config.toml."""
        ...

    async def test(self, name: str) -> Identity:
        """Ask the platform who the account is. Raises NotFound, Invalid, AccountRefused, PlatformBusy."""
        ...

    async def pair(self, name: str, role: SenderRole) -> PairingCode:
        """A new code, in place of an earlier one. Raises NotFound, Invalid."""
        ...

    async def change_role(self, name: str, sender: str, role: SenderRole) -> Person:
        """Give a sender who was paired another role. Raises NotFound, Invalid."""
        ...

    async def remove_person(self, name: str, sender: str) -> None:
        """End what a pairing allowed. Raises NotFound."""
        ...

    def status(self) -> JsonObject:
        """Figures of this server, for metrics."""
        ...

    async def take_hook(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Store the update that was posted for an account. A repeat changes nothing.

        ``headers`` have names in lower case. Raises HookDenied, Invalid, Retry.
        """
        ...
