"""E03: a branch has the files of the message it branches from; neither session harms the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.domain.checkpoints import At
from everturn.store import Store
from tests.file_sessions import OWNER, FileSessions, open_file_sessions, put_files, request
from tests.trees import QuickDisk

pytestmark = pytest.mark.anyio
LATER_MS = -60_000  # a grace or wait that is over already


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.workspace.restore.DiskSync", QuickDisk)


@pytest.fixture
async def s(store: Store, tmp_path: Path) -> AsyncIterator[FileSessions]:
    async with open_file_sessions(store, tmp_path) as sessions:
        yield sessions


async def test_e03_a_branch_has_the_files_of_its_message(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    first = await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two", b_txt="two")
    copy = await engine.branch(OWNER, session.id, first.id, request())
    assert not s.folder(copy).exists(), "it is filled when it is first used"
    await s.turn(copy, c_txt="three")
    assert s.files(copy) == {"a.txt": "one", "c.txt": "three"}
    assert s.files(session) == {"a.txt": "two", "b.txt": "two"}


async def test_e03_a_branch_from_the_last_message_has_what_is_there(s: FileSessions) -> None:
    """Also what the user changed since; in the first session that is still their own change."""
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    put_files(s.folder(session), {"a.txt": "mine"})
    before = await s.h.store.checkpoints.last(OWNER, session.id)
    copy = await engine.branch(OWNER, session.id, None, request())
    await s.turn(copy)
    assert s.files(copy) == {"a.txt": "mine"}
    assert await s.h.store.checkpoints.last(OWNER, session.id) == before


async def test_e03_the_history_of_files_goes_along(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    copy = await engine.branch(OWNER, session.id, None, request())
    await s.turn(copy, a_txt="three")
    for expected in ("two", "one"):
        await engine.undo(OWNER, copy.id, request())
        assert s.files(copy) == {"a.txt": expected}
    await engine.undo(OWNER, copy.id, request())
    assert s.files(copy) == {}
    for expected in ("one", "two", "three"):
        await engine.redo(OWNER, copy.id, request())
        assert s.files(copy) == {"a.txt": expected}
    assert s.files(session) == {"a.txt": "two"}


async def test_e03_a_repeated_request_makes_one_branch(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    first = await engine.branch(OWNER, session.id, None, request("key"))
    put_files(s.folder(session), {"a.txt": "mine"})
    again = await engine.branch(OWNER, session.id, None, request("key"))
    assert again.id == first.id
    await s.turn(first)
    assert s.files(first) == {"a.txt": "one"}


@pytest.mark.parametrize("is_filled", [False, True], ids=["not used yet", "filled"])
async def test_e03_deleting_one_never_harms_the_other(s: FileSessions, is_filled: bool) -> None:
    session, engine, store = await s.h.new_session(), s.h.engine, s.h.store
    turn = await s.turn(session, a_txt="one")
    copy = await engine.branch(OWNER, session.id, None, request())
    other = await engine.branch(OWNER, session.id, turn.id, request())
    if is_filled:
        await s.turn(copy)
    await engine.delete(OWNER, session.id)
    await engine.delete(OWNER, other.id)
    for _ in range(2):
        await store.blobs.collect(grace_ms=LATER_MS, wait_ms=LATER_MS)  # type: ignore[call-arg]
    await s.turn(copy, b_txt="two")
    assert s.files(copy) == {"a.txt": "one", "b.txt": "two"}
    await engine.undo(OWNER, copy.id, request())
    assert s.files(copy) == {"a.txt": "one"}


async def test_e03_a_branch_of_a_project_works_in_the_same_folder(s: FileSessions, tmp_path: Path) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    session = await s.h.new_session(project=str(project))
    await s.turn(session, a_txt="one")
    copy = await s.h.engine.branch(OWNER, session.id, None, request())
    assert (await s.h.store.working_copies.get(OWNER, copy.id)).wanted is None
    assert copy.head is not None
    tree = await s.h.store.checkpoints.tree_at(OWNER, copy.id, At(copy.head))
    source = await s.h.store.checkpoints.last(OWNER, session.id)
    assert source is not None
    assert tree == source.tree
