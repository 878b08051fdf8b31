from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.lab.service.soak import Soak, SoakPlan
from everturn.lab.service.watch import Sample, Watch

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(400)
async def test_people_lose_nothing_while_their_server_is_killed_and_stopped(
    tmp_path: Path, store_url: str
) -> None:
    """The short version of ``python -m tests.soak``: three lives, one ended by kill -9, one by SIGTERM."""
    url = store_url if store_url.startswith("postgresql") else ""
    soak = Soak(tmp_path / "home", SoakPlan(seconds=10.0, people=6, life_s=4.0, ends_min=2, database_url=url))
    with anyio.fail_after(360):
        await soak.run()
    assert soak.tally.turns >= 6  # each of the people, also on a machine that is busy with something else
    assert [how for _, how in soak.watch.ends][:2] == ["SIGKILL", "SIGTERM"]
    assert soak.watch.growth() == []


@pytest.mark.parametrize(
    ("rss_mib", "wal_mib", "words"),
    [
        ([60, 60, 90], 1, "rss_mib grew from life to life from 60 to 90"),
        ([60, 60, 61], 200, "log reached 200 MiB"),
    ],
)
def test_growth_is_noticed(tmp_path: Path, rss_mib: list[float], wal_mib: float, words: str) -> None:
    watch = Watch(tmp_path)
    for life, rss in enumerate(rss_mib):
        watch.samples += [Sample(life * 20.0 + n, life, rss, 30, 8, wal_mib, n, 1.0) for n in range(20)]
    (found,) = watch.growth()
    assert words in found


def test_growth_within_a_long_life_is_noticed(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.samples += [Sample(float(n), 0, 60.0, 30 + n, 8, 1.0, n, 1.0) for n in range(400)]
    (found,) = watch.growth()
    assert found.startswith("handles grew within a life")
