"""Leftovers of backups that were cut off."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from everturn.backups.unfinished import NOTE, clear_all, refuse_leftover
from everturn.cli.serve import serve


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


def test_no_server_starts_in_a_folder_that_was_not_restored_whole(tmp_path: Path) -> None:
    (tmp_path / NOTE).touch()
    refused = CliRunner().invoke(serve, ["--home", str(tmp_path), "--port", "0"])
    assert "was not finished" in str(refused.exception)
    assert [path.name for path in tmp_path.iterdir()] == [NOTE]


def test_a_folder_that_is_in_use_since_is_a_data_folder_like_any_other(tmp_path: Path) -> None:
    for name in (NOTE, "everturn.db"):
        (tmp_path / name).touch()
    refuse_leftover(tmp_path)
