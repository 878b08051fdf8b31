"""Threads that call the event loop while the task that waits for them is cancelled."""

from __future__ import annotations

import asyncio
import threading

import anyio
import anyio.to_thread
import pytest

from everturn.workspace.loop_calls import clean_up_on_loop, run_on_loop

pytestmark = pytest.mark.anyio
PATIENCE_S = 30.0


class Thread:
    """A thread that calls the loop only after its task was cancelled."""

    def __init__(self, call) -> None:
        self.started = asyncio.Event()
        self.may_call = threading.Event()
        self.ended = asyncio.Event()
        self.result: object = None
        self._call = call
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        try:
            await anyio.to_thread.run_sync(self._work)
        finally:
            self.ended.set()

    def _work(self) -> None:
        self._loop.call_soon_threadsafe(self.started.set)
        assert self.may_call.wait(PATIENCE_S)
        try:
            self.result = self._call(_checkpoint, 7)
        except asyncio.CancelledError:
            self.result = "cancelled"
            raise


async def _checkpoint(number: int) -> int:
    await anyio.lowlevel.checkpoint()  # in a cancelled scope this is where anyio's own call spins
    return number


async def _cancelled_before_it_calls(call) -> object:
    thread = Thread(call)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.run)
        await thread.started.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            for _ in range(5):  # the cancellation is delivered, and finds only the shield around the thread
                await asyncio.sleep(0)
            thread.may_call.set()
            with anyio.fail_after(PATIENCE_S):
                await thread.ended.wait()
    return thread.result


async def test_a_call_after_the_cancellation_ends_with_it_and_does_not_hang() -> None:
    assert await _cancelled_before_it_calls(run_on_loop) == "cancelled"


async def test_a_clean_up_is_called_after_the_cancellation_too() -> None:
    assert await _cancelled_before_it_calls(clean_up_on_loop) == 7


async def test_a_call_returns_the_result() -> None:
    assert await anyio.to_thread.run_sync(lambda: run_on_loop(_checkpoint, 3)) == 3
