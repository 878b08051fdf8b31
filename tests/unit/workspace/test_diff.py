"""The difference of two trees."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from everturn.workspace import Limits, find_conflicts
from everturn.workspace.diff import diff
from tests.trees import KeptBytes, scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def kept() -> KeptBytes:
    return KeptBytes()


def paths(kept: KeptBytes, before: str, after: str) -> dict[bytes, tuple[object, object]]:
    return {
        change.path: (change.before and change.before.kind, change.after and change.after.kind)
        for change in diff(kept.load, before, after)
    }


def test_added_changed_and_deleted_files_are_found(root: Path, kept: KeptBytes) -> None:
    for name in ("same", "changed", "gone", "mode"):
        (root / name).write_text(name)
    (root / "mode").chmod(0o644)  # whatever the umask is
    before = scan(root, kept).tree
    (root / "changed").write_text("other")
    (root / "gone").unlink()
    (root / "mode").chmod(0o600)
    (root / "new").mkdir()
    (root / "new" / "file").write_text("x")
    assert paths(kept, before, scan(root, kept).tree) == {
        b"changed": ("file", "file"),
        b"gone": ("file", None),
        b"mode": ("file", "file"),
        b"new": (None, "folder"),
        b"new/file": (None, "file"),
    }


def test_a_folder_that_becomes_a_file_takes_its_content_along(root: Path, kept: KeptBytes) -> None:
    (root / "thing").mkdir()
    (root / "thing" / "inside").write_text("x")
    before = scan(root, kept).tree
    shutil.rmtree(root / "thing")
    (root / "thing").write_text("x")
    assert paths(kept, before, scan(root, kept).tree) == {
        b"thing": ("folder", "file"),
        b"thing/inside": ("file", None),
    }


def test_only_folders_that_differ_are_loaded(root: Path, kept: KeptBytes) -> None:
    for name in ("a", "b"):
        (root / name).mkdir()
        (root / name / "file").write_text("x")
    before = scan(root, kept).tree
    (root / "b" / "file").write_text("y")
    after = scan(root, kept).tree
    loaded = []

    def load(sha256: str):
        loaded.append(sha256)
        return kept.load(sha256)

    diff(load, before, after)
    assert len(loaded) == 4  # the root and b, of each


def test_what_one_side_left_out_is_no_change(root: Path, kept: KeptBytes) -> None:
    (root / "large").write_text("x" * 100)
    (root / "small").write_text("x")
    all_of_it = scan(root, kept).tree
    without_large = scan(root, kept, limits=Limits(file_bytes_max=10)).tree
    only_first = scan(root, kept, limits=Limits(workspace_files_max=1)).tree
    for one, other in ((all_of_it, without_large), (without_large, all_of_it), (all_of_it, only_first)):
        assert diff(kept.load, one, other) == []


def test_a_conflict_is_a_file_in_neither_checkpoint(root: Path, kept: KeptBytes) -> None:
    for name in ("edited", "reset", "untouched", "removed"):
        (root / name).write_text("first")
    wanted = scan(root, kept).tree
    for name in ("edited", "reset", "untouched", "removed"):
        (root / name).write_text("second")
    last = scan(root, kept).tree
    (root / "edited").write_text("by hand")
    (root / "added").write_text("by hand")
    (root / "reset").write_text("first")
    (root / "removed").unlink()
    present = scan(root, kept).tree
    found = find_conflicts(kept.load, last, present, wanted)
    assert [change.path for change in found] == [b"added", b"edited"]
