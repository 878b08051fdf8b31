"""A server is killed while an interpreter of Python is kept for the next call of a turn: it ends as well."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_killed_server_leaves_no_interpreter(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.python_work", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            pid = int(await anyio.to_thread.run_sync(worker.stdout.readline))
            assert _runs(pid)
        finally:
            worker.kill()

    async def is_gone() -> bool:
        return not _runs(pid)

    await until("the interpreter has ended", is_gone)
