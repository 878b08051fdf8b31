"""How many parts an account may send now."""

from __future__ import annotations

import pytest

from everturn.delivery.pace import Pace
from everturn.testing import FakeClock

pytestmark = pytest.mark.anyio


async def test_a_second_holds_as_many_as_the_limit_says(clock: FakeClock) -> None:
    pace = Pace(clock, per_s_max=2)
    assert (pace.count_allowed(), pace.wait_s()) == (2, 0.0)
    pace.spend()
    pace.spend()
    assert pace.count_allowed() == 0
    assert pace.wait_s() == pytest.approx(0.5)
    await clock.advance(0.5)
    assert pace.count_allowed() == 1
    await clock.advance(60)
    assert pace.count_allowed() == 2


async def test_a_limit_below_one_per_second_still_lets_one_through(clock: FakeClock) -> None:
    pace = Pace(clock, per_s_max=0.1)
    assert pace.count_allowed() == 1
    pace.spend()
    assert pace.wait_s() == pytest.approx(10)
    await clock.advance(10)
    assert pace.count_allowed() == 1


async def test_a_pause_holds_everything_back_and_a_shorter_one_does_not_end_it(clock: FakeClock) -> None:
    pace = Pace(clock, per_s_max=0)
    assert pace.count_allowed() > 100
    pace.pause(30)
    pace.pause(1)
    assert (pace.count_allowed(), pace.wait_s()) == (0, 30)
    await clock.advance(30)
    assert pace.count_allowed() > 100
