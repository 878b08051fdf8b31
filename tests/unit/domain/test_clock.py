"""The real clock."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

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
