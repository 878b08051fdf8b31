import threading

import anyio
import anyio.to_thread
import pytest

from everturn.domain.probe import Moment
from everturn.testing import HoldingProbe, KillingProbe, RecordingProbe

pytestmark = pytest.mark.anyio


async def test_a_held_task_waits_until_released():
    probe = HoldingProbe(patience_s=60)
    passed = []
    probe.hold(Moment.TOOL_RAN)

    async def passer():
        await probe.reach(Moment.TOOL_RAN, "t")
        passed.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(passer)
        await probe.reached(Moment.TOOL_RAN)
        assert not passed
        probe.release(Moment.TOOL_RAN)
    assert passed
    await probe.reach(Moment.TOOL_RAN)  # later passings are free
    assert probe.passings(Moment.TOOL_RAN) == 2


async def test_a_thread_is_blocked_and_seen_from_the_loop():
    probe = HoldingProbe(patience_s=60)
    probe.hold(Moment.BATCH_WRITTEN)
    done = threading.Event()

    def work():
        probe.pass_by(Moment.BATCH_WRITTEN)
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, work)
        await probe.reached(Moment.BATCH_WRITTEN)
        assert not done.is_set()
        probe.release(Moment.BATCH_WRITTEN)
    assert done.is_set()


async def test_only_the_nth_passing_of_the_subject_is_held():
    probe = HoldingProbe(patience_s=60)
    probe.hold(Moment.DELTA_OFFERED, "a", nth=2)
    await probe.reach(Moment.DELTA_OFFERED, "b")
    await probe.reach(Moment.DELTA_OFFERED, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(probe.reach, Moment.DELTA_OFFERED, "a")
        await probe.reached(Moment.DELTA_OFFERED)
        probe.release(Moment.DELTA_OFFERED)


async def test_a_forgotten_release_fails():
    probe = HoldingProbe(patience_s=0.01)
    probe.hold(Moment.TOOL_RAN)
    with pytest.raises(TimeoutError):
        await probe.reach(Moment.TOOL_RAN)


async def test_a_thread_that_is_not_released_continues_and_is_reported():
    """An error would end the store's writer thread, and the test would hang instead of failing."""
    probe = HoldingProbe(patience_s=0.01)
    probe.hold(Moment.TOOL_RAN)
    await anyio.to_thread.run_sync(probe.pass_by, Moment.TOOL_RAN)
    assert probe.overdue == [Moment.TOOL_RAN]


async def test_killing_at_the_nth_passing():
    killed = []
    probe = KillingProbe(Moment.TOOL_RAN, 2, kill=killed.append)
    await probe.reach(Moment.TOOL_STARTED)
    await probe.reach(Moment.TOOL_RAN)
    assert killed == []
    probe.pass_by(Moment.TOOL_RAN)
    assert killed == [137]


async def test_recording():
    probe = RecordingProbe()
    await probe.reach(Moment.TOOL_RAN, "x")
    probe.pass_by(Moment.INDEXED)
    assert probe.moments == [Moment.TOOL_RAN, Moment.INDEXED]
