"""Going back to the copy from before a schema change: what is newer is kept first, and a kill leaves one whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import anyio
import apsw
import pytest

from everturn.backups.rollback import find_copies
from everturn.store import open_store
from everturn.store.sqlite.connection import SCHEMA
from everturn.testing.acting import new_session
from tests.acceptance.command_line import environment

OLD = 12
FOLDER = Path(__file__).parents[2] / "golden" / "folders" / f"schema-{OLD}.tar.gz"
KILLED = """
import os, sys
from everturn.backups import rollback
from everturn.cli.main import main
name = sys.argv.pop(1)
module, _, name = name.rpartition(".")
owner = {"": rollback, "Path": rollback.Path, "Disk": rollback.Disk}[module]
real = getattr(owner, name)
def die(*given, **named):
    if sys.argv[1] == "after":
        real(*given, **named)
    os._exit(9)
when = sys.argv[1]
setattr(owner, name, die)
main(sys.argv[2:])
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of an earlier schema that this version migrated, and in which a session was begun since."""
    with tarfile.open(FOLDER) as archive:
        archive.extractall(tmp_path, filter="data")
    home = tmp_path / "data"
    anyio.run(_use, home)
    return home


async def _use(home: Path) -> None:
    async with open_store(data_dir=home) as store:
        await new_session(store, "made by the newer version")


def _schema(file: Path) -> int:
    with closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return int(str(connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()[0][0]))


def _ids(file: Path) -> set[str]:
    with closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {str(row[0]) for row in connection.execute("SELECT id FROM sessions")}


def _run(home: Path, *line: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everturn", *line]
    return subprocess.run(
        command, env=environment(home), input=given, capture_output=True, text=True, timeout=120, check=False
    )


def test_everything_newer_is_kept_and_can_be_imported_again(home: Path, tmp_path: Path) -> None:
    database, newer = home / "everturn.db", _ids(home / "everturn.db")
    older = _ids(find_copies(database)[-1].path)
    (new_id,) = newer - older
    refused = _run(home, "rollback", given="n\n")
    assert (refused.returncode, "Nothing was changed" in refused.stderr) == (1, True)
    assert f"schema {OLD}" in refused.stderr
    assert "0 turn(s) and 0 message(s)" in refused.stderr
    assert "not finished then" in refused.stderr
    assert (_schema(database), _ids(database)) == (SCHEMA, newer)
    done = _run(home, "rollback", "--yes")
    assert done.returncode == 0, done.stderr
    assert (_schema(database), _ids(database)) == (OLD, older)
    assert not (home / "everturn.db-wal").exists()
    (kept,) = home.glob("rolled-back-*")
    assert f"{new_id}.zip" in {path.name for path in (kept / "sessions").iterdir()}
    restored = _run(tmp_path / "restored", "restore", "--yes", str(kept / "newer"))
    assert restored.returncode == 0, restored.stderr
    assert _ids(tmp_path / "restored" / "everturn.db") == newer
    imported = _run(tmp_path / "other", "import", str(kept / "sessions" / f"{new_id}.zip"))
    assert imported.returncode == 0, imported.stderr
    again = _run(home, "rollback", "--yes")
    assert "nothing to go back to" in again.stderr
    assert len(list(home.glob("rolled-back-*"))) == 1


def test_it_is_refused_while_a_server_runs_without_a_copy_and_for_a_damaged_one(home: Path) -> None:
    (copy,) = find_copies(home / "everturn.db")
    assert "There are copies with schema" in _run(home, "rollback", "--to", "3").stderr
    serving = subprocess.Popen(
        [sys.executable, "-m", "everturn", "serve", "--port", "0"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert "ready" in serving.stdout.readline()
        refused = _run(home, "rollback", "--yes")
        assert (refused.returncode, "works in" in refused.stderr) == (1, True), refused.stderr
    finally:
        serving.kill()
        serving.communicate(timeout=60)  # closes the pipe as well
    content = bytearray(copy.path.read_bytes())
    content[20_000:60_000] = os.urandom(40_000)
    copy.path.write_bytes(content)
    damaged = _run(home, "rollback", "--yes")
    assert (damaged.returncode, _schema(home / "everturn.db")) == (1, SCHEMA), damaged.stderr
    copy.path.unlink()
    assert "no copy that was made before" in _run(home, "rollback").stderr


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "moment",
    ["fill", "sync_tree", "_export", "shutil.copy2", "Disk.sync_file", "Path.rename", "Disk.sync_folder"],
)
def test_killed_anywhere_the_database_is_whole_and_it_is_begun_again(
    home: Path, moment: str, when: str
) -> None:
    database = home / "everturn.db"
    newer, older = _ids(database), _ids(find_copies(database)[-1].path)
    program = KILLED.replace('"Disk": rollback.Disk', '"Disk": rollback.Disk, "shutil": rollback.shutil')
    killed = subprocess.run(
        [sys.executable, "-c", program, moment, when, "rollback", "--yes"],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == 9, killed.stderr
    kept = shutil.copytree(home, home.with_name("look"))
    assert (_schema(kept / "everturn.db"), _ids(kept / "everturn.db")) in ((SCHEMA, newer), (OLD, older))
    again = _run(home, "rollback", "--yes")
    assert (_schema(database), _ids(database)) == (OLD, older), again.stderr
    wholes = [path for path in home.glob("rolled-back-*") if not path.name.endswith(".unfinished")]
    assert wholes
    for whole in wholes:
        assert _ids(whole / "newer" / "everturn.db") == newer
