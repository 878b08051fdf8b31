"""The real clock, and calls that are bounded by a clock."""

from __future__ import annotations

import shutil
import subprocess
import sys

import anyio
import pytest

from everturn.domain.clock import SystemClock, call_within

SLEPT_S = 100_000
SHIFTED = "import time; from everturn.domain.clock import SystemClock; print(SystemClock().monotonic())"


def test_time_passes_while_the_machine_sleeps() -> None:
    """In a time namespace whose clocks say that the machine has slept for so long since it was started."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare here")
    now, later = (
        subprocess.run([*before, sys.executable, "-c", SHIFTED], capture_output=True, text=True, check=False)
        for before in ([], [unshare, "--time", "--boottime", str(SLEPT_S)])
    )
    if later.returncode:
        pytest.skip(f"no time namespace can be made here: {later.stderr.strip()}")
    assert float(later.stdout) - float(now.stdout) >= SLEPT_S


@pytest.mark.anyio
async def test_a_bounded_call_returns_its_result_and_raises_its_own_error() -> None:
    async def answer() -> str:
        return "done"

    async def fail() -> str:
        raise LookupError("not here")

    assert await call_within(SystemClock(), 60, answer) == "done"
    with pytest.raises(LookupError):
        await call_within(SystemClock(), 60, fail)


@pytest.mark.anyio
async def test_a_bounded_call_that_takes_too_long_is_cancelled() -> None:
    cancelled: list[bool] = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    with pytest.raises(TimeoutError):
        await call_within(SystemClock(), 0, hang)
    assert cancelled
