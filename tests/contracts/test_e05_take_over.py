"""E05: a turn that is taken over on the same machine finds the folder as it is, and the user decides about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import DoubtAnswer
from everturn.domain.checkpoints import Cause, ChangeKind, Checkpoint
from everturn.domain.errors import Invalid
from everturn.domain.messages import Outcome
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.store_values import Request
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.turns import TurnState
from everturn.domain.working_copies import FileChoices
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, FakeToolbox, HoldingProbe
from everturn.testing.checkpoints import files_in
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness
from everturn.workspace import FilesSettings, Recorder

pytestmark = pytest.mark.anyio
APPEND = CallTool("append", {"path": "log.txt", "text": "x"})


async def append(call: ToolCall, emit: Emit) -> ToolResult:
    with (call.workspace / str(call.arguments["path"])).open("a") as file:
        file.write(str(call.arguments["text"]))
    return ToolResult("appended")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = (tmp_path / "workspace").resolve()
    folder.mkdir()
    return folder


@pytest.fixture
def options(store: Store, workspace: Path, tmp_path: Path, clock: Any) -> dict[str, Any]:
    return {
        "toolbox": FakeToolbox(FakeTool("append", append), FakeTool("idle"), workspace=workspace),
        "recorder": Recorder(store, tmp_path / "indexes", FilesSettings()),
        "clock": clock,
    }


class Doubt:
    """A turn whose second call was running when its worker died: ``log.txt`` held "a", then "ax"."""

    def __init__(self, harness: Harness, session: Session, turn_id: str) -> None:
        self.harness = harness
        self.session = session
        self.turn_id = turn_id

    async def payloads(self, kind: type) -> list[Any]:
        found = [event.payload for event in await self.harness.events(self.session)]
        return [payload for payload in found if isinstance(payload, kind)]

    async def checkpoints(self) -> list[Checkpoint]:
        return list(await self.harness.store.checkpoints.of_turn(OWNER, self.turn_id))


@asynccontextmanager
async def in_doubt(
    store: Store,
    probe: HoldingProbe,
    options: dict[str, Any],
    moment: Moment = Moment.TOOL_RAN,
    **session: Any,
) -> AsyncIterator[Doubt]:
    first = CallTool("append", {"path": "log.txt", "text": "a"})
    probe.hold(moment, nth=2)
    async with crashing_harness(store, [first], [APPEND], probe=probe, **options) as h:
        opened = await h.new_session(**session)
        accepted = await h.send(opened)
        await probe.reached(moment)
    probe.release_all()
    async with open_harness(store, "done", probe=probe, **options) as h:
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.WAITING
        yield Doubt(h, opened, turn.id)


@pytest.mark.parametrize("moment", [Moment.TOOL_RAN, Moment.CHECKPOINT_COMMITTED])
async def test_e05_the_question_shows_what_the_call_in_doubt_changed(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path, moment: Moment
) -> None:
    """Killed before and after the checkpoint of the call: the user sees the same."""
    async with in_doubt(store, probe, options, moment) as doubt:
        ask = await doubt.harness.ask(doubt.session)
        assert (workspace / "log.txt").read_text() == "ax", "nothing is rolled back before an answer"
        (asked,) = await doubt.payloads(ev.QuestionAsked)
        first, second = await doubt.checkpoints()
    assert ask.files is not None
    assert asked.files == ask.files
    assert [(change.path, change.what) for change in ask.files.changes] == [("log.txt", ChangeKind.CHANGED)]
    assert (ask.files.before, ask.files.after, ask.files.changes_total) == (first.id, second.id, 1)
    assert not ask.files.is_elsewhere
    assert set(ask.choices) == set(DoubtAnswer)
    assert second.cause is (Cause.FOUND if moment is Moment.TOOL_RAN else Cause.CALL)
    assert await files_in(store, second.tree) == {"log.txt": b"ax"}


async def test_e05_what_was_found_is_in_the_journal_and_told_to_the_model(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path
) -> None:
    async with in_doubt(store, probe, options) as doubt:
        changed = (await doubt.payloads(ev.FilesChanged))[-1]
        turn = await doubt.harness.answer(doubt.session, DoubtAnswer.CHECK)
        (_, result) = await doubt.payloads(ev.ToolFinished)
        told = str(doubt.harness.model.requests[-1].messages[-1].parts[0])
    assert turn.state is TurnState.COMPLETED
    assert (changed.call_id, changed.changes[0].path) == (None, "log.txt")
    assert result.outcome is Outcome.UNKNOWN
    assert "'log.txt' (changed)" in result.text
    assert "'log.txt' (changed)" in told
    assert result.is_untrusted, "a file can have any name"
    assert (workspace / "log.txt").read_text() == "ax"


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (DoubtAnswer.CHECK, "ax"),
        (DoubtAnswer.TAKE_AS_DONE, "ax"),
        (DoubtAnswer.RUN_AGAIN, "axx"),
        (DoubtAnswer.GO_BACK_AND_RUN, "ax"),
        (DoubtAnswer.NOT_RUN, "a"),
    ],
)
async def test_e05_the_answer_decides_about_the_files(
    store: Store,
    probe: HoldingProbe,
    options: dict[str, Any],
    workspace: Path,
    answer: DoubtAnswer,
    left: str,
) -> None:
    async with in_doubt(store, probe, options) as doubt:
        turn = await doubt.harness.answer(doubt.session, answer)
        result = (await doubt.payloads(ev.ToolFinished))[-1]
        made = await doubt.checkpoints()
    assert turn.state is TurnState.COMPLETED
    assert (workspace / "log.txt").read_text() == left
    assert await files_in(store, made[-1].tree) == {"log.txt": left.encode()}
    assert (Cause.RESTORED in [row.cause for row in made]) == (
        answer in ("go back and run again", "treat it as not run")
    )
    assert await files_in(store, made[1].tree) == {"log.txt": b"ax"}, "what was there is kept in the store"
    if answer is DoubtAnswer.NOT_RUN:
        assert result.outcome is Outcome.CANCELLED
        assert "treated as not run" in result.text


@pytest.mark.parametrize("answer", [DoubtAnswer.CHECK, DoubtAnswer.TAKE_AS_DONE])
async def test_e05_e02_what_a_take_over_found_is_undone_as_the_work_of_the_turn(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path, answer: DoubtAnswer
) -> None:
    """No call reported it, but a user did not do it either: there is no conflict to ask about."""
    async with in_doubt(store, probe, options) as doubt:
        await doubt.harness.answer(doubt.session, answer)
        assert (workspace / "log.txt").read_text() == "ax"
        engine = doubt.harness.engine
        await engine.undo(OWNER, doubt.session.id, Request(), FileChoices())
        assert list(workspace.iterdir()) == []
        await engine.redo(OWNER, doubt.session.id, Request(), FileChoices())
        assert (workspace / "log.txt").read_text() == "ax"


async def test_e05_what_a_user_changes_before_answering_is_stored_before_going_back(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path
) -> None:
    async with in_doubt(store, probe, options) as doubt:
        (workspace / "mine.txt").write_text("by hand")
        await doubt.harness.answer(doubt.session, DoubtAnswer.NOT_RUN)
        made = await doubt.checkpoints()
    assert {path.name for path in workspace.iterdir()} == {"log.txt"}
    assert await files_in(store, made[-2].tree) == {"log.txt": b"ax", "mine.txt": b"by hand"}
    assert await files_in(store, made[-1].tree) == {"log.txt": b"a"}


async def test_e05_a_plan_waits_while_a_turn_goes_back(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path
) -> None:
    """Otherwise it would count the files from before the call as a user's changes."""
    async with in_doubt(store, probe, options) as doubt:
        h, planned = doubt.harness, anyio.Event()
        probe.hold(Moment.FILES_RESTORED)
        ask = await h.ask(doubt.session)
        await h.engine.answer(OWNER, ask.id, DoubtAnswer.NOT_RUN, by=OWNER)
        await probe.reached(Moment.FILES_RESTORED)

        async def plan() -> None:
            shown = await h.engine.moves.plan_restore(OWNER, doubt.session.id, EMPTY_TREE, ())
            assert shown is not None
            assert not shown.conflicts
            planned.set()

        async with anyio.create_task_group() as group:
            group.start_soon(plan)
            with anyio.move_on_after(0.5):
                await planned.wait()
            assert not planned.is_set()
            probe.release_all()
        assert (await h.settled(doubt.turn_id)).state is TurnState.COMPLETED
    assert (workspace / "log.txt").read_text() == "a"


async def test_e05_going_back_before_any_checkpoint_empties_the_folder(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path
) -> None:
    probe.hold(Moment.TOOL_RAN)
    async with crashing_harness(store, [APPEND], probe=probe, **options) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
    probe.release_all()
    async with open_harness(store, "done", **options) as h:
        await h.settled(accepted.turn.id)
        ask = await h.ask(session)
        assert ask.files is not None
        assert ask.files.before == "start"
        await h.answer(session, DoubtAnswer.NOT_RUN)
    assert list(workspace.iterdir()) == []


async def test_e05_a_call_that_changed_nothing_says_so(
    store: Store, probe: HoldingProbe, options: dict[str, Any]
) -> None:
    probe.hold(Moment.TOOL_RAN)
    async with crashing_harness(store, [CallTool("idle")], probe=probe, **options) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
    probe.release_all()
    async with open_harness(store, "done", **options) as h:
        await h.settled(accepted.turn.id)
        ask = await h.ask(session)
        assert ask.files is not None
        assert (ask.files.before, ask.files.changes_total) == (ask.files.after, 0)
        assert DoubtAnswer.GO_BACK_AND_RUN not in ask.choices
        turn = await h.answer(session, DoubtAnswer.NOT_RUN)
    assert turn.state is TurnState.COMPLETED


@pytest.mark.parametrize("moment", [Moment.FILES_RESTORED, Moment.CHECKPOINT_COMMITTED, Moment.TOOL_STARTED])
async def test_e05_going_back_survives_a_crash(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path, moment: Moment
) -> None:
    """Killed after the files came back, after their row, and once the call had started again."""
    async with in_doubt(store, probe, options) as doubt:
        session = doubt.session
        ask = await doubt.harness.ask(session)
    async with crashing_harness(store, probe=probe, **options) as h:
        probe.hold(moment)
        await h.engine.answer(OWNER, ask.id, DoubtAnswer.GO_BACK_AND_RUN, by=OWNER)
        await probe.reached(moment)
    probe.release_all()
    async with open_harness(store, "done", **options) as h:
        turn = await h.settled(ask.turn_id)
        if moment is Moment.TOOL_STARTED:
            assert turn.state is TurnState.WAITING, "it is in doubt once more, and has changed nothing"
            turn = await h.answer(session, DoubtAnswer.RUN_AGAIN)
        assert turn.state is TurnState.COMPLETED
    assert (workspace / "log.txt").read_text() == "ax"


async def test_e05_the_question_is_the_same_if_its_worker_died_before_it_was_asked(
    store: Store, probe: HoldingProbe, options: dict[str, Any]
) -> None:
    """The first look was stored and its worker died: the changes still count as made since the call began."""
    probe.hold(Moment.TOOL_RAN)
    async with crashing_harness(store, [APPEND], probe=probe, **options) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
    probe.release_all()
    probe.hold(Moment.CHECKPOINT_COMMITTED)
    async with crashing_harness(store, probe=probe, **options):
        await probe.reached(Moment.CHECKPOINT_COMMITTED)
    probe.release_all()
    async with open_harness(store, "done", **options) as h:
        await h.settled(accepted.turn.id)
        ask = await h.ask(session)
    assert ask.files is not None
    assert [change.path for change in ask.files.changes] == ["log.txt"]


async def test_e05_a_projects_folder_is_shown_and_never_restored(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path
) -> None:
    async with in_doubt(store, probe, options, Moment.TOOL_RAN, project=str(workspace)) as doubt:
        ask = await doubt.harness.ask(doubt.session)
        assert ask.files is not None
        assert [change.path for change in ask.files.changes] == ["log.txt"]
        assert set(ask.choices) == {DoubtAnswer.CHECK, DoubtAnswer.RUN_AGAIN, DoubtAnswer.TAKE_AS_DONE}
        with pytest.raises(Invalid):
            await doubt.harness.engine.answer(OWNER, ask.id, DoubtAnswer.NOT_RUN, by=OWNER)
        await doubt.harness.answer(doubt.session, DoubtAnswer.CHECK)
    assert (workspace / "log.txt").read_text() == "ax"


async def test_e05_a_question_without_files_is_asked_and_answered_as_before(
    store: Store, probe: HoldingProbe, options: dict[str, Any]
) -> None:
    """Where workspaces are not recorded, and in journals of earlier versions."""
    async with in_doubt(store, probe, {**options, "recorder": None}) as doubt:
        ask = await doubt.harness.ask(doubt.session)
        assert (ask.files, len(ask.choices)) == (None, 3)
        turn = await doubt.harness.answer(doubt.session, DoubtAnswer.RUN_AGAIN)
    assert turn.state is TurnState.COMPLETED
