"""Leftovers of backups that were cut off."""

from __future__ import annotations

from pathlib import Path

from everturn.cli.unfinished import NOTE, clear_all


def test_a_leftover_that_cannot_be_looked_at_is_named_and_the_others_are_cleared(tmp_path: Path) -> None:
    closed, ours = tmp_path / "a.unfinished", tmp_path / "b.unfinished"
    for folder in (closed, ours):
        folder.mkdir()
    (closed / NOTE).symlink_to(tmp_path / "elsewhere")  # not opened, not even by root
    (ours / NOTE).touch()
    cleared, left = clear_all(tmp_path)
    assert cleared == [ours]
    assert [folder for folder, _ in left] == [closed]
    assert closed.is_dir()
    assert not ours.exists()
