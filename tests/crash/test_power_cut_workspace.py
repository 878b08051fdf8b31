"""A real file system whose power is cut: its image is copied while it is mounted, and the copy is looked at.

What the file system has not handed to its disk is not in the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.tools.kit import open_kit

pytestmark = pytest.mark.anyio


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """The image of a small file system, and the folder where it is mounted."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("only root can mount a file system")
    folder.mkdir()
    image.touch()
    os.truncate(image, 64 * 1024**2)
    _run("mkfs.ext4", "-q", image)
    try:
        # No commit by the clock while the test runs.
        _run("mount", "-o", "loop,commit=300", image, folder)
    except subprocess.CalledProcessError:
        pytest.skip("no loop device may be used here")
    yield image, folder
    _run("umount", "-l", folder)


def _after_power_cut(image: Path, tmp_path: Path) -> Path:
    """Where the file system is, as the power cut left it."""
    copy, folder = tmp_path / "copy", tmp_path / "after"
    shutil.copyfile(image, copy)
    folder.mkdir()
    _run("mount", "-o", "loop", copy, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a/b/c.txt", "content": "kept\n"}),
        ("terminal", {"command": "mkdir -p a/b; echo kept > a/b/c.txt"}),
        ("python", {"code": "import os; os.makedirs('a/b'); open('a/b/c.txt', 'w').write('kept\\n')"}),
    ],
)
async def test_what_a_finished_step_made_is_there_after_a_power_cut(
    disk: tuple[Path, Path], tmp_path: Path, name: str, arguments: dict[str, str]
) -> None:
    image, folder = disk
    async with open_kit(tmp_path / "home") as kit:
        workspace = folder / "project"
        workspace.mkdir()
        os.sync()
        await kit.run(name, {"workspace": workspace}, **arguments)
        after = _after_power_cut(image, tmp_path)
        try:
            assert (after / "project" / "a" / "b" / "c.txt").read_text() == "kept\n"
        finally:
            _run("umount", "-l", after)
