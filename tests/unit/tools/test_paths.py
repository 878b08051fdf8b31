from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.tools.disk_sync import DiskSync
from everturn.tools.paths import FolderHandle, OutsideWorkspace
from everturn.tools.schema import ToolFailed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "inner.txt").write_text("inner")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def files(root: Path, request: pytest.FixtureRequest) -> Iterator[FolderHandle]:
    with FolderHandle(root, has_openat2=request.param) as opened:
        yield opened


def test_this_kernel_has_openat2_and_it_is_used(root: Path) -> None:
    with FolderHandle(root) as files:
        assert files.has_openat2


@pytest.mark.parametrize("path", ["a/inner.txt", "./a/../a/inner.txt", "a/b/../inner.txt", "ABS/a/inner.txt"])
def test_paths_that_stay_inside_are_read(files: FolderHandle, root: Path, path: str) -> None:
    assert files.read(path.replace("ABS", str(root)), 100) == b"inner"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "a/../../secret.txt", "/etc/passwd", "a/b/../../../secret.txt"]
)
def test_paths_that_leave_are_refused(files: FolderHandle, path: str) -> None:
    with pytest.raises(OutsideWorkspace):
        files.read(path, 100)


def test_a_link_inside_is_followed_and_one_that_leaves_is_not(
    files: FolderHandle, root: Path, tmp_path: Path
) -> None:
    (root / "good").symlink_to("a/inner.txt")
    (root / "up").symlink_to("../secret.txt")
    (root / "absolute").symlink_to(tmp_path / "secret.txt")
    (root / "folder").symlink_to("..")
    (root / "a" / "b" / "back").symlink_to("../inner.txt")
    assert files.read("good", 100) == b"inner"
    assert files.read("a/b/back", 100) == b"inner"
    for path in ("up", "absolute", "folder/secret.txt"):
        with pytest.raises(OutsideWorkspace):
            files.read(path, 100)


def test_links_in_a_circle_end(files: FolderHandle, root: Path) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    with pytest.raises((OSError, OutsideWorkspace)):
        files.read("x", 100)


def test_writing_through_a_link_changes_neither_side(files: FolderHandle, root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to("../secret.txt")
    (root / "outdir").symlink_to("..")
    with pytest.raises(ToolFailed):
        files.write("out", b"changed")
    with pytest.raises(ToolFailed):
        files.write("outdir/new.txt", b"new")
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert not (tmp_path / "new.txt").exists()
    assert (root / "out").is_symlink()


def test_a_write_is_whole_keeps_permissions_and_leaves_nothing_beside(
    files: FolderHandle, root: Path
) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    assert files.write("run.sh", b"new") is False
    assert files.write("deep/er/new.txt", b"made") is True
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (root / "deep/er/new.txt").read_text() == "made"
    assert sorted(path.name for path in root.rglob("*")) == sorted(
        ["a", "b", "inner.txt", "run.sh", "deep", "er", "new.txt"]
    )


def test_a_pipe_or_a_folder_does_not_hang_or_pass_as_a_file(files: FolderHandle, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolFailed):
        files.read("pipe", 10)
    with pytest.raises((ToolFailed, IsADirectoryError)):
        files.read("a", 10)


def test_what_is_refused_leaves_no_handle_open(files: FolderHandle, root: Path) -> None:
    (root / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(IsADirectoryError):
            files.read("folder", 100)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_swapped_for_a_link_between_look_and_use_never_leaks(
    files: FolderHandle, root: Path
) -> None:
    """Really swaps, thousands of times, while the file is read: the outside is never seen."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "inner.txt").write_text("stolen")
    (root / "link").symlink_to("../outside")
    stop = threading.Event()

    def swap() -> None:
        # Exchanges the honest folder and the evil link, again and again, atomically each time.
        while not stop.is_set():
            os.rename(root / "a", root / "parked")
            os.rename(root / "link", root / "a")
            os.rename(root / "a", root / "link")
            os.rename(root / "parked", root / "a")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    refused = 0
    try:
        # At least so often, and until the swap was really met from both sides.
        for attempt in range(1_000_000):
            if attempt >= 4000 and refused and seen:
                break
            try:
                seen.add(files.read("a/inner.txt", 100))
            except (OSError, OutsideWorkspace):
                refused += 1
    finally:
        stop.set()
        thread.join()
    assert seen == {b"inner"}
    assert refused > 0


class _Recorder(DiskSync):
    """Notes what each folder held when it was synced, and each file."""

    def __init__(self) -> None:
        self.folders: dict[int, set[str]] = {}
        self.files: dict[int, int] = {}

    def sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            self.folders[found.st_ino] = set(os.listdir(descriptor))
        else:
            self.files[found.st_ino] = found.st_size

    def survives(self, path: Path, root: Path) -> bool:
        """Whether a power cut on a strict file system leaves the file: its bytes, and every name to it."""
        is_whole = self.files.get(path.stat().st_ino) == path.stat().st_size
        names = [step for step in (path, *path.parents) if step.is_relative_to(root)]
        return is_whole and all(
            step.name in self.folders.get(step.parent.stat().st_ino, ()) for step in names
        )


@pytest.mark.parametrize("path", ["new.txt", "a/b/new.txt", "x/y/z/new.txt", "link/w/new.txt"])
def test_a_written_file_survives_a_power_cut_with_every_folder_that_leads_to_it(
    root: Path, path: str
) -> None:
    (root / "made-and-not-synced").mkdir()
    (root / "link").symlink_to("made-and-not-synced")
    disk = _Recorder()
    with FolderHandle(root, disk=disk) as files:
        assert files.write(path, b"content")
        files.write(path, b"other content")
    assert disk.survives((root / path).resolve(), root)
