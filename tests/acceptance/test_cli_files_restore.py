"""`everturn files restore`: shows what would change, asks, and restores."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.sessions import NewSession
from everturn.store import Store, open_store
from everturn.testing.acting import answer, append, complete, start
from everturn.workspace import FilesSettings, Recorder
from tests.acceptance.command_line import command

pytestmark = pytest.mark.anyio
OWNER = "local"


async def recorded(store: Store, home: Path, folder: Path, session_id: str, files: dict[str, str]) -> str:
    """Let a call write these files, and make a checkpoint of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    held = await start(store, session_id, "write them")
    made = await Recorder(store, home / "indexes", FilesSettings()).record(held, folder, "call_1")
    assert made is not None
    await complete(store, held, await append(store, held, answer("Written.")))
    return made.id


@pytest.mark.parametrize("is_project", [False, True], ids=["own folder", "project"])
async def test_files_restore_shows_the_changes_asks_and_restores(
    data_dir: Path, tmp_path: Path, is_project: bool
) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    async with open_store(f"sqlite://{data_dir / 'everturn.db'}", data_dir=data_dir) as store:
        session = await store.sessions.create(OWNER, NewSession(project=str(project) if is_project else None))
        folder = project if is_project else data_dir.resolve() / "workspaces" / session.id
        old = {"a.txt": "one\n", "b.txt": "one\n"}
        first = await recorded(store, data_dir, folder, session.id, old)
        await recorded(store, data_dir, folder, session.id, {"a.txt": "two\n", "b.txt": "two\n"})
    (folder / "b.txt").write_text("mine\n")
    asked = ("files", "restore", session.id, "--at", first)
    refused = await command(data_dir, *asked, stdin="n\n")
    assert refused.returncode == 0, refused.stderr
    assert "~ a.txt\n" in refused.stdout
    assert "-two" in refused.stdout
    assert "+one" in refused.stdout
    assert "~ b.txt  (changed since the last step)" in refused.stdout
    assert "Nothing was changed." in refused.stdout
    assert (folder / "a.txt").read_text() == "two\n"
    one = await command(data_dir, *asked, "a.txt", stdin="y\n")
    assert one.returncode == 0, one.stderr
    assert "Restored 1 file." in one.stdout
    assert {name: (folder / name).read_text() for name in old} == {"a.txt": "one\n", "b.txt": "mine\n"}
    done = await command(data_dir, *asked, "--yes")
    assert done.returncode == 0, done.stderr
    assert {name: (folder / name).read_text() for name in old} == old
    again = await command(data_dir, *asked, "--yes")
    assert again.returncode == 1
    assert "already as they were" in again.stderr


async def test_files_restore_refuses_what_it_does_not_know(data_dir: Path) -> None:
    async with open_store(f"sqlite://{data_dir / 'everturn.db'}", data_dir=data_dir) as store:
        session = await store.sessions.create(OWNER, NewSession())
    for at, path in (("now", ()), ("yesterday", ()), ("start", ("../outside",))):
        refused = await command(data_dir, "files", "restore", session.id, "--at", at, *path)
        assert refused.returncode == 1, refused.stdout
        assert "Traceback" not in refused.stderr
