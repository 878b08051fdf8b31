from __future__ import annotations

import pytest

from everturn.tools.git_config import is_harmless, values

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
\tname = Somebody
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


def test_the_words_of_values_are_found() -> None:
    found = values(b'[core]\n\thooksPath = "tools/hooks"\n[alias]\n\tx = "!./run.sh fast"\n')
    assert ("hookspath", "tools/hooks") in found
    assert ("x", "./run.sh") in found
