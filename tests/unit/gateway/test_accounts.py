"""How accounts are started and stopped."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import PlatformBusy
from everturn.domain.gateway import AccountHealth, AccountSetup, AccountState
from everturn.gateway import AccountBook, BookServices
from everturn.gateway.platforms import PlatformKind
from everturn.store import SecretsFile, Store
from everturn.testing import Say
from everturn.testing.clock import FakeClock
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.waiting import within
from tests.gateways import ACCOUNT, TOKENS, Platforms, running_gateway, talking
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> SystemClock:
    """The store's and the loops'. They poll at short intervals, and the tests wait for facts."""
    return SystemClock()


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_stopping_the_accounts_does_not_cancel_the_task_that_started_them(
    store: Store, tmp_path: Path
) -> None:
    platforms = Platforms()
    async with talking(store, tmp_path, platforms, allow=["ada"]) as (_, gateway):
        await until("the account is served", lambda: ACCOUNT in platforms.made)
        with within("the accounts have stopped"):
            await gateway.stop()
        assert platforms.made[ACCOUNT].is_closed
        await anyio.lowlevel.checkpoint()  # would raise if this task were cancelled
        await gateway.stop()


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_an_account_that_was_removed_can_be_added_again_and_sends_nothing_old(
    store: Store, tmp_path: Path
) -> None:
    platforms, setup = Platforms(), AccountSetup(platform="fake", allow=("ada",))
    async with talking(store, tmp_path, platforms, Say("old"), Say("new")) as (_, gateway):
        await gateway.add("bot", setup, {"token": "one"})
        # The one that was only asked who it is comes first, and is closed when the account has been added.
        await until("the account is served", lambda: not platforms.made["bot"].is_closed)
        first = platforms.made["bot"]
        first.failures = [PlatformBusy("It is down.", after_s=3_600)]
        first.say("u1", "good morning")
        await until("the answer was tried", lambda: bool(first.sends) and not first.failures)
        await gateway.remove("bot")
        await until("the platform is closed", lambda: first.is_closed)
        assert (await store.delivery.figures("bot", since_ms=0)).waiting == 0
        await gateway.add("bot", setup, {"token": "two"})
        await until("the new account is served", lambda: not platforms.made["bot"].is_closed)
        second = platforms.made["bot"]
        second.say("u1", "hello")  # the same id: the new account knows nothing of the old one
        await until("the new account answers", lambda: bool(second.arrived))
        assert second.texts() == ["new"]
    assert first.arrived == []


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_an_account_without_its_token_fails_before_its_library_is_imported(
    store: Store, tmp_path: Path
) -> None:
    class Unfindable(Platforms):
        def find(self, name: str) -> PlatformKind:
            raise AssertionError("the library was imported")

    setup = AccountSetup(platform="telegram")
    async with (
        open_harness(store, clock=SystemClock()) as harness,
        running_gateway(harness, tmp_path, Unfindable(), {ACCOUNT: setup}, {}) as gateway,
    ):

        async def is_failing() -> bool:
            return (await gateway.account(ACCOUNT)).health.state is AccountState.FAILING

        await until("the account was looked at", is_failing)
        account = await gateway.account(ACCOUNT)
    assert account.secrets == {"token": False}
    assert "has no token" in account.health.error


async def test_the_health_that_a_stopped_server_left_is_marked_with_its_age(
    store: Store, tmp_path: Path
) -> None:
    clock = FakeClock()
    services = BookServices(store, SecretsFile(tmp_path), TOKENS, clock, OWNER, Platforms().find)
    book = AccountBook({ACCOUNT: AccountSetup(platform="fake")}, services)
    await store.workers.register("w1")
    lease = await store.delivery.leases.take(ACCOUNT, "w1")
    assert lease is not None
    written_at = clock.now_ms()
    await book.write_health(ACCOUNT, AccountHealth(AccountState.CONNECTED, written_at, worker="w1"))

    served = await book.read_health(ACCOUNT)
    assert served is not None
    assert (served.is_stale, served.seen_at) == (False, written_at)
    await clock.advance(61)
    late = await book.read_health(ACCOUNT)
    assert late is not None
    assert (late.is_stale, late.seen_at) == (True, written_at)
    # Written again by the same server, which then gives the account up.
    await book.write_health(ACCOUNT, AccountHealth(AccountState.CONNECTED, written_at, worker="w1"))
    await store.delivery.leases.release(lease)
    released = await book.read_health(ACCOUNT)
    assert released is not None
    assert released.is_stale
