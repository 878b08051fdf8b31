"""E06: a project folder belongs to the user. Choosing it for a session writes nothing into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from everturn.domain.checkpoints import Checkpoint
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


async def test_e06_another_folder_in_mid_history_is_not_compared_with_the_one_before(
    s: FileSessions, tmp_path: Path
) -> None:
    """Neither on the way to a project nor on the way back: a checkpoint belongs to the folder it was made of."""
    session, project = await s.h.new_session(), tmp_path / "project"
    put_files(project, {"mine.txt": "mine"})
    change, checkpoints = s.h.engine.change_session, s.h.store.checkpoints
    first = await s.turn(session, own_txt="one")
    await change(OWNER, session.id, SessionPatch(project=str(project)))
    second = await s.turn(session, new_txt="two")
    await change(OWNER, session.id, SessionPatch(project=None))
    put_files(s.folder(session), {"edited.txt": "by the user"})
    third = await s.turn(session, own_txt="three")

    def changed(rows: Sequence[Checkpoint]) -> list[list[str]]:
        return [[change.path for change in row.changes.changed] for row in rows]

    assert changed(await checkpoints.of_turn(OWNER, first.id)) == [["own.txt"], []]
    assert changed(await checkpoints.of_turn(OWNER, second.id)) == [["new.txt"], ["edited.txt"]]
    assert changed(await checkpoints.of_turn(OWNER, third.id)) == [["own.txt"]]


async def test_e06_undo_in_the_own_folder_leaves_out_what_was_done_in_a_project(
    s: FileSessions, tmp_path: Path
) -> None:
    session, project = await s.h.new_session(), tmp_path / "project"
    put_files(project, {"mine.txt": "mine"})
    change, engine = s.h.engine.change_session, s.h.engine
    await s.turn(session, own_txt="one")
    await change(OWNER, session.id, SessionPatch(project=str(project)))
    await s.turn(session, new_txt="two")
    await change(OWNER, session.id, SessionPatch(project=None))
    for expected in ({"own.txt": "one"}, {}):
        await engine.undo(OWNER, session.id, request())
        assert s.files(session) == expected
    for _ in range(2):
        await engine.redo(OWNER, session.id, request())
        assert s.files(session) == {"own.txt": "one"}
    assert files_in(project) == {"mine.txt": "mine", "new.txt": "two"}


async def test_e06_e02_undo_in_a_project_brings_no_files_of_the_own_folder_there(
    s: FileSessions, tmp_path: Path
) -> None:
    session, project = await s.h.new_session(), tmp_path / "project"
    put_files(project, {"mine.txt": "mine"})
    for text in ("one", "two"):
        await s.turn(session, own_txt=text)
    await s.h.engine.change_session(OWNER, session.id, SessionPatch(project=str(project)))
    await s.h.engine.undo(OWNER, session.id, request())
    assert files_in(project) == {"mine.txt": "mine"}
    assert s.files(session) == {"own.txt": "two"}
    assert await s.restored(session) == []
