"""The accounts of this server: those of config.toml and those of the store, each on its own.

Every server has all accounts ready, so that it can take what is posted to it. One server at a time receives
and sends for an account, under the account's lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.to_thread
import msgspec

from everturn.delivery import AccountServices, AccountSettings
from everturn.delivery.bell import Bell
from everturn.domain.clock import call_within
from everturn.domain.delivery import SenderRole
from everturn.domain.errors import (
    AccountRefused,
    HookDenied,
    Invalid,
    NotFound,
    PlatformBusy,
    PlatformRefused,
    Retry,
    StoreFault,
    WrongState,
)
from everturn.domain.gateway import (
    Account,
    AccountFigures,
    AccountHealth,
    AccountOrigin,
    AccountSetup,
    AccountState,
    PairingCode,
    Person,
    PlatformForm,
    TakesHooks,
)
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Identity
from everturn.domain.secrets import Secrets
from everturn.gateway.admission import Doorkeeper
from everturn.gateway.pairing import Pairing
from everturn.gateway.people import People
from everturn.gateway.platforms import FindPlatform, PlatformKind, find_platform, platform_names
from everturn.gateway.running import RunningAccount, RunningServices, WantedAccount
from everturn.gateway.settings import check_name, read_setup, write_setup

_log = logging.getLogger("everturn.gateway")
KIND: Final = "gateway"  # of the records, and of the secrets: gateway/<account>/<name>
_HEALTH: Final = "gateway_health"  # records by account, written by the server that serves it
_LOOK_S: Final = 5.0  # how often to look for changes that other processes made
_IDENTIFY_S: Final = 30.0
_DAY_MS: Final = 24 * 3600 * 1000


class GatewayServices(msgspec.Struct, frozen=True):
    """What the accounts are given. ``settings``: shared by all. ``owner``: of the accounts and of what they
    receive."""

    delivery: AccountServices
    secrets: Secrets
    environ: Mapping[str, str]
    settings: AccountSettings
    owner: str
    find_platform: FindPlatform = find_platform


class GatewayAccounts:
    """An async context manager: the accounts are served inside it."""

    def __init__(self, configured: Mapping[str, AccountSetup], services: GatewayServices) -> None:
        self._configured = configured
        self._services = services
        self._clock = services.delivery.clock
        self._records = services.delivery.store.records
        self._people = People(self._records, services.owner)
        self._pairing = Pairing(self._records, services.owner, self._clock)
        keeper = Doorkeeper(services.owner, self._people, self._pairing, self._clock)
        self._running_services = RunningServices(
            services.delivery, services.settings, keeper, services.find_platform
        )
        self._running: dict[str, RunningAccount] = {}
        self._written: dict[str, AccountHealth] = {}
        self._changing = anyio.Lock()
        self._changed = Bell(self._clock)
        self._is_stopping = False
        self._exits = AsyncExitStack()
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._exits.enter_async_context(self._group)
        try:
            await self._update()
            self._group.start_soon(self._follow, name="gateway")
        except BaseException:
            # ``__aexit__`` is not called after a failed ``__aenter__``: end the tasks here.
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        self._group.cancel_scope.cancel()
        await self._exits.aclose()

    async def stop(self) -> None:
        """Stop receiving, and finish the sends that have begun. Safe to call twice, from any task."""
        # Not by cancelling the group: that would cancel the task that entered it as well, perhaps the caller.
        self._is_stopping = True
        for running in self._running.values():
            running.remove()
        for running in self._running.values():
            await running.ended.wait()

    # --- reading -------------------------------------------------------------------------------------

    async def accounts(self) -> Sequence[Account]:
        people = await self._people.all()
        return [await self._describe(running, people) for _, running in sorted(self._running.items())]

    async def account(self, name: str) -> Account:
        return await self._describe(self._get(name), await self._people.all())

    def platforms(self) -> Sequence[str]:
        return platform_names()

    async def platform(self, name: str) -> PlatformForm:
        return (await self._find_platform(name)).form()

    async def _describe(self, running: RunningAccount, people: Mapping[str, list[Person]]) -> Account:
        name = running.name
        return Account(
            name=name,
            origin=running.wanted.origin,
            settings=running.wanted.setup,
            secrets=running.secrets(),
            health=await self._health(running),
            figures=await self._figures(name),
            people=tuple(people.get(name, ())),
            identity=running.identity,
            hook=f"/hooks/{name}" if isinstance(running.platform, TakesHooks) else "",
        )

    async def _figures(self, name: str) -> AccountFigures:
        delivery = self._services.delivery.store.delivery
        return await delivery.figures(name, since_ms=self._clock.now_ms() - _DAY_MS)

    async def _health(self, running: RunningAccount) -> AccountHealth:
        """As the server that serves the account sees it."""
        here = running.health()
        if here.state is not AccountState.STARTING:
            return here
        stored = await self._records.get(self._services.owner, _HEALTH, running.name)
        return here if stored is None else msgspec.convert(stored, AccountHealth)

    # --- changing ------------------------------------------------------------------------------------

    async def add(self, name: str, setup: AccountSetup, secrets: Mapping[str, str]) -> Account:
        check_name(name)
        async with self._changing:
            if name in self._running:
                raise WrongState(
                    f"There is an account {name} already. Nothing was changed.", hint="Choose another name."
                )
            await self._check(name, setup, secrets)
            # Secrets first: an account without its secrets would start and fail.
            await self._put_secrets(name, secrets)
            await self._records.put(self._services.owner, KIND, name, write_setup(setup))
            await self._update()
        return await self.account(name)

    async def change(
        self, name: str, changes: Mapping[str, object], secrets: Mapping[str, str | None]
    ) -> Account:
        async with self._changing:
            wanted = self._get(name).wanted
            if changes:
                self._refuse_configured(name)
            setup = _changed(wanted.setup, changes)
            merged = {**wanted.secrets, **secrets}
            if setup.enabled:
                await self._check(
                    name, setup, {key: text for key, text in merged.items() if text}, origin=wanted.origin
                )
            await self._put_secrets(name, secrets)
            if changes:
                await self._records.put(self._services.owner, KIND, name, write_setup(setup))
            await self._update()
        return await self.account(name)

    async def remove(self, name: str) -> None:
        async with self._changing:
            self._get(name)
            self._refuse_configured(name)
            owner = self._services.owner
            # The account first: without its secrets it would start again and fail.
            await self._records.delete(owner, KIND, name)
            await self._put_secrets(name, dict.fromkeys(self._stored_secrets(name)))
            for person in (await self._people.all()).get(name, ()):
                await self._people.remove(name, person.id)
            await self._pairing.forget(name)
            await self._records.delete(owner, _HEALTH, name)
            await self._update()

    async def test(self, name: str) -> Identity:
        wanted = self._get(name).wanted
        return await self._check(name, wanted.setup, wanted.secrets, origin=wanted.origin)

    async def pair(self, name: str, role: SenderRole) -> PairingCode:
        if role not in (SenderRole.OWNER, SenderRole.MEMBER):
            raise Invalid(f"A pairing code cannot give the role {role}.", hint="Use owner or member.")
        identity = self._get(name).identity
        code = await self._pairing.make(name, role)
        return msgspec.structs.replace(code, link=identity.link if identity else "")

    async def remove_person(self, name: str, sender: str) -> None:
        self._get(name)
        if not await self._people.remove(name, sender):
            raise NotFound("paired sender", sender[:80])

    async def take_hook(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        running = self._running.get(name)
        if running is None:
            raise HookDenied
        await running.take_hook(headers, body)

    def _get(self, name: str) -> RunningAccount:
        running = self._running.get(name)
        if running is None:
            raise NotFound("account", name)
        return running

    def _refuse_configured(self, name: str) -> None:
        if name in self._configured:
            raise WrongState(
                f"The account {name} is set up in config.toml. Nothing was changed.",
                hint="Change it there, then restart the server.",
            )

    async def _find_platform(self, name: str) -> PlatformKind:
        # In a thread: importing a platform's library takes a while.
        return await anyio.to_thread.run_sync(self._services.find_platform, name)

    async def _check(
        self,
        name: str,
        setup: AccountSetup,
        secrets: Mapping[str, str],
        *,
        origin: AccountOrigin = AccountOrigin.STORE,
    ) -> Identity:
        """Ask the platform whether the account is good, before anything of it is stored."""
        kind = await self._find_platform(setup.platform)
        if origin is not AccountOrigin.CONFIG:
            kind.refuse_config_only(setup)
        platform = kind.make_platform(name, setup, secrets, self._clock)
        try:
            return await call_within(self._clock, _IDENTIFY_S, platform.identify)
        except PlatformRefused as error:
            raise AccountRefused(
                f"{setup.platform} refuses the account: {error.message} Nothing was changed.",
                hint=error.hint or "Check the token.",
            ) from error
        except PlatformBusy:
            raise
        except Exception as error:  # the platform's own code: it could not be reached
            _log.warning("account %s: asking for its name: %r", name, error)
            raise PlatformBusy(f"{setup.platform} could not be asked. Nothing was changed.") from error
        finally:
            with anyio.CancelScope(shield=True):
                await platform.close()

    async def _put_secrets(self, account: str, secrets: Mapping[str, str | None]) -> None:
        if secrets:
            changes = {f"{KIND}/{account}/{name}": text for name, text in secrets.items()}
            await self._services.secrets.change(changes)

    # --- following the settings ----------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._changed.wait(_LOOK_S)
            try:
                async with self._changing:
                    await self._update()
                await self._write_health()
            except (Retry, StoreFault) as error:
                _log.warning("accounts keep their settings for now: %s", error)

    async def _update(self) -> None:
        """Start, change and remove accounts, as the settings are now."""
        wanted = await self._find_wanted()
        if self._is_stopping:
            return
        for name in self._running.keys() - wanted.keys():
            self._running.pop(name).remove()
        for name, one in wanted.items():
            running = self._running.get(name)
            if running is not None:
                running.change(one)
                continue
            self._running[name] = running = RunningAccount(name, one, self._running_services)
            self._group.start_soon(running.run, name=f"account {name}")

    async def _find_wanted(self) -> dict[str, WantedAccount]:
        records = await self._records.list(self._services.owner, KIND)
        await self._services.secrets.refresh()
        found: dict[str, WantedAccount] = {}
        for name, table in records.items():
            setup = _read_record(name, table)
            if setup is not None:
                found[name] = WantedAccount(setup, AccountOrigin.STORE, self._secrets_of(name))
        for name, setup in self._configured.items():
            found[name] = WantedAccount(setup, AccountOrigin.CONFIG, self._secrets_of(name))
        return found

    async def _write_health(self) -> None:
        """Let other servers know about the accounts that are served here, when something has changed."""
        for name, running in self._running.items():
            health = msgspec.structs.replace(running.health(), strangers=0)
            if running.is_serving and health != self._written.get(name):
                value = msgspec.to_builtins(health)
                await self._records.put(self._services.owner, _HEALTH, name, value)
                self._written[name] = health

    def _secrets_of(self, account: str) -> dict[str, str]:
        """The account's secrets by their names. The environment wins."""
        found = self._stored_secrets(account)
        prefix = variable_of(account, "")
        for name, value in self._services.environ.items():
            if name.startswith(prefix) and value:
                found[name.removeprefix(prefix).lower()] = value
        return found

    def _stored_secrets(self, account: str) -> dict[str, str]:
        names = ((name.partition("/"), secret) for name, secret in self._services.secrets.find(KIND).items())
        return {own: secret.reveal() for (owner, _, own), secret in names if owner == account}


def variable_of(account: str, secret: str) -> str:
    """The environment variable of an account's secret."""
    return f"EVERTURN_GATEWAY_{account.upper().replace('-', '_')}_{secret.upper()}"


def _read_record(name: str, table: JsonObject) -> AccountSetup | None:
    try:
        return read_setup(table)
    except msgspec.ValidationError as error:
        # A newer version wrote it: this server leaves the account to the others.
        _log.warning("the account %s is not served here: %s", name, error)
        return None


def _changed(setup: AccountSetup, changes: Mapping[str, object]) -> AccountSetup:
    try:
        return msgspec.convert({**msgspec.to_builtins(setup), **changes}, AccountSetup)
    except msgspec.ValidationError as error:
        raise Invalid(f"A setting is wrong: {error}. Nothing was changed.", hint="Correct it.") from error
