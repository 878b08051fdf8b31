from __future__ import annotations

import os
from pathlib import Path

from everturn.tools.policy.guarded import any_guarded, guarded_part
from everturn.tools.policy.repositories import Repositories


def _names(found: tuple[str, ...], root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in found}


def test_folders_files_links_and_bare_ones_are_found_and_links_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in (
        ".git/modules/sub/refs",
        ".git/modules/sub/objects",
        "a/b",
        "bare/objects",
        "bare/refs",
        "c",
    ):
        (root / folder).mkdir(parents=True)
    (root / ".git/modules/sub/HEAD").touch()
    (root / "bare/HEAD").touch()
    (root / "a/b/.git").write_text("gitdir: x")
    (root / "c/.git").symlink_to("../bare")
    (tmp_path / "outside/.git").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "outside")
    found = Repositories(str(root)).find()
    assert _names(found.paths, root) == {".git", ".git/modules/sub", "a/b/.git", "bare", "c/.git"}
    assert not found.is_cut


def test_what_is_made_between_two_looks_is_found_whatever_times_are_set(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    repositories = Repositories(str(tmp_path))
    assert repositories.find().paths == ()
    before = (tmp_path / "a" / "b").stat()
    (tmp_path / "a" / "b" / ".git").mkdir()
    os.utime(tmp_path / "a" / "b", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert repositories.find().paths == (str(tmp_path / "a" / "b" / ".git"),)
    (tmp_path / "a" / "b" / ".git").rmdir()
    assert repositories.find().paths == ()


def test_files_that_are_written_together_count_what_a_repository_in_the_project_names(tmp_path: Path) -> None:
    settings = tmp_path / "vendor" / "lib" / ".git" / "config"
    settings.parent.mkdir(parents=True)
    settings.write_text("[core]\n\thooksPath = tools/hooks\n")
    hook = "vendor/lib/tools/hooks/pre-commit"
    assert guarded_part(tmp_path, hook)
    assert any_guarded(tmp_path, ["README", hook])
    assert not any_guarded(tmp_path, ["README", "vendor/lib/tools/other", "tools/hooks/pre-commit"])
