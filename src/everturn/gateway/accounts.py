"""Runs the accounts: those of config.toml and those of the store, each on its own.

Every server has all accounts ready, so that it can take what is posted to it. One server at a time receives
and sends for an account, under the account's lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
import msgspec

from everturn.delivery import AccountService, AccountServices, AccountSettings, DeliverySettings
from everturn.delivery.bell import Bell
from everturn.domain.delivery import WhenUnknown
from everturn.domain.errors import Denied, EverturnError, HookDenied, Retry, StoreFault
from everturn.domain.gateway import Account, AccountHealth, AccountOrigin, AccountState, TakesHooks
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Platform
from everturn.domain.secrets import Secrets
from everturn.gateway.admission import Admissions
from everturn.gateway.platforms import find_platform
from everturn.gateway.settings import AccountSetup, read_setup

_log = logging.getLogger("everturn.gateway")
KIND = "gateway"  # of the records, and of the secrets: gateway/<account>/<name>
_LOOK_S = 5.0  # how often to look for changes that other processes made


class GatewayServices(msgspec.Struct, frozen=True):
    """What the accounts are given. ``owner``: of the accounts and of what they receive."""

    delivery: AccountServices
    secrets: Secrets
    environ: Mapping[str, str]
    settings: DeliverySettings
    owner: str


class _Wanted(msgspec.Struct, frozen=True):
    """An account as it is set up now. Two that are equal need no restart."""

    setup: AccountSetup
    origin: AccountOrigin
    secrets: dict[str, str]


class GatewayAccounts:
    """An async context manager: the accounts are served inside it."""

    def __init__(self, configured: Mapping[str, AccountSetup], services: GatewayServices) -> None:
        self._configured = configured
        self._services = services
        self._running: dict[str, _RunningAccount] = {}
        self._changed = Bell(services.delivery.clock)
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
        self._group.cancel_scope.cancel()
        for running in self._running.values():
            await running.ended.wait()

    # --- for web and cli -----------------------------------------------------------------------------

    async def accounts(self) -> Sequence[Account]:
        return [running.describe() for _, running in sorted(self._running.items())]

    async def take_hook(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        running = self._running.get(name)
        if running is None:
            raise HookDenied
        await running.take_hook(headers, body)

    # --- following the settings ----------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._changed.wait(_LOOK_S)
            try:
                await self._update()
            except (Retry, StoreFault) as error:
                _log.warning("accounts keep their settings for now: %s", error)

    async def _update(self) -> None:
        """Start, change and remove accounts, as the settings are now."""
        wanted = await self._find_wanted()
        for name in self._running.keys() - wanted.keys():
            self._running.pop(name).remove()
        for name, one in wanted.items():
            running = self._running.get(name)
            if running is not None:
                running.change(one)
                continue
            self._running[name] = running = _RunningAccount(name, one, self._services)
            self._group.start_soon(running.run, name=f"account {name}")

    async def _find_wanted(self) -> dict[str, _Wanted]:
        services = self._services
        records = await services.delivery.store.records.list(services.owner, KIND)
        await services.secrets.refresh()
        found: dict[str, _Wanted] = {}
        for name, table in records.items():
            setup = _read_record(name, table)
            if setup is not None:
                found[name] = _Wanted(setup, AccountOrigin.STORE, self._secrets_of(name))
        for name, setup in self._configured.items():
            found[name] = _Wanted(setup, AccountOrigin.CONFIG, self._secrets_of(name))
        return found

    def _secrets_of(self, account: str) -> dict[str, str]:
        """The account's secrets by their names. The environment wins."""
        found: dict[str, str] = {}
        for name, secret in self._services.secrets.find(KIND).items():
            owner, _, own = name.partition("/")
            if owner == account:
                found[own] = secret.reveal()
        prefix = variable_of(account, "")
        for name, value in self._services.environ.items():
            if name.startswith(prefix) and value:
                found[name.removeprefix(prefix).lower()] = value
        return found


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


class _RunningAccount:
    """One account on this server: it is served anew whenever its settings change."""

    def __init__(self, name: str, wanted: _Wanted, services: GatewayServices) -> None:
        self._name = name
        self._wanted = wanted
        self._services = services
        self._is_removed = False
        self._scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self._platform: Platform | None = None
        self._service: AccountService | None = None
        self._since = services.delivery.clock.now_ms()
        self._error = ""  # why it cannot be served at all

    def change(self, wanted: _Wanted) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._scope.cancel()

    def remove(self) -> None:
        self._is_removed = True
        self._scope.cancel()

    async def run(self) -> None:
        """Serve the account until it is removed."""
        try:
            while not self._is_removed:
                # One after the other: two services of one worker would share a lease.
                with anyio.CancelScope() as self._scope:
                    await self._serve()
        finally:
            self.ended.set()

    async def _serve(self) -> None:
        self._error, self._since = "", self._services.delivery.clock.now_ms()
        try:
            if self._wanted.setup.enabled:
                await self._open()
        except EverturnError as error:
            self._fail(f"{error.message} {error.hint}")
        except Exception as error:  # the platform's own code
            _log.exception("account %s", self._name)
            self._fail(repr(error))
        if self._service is None:
            await anyio.sleep_forever()  # until its settings change
            return
        try:
            await self._service.run()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _open(self) -> None:
        setup, services = self._wanted.setup, self._services
        # In a thread: importing a platform's library takes a while, and the page must not wait for it (F07).
        kind = await anyio.to_thread.run_sync(find_platform, setup.platform)
        platform = kind.make_platform(self._name, setup, self._wanted.secrets, services.delivery.clock)
        admissions = Admissions(services.owner, setup, kind.default_role)
        settings = AccountSettings(
            when_busy=setup.when_busy,
            when_unknown=WhenUnknown(setup.when_unknown),
            age_max_s=services.settings.age_max_s,
        )
        self._platform = platform
        self._service = AccountService(self._name, platform, admissions.admit, settings, services.delivery)

    async def _close(self) -> None:
        platform, self._platform, self._service = self._platform, None, None
        try:
            if platform is not None:
                await platform.close()
        except Exception as error:  # the platform's own code
            _log.warning("account %s: closing: %r", self._name, error)

    def _fail(self, error: str) -> None:
        self._error = error.strip()
        _log.warning("the account %s is not served: %s", self._name, self._error)

    async def take_hook(self, headers: Mapping[str, str], body: bytes) -> None:
        platform, service = self._platform, self._service
        if not isinstance(platform, TakesHooks) or service is None:
            raise HookDenied
        try:
            update = platform.read_update(headers, body)
        except Denied as error:
            _log.info("account %s: a posted update was refused: %s", self._name, error)
            raise HookDenied from error
        if update is not None:
            await service.deliver(update)

    def describe(self) -> Account:
        wanted = self._wanted
        return Account(self._name, wanted.setup.platform, wanted.origin, self._health())

    def _health(self) -> AccountHealth:
        service = self._service
        if not self._wanted.setup.enabled:
            return AccountHealth(AccountState.OFF, self._since)
        if service is None:
            state = AccountState.FAILING if self._error else AccountState.STARTING
            return AccountHealth(state, self._since, self._error)
        return AccountHealth(
            AccountState.CONNECTED if service.is_serving else AccountState.STARTING,
            self._since,
            service.last_error,
            service.last_error_at,
            service.strangers,
        )
