from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.soak.file_kills import FileKills

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(400)
async def test_files_are_what_they_have_to_be_after_each_kill(tmp_path: Path) -> None:
    """The short version of ``python -m tests.soak.file_kills``."""
    kills = FileKills(tmp_path / "home", kills=2, seed=1, walkers=3, life_s=0.5)
    with anyio.fail_after(360):
        await kills.run()
    assert kills.kills == 2
    assert kills.done.total() >= 3
