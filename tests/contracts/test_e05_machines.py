"""E05, G01: a session that continues on another machine finds its files there, as they were last recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import DoubtAnswer
from everturn.domain.checkpoints import Cause, Checkpoint, NewSave
from everturn.domain.errors import DiskFull, WorkspaceUnreadable, WorkspaceUnwritable, WrongState
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.store_values import NO_REQUEST
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.trees import EMPTY_TREE, Reason
from everturn.domain.turns import TurnState
from everturn.domain.working_copies import FileChoices, FilesChoice
from everturn.engine import turn_workspace
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, FakeToolbox, HoldingProbe
from everturn.testing.checkpoints import CHANGES, files_in
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness
from everturn.workspace import Compare, FilesSettings, Recorder, Restorer, Versions, restore
from everturn.workspace.arrival import Arrival
from tests.conftest import OpenAnother

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("store_kind", ["postgresql"], indirect=True),
]


async def write(call: ToolCall, emit: Emit) -> ToolResult:
    path = call.workspace / str(call.arguments["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(call.arguments["text"]))
    return ToolResult("written")


async def read(call: ToolCall, emit: Emit) -> ToolResult:
    return ToolResult((call.workspace / str(call.arguments["path"])).read_text())


def writes(path: str, text: str) -> list[CallTool]:
    return [CallTool("write", {"path": path, "text": text})]


def reads(path: str) -> list[CallTool]:
    return [CallTool("read", {"path": path})]


class Server:
    """One machine: its store, and its own folder for the session's files."""

    def __init__(self, store: Store, home: Path, clock: Any, probe: HoldingProbe) -> None:
        self.store = store
        self.home = home
        self.folder = home / "workspace"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._probe = probe

        self.recorder = Recorder(store, home / "indexes", FilesSettings())

    @property
    def options(self) -> dict[str, Any]:
        tools = [FakeTool("write", write), FakeTool("read", read, reads_only=True, is_safe_to_repeat=True)]
        return {
            "toolbox": FakeToolbox(*tools, workspace=self.folder.resolve()),
            "recorder": self.recorder,
            "clock": self._clock,
            "probe": self._probe,
        }

    @asynccontextmanager
    async def run(self, *script: Any) -> AsyncIterator[Harness]:
        async with open_harness(self.store, *script, **self.options) as harness:
            yield harness

    @asynccontextmanager
    async def crash(self, *script: Any) -> AsyncIterator[Harness]:
        async with crashing_harness(self.store, *script, **self.options) as harness:
            yield harness

    @property
    def files(self) -> dict[str, str]:
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_text() for path in found}


@pytest.fixture
def here(store: Store, tmp_path: Path, clock: Any, probe: HoldingProbe) -> Server:
    return Server(store, tmp_path / "here", clock, probe)


@pytest.fixture
async def there(open_another: OpenAnother, tmp_path: Path, clock: Any, probe: HoldingProbe) -> Server:
    return Server(await open_another(data_dir=tmp_path / "there-data"), tmp_path / "there", clock, probe)


async def release_dead(open_another: OpenAnother, data_dir: Path) -> None:
    """Release the turns of the first machine's dead worker, as its restart or its lease would."""
    again = await open_another(data_dir=data_dir)
    await again.workers.register("wrk_again")
    assert await again.workers.take_over("wrk_again") == 1
    await again.workers.unregister("wrk_again")


async def is_on(server: Server, session: Session) -> bool:
    copy = await server.store.working_copies.get(OWNER, session.id)
    return server.store.machine.is_same(copy.machine)


async def payloads(h: Harness, session: Session, kind: type) -> list[Any]:
    return [event.payload for event in await h.events(session) if isinstance(event.payload, kind)]


async def history(store: Store, session: Session, path: str) -> list[str]:
    """The checkpoints with a version of the file."""

    async def newest_first() -> AsyncIterator[Checkpoint]:
        for made in await store.checkpoints.of_session(OWNER, session.id):
            yield made

    found = await Compare(Versions(store.blobs)).history(newest_first(), path)
    return [version.checkpoint for version in found.versions]


async def test_e05_a_session_finds_its_files_on_another_machine(here: Server, there: Server) -> None:
    """Also for a call that only reads, and it brings back what it changed."""
    async with here.run(writes("src/a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    async with there.run(reads("src/a.txt"), writes("b.txt", "two"), "done") as h:
        turn = await h.run(session)
        results = await payloads(h, session, ev.ToolFinished)
        (moved,) = await payloads(h, session, ev.FilesMoved)
    assert turn.state is TurnState.COMPLETED
    assert results[1].text.endswith("one")
    assert "continues on another machine" in results[1].text
    assert "continues on another machine" not in results[2].text, "the model is told once"
    assert (moved.files, moved.machine) == (1, there.store.machine.name)
    async with here.run(reads("b.txt"), "done") as h:
        turn = await h.run(session)
    assert turn.state is TurnState.COMPLETED
    assert here.files == there.files == {"src/a.txt": "one", "b.txt": "two"}


async def test_e05_a_turn_without_calls_moves_nothing(here: Server, there: Server) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    async with there.run("done") as h:
        await h.run(session)
    assert there.files == {}
    assert await is_on(here, session)


async def test_e05_a_turn_taken_over_continues_from_the_last_checkpoint(
    here: Server, there: Server, probe: HoldingProbe, open_another: OpenAnother, data_dir: Path
) -> None:
    """The second call was running when the first machine died: the question says where its changes are."""
    probe.hold(Moment.TOOL_RAN, nth=2)
    async with here.crash(writes("a.txt", "one"), writes("a.txt", "two")) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
    probe.release_all()
    await release_dead(open_another, data_dir)
    async with there.run(reads("a.txt"), "done") as h:
        await h.settled(accepted.turn.id)
        ask = await h.ask(session)
        assert there.files == {"a.txt": "one"}
        assert ask.files is not None
        assert (ask.files.is_elsewhere, ask.files.machine) == (True, here.store.machine.name)
        assert ask.files.before == ask.files.after
        assert DoubtAnswer.GO_BACK_AND_RUN not in ask.choices, "the files are as they were already"
        turn = await h.answer(session, DoubtAnswer.NOT_RUN)
        results = await payloads(h, session, ev.ToolFinished)
    assert turn.state is TurnState.COMPLETED
    assert "later changes there are not here" in results[1].text
    assert results[-1].text == "one"
    assert here.files == {"a.txt": "two"}, "nothing was rolled back on the first machine"


async def test_e05_later_changes_on_the_first_machine_are_stored_when_the_session_returns(
    here: Server, there: Server, probe: HoldingProbe, open_another: OpenAnother, data_dir: Path
) -> None:
    probe.hold(Moment.TOOL_RAN, nth=2)
    async with here.crash(writes("a.txt", "one"), writes("a.txt", "two")) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
    probe.release_all()
    await release_dead(open_another, data_dir)
    async with there.run(writes("b.txt", "b"), "done") as h:
        await h.settled(accepted.turn.id)
        await h.answer(session, DoubtAnswer.CHECK)
    async with here.run(reads("b.txt"), "done") as h:
        await h.run(session)
    assert here.files == {"a.txt": "one", "b.txt": "b"}
    back, found, *_ = await here.store.checkpoints.of_session(OWNER, session.id)
    assert (found.cause, back.cause) == (Cause.FOUND, Cause.RESTORED)
    assert await files_in(here.store, found.tree) == {"a.txt": b"two"}
    last = await here.store.checkpoints.last(OWNER, session.id)
    assert last is not None
    assert await files_in(here.store, last.tree) == {"a.txt": b"one", "b.txt": b"b"}
    assert [change.path for change in back.changes.changed] == ["a.txt", "b.txt"]
    assert found.id in await history(here.store, session, "a.txt"), "or nobody would find it"


async def test_e05_a_turn_that_comes_back_shows_what_its_call_left_on_the_first_machine(
    here: Server,
    there: Server,
    probe: HoldingProbe,
    open_another: OpenAnother,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second machine died before it could ask. The question no longer speaks of another machine."""
    probe.hold(Moment.TOOL_RAN, nth=2)
    async with here.crash(writes("a.txt", "one"), writes("a.txt", "two")) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
    probe.release_all()
    await release_dead(open_another, data_dir)
    is_asking = anyio.Event()

    async def never_asked(*args: Any, **more: Any) -> None:
        is_asking.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(there.store.turns, "wait", never_asked)
    async with there.crash() as h:
        await is_asking.wait()
    assert await is_on(there, session)
    await release_dead(open_another, tmp_path / "there-data")
    async with here.run("done") as h:
        await h.settled(accepted.turn.id)
        ask = await h.ask(session)
        assert ask.files is not None
        assert not ask.files.is_elsewhere
        assert [change.path for change in ask.files.changes] == ["a.txt"]
        await h.answer(session, DoubtAnswer.NOT_RUN)
        text = (await payloads(h, session, ev.ToolFinished))[-1].text
    assert here.files == {"a.txt": "one"}
    assert text.count("continues on another machine") == 1, "the way there is not told any more"
    assert "were stored first" in text
    found = await here.store.checkpoints.get(OWNER, session.id, ask.files.after)
    assert await files_in(here.store, found.tree) == {"a.txt": b"two"}


async def test_e05_instructions_are_those_of_the_files_that_come(here: Server, there: Server) -> None:
    """AGENTS.md is read when the turn begins, so the files come before that."""
    async with here.run(writes("AGENTS.md", "Be brief."), "done") as h:
        session = await h.new_session()
        await h.run(session)
    seen: list[bool] = []
    options = there.options
    instructions = options["toolbox"].instructions

    async def looked_for(owner: str, workspace: Path) -> Any:
        seen.append((workspace / "AGENTS.md").exists())
        return await instructions(owner, workspace)

    options["toolbox"].instructions = looked_for
    async with open_harness(there.store, "done", **options) as h:
        await h.run(session)
    assert seen
    assert all(seen)


async def test_e05_a_machine_that_dies_with_files_put_aside_begins_again(
    here: Server, there: Server, probe: HoldingProbe, open_another: OpenAnother, data_dir: Path
) -> None:
    """What was put aside is in the history once, and the files that come are those of the session."""
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    (here.folder / "mine.txt").write_text("not recorded")
    async with there.run(writes("a.txt", "two"), "done") as h:
        await h.run(session)
    probe.hold(Moment.FILES_PUT_ASIDE)
    async with here.crash(reads("a.txt")) as h:
        accepted = await h.send(session)
        await probe.reached(Moment.FILES_PUT_ASIDE)
    probe.release_all()
    assert here.files == {"a.txt": "one", "mine.txt": "not recorded"}
    assert await is_on(there, session)
    await release_dead(open_another, data_dir)
    async with here.run(reads("a.txt"), "done") as h:
        turn = await h.settled(accepted.turn.id)
        result = (await payloads(h, session, ev.ToolFinished))[-1]
    assert turn.state is TurnState.COMPLETED
    assert result.text.endswith("two")
    assert here.files == {"a.txt": "two"}
    made = await here.store.checkpoints.of_session(OWNER, session.id)
    assert [one.cause for one in made].count(Cause.FOUND) == 1
    assert len(await history(here.store, session, "mine.txt")) >= 1


async def test_e05_two_who_need_the_files_at_once_bring_them_once(
    here: Server, there: Server, probe: HoldingProbe
) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    saved: list[str] = []
    one_saved = anyio.Event()

    async def save(restorer: Restorer, name: str) -> None:
        async with restorer.hold(session) as folder:
            (folder / name).write_text(name)
            await there.recorder.save(session, folder)
            saved.append(name)
            one_saved.set()

    probe.hold(Moment.FILES_RESTORED)
    async with there.run() as h, anyio.create_task_group() as group:
        restorer = h.engine.restorer
        assert restorer is not None
        group.start_soon(save, restorer, "first")
        await probe.reached(Moment.FILES_RESTORED)
        group.start_soon(save, restorer, "second")
        with anyio.move_on_after(0.5):  # without the lock the second is done before the first
            await one_saved.wait()
        assert not saved
        probe.release_all()
    assert sorted(saved) == ["first", "second"]
    assert sorted(there.files) == ["a.txt", "first", "second"]
    assert await is_on(there, session)


async def test_e05_a_plan_waits_for_the_files_that_a_claim_brings(
    here: Server, there: Server, probe: HoldingProbe
) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    probe.hold(Moment.FILES_RESTORED)
    async with there.run(reads("a.txt"), "done") as h:
        accepted = await h.send(session)
        await probe.reached(Moment.FILES_RESTORED)
        planned = anyio.Event()

        async def plan() -> None:
            await h.engine.moves.plan_restore(OWNER, session.id, EMPTY_TREE, ())
            planned.set()

        async with anyio.create_task_group() as group:
            group.start_soon(plan)
            with anyio.move_on_after(0.5):  # without the lock the plan brings the files, too
                await planned.wait()
            assert not planned.is_set()
            probe.release_all()
        turn = await h.settled(accepted.turn.id)
        moved = await payloads(h, session, ev.FilesMoved)
    assert turn.state is TurnState.COMPLETED
    assert len(moved) == 1, "the turn was not released and claimed again"


async def test_e06_a_take_over_tells_the_model_what_is_missing(here: Server, there: Server) -> None:
    async with here.run(writes("a.txt", "one"), "done", writes("a.txt", "two"), "done") as h:
        session = await h.new_session()
        await h.run(session)
        (here.folder / "node_modules").mkdir()
        (here.folder / "node_modules" / "big.js").write_text("code")
        await h.run(session)
    async with there.run(reads("a.txt"), "done") as h:
        await h.run(session)
        result = (await payloads(h, session, ev.ToolFinished))[-1]
        (moved,) = await payloads(h, session, ev.FilesMoved)
    assert "'node_modules' (dependencies)" in result.text
    assert [(left.path, left.reason) for left in moved.left_out] == [("node_modules", Reason.DEPENDENCIES)]
    assert there.files == {"a.txt": "two"}


@pytest.mark.parametrize("moment", [Moment.FILES_RESTORED, Moment.TOOL_STARTED])
async def test_e05_a_machine_that_dies_while_the_files_come_begins_again(
    here: Server,
    there: Server,
    probe: HoldingProbe,
    open_another: OpenAnother,
    tmp_path: Path,
    moment: Moment,
) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    probe.hold(moment)
    async with there.crash(reads("a.txt")) as h:
        accepted = await h.send(session)
        await probe.reached(moment)
    probe.release_all()
    assert await is_on(there, session) == (moment is not Moment.FILES_RESTORED)
    await release_dead(open_another, tmp_path / "there-data")
    async with here.run(reads("a.txt"), "done") as h:
        turn = await h.settled(accepted.turn.id)
        result = (await payloads(h, session, ev.ToolFinished))[-1]
    assert turn.state is TurnState.COMPLETED
    assert result.text.endswith("one")
    assert here.files == {"a.txt": "one"}


async def test_e05_many_files_come_with_progress(
    here: Server, there: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_workspace, "REPORTED_FILES_MIN", 4)
    monkeypatch.setattr(restore, "_BATCH_FILES", 2)
    for number in range(5):
        (here.folder / f"{number}.txt").write_text(str(number))
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    async with there.run(reads("a.txt"), "done") as h:
        await h.run(session)
        seen = await payloads(h, session, ev.Progress)
    assert [(progress.done, progress.total) for progress in seen] == [(2, 6), (4, 6), (6, 6)]
    assert there.files == here.files


async def test_e05_a_folder_that_cannot_be_written_stops_the_turn_out_loud(
    here: Server, there: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restore, "_write_all", full)
    async with there.run(reads("a.txt"), "done") as h:
        turn = await h.run(session)
        assert turn.state is TurnState.INTERRUPTED
        assert turn.failure is not None
        assert turn.failure.code == WorkspaceUnwritable.code
        assert "No space left" in turn.failure.message
        assert len(await payloads(h, session, ev.ToolStarted)) == 1, "no call runs on files that are missing"
        monkeypatch.undo()
        await h.engine.resume(OWNER, turn.id)
        await h.seen(session, "turn.resumed")
        turn = await h.settled(turn.id)
    assert turn.state is TurnState.COMPLETED
    assert there.files == {"a.txt": "one"}


async def test_e05_files_that_were_recorded_meanwhile_do_not_move(here: Server, there: Server) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        turn = await h.run(session)
    checkpoints = there.store.checkpoints
    late = NewSave(after="chk_older", before=EMPTY_TREE, tree=EMPTY_TREE, changes=CHANGES)
    assert not await checkpoints.arrive(OWNER, session.id, "chk_older")
    assert await checkpoints.keep_aside(OWNER, session.id, late, CHANGES) is None
    assert await is_on(here, session)
    assert len(await here.store.checkpoints.of_turn(OWNER, turn.id)) == 1


async def test_e05_files_that_are_recorded_while_they_come_stay_where_they_were_recorded(
    here: Server, there: Server, probe: HoldingProbe
) -> None:
    async with here.run(writes("a.txt", "one"), "done") as h:
        session = await h.new_session()
        await h.run(session)
    refused: list[Exception] = []

    async def bring() -> None:
        try:
            await Arrival(there.store, there.recorder, probe).bring(session, there.folder)
        except WorkspaceUnreadable as error:
            refused.append(error)

    probe.hold(Moment.FILES_RESTORED)
    async with anyio.create_task_group() as group:
        group.start_soon(bring)
        await probe.reached(Moment.FILES_RESTORED)
        (here.folder / "b.txt").write_text("two")
        await here.recorder.save(session, here.folder)
        probe.release_all()
    assert ["elsewhere" in str(error) for error in refused] == [True]
    assert await is_on(here, session)
    await bring()  # again, as the next claim does
    assert there.files == {"a.txt": "one", "b.txt": "two"}
    assert await is_on(there, session)


async def test_e05_undo_on_another_machine_has_the_files_there_first(here: Server, there: Server) -> None:
    """Otherwise what is not there would look as if the user had deleted it."""
    async with here.run(writes("a.txt", "one"), "done", writes("b.txt", "two"), "done") as h:
        session = await h.new_session()
        await h.run(session)
        await h.run(session)
    async with there.run() as h:
        await h.engine.undo(OWNER, session.id, NO_REQUEST)
        assert there.files == {"a.txt": "one"}
    async with here.run(reads("a.txt"), "done") as h:
        await h.run(session)
    assert here.files == {"a.txt": "one"}


async def test_e05_an_undo_that_one_machine_could_not_finish_is_finished_on_another(
    here: Server, there: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with here.run(writes("a.txt", "one"), "done", writes("b.txt", "two"), "done") as h:
        session = await h.new_session()
        await h.run(session)
        await h.run(session)

    async def full(*_: object) -> None:
        raise DiskFull("The disk is full.")

    monkeypatch.setattr(Restorer, "finish", full)
    async with here.run() as h:
        with pytest.raises(DiskFull):
            await h.engine.undo(OWNER, session.id, NO_REQUEST)
    monkeypatch.undo()
    assert (await here.store.working_copies.get(OWNER, session.id)).wanted is not None
    async with there.run(reads("a.txt"), "done") as h:
        await h.run(session)
    assert there.files == {"a.txt": "one"}
    assert (await there.store.working_copies.get(OWNER, session.id)).wanted is None
    assert await is_on(there, session)


async def test_e05_what_the_user_kept_in_an_unfinished_undo_is_kept_on_another_machine(
    here: Server, there: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with here.run(writes("a.txt", "one"), "done", writes("a.txt", "two"), "done") as h:
        session = await h.new_session()
        await h.run(session)
        await h.run(session)
    (here.folder / "a.txt").write_text("mine")

    async def full(*_: object) -> None:
        raise DiskFull("The disk is full.")

    monkeypatch.setattr(Restorer, "finish", full)
    async with here.run() as h:
        with pytest.raises(DiskFull):
            choices = FileChoices(paths={"a.txt": FilesChoice.KEEP})
            await h.engine.undo(OWNER, session.id, NO_REQUEST, choices)
    monkeypatch.undo()
    async with there.run(reads("a.txt"), "done") as h:
        await h.run(session)
    assert there.files == {"a.txt": "mine"}


async def test_e06_files_of_a_project_are_not_restored_on_another_machine(
    here: Server, there: Server
) -> None:
    """There, a folder with the same name is another one."""
    async with here.run(writes("a.txt", "one"), "done", writes("a.txt", "two"), "done") as h:
        session = await h.new_session(project=str(here.folder))
        await h.run(session)
        await h.run(session)
        known = await here.store.checkpoints.of_session(OWNER, session.id)
    (there.folder / "a.txt").write_text("another one")
    async with there.run() as h:
        with pytest.raises(WrongState, match="The project folder of this session is on another machine"):
            await h.engine.moves.plan_restore(OWNER, session.id, known[-1].tree, ())
    assert there.files == {"a.txt": "another one"}
    assert await there.store.checkpoints.of_session(OWNER, session.id) == known
