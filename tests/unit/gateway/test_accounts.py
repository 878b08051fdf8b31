"""How accounts are started and stopped."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import PlatformBusy
from everturn.domain.gateway import AccountSetup
from everturn.store import Store
from everturn.testing import Say
from everturn.testing.waiting import within
from tests.gateways import ACCOUNT, Platforms, talking
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
        with within("the account is served"):
            while ACCOUNT not in platforms.made:
                await anyio.sleep(0.01)
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
        await until("the account is served", lambda: "bot" in platforms.made)
        first = platforms.made["bot"]
        first.failures = [PlatformBusy("It is down.", after_s=3_600)]
        first.say("u1", "good morning")
        await until("the answer was tried", lambda: bool(first.sends) and not first.failures)
        await gateway.remove("bot")
        await until("the platform is closed", lambda: first.is_closed)
        assert (await store.delivery.figures("bot", since_ms=0)).waiting == 0
        await gateway.add("bot", setup, {"token": "two"})
        await until("the new account is served", lambda: platforms.made["bot"] is not first)
        second = platforms.made["bot"]
        second.say("u1", "hello")  # the same id: the new account knows nothing of the old one
        await until("the new account answers", lambda: bool(second.arrived))
        assert second.texts() == ["new"]
    assert first.arrived == []
