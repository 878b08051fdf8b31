"""What a killed server leaves of sandboxes that were being started."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everturn.tools import Sandbox

pytestmark = pytest.mark.anyio


@contextmanager
def started(environ: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A sandbox that lives on without its bubblewrap, as one does in which the kill came before
    ``--die-with-parent`` took effect; and a handle of its first process."""
    program = shutil.which("bwrap")
    assert program is not None
    info, info_end = os.pipe()
    options = ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--info-fd", str(info_end)]
    outer = subprocess.Popen([program, *options, "sleep", "600"], env=environ, pass_fds=[info_end])
    os.close(info_end)
    with open(info, "rb") as file:
        handle = os.pidfd_open(json.load(file)["child-pid"])
    try:
        yield outer, handle
    finally:
        outer.kill()
        outer.wait()
        if is_running(handle):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def is_running(handle: int, *, for_s: float = 0.0) -> bool:
    return not select.select([handle], [], [], for_s)[0]


async def test_the_next_start_ends_a_sandbox_that_lost_its_bubblewrap(tmp_path: Path) -> None:
    with started({}) as (outer, handle):
        outer.kill()
        outer.wait()
        assert is_running(handle)
        assert (await Sandbox(tmp_path, levels=("bubblewrap",)).open()).works
        assert not is_running(handle, for_s=30)


async def test_a_sandbox_that_is_used_and_one_of_another_program_stay(tmp_path: Path) -> None:
    with started({}) as (_, used), started({"HOME": "/"}) as (other, foreign):
        other.kill()
        other.wait()
        assert (await Sandbox(tmp_path, levels=("bubblewrap",)).open()).works
        assert is_running(used)
        assert is_running(foreign)
