"""Accounts over fake platforms, for tests of who may talk to them and how they are run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from everturn.delivery import AccountServices, AccountSettings
from everturn.domain.clock import Clock, SystemClock
from everturn.domain.delivery import SenderRole
from everturn.domain.errors import Invalid
from everturn.domain.gateway import AccountSetup
from everturn.gateway import AccountBook, BookServices, GatewayAccounts, RunningServices
from everturn.gateway.platforms import PlatformKind
from everturn.store import SecretsFile, Store
from everturn.testing.harness import OWNER, Harness, open_harness
from everturn.testing.platform import FakePlatform
from everturn.web.access.audit import Audit

ACCOUNT = "main"
FAST = AccountSettings(poll_s=0.01, take_s=0.01, retry_first_s=0.01)
TOKENS = {"EVERTURN_GATEWAY_MAIN_TOKEN": "secret-1"}


class FakeOptions(msgspec.Struct, frozen=True):
    region: str = "eu"


class Platforms:
    """Makes fake platforms and remembers them by account: the newest one of each."""

    def __init__(self, default_role: SenderRole | None = None) -> None:
        self.made: dict[str, FakePlatform] = {}
        self.tokens: dict[str, str] = {}
        self.refused_tokens: set[str] = set()
        self._default_role = default_role

    def find(self, name: str) -> PlatformKind:
        if name != "fake":
            raise Invalid(f"There is no platform {name!r}.", hint="Possible: fake.")
        return PlatformKind("fake", ("token",), FakeOptions, self._make, self._default_role)

    def make_one(self, account: str) -> FakePlatform:
        return FakePlatform(account=account)

    def _make(
        self, account: str, settings: FakeOptions, secrets: Mapping[str, str], clock: Clock
    ) -> FakePlatform:
        platform = self.make_one(account)
        platform.is_token_valid = secrets["token"] not in self.refused_tokens
        # One that is only asked who it is must not replace the one that is served.
        if account not in self.made or self.made[account].is_closed:
            self.made[account] = platform
        self.tokens[account] = secrets["token"]
        return platform


@asynccontextmanager
async def running_gateway(
    harness: Harness,
    home: Path,
    platforms: Platforms,
    accounts: Mapping[str, AccountSetup] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[GatewayAccounts]:
    delivery = AccountServices(
        harness.store,
        harness.engine,
        harness.clock,
        harness.engine.worker,
        audit=Audit(home, harness.clock),
    )
    kept = BookServices(
        harness.store,
        SecretsFile(home),
        TOKENS if environ is None else environ,
        harness.clock,
        OWNER,
        platforms.find,
    )
    book = AccountBook(accounts or {}, kept)
    async with GatewayAccounts(RunningServices(book, delivery, FAST)) as gateway:
        yield gateway


@asynccontextmanager
async def talking(
    store: Store, home: Path, platforms: Platforms, *script: Any, **settings: Any
) -> AsyncIterator[tuple[Harness, GatewayAccounts]]:
    """An engine whose model plays the script, and one account of config.toml with these settings."""
    setup = msgspec.convert({"platform": "fake", **settings}, AccountSetup)
    async with (
        open_harness(store, *script, clock=SystemClock()) as harness,
        running_gateway(harness, home, platforms, {ACCOUNT: setup}) as gateway,
    ):
        yield harness, gateway
