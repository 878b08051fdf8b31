"""How accounts are started and stopped."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from everturn.store import Store
from everturn.testing.waiting import within
from tests.gateways import ACCOUNT, Platforms, talking

pytestmark = pytest.mark.anyio


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
