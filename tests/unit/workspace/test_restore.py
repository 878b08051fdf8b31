"""Restore: the folder becomes what a tree says, and nothing else is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from everturn.tools.temporary_files import restore_name, write_name
from everturn.workspace import Limits
from everturn.workspace.diff import diff
from everturn.workspace.restore import Restore
from tests.trees import KeptBytes, QuickDisk, plain, restore, scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def kept() -> KeptBytes:
    return KeptBytes()


class Killed(BaseException):
    pass


def killing(real, left: list[int]):
    """The call that counts down and ends the program at zero."""

    def step(*args, **keywords):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return real(*args, **keywords)

    return step


def go_back(root: Path, kept: KeptBytes, wanted: str):
    present = scan(root, kept)
    return restore(root, kept, diff(kept.load, present.tree, wanted), present)


def test_a_restored_folder_is_what_it_was(root: Path, kept: KeptBytes) -> None:
    (root / "file").write_text("one")
    (root / "folder").mkdir(mode=0o750)
    (root / "folder" / "run").write_text("#!")
    (root / "folder" / "run").chmod(0o755)
    (root / "link").symlink_to("/etc/passwd")
    (root / "becomes file").mkdir()
    (root / "becomes file" / "inside").write_text("x")
    before, content = scan(root, kept).tree, plain(root)
    (root / "file").write_text("two")
    (root / "folder" / "run").unlink()
    (root / "folder").rmdir()
    (root / "folder").write_text("a file now")
    (root / "link").unlink()
    (root / "link").write_text("a file now")
    (root / "becomes file" / "inside").unlink()
    (root / "becomes file").rmdir()
    (root / "becomes file").symlink_to("file")
    (root / "new").mkdir()
    (root / "new" / "file").write_text("x")
    result = go_back(root, kept, before)
    assert plain(root) == content
    assert result.kept == {}


def test_read_only_folders_and_files_are_restored(root: Path, kept: KeptBytes) -> None:
    (root / "locked").mkdir()
    (root / "locked" / "file").write_text("one")
    (root / "locked" / "file").chmod(0o400)
    (root / "locked").chmod(0o500)
    before, content = scan(root, kept).tree, plain(root)
    (root / "locked").chmod(0o700)
    (root / "locked" / "file").unlink()
    (root / "locked" / "file").write_text("two")
    (root / "locked").chmod(0o500)
    assert go_back(root, kept, before).kept == {}
    assert plain(root) == content


def test_e02_a_file_that_was_changed_meanwhile_is_kept(root: Path, kept: KeptBytes) -> None:
    for name in ("replaced", "deleted"):
        (root / name).write_text("second")
    present = scan(root, kept)
    (root / "replaced").write_text("first")
    (root / "deleted").unlink()
    wanted = scan(root, kept).tree
    (root / "replaced").write_text("by hand")
    (root / "deleted").write_text("by hand")
    result = restore(root, kept, diff(kept.load, present.tree, wanted), present)
    assert set(result.kept) == {b"replaced", b"deleted"}
    assert {path: data for path, (_, _, data) in plain(root).items()} == {
        b"replaced": b"by hand",
        b"deleted": b"by hand",
    }


def test_e02_a_file_that_is_changed_between_write_and_rename_is_kept(
    root: Path, kept: KeptBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_text("first")
    wanted = scan(root, kept).tree
    (root / "file").write_text("second")
    rename = Restore._rename

    def interrupted(self, change):
        (root / "file").write_text("by hand")
        rename(self, change)

    monkeypatch.setattr(Restore, "_rename", interrupted)
    result = go_back(root, kept, wanted)
    assert set(result.kept) == {b"file"}
    assert (root / "file").read_text() == "by hand"
    assert os.listdir(root) == ["file"]


def test_a_folder_that_became_a_link_is_not_followed(root: Path, tmp_path: Path, kept: KeptBytes) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("first")
    wanted = scan(root, kept).tree
    (root / "folder" / "file").write_text("second")
    present = scan(root, kept)
    elsewhere = tmp_path / "elsewhere"
    (root / "folder").rename(elsewhere)
    (root / "folder").symlink_to(elsewhere)
    result = restore(root, kept, diff(kept.load, present.tree, wanted), present)
    assert set(result.kept) == {b"folder/file"}
    assert (elsewhere / "file").read_text() == "second"
    assert os.listdir(elsewhere) == ["file"]


def test_e02_what_a_checkpoint_left_out_is_never_touched(root: Path, kept: KeptBytes) -> None:
    limits = Limits(file_bytes_max=10)
    (root / "folder" / "node_modules").mkdir(parents=True)
    (root / "folder" / "node_modules" / "package").write_text("x")
    (root / "folder" / "large").write_text("x" * 11)
    present = scan(root, kept, limits=limits)
    (root / "only").mkdir()
    wanted = scan(root / "only", kept).tree
    result = restore(root, kept, diff(kept.load, present.tree, wanted), present)
    assert set(result.kept) == {b"folder"}
    assert (root / "folder" / "node_modules" / "package").exists()
    assert (root / "folder" / "large").exists()


def test_e02_a_repeated_restore_finishes_what_was_cut_off(
    root: Path, kept: KeptBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each call to the operating system in turn: the next attempt reaches the wanted content."""
    for name in ("a", "b"):
        (root / name).mkdir()
        (root / name / "file").write_text(f"first {name}")
    wanted, content = scan(root, kept).tree, plain(root)

    for steps in range(1, 40):
        (root / "a" / "file").write_text("second")
        (root / "b" / "file").unlink()
        (root / "b").rmdir()
        (root / "b").write_text("a file now")
        present = scan(root, kept)
        left = [steps]
        with monkeypatch.context() as patch:
            for name in ("rename", "unlink", "mkdir", "write", "fchmod"):
                patch.setattr(os, name, killing(getattr(os, name), left))
            try:
                restore(root, kept, diff(kept.load, present.tree, wanted), present)
            except Killed:
                pass
            else:
                assert left[0] > 0
                assert plain(root) == content
                break
        assert go_back(root, kept, wanted).kept == {}
        assert plain(root) == content
    else:
        pytest.fail("no run finished unharmed")


def test_a_full_disk_stops_the_restore_and_it_can_be_repeated(
    root: Path, kept: KeptBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_text("first")
    wanted = scan(root, kept).tree
    (root / "file").write_text("second")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "write", full)
        go_back(root, kept, wanted)
    assert (root / "file").read_text() == "second"
    assert os.listdir(root) == ["file"], "nothing is left that takes room"
    go_back(root, kept, wanted)
    assert (root / "file").read_text() == "first"
    assert os.listdir(root) == ["file"]


def test_a_file_that_another_session_writes_in_the_folder_is_left_alone(root: Path, kept: KeptBytes) -> None:
    (root / "file").write_text("first")
    wanted = scan(root, kept).tree
    (root / "file").write_text("second")
    writing, cut_off = write_name(), restore_name("0" * 16).decode()
    for name in (writing, cut_off):
        (root / name).write_text("half of it")
    go_back(root, kept, wanted)
    assert sorted(os.listdir(root)) == sorted(["file", writing])


def test_e02_files_are_synced_before_they_are_renamed_and_the_names_after(
    root: Path, kept: KeptBytes
) -> None:
    """After a power cut no name may lead to a file that is half there, and what was reported done is there."""
    (root / "file").write_text("first")
    wanted = scan(root, kept).tree
    (root / "file").write_text("second")
    present = scan(root, kept)
    seen: list[set[str]] = []

    class Watching(QuickDisk):
        def sync_file_system(self, folder: Path) -> None:
            seen.append({(root / name).read_text() for name in os.listdir(root)})

    restore(root, kept, diff(kept.load, present.tree, wanted), present, Watching())
    assert seen == [{"first", "second"}, {"first"}]
