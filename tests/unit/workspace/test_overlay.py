"""Restoring some paths of a version: the tree is the present one with just these paths replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.errors import Invalid
from everturn.domain.trees import EMPTY_TREE, Tree, encode_tree
from everturn.workspace import to_path
from everturn.workspace.mine import find_free_name
from everturn.workspace.overlay import overlay
from tests.trees import KeptBytes, scan


@pytest.fixture
def kept() -> KeptBytes:
    kept = KeptBytes()
    kept.put([encode_tree(Tree())])
    return kept


def tree(kept: KeptBytes, root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    root.mkdir(exist_ok=True)
    return scan(root, kept).tree


def texts(kept: KeptBytes, found: str) -> dict[bytes, bytes]:
    return {path: data for path, (kind, _, data) in kept.content(found).items() if kind == "file"}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([b"a"], {b"a": b"old", b"folder/b": b"new", b"added": b"new"}),
        ([b"folder/b"], {b"a": b"new", b"folder/b": b"old", b"added": b"new"}),
        ([b"added"], {b"a": b"new", b"folder/b": b"new"}),
        ([b"gone/deep/c"], {b"a": b"new", b"folder/b": b"new", b"added": b"new", b"gone/deep/c": b"old"}),
        ([b"a", b"folder"], {b"a": b"old", b"folder/b": b"old", b"added": b"new"}),
        ([b"nowhere/x"], {b"a": b"new", b"folder/b": b"new", b"added": b"new"}),
    ],
)
def test_only_the_named_paths_are_as_they_were(
    kept: KeptBytes, tmp_path: Path, paths: list[bytes], expected: dict[bytes, bytes]
) -> None:
    old = tree(kept, tmp_path / "old", {"a": "old", "folder/b": "old", "gone/deep/c": "old"})
    new = tree(kept, tmp_path / "new", {"a": "new", "folder/b": "new", "added": "new"})
    assert texts(kept, overlay(kept.load, kept.put, new, old, paths)) == expected


def test_an_empty_folder_can_be_the_base(kept: KeptBytes, tmp_path: Path) -> None:
    old = tree(kept, tmp_path / "old", {"folder/b": "old"})
    assert texts(kept, overlay(kept.load, kept.put, EMPTY_TREE, old, [b"folder/b"])) == {b"folder/b": b"old"}


@pytest.mark.parametrize("path", ["", "/etc", "a//b", "../a", "a/..", ".", "a\0b", "\ud800"])
def test_a_path_that_leads_out_or_nowhere_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        to_path(path)


@pytest.mark.parametrize(
    ("path", "taken", "expected"),
    [
        (b"notes.txt", (), b"notes (mine).txt"),
        (b"a/b/notes.tar.gz", (), b"a/b/notes.tar (mine).gz"),
        (b"Makefile", (), b"Makefile (mine)"),
        (b".env", (), b".env (mine)"),
        (b"notes.txt", (b"notes (mine).txt",), b"notes (mine 2).txt"),
    ],
)
def test_the_users_version_gets_a_free_name(path: bytes, taken: tuple[bytes, ...], expected: bytes) -> None:
    assert find_free_name(path, lambda name: name in taken) == expected


def test_a_long_name_stays_within_what_file_systems_take() -> None:
    found = find_free_name(b"folder/" + "ü".encode() * 127 + b".txt", lambda _: False)
    name = found.removeprefix(b"folder/")
    assert len(name) <= 255
    assert name.decode().endswith(" (mine).txt")
