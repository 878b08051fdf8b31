"""Random edits of a folder against a plain model: a dict of its content."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.workspace import load_index, save_index
from everturn.workspace.diff import diff
from tests.trees import Content, KeptBytes, plain, restore, scan

NAMES = st.sampled_from(["a", "b", "c", "é", "-x y"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
MODES = st.sampled_from([0o644, 0o600, 0o755, 0o4755, 0o444])
TEXTS = st.sampled_from(["", "one", "two", "six", "longer text"])
EDITS = st.one_of(
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("mode"), PATHS, MODES),
    st.tuples(st.just("folder"), PATHS),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["a", "../..", "/etc/passwd", "gone"])),
    st.tuples(st.just("delete"), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("hard link"), PATHS, PATHS),
    st.tuples(st.just("touch"), PATHS, st.integers(0, 10**9)),
)


def edit(root: Path, act: str, path: str, value: object = None) -> None:
    """Do what can be done; what the file system refuses leaves the folder as it is, for the model too."""
    at = root / path
    if any(parent.is_symlink() for parent in at.parents):
        return  # it would lead out of the folder
    try:
        if act == "write" and not at.is_symlink():
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(str(value))
        elif act == "mode" and at.is_file() and not at.is_symlink():
            at.chmod(int(str(value)))
        elif act == "folder":
            if at.is_file() or at.is_symlink():
                at.unlink()
            at.mkdir(parents=True)
        elif act == "link":
            at.symlink_to(str(value))
        elif act == "delete":
            shutil.rmtree(at) if at.is_dir() and not at.is_symlink() else at.unlink()
        elif act == "rename" and not any(parent.is_symlink() for parent in (root / str(value)).parents):
            at.rename(root / str(value))
        elif act == "hard link" and not any(parent.is_symlink() for parent in (root / str(value)).parents):
            os.link(at, root / str(value), follow_symlinks=False)
        elif act == "touch" and not at.is_symlink():
            os.utime(at, ns=(int(str(value)), int(str(value))))
    except OSError:
        pass


def difference(before: Content, after: Content) -> dict[bytes, tuple[object, object]]:
    return {
        path: (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }


def found_difference(kept: KeptBytes, before: str, after: str) -> dict[bytes, tuple[object, object]]:
    return {
        change.path: tuple(  # type: ignore[misc]
            entry and (entry.kind, entry.mode, b"" if entry.kind == "folder" else kept.blobs[entry.sha256])
            for entry in (change.before, change.after)
        )
        for change in diff(kept.load, before, after)
    }


@pytest.mark.timeout(600)  # making files is slow while other tests write
@settings(
    max_examples=400 if os.environ.get("EVERTURN_LONG") == "1" else 40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(st.lists(EDITS, max_size=6), min_size=1, max_size=5), st.data())
def test_scan_diff_and_restore_agree_with_a_plain_copy(
    rounds: list[list[tuple]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as made:
        root, index = Path(made, "workspace"), Path(made, "index")
        root.mkdir()
        kept, known = KeptBytes(), None
        seen: list[tuple[str, Content]] = []
        for edits in rounds:
            for one in edits:
                edit(root, *one)
            known = scan(root, kept, known)
            content = plain(root)
            assert kept.content(known.tree) == content
            assert scan(root, KeptBytes(), known).tree == known.tree
            for tree, old in seen:
                assert found_difference(kept, tree, known.tree) == difference(old, content)
            seen.append((known.tree, content))
            if data.draw(st.booleans(), label="restart"):
                save_index(index, known)
                known = load_index(index)
            if data.draw(st.booleans(), label="go back"):
                tree, old = data.draw(st.sampled_from(seen), label="to")
                present = scan(root, kept, known)
                result = restore(root, kept, diff(kept.load, present.tree, tree), present)
                assert (plain(root), result.kept) == (old, {})
                known = scan(root, kept, present)
                assert known.tree == tree
