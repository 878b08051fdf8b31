"""E02: undo, redo, select, clear, retry and edit carry the files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.checkpoints import At, Cause, Checkpoint
from everturn.domain.errors import BlobMissing, DiskFull, FilesConflict, JobsRunning, NothingToDo
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import JobEnding
from everturn.domain.probe import Moment, Probe
from everturn.domain.store_values import RetriedTurn
from everturn.domain.trees import hash_bytes
from everturn.domain.turns import TurnState
from everturn.domain.working_copies import ASK, FileChoices, FilesChoice, Move, MoveFiles
from everturn.store import Store
from everturn.testing.acting import new_job
from everturn.workspace import Compare, FilesSettings, Recorder, Versions
from everturn.workspace.restore import Restore
from everturn.workspace.thread_blobs import ThreadBlobs
from tests.file_sessions import OWNER, FileSessions, open_file_sessions, put_files, request, writing
from tests.trees import QuickDisk

pytestmark = pytest.mark.anyio
RESTORE, KEEP, BOTH = (
    FileChoices(choice) for choice in (FilesChoice.RESTORE, FilesChoice.KEEP, FilesChoice.BOTH)
)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everturn.workspace.restore.DiskSync", QuickDisk)


@pytest.fixture
async def s(store: Store, tmp_path: Path) -> AsyncIterator[FileSessions]:
    async with open_file_sessions(store, tmp_path) as sessions:
        yield sessions


async def test_e02_undo_and_redo_carry_the_files(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two", b_txt="new")
    await engine.undo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "one"}
    await engine.undo(OWNER, session.id, request())
    assert s.files(session) == {}
    await engine.redo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "one"}
    await engine.redo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "two", "b.txt": "new"}
    done = await s.restored(session)
    assert [event.changes_total for event in done] == [2, 1, 1, 2]
    assert {change.path: change.what for change in done[0].changes} == {
        "a.txt": "changed",
        "b.txt": "deleted",
    }


async def test_e02_undoing_a_turn_that_changed_nothing_leaves_the_files_alone(s: FileSessions) -> None:
    session = await s.h.new_session()
    await s.turn(session, a_txt="one")
    await s.turn(session)
    put_files(s.folder(session), {"a.txt": "mine"})
    await s.h.engine.undo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "mine"}
    assert await s.restored(session) == []


async def test_e02_files_do_not_move_while_a_job_works_in_their_folder(s: FileSessions) -> None:
    session, engine, jobs = await s.h.new_session(), s.h.engine, s.h.store.jobs
    for text in ("one", "two", "three"):
        await s.turn(session, a_txt=text)
    new = new_job(when_ended=WhenEnded.RECORD)
    job = await jobs.add(OWNER, session.id, new, running_max=1)
    with pytest.raises(JobsRunning) as refused:
        await engine.undo(OWNER, session.id, request())
    assert refused.value.facts["jobs"] == [job.id]
    await engine.undo(OWNER, session.id, request(), KEEP)
    assert s.files(session) == {"a.txt": "three"}
    await jobs.end(job.id, JobEnding(JobState.ENDED, 0))
    await engine.undo(OWNER, session.id, request(), RESTORE)
    assert s.files(session) == {"a.txt": "one"}


async def test_e02_a_users_changes_are_a_conflict_before_anything_moves(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    turn = await s.turn(session, a_txt="one")
    put_files(s.folder(session), {"a.txt": "mine", "notes.txt": "mine too"})
    with pytest.raises(FilesConflict) as refused:
        await engine.undo(OWNER, session.id, request())
    conflicts = {one.path: one.what for one in refused.value.facts["conflicts"]}
    assert conflicts == {"a.txt": "added", "notes.txt": "added"}
    assert (await s.h.store.sessions.get(OWNER, session.id)).head == turn.id
    assert s.files(session) == {"a.txt": "mine", "notes.txt": "mine too"}
    assert await s.restored(session) == []


async def test_e02_what_a_user_saved_is_a_conflict_too(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    recorder = Recorder(s.h.store, s.home / "indexes", FilesSettings())
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    for name in ("a.txt", "notes.txt"):
        put_files(s.folder(session), {name: "mine"})
        assert await recorder.save(session, s.folder(session)) is not None
    with pytest.raises(FilesConflict) as refused:
        await engine.undo(OWNER, session.id, request())
    assert [one.path for one in refused.value.facts["conflicts"]] == ["a.txt", "notes.txt"]
    await engine.undo(
        OWNER,
        session.id,
        request(),
        FileChoices(None, {"a.txt": FilesChoice.RESTORE, "notes.txt": FilesChoice.KEEP}),
    )
    assert s.files(session) == {"a.txt": "one", "notes.txt": "mine"}


@pytest.mark.parametrize(
    ("choices", "files"),
    [
        (RESTORE, {"a.txt": "one"}),
        (KEEP, {"a.txt": "mine", "b.txt": "two", "notes.txt": "mine too"}),
        (BOTH, {"a.txt": "one", "a (mine).txt": "mine", "notes (mine).txt": "mine too"}),
        (
            FileChoices(None, {"a.txt": FilesChoice.BOTH, "notes.txt": FilesChoice.KEEP}),
            {"a.txt": "one", "a (mine).txt": "mine", "notes.txt": "mine too"},
        ),
        (
            FileChoices(FilesChoice.RESTORE, {"a.txt": FilesChoice.KEEP}),
            {"a.txt": "mine"},
        ),
    ],
    ids=["restore", "keep", "both", "by path", "restore but one"],
)
async def test_e02_the_caller_says_what_to_do_with_changed_files(
    s: FileSessions, choices: FileChoices, files: dict[str, str]
) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two", b_txt="two")
    put_files(s.folder(session), {"a.txt": "mine", "notes.txt": "mine too"})
    await engine.undo(OWNER, session.id, request(), choices)
    assert s.files(session) == files
    await engine.redo(OWNER, session.id, request(), RESTORE)
    expected = {"a.txt": "mine", "b.txt": "two", "notes.txt": "mine too"}
    assert s.files(session) == expected, "what was there before the undo was stored"


async def test_e02_redo_after_keeping_both_asks_about_nothing(s: FileSessions) -> None:
    """The copies hold what redo brings back under the old names. One that was changed since is asked about."""
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two", b_txt="two")
    before = {"a.txt": "mine", "b.txt": "two", "notes": "mine too"}
    put_files(s.folder(session), before)
    await engine.undo(OWNER, session.id, request(), BOTH)
    assert s.files(session) == {"a.txt": "one", "a (mine).txt": "mine", "notes (mine)": "mine too"}
    await engine.redo(OWNER, session.id, request())
    assert s.files(session) == before
    await engine.undo(OWNER, session.id, request(), BOTH)
    put_files(s.folder(session), {"a (mine).txt": "changed"})
    with pytest.raises(FilesConflict) as refused:
        await engine.redo(OWNER, session.id, request())
    assert [one.path for one in refused.value.facts["conflicts"]] == ["a (mine).txt"]


async def test_e02_a_file_that_is_as_wanted_is_no_conflict(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two", b_txt="two")
    put_files(s.folder(session), {"a.txt": "one", "b.txt": None})
    await engine.undo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "one"}


async def test_e02_a_repeated_request_moves_once(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    first = await engine.undo(OWNER, session.id, request("key"))
    put_files(s.folder(session), {"a.txt": "mine"})
    assert await engine.undo(OWNER, session.id, request("key")) == first
    assert s.files(session) == {"a.txt": "mine"}
    assert len(await s.restored(session)) == 1


async def test_e02_clear_keeps_the_files_unless_asked(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, b_txt="two")
    await engine.clear(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "one", "b.txt": "two"}
    await engine.redo(OWNER, session.id, request())
    await engine.clear(OWNER, session.id, request(), RESTORE)
    assert s.files(session) == {}
    await engine.redo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "one", "b.txt": "two"}


async def test_e02_undo_after_a_clear_that_kept_the_files_keeps_them_too(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await engine.clear(OWNER, session.id, request())
    await s.turn(session, b_txt="two")
    await engine.undo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "one"}


async def test_e02_retry_restores_when_its_turn_is_claimed_and_select_brings_each_version_back(
    s: FileSessions,
) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    first = await s.turn(session, a_txt="two", b_txt="two")
    s.h.model.add(writing(c_txt="three"), "done")
    accepted = await engine.retry(OWNER, session.id, RetriedTurn(), request())
    second = await s.h.settled(accepted.turn.id)
    assert s.files(session) == {"a.txt": "one", "c.txt": "three"}
    await engine.select(OWNER, session.id, first.id, request())
    assert s.files(session) == {"a.txt": "two", "b.txt": "two"}
    await engine.select(OWNER, session.id, second.id, request())
    assert s.files(session) == {"a.txt": "one", "c.txt": "three"}


async def test_e02_a_retry_that_is_cancelled_before_it_begins_takes_the_files_along(s: FileSessions) -> None:
    """The transcript ends with it, so the files are those from before the turn that it replaces."""
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    accepted = await engine.moves.retry(OWNER, session.id, RetriedTurn(), request(), ASK)
    cancelled = await engine.cancel(OWNER, accepted.turn.id)
    assert cancelled.state is TurnState.CANCELLED
    assert (await s.h.store.sessions.get(OWNER, session.id)).head == accepted.turn.id
    assert s.files(session) == {"a.txt": "one"}


async def test_e02_a_retry_over_changed_files_is_refused_and_can_be_told_what_to_do(s: FileSessions) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    first = await s.turn(session, a_txt="one")
    put_files(s.folder(session), {"a.txt": "mine"})
    with pytest.raises(FilesConflict):
        await engine.retry(OWNER, session.id, RetriedTurn(), request())
    s.h.model.add("done")
    accepted = await engine.retry(OWNER, session.id, RetriedTurn(text="again"), request(), BOTH)
    await s.h.settled(accepted.turn.id)
    assert s.files(session) == {"a (mine).txt": "mine"}
    await engine.select(OWNER, session.id, first.id, request(), RESTORE)
    assert s.files(session) == {"a.txt": "mine"}


async def test_e02_a_project_keeps_its_files(s: FileSessions, tmp_path: Path) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    session = await s.h.new_session(project=str(project))
    await s.turn(session, a_txt="one")
    assert await s.h.engine.moves.plan(OWNER, session.id, Move.UNDO, None) is None
    await s.h.engine.undo(OWNER, session.id, request())
    assert (project / "a.txt").read_text() == "one"


async def test_e02_paths_that_checkpoints_leave_out_are_never_touched(s: FileSessions) -> None:
    session = await s.h.new_session()
    await s.turn(session, a_txt="one")
    put_files(s.folder(session), {"node_modules/x.js": "installed", "deep/node_modules/y.js": "installed"})
    await s.turn(session, a_txt="two")
    await s.h.engine.undo(OWNER, session.id, request(), RESTORE)
    await s.h.engine.undo(OWNER, session.id, request(), RESTORE)
    assert s.files(session) == {"node_modules/x.js": "installed", "deep/node_modules/y.js": "installed"}


async def test_e02_a_plan_shows_what_a_move_would_change(s: FileSessions) -> None:
    session, moves = await s.h.new_session(), s.h.engine.moves
    with pytest.raises(NothingToDo):
        await moves.plan(OWNER, session.id, Move.UNDO, None)
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two", b_txt="two")
    put_files(s.folder(session), {"b.txt": "mine"})
    shown = await moves.plan(OWNER, session.id, Move.UNDO, None)
    assert shown is not None
    assert {one.path: one.what for one in shown.plan.restores.changed} == {
        "a.txt": "changed",
        "b.txt": "deleted",
    }
    assert (shown.plan.restores.changed_total, [one.path for one in shown.conflicts]) == (2, ["b.txt"])
    again = await moves.plan(OWNER, session.id, Move.UNDO, None)
    assert again is not None
    assert again.digest == shown.digest
    put_files(s.folder(session), {"b.txt": "mine again"})
    later = await moves.plan(OWNER, session.id, Move.UNDO, None)
    assert later is not None
    assert later.digest != shown.digest


class Killed(BaseException):
    """The process ends here."""


class KillingProbe(Probe):
    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    async def reach(self, moment: Moment, subject: str = "") -> None:
        if moment is self._moment:
            raise Killed


async def _prepared(s: FileSessions) -> Any:
    session = await s.h.new_session()
    await s.turn(session, a_txt="one", z_txt="one")
    await s.turn(session, a_txt="two", b_txt="two", z_txt=None)
    put_files(s.folder(session), {"a.txt": "mine"})
    return session


AFTER = {"a.txt": "one", "a (mine).txt": "mine", "z.txt": "one"}


async def test_e02_killed_before_the_move_nothing_has_changed(store: Store, tmp_path: Path) -> None:
    probe = KillingProbe(Moment.FILES_PLANNED)
    async with open_file_sessions(store, tmp_path, crashes=True, probe=probe) as s:
        session = await _prepared(s)
        with pytest.raises(Killed):
            await s.h.engine.undo(OWNER, session.id, request("key"), BOTH)
        assert s.files(session) == {"a.txt": "mine", "b.txt": "two"}
    async with open_file_sessions(store, tmp_path) as s:
        await s.h.engine.undo(OWNER, session.id, request("key"), BOTH)
        assert s.files(session) == AFTER


@pytest.mark.parametrize("is_claimed", [False, True], ids=["start", "claim"])
@pytest.mark.parametrize("calls", [1, 2, 3, 4, 0], ids=lambda calls: f"call {calls}" if calls else "restored")
async def test_e02_killed_while_restoring_the_next_start_or_claim_finishes_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, is_claimed: bool
) -> None:
    """Killed before the n-th file is removed or renamed, or before the row says that all is there."""
    probe = KillingProbe(Moment.FILES_RESTORED)
    async with open_file_sessions(store, tmp_path, crashes=True, probe=probe) as s:
        session = await _prepared(s)
        with monkeypatch.context() as patched:
            if calls:
                _kill_at(patched, calls)
            with pytest.raises(Killed):
                await s.h.engine.undo(OWNER, session.id, request("key"), BOTH)
    assert (await store.working_copies.get(OWNER, session.id)).wanted is not None
    async with open_file_sessions(store, tmp_path) as s:
        if is_claimed:
            await s.turn(session, c_txt="three")
            assert s.files(session) == {**AFTER, "c.txt": "three"}
        await s.h.seen(session, "files.restored")
        await s.h.engine.undo(OWNER, session.id, request("key"))
        assert s.files(session) == {**AFTER, **({"c.txt": "three"} if is_claimed else {})}
        (done,) = await s.restored(session)
        assert done.changes_total == 3
        assert (await store.working_copies.get(OWNER, session.id)).wanted is None


def _kill_at(patched: pytest.MonkeyPatch, calls: int) -> None:
    left = calls

    def counted(name: str) -> Any:
        real = getattr(os, name)

        def act(path: Any, *args: Any, **keywords: Any) -> Any:
            nonlocal left
            if "dir_fd" in keywords or "src_dir_fd" in keywords:
                left -= 1
                if left == 0:
                    raise Killed
            return real(path, *args, **keywords)

        return act

    for name in ("unlink", "rename"):
        patched.setattr(os, name, counted(name))


async def test_e02_what_is_changed_after_a_crash_is_kept_and_named(store: Store, tmp_path: Path) -> None:
    probe = KillingProbe(Moment.MOVE_WRITTEN)
    async with open_file_sessions(store, tmp_path, crashes=True, probe=probe) as s:
        session = await s.h.new_session()
        await s.turn(session, a_txt="one")
        await s.turn(session, a_txt="two", b_txt="two")
        shown = await s.h.engine.moves.plan(OWNER, session.id, Move.UNDO, None)
        assert shown is not None
        await store.transcript.undo(OWNER, session.id, request(), files=MoveFiles(shown.plan))
        put_files(s.folder(session), {"a.txt": "mine"})
    async with open_file_sessions(store, tmp_path) as s:
        await s.h.seen(session, "files.restored")
        assert s.files(session) == {"a.txt": "mine"}
        (done,) = await s.restored(session)
        assert [(one.path, one.why) for one in done.kept] == [("a.txt", "it was changed meanwhile")]


async def test_e02_a_full_disk_stops_out_loud_and_the_turn_can_be_resumed(
    s: FileSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "a.txt")

    with monkeypatch.context() as patched:
        patched.setattr(Restore, "run", full)
        with pytest.raises(DiskFull, match=r"a\.txt"):
            await engine.undo(OWNER, session.id, request("key"))
        assert (await s.h.store.working_copies.get(OWNER, session.id)).wanted is not None
        turn = await s.h.run(session)
        assert (turn.state, turn.failure and turn.failure.code) == (TurnState.INTERRUPTED, "disk_full")
        assert s.files(session) == {"a.txt": "two"}
    s.h.model.add("done")
    await engine.resume(OWNER, turn.id)
    with anyio.fail_after(60):
        while (await s.h.turn(turn.id)).state is not TurnState.COMPLETED:
            await s.h.settled(turn.id)
            await anyio.sleep(0.01)
    assert s.files(session) == {"a.txt": "one"}


def damage(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """From now on the stored bytes of this text cannot be read."""
    lost, fetch, fetch_small = hash_bytes(text.encode()), ThreadBlobs.fetch, ThreadBlobs.fetch_small

    def fetch_others(blobs: ThreadBlobs, sha256: str) -> Iterator[bytes]:
        if sha256 == lost:
            raise BlobMissing(lost)
        return fetch(blobs, sha256)

    def fetch_small_others(blobs: ThreadBlobs, hashes: Sequence[str]) -> dict[str, bytes]:
        return fetch_small(blobs, [sha256 for sha256 in hashes if sha256 != lost])

    monkeypatch.setattr(ThreadBlobs, "fetch_small", fetch_small_others)
    monkeypatch.setattr(ThreadBlobs, "fetch", fetch_others)


async def versions(s: FileSessions, session: Any, path: str) -> list[tuple[Cause, str | None]]:
    """Newest first: why there is a version of the file, and its hash."""

    async def newest_first() -> AsyncIterator[Checkpoint]:
        for made in await s.h.store.checkpoints.of_session(OWNER, session.id):
            yield made

    found = await Compare(Versions(s.h.store.blobs)).history(newest_first(), path)
    return [(version.cause, version.sha256) for version in found.versions]


async def test_e02_a_file_whose_bytes_are_damaged_gets_no_restored_version(
    s: FileSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, moves = await s.h.new_session(), s.h.engine.moves
    first = await s.turn(session, a_txt="one", b_txt="one and b")
    await s.turn(session, a_txt="two", b_txt="two and b")
    before = await versions(s, session, "a.txt")
    damage(monkeypatch, "one")
    tree = await s.h.store.checkpoints.tree_at(OWNER, session.id, At(first.id))
    plan = await s.h.engine.restorer.plan_restore(await s.h.store.sessions.get(OWNER, session.id), tree)
    done = await moves.restore(OWNER, session.id, plan)
    assert [kept.path for kept in done.kept] == ["a.txt"]
    assert s.files(session) == {"a.txt": "two", "b.txt": "one and b"}
    assert await versions(s, session, "a.txt") == before
    assert (await versions(s, session, "b.txt"))[0][0] is Cause.RESTORED
    await s.turn(session, c_txt="three")
    causes = [made.cause for made in await s.h.store.checkpoints.of_session(OWNER, session.id)]
    assert Cause.FOUND not in causes, "nothing was changed outside"


async def test_e02_a_file_that_an_undo_cannot_restore_does_not_look_changed_outside(
    s: FileSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await s.h.new_session()
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    damage(monkeypatch, "one")
    await s.h.engine.undo(OWNER, session.id, request())
    assert s.files(session) == {"a.txt": "two"}
    await s.turn(session, c_txt="three")
    causes = [made.cause for made in await s.h.store.checkpoints.of_session(OWNER, session.id)]
    assert Cause.FOUND not in causes


async def test_e02_undo_and_redo_list_no_changes_from_outside(s: FileSessions) -> None:
    """Keep both puts a copy beside the file; the next move finds it and records it."""
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    put_files(s.folder(session), {"a.txt": "mine"})
    for _ in range(2):
        await engine.undo(OWNER, session.id, request(), BOTH)
        await engine.redo(OWNER, session.id, request(), BOTH)
    assert [cause for cause, _ in await versions(s, session, "a.txt")] == [
        Cause.FOUND,
        Cause.CALL,
        Cause.CALL,
    ]
    assert [cause for cause, _ in await versions(s, session, "a (mine).txt")] == [Cause.RESTORED]


async def test_e02_a_saved_file_that_an_undo_kept_is_no_new_version(s: FileSessions) -> None:
    """The move back finds it in the folder once more, with the same bytes."""
    session, engine = await s.h.new_session(), s.h.engine
    await s.turn(session, a_txt="one")
    await s.turn(session, a_txt="two")
    put_files(s.folder(session), {"a.txt": "mine"})
    await Recorder(s.h.store, s.home / "indexes", FilesSettings()).save(session, s.folder(session))
    await engine.undo(OWNER, session.id, request(), FileChoices(None, {"a.txt": FilesChoice.KEEP}))
    assert s.files(session) == {"a.txt": "mine"}
    await engine.redo(OWNER, session.id, request())
    causes = [cause for cause, _ in await versions(s, session, "a.txt")]
    assert causes == [Cause.SAVED, Cause.CALL, Cause.CALL]
