"""A server is killed while it settles due times: each has one fate and one turn afterwards (F08)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.probe import Moment, Probe
from everturn.store import open_store
from tests.crash import schedule_campaign
from tests.crash.schedule_work import STORE, check, make_schedules, work
from tests.crash.test_kill import KILLED, SCHEDULING

pytestmark = pytest.mark.anyio
SCHEDULES, HOURS = 4, 3


@pytest.mark.parametrize("moment", sorted(SCHEDULING))
async def test_f08_a_killed_server_leaves_one_fate_and_one_turn_for_each_time(
    moment: Moment, store_url: str, data_dir: Path
) -> None:
    async with open_store(store_url, data_dir=data_dir, settings=STORE) as store:
        await make_schedules(store, SCHEDULES, HOURS, SystemClock().now_ms())
    command = [sys.executable, "-m", "tests.crash.schedule_work", store_url, str(data_dir), moment, "5"]
    killed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    )
    assert killed.returncode == KILLED, killed.stderr
    async with open_store(store_url, data_dir=data_dir, settings=STORE) as store:
        assert await store.schedules.due(limit=10), "it was killed in the middle"
        with anyio.fail_after(180):
            await work(store, Probe())
        await check(store, SCHEDULES, HOURS)


async def test_f08_two_servers_that_are_killed_again_and_again_run_each_time_once(
    store_url: str, data_dir: Path
) -> None:
    """The short version of ``tests.crash.schedule_campaign``."""
    with anyio.fail_after(180):
        kills = await schedule_campaign.run(60, store_url, data_dir, seed=1)
    assert kills > 0, "both were killed on the way"
