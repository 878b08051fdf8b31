from __future__ import annotations

import pytest

from everturn.tools.policy.git_config import is_harmless, named_paths

ORDINARY = b"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
# a comment
[remote "origin"]
\turl = https://example.org/x.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[user]
\tname = Example
"""


def test_what_git_writes_by_itself_is_harmless() -> None:
    assert is_harmless(ORDINARY)
    assert is_harmless(b"")


@pytest.mark.parametrize(
    "line",
    [
        b"[core]\n\tfsmonitor = ./evil",
        b"[core] fsmonitor = ./evil",
        b"[CORE]\nFsMonitor=x",
        b"[core]\nhooksPath = h",
        b"[core]\nsshCommand = x",
        b"[include]\npath = ../more",
        b'[includeIf "gitdir:."]\npath = x',
        b'[filter "x"]\nclean = x',
        b"[alias]\nst = !x",
        b'[remote "o"]\nuploadpack = x',
        b"[diff]\nexternal = x",
        b'[remote "a\\"]"]\nurl = x',
        b"[core]\nbare = fal\\\nse",
        b"fsmonitor = x",
        b"\xff\xfe",
        b"[core]\x0bfsmonitor=x",
        b"[core.fsmonitor]\nurl = x",
    ],
)
def test_what_runs_a_program_or_is_not_understood_is_not(line: bytes) -> None:
    assert not is_harmless(ORDINARY + line)


def test_what_was_there_before_may_stay() -> None:
    known = ORDINARY + b"[core]\n\teditor = vim\n"
    assert is_harmless(known + b'[remote "b"]\n\turl = x\n', known)
    assert not is_harmless(known + b"[core]\n\tpager = evil\n", known)
    assert not is_harmless(known.replace(b"vim", b"evil"), known)


def test_what_settings_name_is_found_but_not_in_harmless_ones() -> None:
    found = named_paths(
        b'[core]\n\thooksPath = "tools/hooks"\n[user]\n\tname = code.py\n[alias] x = "!./run.sh fast"\n'
    )
    assert found == [("hookspath", "tools/hooks"), ("x", "./run.sh"), ("x", "fast")]
