from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import anyio
import pytest

from everturn.tools.policy.guarded import Guard
from everturn.tools.policy.repositories import Repositories
from everturn.tools.sandbox.control_groups import Group
from everturn.tools.terminal.child import Child

pytestmark = pytest.mark.anyio


class BusyGroup(Group):
    def remove(self) -> None:
        raise OSError(errno.EBUSY, "the group is busy")


async def test_harmful_files_are_set_aside_even_if_the_control_group_cannot_be_removed(
    tmp_path: Path,
) -> None:
    guard = Guard(tmp_path, Repositories(str(tmp_path)), is_brief=True)
    process = await anyio.open_process(
        ["/bin/sh", "-c", "echo evil > .envrc"],
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    await process.wait()
    child = Child(process, workspace=tmp_path, guard=guard)
    child.group = BusyGroup()
    with pytest.raises(OSError, match="the group is busy"):
        await child.end()
    assert not (tmp_path / ".envrc").exists()
    assert child.set_aside
