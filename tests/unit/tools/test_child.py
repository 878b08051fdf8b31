from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import anyio
import pytest

from everturn.tools.policy.guarded import ProjectGuard
from everturn.tools.policy.repositories import Repositories
from everturn.tools.sandbox.child import Child
from everturn.tools.sandbox.control_groups import Group, Hierarchy

pytestmark = pytest.mark.anyio


class BrokenGroup(Group):
    def is_out_of_memory(self) -> bool:
        raise OSError(errno.ENODEV, "no such group")

    def remove(self) -> None:
        raise OSError(errno.EBUSY, "the group is busy")


async def test_a_control_group_that_cannot_be_removed_does_not_hide_the_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = ProjectGuard(tmp_path, Repositories(str(tmp_path)))
    process = await anyio.open_process(
        ["/bin/sh", "-c", "echo evil > .envrc; exit 3"],
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    await process.wait()
    child = Child(process, workspace=tmp_path, guard=guard)
    child.group = BrokenGroup()
    await child.end()
    assert process.returncode == 3
    assert child.set_aside == [".envrc"]
    assert not (tmp_path / ".envrc").exists()
    assert "no such group" in caplog.text
    assert "the group is busy" in caplog.text


def test_a_group_is_removed_as_far_as_it_can_be(tmp_path: Path) -> None:
    """One folder per hierarchy: the first that is busy must not keep the others."""
    group = Group()
    for name in ("busy", "gone", "empty"):
        group.folders.append((Hierarchy(tmp_path, ("pids",)), tmp_path / name))
    (tmp_path / "busy" / "inside").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match="busy"):
        group.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["busy"]
