"""A tree is copied as it is: links as links, nothing from elsewhere, and files that cannot be copied are reported."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from everturn.store import copy_tree
from everturn.store.files.copy_tree import DEPTH_MAX
from everturn.store.files.disk import Disk, sync_tree


def test_links_stay_links_and_modes_and_times_are_kept(tmp_path: Path) -> None:
    source, target, secret = tmp_path / "source", tmp_path / "target", tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("sk")
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "run.sh").write_text("echo")
    (source / "inner" / "run.sh").chmod(0o750)
    os.utime(source / "inner" / "run.sh", (1_000, 2_000))
    (source / "file").symlink_to(secret / "key")
    (source / "folder").symlink_to(secret)
    (source / "nowhere").symlink_to("not/there")
    (source / "inner").chmod(0o555)
    assert copy_tree(source, target) == []
    sync_tree(Disk(), target)  # does not open what a link names
    assert (target / "file").readlink() == secret / "key"
    assert (target / "folder").readlink() == secret
    assert (target / "nowhere").readlink() == Path("not/there")
    found = (target / "inner" / "run.sh").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o750, 2_000)
    assert (target / "inner").stat().st_mode & 0o777 == 0o555
    assert target.stat().st_mode & 0o777 == 0o700
    for folder in (source, target):
        (folder / "inner").chmod(0o755)


def test_pipes_sockets_and_what_is_too_deep_are_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    os.mkfifo(source / "pipe")
    monkeypatch.chdir(source)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("agent")
    deep = source
    for _ in range(DEPTH_MAX + 1):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (source / "kept").write_text("yes")
    left_out = copy_tree(source, target)
    assert sorted(line.rpartition(": ")[2] for line in left_out) == ["a pipe", "a socket", "too deep"]
    assert sorted(path.name for path in target.iterdir()) == ["d", "kept"]


def test_links_at_the_top_can_be_left_and_a_linked_top_is_read(tmp_path: Path) -> None:
    (tmp_path / "real" / "in").mkdir(parents=True)
    for folder in (tmp_path / "real", tmp_path / "real" / "in"):
        (folder / "away").symlink_to("/etc")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert copy_tree(tmp_path / "linked", tmp_path / "target", links_below=1) == ["away: a link"]
    assert not (tmp_path / "target" / "away").is_symlink()
    assert (tmp_path / "target" / "in" / "away").is_symlink()


def test_a_copy_never_runs_with_the_rights_of_its_owner(tmp_path: Path) -> None:
    (tmp_path / "source" / "in").mkdir(parents=True)
    (tmp_path / "source" / "program").write_text("#!/bin/sh")
    (tmp_path / "source" / "program").chmod(0o6755)
    (tmp_path / "source" / "in").chmod(0o2755)
    assert copy_tree(tmp_path / "source", tmp_path / "target") == []
    assert (tmp_path / "target" / "program").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "target" / "in").stat().st_mode & 0o7777 == 0o755


LOOK = """
import os, sys
from pathlib import Path
from everturn.store import copy_tree
if os.geteuid() == 0:  # root may read everything: look as another user
    os.seteuid(65534)
print(*sorted(copy_tree(Path(sys.argv[1]), Path(sys.argv[2]))), sep="|")
"""


def test_what_may_not_be_read_is_left_out_and_said() -> None:
    with tempfile.TemporaryDirectory() as name:  # which others can enter, once it is opened to them
        top, source, target = Path(name), Path(name) / "source", Path(name) / "target"
        for folder in ("closed", "named"):
            (source / folder).mkdir(parents=True)
            (source / folder / "inner").write_text("no")
        (source / "file").write_text("no")
        (source / "open").write_text("yes")
        for entry, mode in {"closed": 0o000, "named": 0o444, "file": 0o000, "open": 0o644}.items():
            (source / entry).chmod(mode)
        top.chmod(0o777)
        source.chmod(0o755)
        look = [sys.executable, "-c", LOOK, str(source), str(target)]
        said = subprocess.run(look, capture_output=True, text=True, check=True).stdout.strip().split("|")
        assert [line.partition(":")[0].rpartition("/")[2] for line in said] == ["closed", "file", "inner"]
        assert all(line.endswith("Permission denied") for line in said)
        assert (target / "open").read_text() == "yes"
        for opened in (source / "closed", source / "named", target / "closed", target / "named"):
            opened.chmod(0o700)
