"""``everturn files``: list, show, get, diff and history, of the folder and of stored versions."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from everturn.domain.trees import EMPTY_TREE
from everturn.store import open_store
from everturn.testing.acting import answer, append, complete, new_session, start
from everturn.workspace import FilesSettings, Recorder
from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio


async def recorded(home: Path) -> tuple[str, list[str]]:
    """A session with two turns, each of which wrote a version of a file; its id and theirs."""
    turns = []
    async with open_store(data_dir=home) as store:
        session = await new_session(store)
        folder = home.resolve() / "workspaces" / session.id
        (folder / "src").mkdir(parents=True)
        recorder = Recorder(store, home / "indexes", FilesSettings())
        for text in ("one\ntwo\n", "one\nTWO\nthree\n"):
            held = await start(store, session.id, "write")
            (folder / "src" / "a.txt").write_text(text)
            made = await recorder.record(held, folder, "call_1")
            assert made is not None
            assert made.tree != EMPTY_TREE
            await complete(store, held, await append(store, held, answer("done")))
            turns.append(held.turn.id)
    return session.id, turns


async def files(home: Path, *arguments: str) -> str:
    done = await command(home, "files", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_files_of_a_session_are_read_compared_and_downloaded(data_dir: Path, tmp_path: Path) -> None:
    session, (first, second) = await recorded(data_dir)
    assert await files(data_dir, "list", session) == f"{'':>12}  src/\n"
    assert await files(data_dir, "list", session, "src", "--at", first) == f"{8:>12}  a.txt\n"
    assert await files(data_dir, "show", session, "src/a.txt", "--at", first) == "one\ntwo\n"
    assert await files(data_dir, "show", session, "src/a.txt") == "one\nTWO\nthree\n"
    assert await files(data_dir, "diff", session, "--from", first) == "~ src/a.txt  +2 -1\n"
    changed = await files(data_dir, "diff", session, "src/a.txt", "--from", first, "--to", second)
    assert changed.splitlines()[1:] == [" one", "-two", "+TWO", "+three"]
    versions = [
        line.split() for line in (await files(data_dir, "history", session, "src/a.txt")).splitlines()
    ]
    assert [(line[3], line[5]) for line in versions] == [("changed", second), ("added", first)]
    old = await files(data_dir, "show", session, "src/a.txt", "--at", versions[1][0])
    assert old == "one\ntwo\n"


async def test_files_get_writes_a_file_or_an_archive_and_overwrites_nothing(
    data_dir: Path, tmp_path: Path
) -> None:
    session, (first, _) = await recorded(data_dir)
    await files(data_dir, "get", session, "src/a.txt", "--at", first, "--output", str(tmp_path / "a.txt"))
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    await files(data_dir, "get", session, "--output", str(tmp_path / "all.zip"))
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert archive.read("src/a.txt") == b"one\nTWO\nthree\n"
    done = await command(data_dir, "files", "get", session, "--output", str(tmp_path / "a.txt"))
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "../secret"), "outside the workspace"),
        (("show", "nothing"), "There is no file nothing"),
        (("show", "src"), "is not a file"),
        (("list", "--at", "yesterday"), "not a point in the history"),
    ],
)
async def test_files_says_what_is_wrong(data_dir: Path, arguments: tuple[str, ...], said: str) -> None:
    session, _ = await recorded(data_dir)
    done = await command(data_dir, "files", arguments[0], session, *arguments[1:])
    assert done.returncode == 1
    assert said in done.stderr
