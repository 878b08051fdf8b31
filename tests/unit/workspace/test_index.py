"""The index on disk: believed only if it is whole and the machine has not been restarted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everturn.workspace import index, load_index, save_index
from tests.trees import KeptBytes, scan
from tests.unit.workspace.test_scan import LATER


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workspace" / "folder").mkdir(parents=True)
    (tmp_path / "workspace" / "folder" / "file").write_text("one")
    return tmp_path / "workspace"


def test_an_index_comes_back_as_it_was_saved(root: Path, tmp_path: Path) -> None:
    found = scan(root, KeptBytes(), start_ns=LATER)
    save_index(tmp_path / "index", found)
    loaded = load_index(tmp_path / "index")
    assert loaded == found
    assert scan(root, KeptBytes(), loaded, start_ns=LATER) is loaded
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "workspace"]


def test_a_missing_index_is_none(tmp_path: Path) -> None:
    assert load_index(tmp_path / "index") is None


@pytest.mark.parametrize("cut", [0, 5, 30, 60, -1])
def test_a_torn_index_is_none(root: Path, tmp_path: Path, cut: int) -> None:
    save_index(tmp_path / "index", scan(root, KeptBytes()))
    data = (tmp_path / "index").read_bytes()
    (tmp_path / "index").write_bytes(data[:cut])
    assert load_index(tmp_path / "index") is None


def test_a_flipped_bit_is_noticed(root: Path, tmp_path: Path) -> None:
    save_index(tmp_path / "index", scan(root, KeptBytes()))
    data = bytearray((tmp_path / "index").read_bytes())
    data[-1] ^= 1
    (tmp_path / "index").write_bytes(data)
    assert load_index(tmp_path / "index") is None


def test_e01_after_a_restart_of_the_machine_every_file_is_hashed_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut took the last bytes of a file, and its stamp says nothing of it."""
    found = scan(root, KeptBytes(), start_ns=LATER)
    save_index(tmp_path / "index", found)
    monkeypatch.setattr(index, "boot_id", lambda: "another")
    loaded = load_index(tmp_path / "index")
    assert loaded is not None
    reads = []
    read = os.read

    def counted(*args):
        reads.append(args)
        return read(*args)

    monkeypatch.setattr(os, "read", counted)
    kept = KeptBytes()
    again = scan(root, kept, loaded, start_ns=LATER)
    assert (again.tree, kept.calls, len(reads)) == (found.tree, [], 1)
    save_index(tmp_path / "index", again)
    assert scan(root, kept, load_index(tmp_path / "index"), start_ns=LATER) == again
    assert len(reads) == 1


def test_the_latest_indexes_are_kept_in_memory_up_to_a_bound(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scan(root, KeptBytes())
    monkeypatch.setattr(index, "_IN_MEMORY_MAX", 6)  # one of them has four: two folders, two names
    indexes = index.Indexes(tmp_path / "indexes")
    indexes.put("one", found)
    assert indexes.get("one") is found
    indexes.put("two", found)
    assert indexes.get("two") is found
    loaded = indexes.get("one")
    assert loaded == found
    assert loaded is not found
    indexes.delete("one")
    assert indexes.get("one") is None


def test_an_index_that_cannot_be_saved_is_used_until_the_process_ends(root: Path, tmp_path: Path) -> None:
    (tmp_path / "indexes").write_text("a file is where the folder should be")
    indexes = index.Indexes(tmp_path / "indexes")
    found = scan(root, KeptBytes())
    indexes.put("one", found)
    assert indexes.get("one") is found
