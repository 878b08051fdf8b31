"""Ignore rules, against what git says about the same patterns."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from everturn.workspace.ignore import parse_rule

CASES = [
    ("*.log", "a.log", False, True),
    ("*.log", "deep/a.log", False, True),
    ("*.log", "a.logs", False, False),
    ("/top", "top", False, True),
    ("/top", "in/top", False, False),
    ("a/b", "a/b", False, True),
    ("a/b", "x/a/b", False, False),
    ("build/", "build", True, True),
    ("build/", "build", False, False),
    ("a/**/b", "a/b", False, True),
    ("a/**/b", "a/x/y/b", False, True),
    ("**/b", "a/x/b", False, True),
    ("a/**", "a/x", False, True),
    ("a/**", "a", True, False),
    ("?.txt", "a.txt", False, True),
    ("[ab].txt", "b.txt", False, True),
    ("[!ab].txt", "b.txt", False, False),
    ("[^ab].txt", "c.txt", False, True),
    (r"\*.txt", "*.txt", False, True),
    (r"\*.txt", "a.txt", False, False),
    (r"\#file", "#file", False, True),
    ("#file", "#file", False, False),
    ("a*", "a/b", False, False),
    ("trailing   ", "trailing", False, True),
]


@pytest.mark.parametrize(("pattern", "path", "is_folder", "expected"), CASES)
def test_a_pattern_matches_as_in_git(pattern: str, path: str, is_folder: bool, expected: bool) -> None:
    rule = parse_rule(pattern)
    matches = rule is not None and rule.matches(tuple(path.split("/")), is_folder=is_folder)
    assert matches is expected


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_cases_above_are_what_git_says(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for pattern, path, is_folder, expected in CASES:
        (tmp_path / ".git" / "info").mkdir(exist_ok=True)
        (tmp_path / ".git" / "info" / "exclude").write_text(pattern + "\n")
        if is_folder:
            (tmp_path / path).mkdir()
        asked = ["git", "-C", str(tmp_path), "check-ignore", "-q", "--no-index", path]
        done = subprocess.run(asked, check=False)
        if is_folder:
            (tmp_path / path).rmdir()
        # git also ignores what lies in an ignored folder; the scan never goes there.
        if pattern != "a*":
            assert (done.returncode == 0) is expected, (pattern, path)


def test_a_hostile_pattern_takes_no_time() -> None:
    rule = parse_rule("*a" * 40 + "b")
    deep = parse_rule("**/" * 60 + "b")
    assert rule is not None
    assert deep is not None
    begun = time.process_time()
    assert not rule.matches(("a" * 200,), is_folder=False)
    assert not deep.matches(("a",) * 190, is_folder=False)
    assert time.process_time() - begun < 5
