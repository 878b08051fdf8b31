import anyio
import pytest

from everturn.testing import FakeClock

pytestmark = pytest.mark.anyio


async def test_sleepers_wake_in_order_and_see_their_own_time():
    clock = FakeClock(start_ms=1000)
    woken = []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append((seconds, clock.now_ms()))

    async with anyio.create_task_group() as group:
        for seconds in (3.0, 1.0, 2.0):
            group.start_soon(sleeper, seconds)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(2.5)
        assert woken == [(1.0, 2000), (2.0, 3000)]
        assert clock.now_ms() == 3500
        await clock.advance(0.5)
    assert woken[-1] == (3.0, 4000)


async def test_a_sleeper_that_sleeps_again_is_woken_within_one_advance():
    clock = FakeClock()
    ticks = []

    async def ticker():
        while len(ticks) < 3:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(ticker)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(10)
    assert ticks == [1.0, 2.0, 3.0]


async def test_waiting_for_a_sleeper():
    clock = FakeClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 7.5)
        await clock.someone_sleeps(7.5)
        assert clock.sleeping == [7.5]
        await clock.advance(7.5)


async def test_a_jump_wakes_a_ticker_once():
    clock = FakeClock()
    ticks = []

    async def ticker():
        while len(ticks) < 2:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(ticker)
        await anyio.wait_all_tasks_blocked()
        await clock.jump(3600)
        assert ticks == [3600.0]
        await clock.advance(1)
    assert ticks == [3600.0, 3601.0]


async def test_a_cancelled_sleeper_is_forgotten():
    clock = FakeClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5.0)
        await clock.someone_sleeps(5.0)
        group.cancel_scope.cancel()
    assert clock.sleeping == []


async def test_setting_the_wall_clock_lets_no_time_pass():
    clock = FakeClock(start_ms=1000)
    woken = []

    async def sleeper():
        await clock.sleep(10)
        woken.append(clock.now_ms())

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper)
        await anyio.wait_all_tasks_blocked()
        clock.set_wall(3600)
        await clock.advance(9)
        assert (woken, clock.monotonic(), clock.now_ms()) == ([], 9.0, 3_610_000)
        clock.set_wall(-3600)
        await clock.advance(1)
    assert woken == [11_000]
