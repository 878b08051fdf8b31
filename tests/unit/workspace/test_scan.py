"""The scan: what it finds, what it reads again, what it leaves out."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from everturn.domain.trees import EMPTY_TREE, Reason
from everturn.tools.temporary_files import restore_name, write_name
from everturn.workspace import IgnoreRules, Limits, left_out
from everturn.workspace.scan import Scan
from tests.trees import KeptBytes, plain, scan

LATER = time.time_ns() + 3600 * 10**9  # a scan that starts then believes every stamp


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def reasons(found) -> dict[bytes, Reason]:
    return dict(left_out(found))


def test_a_tree_holds_what_the_folder_holds(root: Path) -> None:
    (root / "a.txt").write_text("one")
    (root / "empty").mkdir()
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "run").write_bytes(b"#!/bin/sh")
    (root / "deep" / "er" / "run").chmod(0o755)
    (root / "link").symlink_to("deep/er/run")
    (root / os.fsdecode(b"not-utf8-\xff")).write_bytes(b"x")
    kept = KeptBytes()
    assert kept.content(scan(root, kept).tree) == plain(root)


def test_a_file_that_is_being_written_is_in_no_tree_and_removed_when_its_writer_died(root: Path) -> None:
    names = [write_name(), restore_name("0" * 16).decode()]
    for name in names:
        (root / name).write_text("half of it")
    first = scan(root, KeptBytes())
    assert (first.tree, reasons(first)) == (EMPTY_TREE, {})
    assert sorted(os.listdir(root)) == sorted(names), "it may still be written"
    later = scan(root, KeptBytes(), first, start_ns=LATER)
    assert later.tree == EMPTY_TREE
    assert os.listdir(root) == []


def test_an_empty_folder_has_the_empty_tree(root: Path) -> None:
    assert scan(root, KeptBytes()).tree == EMPTY_TREE


def test_everything_new_is_stored_with_one_call(root: Path) -> None:
    for number in range(50):
        (root / f"{number}").mkdir()
        (root / f"{number}" / "file").write_text(str(number))
    kept = KeptBytes()
    scan(root, kept)
    assert len(kept.calls) == 1


def test_e01_without_a_change_nothing_is_read_or_stored(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("one")
    first = scan(root, KeptBytes(), start_ns=LATER)
    monkeypatch.setattr(os, "read", lambda *_: pytest.fail("a file was read"))
    monkeypatch.setattr(os, "scandir", lambda *_: pytest.fail("a folder was listed"))
    kept = KeptBytes()
    assert scan(root, kept, first, start_ns=LATER) is first
    assert kept.calls == []


def test_e01_only_what_changed_is_stored(root: Path) -> None:
    for number in range(20):
        (root / f"{number}").mkdir()
        (root / f"{number}" / "file").write_text(str(number))
    first = scan(root, KeptBytes(), start_ns=LATER)
    (root / "7" / "file").write_text("seven")
    kept = KeptBytes()
    second = scan(root, kept, first, start_ns=LATER)
    assert second.tree != first.tree
    assert kept.calls == [3]  # the file, its folder and the root


def test_e01_beside_a_new_file_the_others_are_not_read_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "old").write_text("one")
    first = scan(root, KeptBytes(), start_ns=LATER)
    (root / "new").write_text("two")
    opened: list[object] = []
    real_open = os.open

    def note(path: bytes, *more: int, **names: int) -> int:
        opened.append(path)
        return real_open(path, *more, **names)

    monkeypatch.setattr(os, "open", note)
    scan(root, KeptBytes(), first, start_ns=LATER)
    assert b"new" in opened
    assert b"old" not in opened


def test_e01_a_touched_file_is_read_and_not_stored_again(root: Path) -> None:
    (root / "file").write_text("one")
    first = scan(root, KeptBytes(), start_ns=LATER)
    os.utime(root / "file", ns=(1, 1))
    kept = KeptBytes()
    assert scan(root, kept, first).tree == first.tree
    assert kept.calls == []


def test_e01_a_change_that_leaves_size_and_times_alone_is_found_if_the_file_was_just_written(
    root: Path,
) -> None:
    """The kernel's clock has ticks of milliseconds: two writes can have one stamp."""
    (root / "file").write_text("one")
    first = scan(root, KeptBytes(), start_ns=os.stat(root / "file").st_ctime_ns)
    (root / "file").write_text("two")
    kept = KeptBytes()
    assert kept.content(scan(root, kept, first).tree)[b"file"][2] == b"two"


def test_a_large_file_is_streamed(root: Path) -> None:
    (root / "large").write_bytes(b"ab" * 2_000_000)
    kept = KeptBytes()
    found = scan(root, kept)
    assert kept.content(found.tree) == plain(root)


def test_setuid_is_dropped(root: Path) -> None:
    (root / "file").write_text("x")
    (root / "file").chmod(0o4755)
    (root / "folder").mkdir()
    (root / "folder").chmod(0o3777)
    kept = KeptBytes()
    content = kept.content(scan(root, kept).tree)
    assert content[b"file"][1] == 0o755
    assert content[b"folder"][1] == 0o777


def test_what_lies_outside_is_never_read(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("do not read me")
    (root / "folder").symlink_to(secret)
    (root / "file").symlink_to(secret / "key")
    kept = KeptBytes()
    found = scan(root, kept)
    assert kept.content(found.tree) == plain(root)
    assert not any(b"do not read me" in data for data in kept.blobs.values())


def test_a_folder_that_becomes_a_link_during_the_scan_leads_nowhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed as a folder, then swapped for a link to another place before it is opened: it is as if it were gone."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("do not read me")
    (root / "folder").mkdir()
    inner = Scan._inner

    def swap(self, place, name, known):
        (root / "folder").rmdir()
        (root / "folder").symlink_to(secret)
        return inner(self, place, name, known)

    monkeypatch.setattr(Scan, "_inner", swap)
    kept = KeptBytes()
    found = scan(root, kept, start_ns=LATER)
    assert found.entries == ()
    monkeypatch.undo()
    assert kept.content(scan(root, kept, found).tree) == plain(root)
    assert not any(b"do not read me" in data for data in kept.blobs.values())


def test_e01_a_file_that_changes_while_it_is_read_is_read_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_text("one")
    read, waiting = Scan._read, ["two, longer"]

    def interrupted(self, handle, name, status, before):
        entry = read(self, handle, name, status, before)
        if waiting:
            (root / "file").write_text(waiting.pop())
        return entry

    monkeypatch.setattr(Scan, "_read", interrupted)
    kept = KeptBytes()
    assert kept.content(scan(root, kept).tree)[b"file"][2] == b"two, longer"


def test_e01_a_file_that_changes_each_time_is_left_out_and_listed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "log").write_text("")
    read = Scan._read

    def growing(self, handle, name, status, before):
        entry = read(self, handle, name, status, before)
        with (root / "log").open("a") as file:
            file.write("line\n")
        return entry

    monkeypatch.setattr(Scan, "_read", growing)
    kept = KeptBytes()
    found = scan(root, kept, start_ns=LATER)
    assert reasons(found) == {b"log": Reason.CHANGING}
    monkeypatch.undo()
    assert kept.content(scan(root, kept, found, start_ns=LATER).tree) == plain(root)


def test_e01_a_file_over_the_limit_is_left_out_until_it_fits(root: Path) -> None:
    limits = Limits(file_bytes_max=10)
    (root / "file").write_bytes(b"x" * 11)
    kept = KeptBytes()
    found = scan(root, kept, limits=limits, start_ns=LATER)
    assert reasons(found) == {b"file": Reason.TOO_LARGE}
    (root / "file").write_bytes(b"x" * 10)
    assert kept.content(scan(root, kept, found, limits=limits).tree) == plain(root)


def test_names_beyond_the_limit_are_counted_and_listed(root: Path) -> None:
    for number in range(8):
        (root / f"{number}").write_text("")
    kept = KeptBytes()
    found = scan(root, kept, limits=Limits(workspace_files_max=5))
    assert [entry.name for entry in found.entries] == [b"0", b"1", b"2", b"3", b"4"]
    assert found.unlisted == 3
    assert reasons(found) == {b"": Reason.TOO_MANY}


def test_the_limit_holds_for_all_folders_together(root: Path) -> None:
    for name in ("a", "b"):
        (root / name).mkdir()
        for number in range(4):
            (root / name / f"{number}").write_text("")
    found = scan(root, KeptBytes(), limits=Limits(workspace_files_max=7))
    assert reasons(found) == {b"b": Reason.TOO_MANY}
    assert len(found.folders[b"a"].entries) + len(found.folders[b"b"].entries) == 5


def test_pipes_and_sockets_are_left_out(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert reasons(scan(root, KeptBytes())) == {b"pipe": Reason.SPECIAL}


def test_folders_that_are_too_deep_are_left_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.workspace.scan.DEPTH_MAX", 3)
    (root / "1" / "2" / "3" / "4").mkdir(parents=True)
    assert reasons(scan(root, KeptBytes())) == {b"1/2/3": Reason.TOO_DEEP}


def test_dependencies_and_caches_are_left_out(root: Path) -> None:
    for name in ("node_modules", "__pycache__", "tagged"):
        (root / "app" / name).mkdir(parents=True)
        (root / "app" / name / "file").write_text("x")
    (root / "app" / "tagged" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert reasons(scan(root, KeptBytes())) == {
        b"app/node_modules": Reason.DEPENDENCIES,
        b"app/__pycache__": Reason.CACHE,
        b"app/tagged": Reason.CACHE,
    }


def test_a_workspace_of_our_own_is_recorded_with_its_git_and_ignored_files(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("ref")
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.log").write_text("kept")
    kept = KeptBytes()
    assert kept.content(scan(root, kept).tree) == plain(root)


def test_a_projects_ignore_files_are_obeyed_and_its_git_is_not_stored(root: Path) -> None:
    (root / ".git" / "info").mkdir(parents=True)
    (root / ".git" / "info" / "exclude").write_text("private\n")
    (root / ".gitignore").write_text("*.log\n")
    (root / "sub").mkdir()
    (root / "sub" / ".gitignore").write_text("!keep.log\n")
    for name in ("a.log", "private", "sub/b.log", "sub/keep.log", "main.py"):
        (root / name).write_text("x")
    handle = os.open(root, os.O_RDONLY)
    rules = IgnoreRules.of_workspace(is_project=True, root=handle)
    os.close(handle)
    kept = KeptBytes()
    found = scan(root, kept, rules=rules)
    assert reasons(found) == {
        b".git": Reason.GIT,
        b"a.log": Reason.IGNORED,
        b"private": Reason.IGNORED,
        b"sub/b.log": Reason.IGNORED,
    }
    assert set(kept.content(found.tree)) == {
        b".gitignore",
        b"main.py",
        b"sub",
        b"sub/.gitignore",
        b"sub/keep.log",
    }


def test_a_changed_ignore_file_is_obeyed_in_folders_that_did_not_change(root: Path) -> None:
    rules = IgnoreRules.of_workspace(is_project=True)
    (root / "sub").mkdir()
    (root / "sub" / "a.log").write_text("x")
    kept = KeptBytes()
    found = scan(root, kept, rules=rules, start_ns=LATER)
    (root / ".gitignore").write_text("*.log\n")
    assert reasons(scan(root, kept, found, rules=rules)) == {b"sub/a.log": Reason.IGNORED}


def test_a_folder_in_the_place_of_an_ignore_file_does_no_harm(root: Path) -> None:
    (root / ".gitignore").mkdir()
    os.mkfifo(root / ".ignore")
    (root / "file").write_text("x")
    kept = KeptBytes()
    found = scan(root, kept, rules=IgnoreRules.of_workspace(is_project=True))
    assert set(kept.content(found.tree)) == {b".gitignore", b"file"}
