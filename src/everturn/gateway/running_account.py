"""One account on this server. The service is restarted whenever the account's settings change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec

from everturn.delivery import AccountService, AccountServices, AccountSettings
from everturn.domain.clock import call_within
from everturn.domain.delivery import WhenUnknown
from everturn.domain.errors import Denied, EverturnError, HookDenied, NotFound
from everturn.domain.gateway import AccountHealth, AccountOrigin, AccountState, TakesHooks
from everturn.domain.platform import Identity, Platform
from everturn.domain.redaction import redact
from everturn.gateway.admission import Admissions
from everturn.gateway.book import AccountBook, WantedAccount
from everturn.gateway.platforms import PlatformKind, refuse_missing_secrets, secrets_of

_log = logging.getLogger("everturn.gateway")
_STEADY_MS: Final = 10_000  # after receiving for this long, an earlier error counts as over
_IDENTIFY_S: Final = 30.0


class RunningServices(msgspec.Struct, frozen=True):
    """What every account is given."""

    book: AccountBook
    delivery: AccountServices
    settings: AccountSettings  # shared by all accounts


class RunningAccount:
    def __init__(self, name: str, wanted: WantedAccount, services: RunningServices) -> None:
        self.name = name
        self.wanted = wanted
        self._services = services
        self._clock = services.delivery.clock
        self._is_removed = False
        self._scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.kind: PlatformKind | None = None
        self.platform: Platform | None = None
        self.identity: Identity | None = None
        self._service: AccountService | None = None
        self._since = self._clock.now_ms()
        self._error = ""  # why it cannot be served at all

    def change(self, wanted: WantedAccount) -> None:
        if wanted != self.wanted:
            self.wanted = wanted
            self._scope.cancel()

    def remove(self) -> None:
        self._is_removed = True
        self._scope.cancel()

    async def run(self) -> None:
        """Serve the account until it is removed."""
        try:
            while not self._is_removed:
                # Never two at once: two services of one worker would share a lease.
                with anyio.CancelScope() as self._scope:
                    await self._serve()
        finally:
            self.ended.set()

    async def _serve(self) -> None:
        self._error, self._since = "", self._clock.now_ms()
        try:
            if self.wanted.setup.enabled:
                await self._open()
        except EverturnError as error:
            self._fail(f"{error.message} {error.hint}")
        except Exception as error:  # the platform's own code
            _log.exception("account %s", self.name)
            self._fail(repr(error))
        if self._service is None or self.platform is None:
            await anyio.sleep_forever()  # until its settings change
            return
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._identify, self.platform, name=f"{self.name}: identify")
                group.start_soon(self._service.run, name=f"{self.name}: serve")
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _open(self) -> None:
        setup, services = self.wanted.setup, self._services
        if self.wanted.origin is AccountOrigin.CONFIG:
            await services.book.readmit(self.name)
        refuse_missing_secrets(self.name, secrets_of(setup.platform), self.wanted.secrets)
        self.kind = await services.book.find_platform(setup.platform)  # tells which secrets it needs
        _, platform = await services.book.make_platform(self.name, self.wanted)
        admissions = Admissions(self.name, setup, self.kind.default_role, services.book)
        settings = msgspec.structs.replace(
            services.settings,
            when_busy=setup.when_busy,
            when_unknown=WhenUnknown(setup.when_unknown),
            live=setup.live,
        )
        self.platform = platform
        self._service = AccountService(
            self.name, platform, admissions.admit, settings, services.delivery, admissions.role_now
        )

    async def _identify(self, platform: Platform) -> None:
        """Learn the account's name. If that fails, receiving fails too, and reports why."""
        try:
            self.identity = await call_within(self._clock, _IDENTIFY_S, platform.identify)
        except Exception as error:  # the platform's own code
            _log.warning("account %s: asking for its name: %r", self.name, error)

    async def _close(self) -> None:
        platform, self.platform, self._service = self.platform, None, None
        try:
            if platform is not None:
                await platform.close()
        except Exception as error:  # the platform's own code
            _log.warning("account %s: closing: %r", self.name, error)

    def _fail(self, error: str) -> None:
        self._error = redact(error.strip())
        _log.warning("the account %s is not served: %s", self.name, self._error)

    async def take_hook(self, headers: Mapping[str, str], body: bytes) -> None:
        platform, service = self.platform, self._service
        if not isinstance(platform, TakesHooks) or service is None:
            raise HookDenied
        try:
            update = platform.read_update(headers, body)
        except Denied as error:
            _log.info("account %s: a posted update was refused: %s", self.name, error)
            raise HookDenied from error
        try:
            if update is not None:
                await service.deliver(update)
        except NotFound as error:  # the account was removed just now
            raise HookDenied from error

    @property
    def is_serving(self) -> bool:
        """Whether this server receives and sends for the account."""
        return self._service is not None and self._service.is_serving

    def secrets(self) -> dict[str, bool]:
        """The secrets that it needs, and whether they are set."""
        built_in = secrets_of(self.wanted.setup.platform)
        names = self.kind.secrets if self.kind is not None else built_in or self.wanted.secrets
        return {name: bool(self.wanted.secrets.get(name)) for name in names}

    def health(self) -> AccountHealth:
        """Its health on this server. STARTING: another server may be serving it."""
        service = self._service
        if not self.wanted.setup.enabled:
            return AccountHealth(AccountState.OFF, self._since)
        if service is None:
            state = AccountState.FAILING if self._error else AccountState.STARTING
            return AccountHealth(state, self._since, self._error, self._since if self._error else None)
        state, since = self._state_of(service)
        return AccountHealth(
            state,
            since,
            service.last_error,
            service.last_error_at,
            service.strangers,
            self._services.delivery.worker,
        )

    def _state_of(self, service: AccountService) -> tuple[AccountState, int]:
        """The state, and since when."""
        if not service.is_serving:
            return AccountState.STARTING, self._since
        receiving, failed = service.receiving_since, service.last_error_at
        if receiving is not None and (failed is None or self._clock.now_ms() - receiving >= _STEADY_MS):
            return AccountState.CONNECTED, receiving
        return AccountState.FAILING, failed or self._since
