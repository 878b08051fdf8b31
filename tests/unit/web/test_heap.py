"""Memory that was freed between what stays goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from everturn.testing import FakeClock
from everturn.web.heap import EVERY_S, find_trim, trim_heap

# Each block is larger than what Python's own allocator keeps, and every thousandth stays.
FLOOD = """
from pathlib import Path
from everturn.web.heap import find_trim
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4
blocks = [bytes([number % 256]) * 2_000 for number in range(100_000)]
stays = blocks[::1000]
blocks.clear()
before = resident()
find_trim()()
print(before, resident())
"""


@pytest.mark.skipif(find_trim() is None, reason="this C library cannot give memory back")
def test_what_was_freed_between_what_stays_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FLOOD], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before - after > 100_000  # kB, of 200,000


@pytest.mark.anyio
async def test_it_is_given_back_again_and_again() -> None:
    clock, times = FakeClock(), []
    async with anyio.create_task_group() as group:
        group.start_soon(trim_heap, clock, lambda: times.append(clock.monotonic()))
        for count in (1, 2, 3):
            await clock.someone_sleeps(EVERY_S)
            assert len(times) == count - 1
            await clock.advance(EVERY_S)
        await clock.someone_sleeps(EVERY_S)
        assert times == [EVERY_S, 2 * EVERY_S, 3 * EVERY_S]
        group.cancel_scope.cancel()
