"""E06: a project folder belongs to the user. Choosing it for a session writes nothing into it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.domain.errors import WrongState
from everturn.domain.sessions import Session, SessionPatch
from everturn.store import Store
from tests.file_sessions import OWNER, FileSessions, files_in, open_file_sessions, put_files, request
from tests.trees import QuickDisk

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.workspace.restore.DiskSync", QuickDisk)


@pytest.fixture
async def s(store: Store, tmp_path: Path) -> AsyncIterator[FileSessions]:
    async with open_file_sessions(store, tmp_path) as sessions:
        yield sessions


async def unused_branch(s: FileSessions) -> Session:
    """A session whose files are in the store and not yet in a folder, as those of an import are."""
    session = await s.h.new_session()
    await s.turn(session, a_txt="one", _envrc="run this")
    return await s.h.engine.branch(OWNER, session.id, None, request())


async def test_e06_files_that_wait_for_a_folder_do_not_go_into_the_chosen_one(
    s: FileSessions, tmp_path: Path
) -> None:
    copy, project = await unused_branch(s), tmp_path / "project"
    put_files(project, {"mine.txt": "mine"})
    patch = SessionPatch(project=str(project))
    changed = await s.h.engine.change_session(OWNER, copy.id, patch, version=copy.version)
    assert changed.project == str(project.resolve())
    await s.turn(copy, b_txt="two")
    assert files_in(project) == {"mine.txt": "mine", "b.txt": "two"}
    assert s.files(copy) == {"a.txt": "one", ".envrc": "run this"}, "they are in its own folder"


async def test_e06_the_folder_is_not_changed_while_files_wait(s: FileSessions, tmp_path: Path) -> None:
    """A restore that begins after the first look is noticed too."""
    copy, sessions = await unused_branch(s), s.h.store.sessions
    with pytest.raises(WrongState):
        await sessions.change(OWNER, copy.id, SessionPatch(project=str(tmp_path)))
    assert (await sessions.get(OWNER, copy.id)).project is None
    assert (await sessions.change(OWNER, copy.id, SessionPatch(title="Other"))).title == "Other"
    assert (await sessions.change(OWNER, copy.id, SessionPatch(project=None))).project is None
