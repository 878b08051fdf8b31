"""everturn export --format archive, and everturn import of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.trees import EMPTY_TREE
from everturn.store import open_store
from everturn.testing.acting import ME, new_session
from everturn.workspace import Versions
from tests.acceptance.command_line import command
from tests.contracts.test_e04_versions import turn_with

pytestmark = pytest.mark.anyio


async def test_a_session_moves_with_its_files(data_dir: Path, tmp_path: Path) -> None:
    async with open_store(data_dir=data_dir) as store:
        session = await new_session(store)
        await turn_with(store, session.id, {b"a.txt": b"one"}, {b"a.txt": b"two"})
    target, home = tmp_path / "session.zip", tmp_path / "elsewhere"
    done = await command(data_dir, "export", session.id, "--format", "archive", "--output", str(target))
    assert done.returncode == 0, done.stderr
    assert f"({target.stat().st_size:,} bytes)" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["session.zip"]
    done = await command(home, "import", str(target))
    assert done.returncode == 0, done.stderr
    assert session.id in done.stdout
    async with open_store(data_dir=home) as store:
        first, second = await store.checkpoints.list_kept(ME, session.id)
        assert first.before == EMPTY_TREE
        found = await Versions(store.blobs).find(second.tree, "a.txt")
        assert await Versions(store.blobs).bytes_of(found.entry.sha256) == b"two"


async def test_a_cut_archive_and_an_unknown_session_leave_nothing(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "session.zip"
    target.write_bytes(b"PK\x03\x04 and no more")
    done = await command(data_dir, "import", str(target))
    assert done.returncode != 0
    assert "Nothing was imported" in done.stderr
    missing = f"ses_{'0' * 26}"
    done = await command(
        data_dir, "export", missing, "--format", "archive", "--output", str(tmp_path / "x.zip")
    )
    assert done.returncode != 0
    assert not (tmp_path / "x.zip").exists()
