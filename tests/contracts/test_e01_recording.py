"""E01: a step that changed the workspace has a checkpoint: bytes, then the row, then the result that names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from everturn.domain import events as ev
from everturn.domain.asks import DoubtAnswer
from everturn.domain.checkpoints import Cause, ChangeKind, Checkpoint
from everturn.domain.errors import DiskFull
from everturn.domain.messages import Outcome, Role, SavedFiles
from everturn.domain.probe import Moment
from everturn.domain.sessions import NewSession
from everturn.domain.store_values import Request, RetriedTurn
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.trees import Reason, decode_tree
from everturn.domain.turns import TurnState
from everturn.engine.settings import EngineSettings
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, FakeToolbox, HoldingProbe
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness
from everturn.workspace import FilesSettings, Recorder

pytestmark = pytest.mark.anyio
WRITE = CallTool("write", {"path": "made.txt", "text": "made by a tool"})


async def write(call: ToolCall, emit: Emit) -> ToolResult:
    path = call.workspace / str(call.arguments["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(call.arguments["text"]))
    return ToolResult("written")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = (tmp_path / "workspace").resolve()
    folder.mkdir()
    return folder


@pytest.fixture
def options(store: Store, workspace: Path, tmp_path: Path) -> dict[str, Any]:
    """What an engine is given that records this workspace."""
    look = FakeTool("look", "seen", reads_only=True, is_safe_to_repeat=True)
    return {
        "toolbox": FakeToolbox(FakeTool("write", write), FakeTool("idle"), look, workspace=workspace),
        "recorder": Recorder(store, tmp_path / "indexes", FilesSettings(file_bytes_max=1000)),
    }


async def payloads(h: Harness, session: Any, kind: type) -> list[Any]:
    return [event.payload for event in await h.events(session) if isinstance(event.payload, kind)]


async def content(store: Store, tree: str) -> dict[str, bytes]:
    """The files at the top of a tree."""
    entries = decode_tree(await read(store, tree), tree).entries
    return {entry.name.decode(): await read(store, entry.sha256) for entry in entries if entry.kind == "file"}


async def read(store: Store, sha256: str) -> bytes:
    return b"".join([piece async for piece in store.blobs.read(sha256)])


async def last(store: Store, session: Any) -> Checkpoint:
    found = await store.checkpoints.last(OWNER, session.id)
    assert found is not None
    return found


async def test_e01_a_step_that_changed_the_workspace_names_its_checkpoint(
    store: Store, options: dict[str, Any]
) -> None:
    async with open_harness(store, [WRITE], "done", **options) as h:
        session = await h.new_session()
        turn = await h.run(session)
        (finished,) = await payloads(h, session, ev.ToolFinished)
        (changed,) = await payloads(h, session, ev.FilesChanged)
    (made,) = await store.checkpoints.of_turn(OWNER, turn.id)
    assert finished.checkpoint == changed.checkpoint == made.id
    assert (made.call_id, changed.call_id) == (finished.call_id, finished.call_id)
    assert [(change.path, change.what) for change in changed.changes] == [("made.txt", ChangeKind.ADDED)]
    assert await content(store, made.tree) == {"made.txt": b"made by a tool"}


async def test_e01_a_step_that_changed_nothing_has_none(store: Store, options: dict[str, Any]) -> None:
    async with open_harness(store, [CallTool("idle")], [CallTool("look")], "done", **options) as h:
        session = await h.new_session()
        turn = await h.run(session)
        results = await payloads(h, session, ev.ToolFinished)
        assert await payloads(h, session, ev.FilesChanged) == []
    assert [result.checkpoint for result in results] == [None, None]
    assert await store.checkpoints.of_turn(OWNER, turn.id) == []


async def test_e01_each_step_has_its_own_checkpoint_over_the_one_before(
    store: Store, options: dict[str, Any]
) -> None:
    second = CallTool("write", {"path": "second.txt", "text": "two"})
    async with open_harness(store, [WRITE], [second], "done", "again", **options) as h:
        session = await h.new_session()
        turn = await h.run(session)
    one, two = await store.checkpoints.of_turn(OWNER, turn.id)
    assert two.before == one.tree
    assert [change.path for change in two.changes.changed] == ["second.txt"]
    assert set(await content(store, one.tree)) == {"made.txt"}
    assert set(await content(store, two.tree)) == {"made.txt", "second.txt"}


async def test_e01_what_a_user_changed_is_not_the_work_of_the_next_call(
    store: Store, options: dict[str, Any], workspace: Path
) -> None:
    async with open_harness(store, [WRITE], "done", [CallTool("idle")], "done", **options) as h:
        session = await h.new_session()
        before = await h.run(session)
        (workspace / "made.txt").write_text("edited by hand")
        turn = await h.run(session)
        results = await payloads(h, session, ev.ToolFinished)
        changed = await payloads(h, session, ev.FilesChanged)
    assert (changed[-1].call_id, changed[-1].changes[0].what) == (None, ChangeKind.CHANGED)
    assert results[-1].checkpoint is None
    assert await store.checkpoints.of_turn(OWNER, turn.id) == []
    made = (await store.checkpoints.of_turn(OWNER, before.id))[-1]
    assert (made.cause, made.epoch) == (Cause.FOUND, 0)
    assert await content(store, made.tree) == {"made.txt": b"edited by hand"}


async def test_e01_what_is_left_out_is_listed(store: Store, options: dict[str, Any]) -> None:
    large = CallTool("write", {"path": "large.bin", "text": "x" * 1001})
    async with open_harness(store, [large], "done", **options) as h:
        session = await h.new_session()
        await h.run(session)
        (changed,) = await payloads(h, session, ev.FilesChanged)
    assert [(left.path, left.reason) for left in changed.left_out] == [("large.bin", Reason.TOO_LARGE)]
    assert (changed.changes_total, changed.left_out_total) == (0, 1)


async def test_e06_a_projects_first_checkpoint_lists_nothing_as_changed(
    store: Store, options: dict[str, Any], workspace: Path
) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "HEAD").write_text("ref")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "a.log").write_text("ignored")
    (workspace / "main.py").write_text("print()")
    async with open_harness(store, [WRITE], "done", **options) as h:
        session = await h.new_session(project=str(workspace))
        turn = await h.run(session)
    (made,) = await store.checkpoints.of_turn(OWNER, turn.id)
    found = await store.checkpoints.at(OWNER, session.id, None)
    assert found is not None
    assert (found.call_id, found.changes.changed_total) == (None, 0)
    assert {left.path for left in found.changes.left_out} == {".git", "a.log"}
    assert [change.path for change in made.changes.changed] == ["made.txt"]
    assert set(await content(store, made.tree)) == {".gitignore", "main.py", "made.txt"}


@pytest.mark.parametrize("moment", [Moment.TOOL_RAN, Moment.CHECKPOINT_COMMITTED, Moment.TOOL_FINISHED])
async def test_e01_after_a_crash_no_result_names_what_is_not_stored(
    store: Store, options: dict[str, Any], clock: Any, probe: HoldingProbe, moment: Moment
) -> None:
    """Killed before, between and after: a named checkpoint is whole, and the next worker records the rest."""
    probe.hold(moment)
    async with crashing_harness(store, [WRITE], "done", clock=clock, probe=probe, **options) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(moment)
    probe.release_all()
    settings = EngineSettings(makes_titles=False, stop_grace_s=0.0)
    async with open_harness(
        store, [CallTool("idle")], "done", clock=clock, settings=settings, **options
    ) as h:
        turn = await h.settled(accepted.turn.id)
        if turn.state is TurnState.WAITING:
            turn = await h.answer(session, DoubtAnswer.TAKE_AS_DONE)
        results = await payloads(h, session, ev.ToolFinished)
    assert turn.state is TurnState.COMPLETED
    assert await content(store, (await last(store, session)).tree) == {"made.txt": b"made by a tool"}
    stored = {made.id for made in await store.checkpoints.of_turn(OWNER, turn.id)}
    assert {result.checkpoint for result in results} - {None} <= stored
    assert len(stored) == 1, "the same content is recorded once"


async def test_e01_a_call_whose_files_cannot_be_recorded_keeps_its_result(
    store: Store, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for one moment; what the call changed is recorded right after its result."""
    put_many, troubles = store.blobs.put_many, [DiskFull("The disk is full.")]

    async def full(sources: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return await put_many(sources)

    monkeypatch.setattr(store.blobs, "put_many", full)
    async with open_harness(store, [WRITE], [CallTool("idle")], "done", **options) as h:
        session = await h.new_session()
        turn = await h.run(session)
        first, second = await payloads(h, session, ev.ToolFinished)
    assert (first.outcome, first.checkpoint) == (Outcome.OK, None)
    assert "could not be recorded yet: The disk is full." in first.text
    assert second.text == "done"
    (made,) = await store.checkpoints.of_turn(OWNER, turn.id)
    assert made.call_id == first.call_id
    assert await content(store, made.tree) == {"made.txt": b"made by a tool"}


async def test_e01_a_lost_index_records_the_same_tree(
    store: Store, options: dict[str, Any], tmp_path: Path
) -> None:
    async with open_harness(store, [WRITE], "done", **options) as h:
        session = await h.new_session()
        await h.run(session)
    (index,) = (tmp_path / "indexes").iterdir()
    index.write_bytes(b"damaged")
    again = {**options, "recorder": Recorder(store, tmp_path / "indexes", FilesSettings())}
    async with open_harness(store, [CallTool("idle")], "done", **again) as h:
        turn = await h.run(session)
    assert await store.checkpoints.of_turn(OWNER, turn.id) == []


async def test_e01_an_index_that_no_checkpoint_keeps_true_is_not_believed(
    store: Store, workspace: Path, tmp_path: Path
) -> None:
    """Its files were recorded on another machine since, and the bytes it lists may have been collected."""
    session = await store.sessions.create(OWNER, NewSession())
    recorder = Recorder(store, tmp_path / "indexes", FilesSettings())
    (workspace / "kept.txt").write_text("as it was")
    os.utime(workspace / "kept.txt", (1, 1))
    seen = await recorder.look(session, workspace)
    await recorder.remember(session.id, seen.folder)
    for _ in range(2):
        await store.blobs.collect(grace_ms=-60_000, wait_ms=-60_000)
    made = await recorder.save(session, workspace)
    assert made is not None
    assert await content(store, made.tree) == {"kept.txt": b"as it was"}


async def test_e01_the_index_goes_with_its_session(
    store: Store, options: dict[str, Any], tmp_path: Path
) -> None:
    async with open_harness(store, [WRITE], "done", **options) as h:
        session = await h.new_session()
        await h.run(session)
        assert list((tmp_path / "indexes").iterdir())
        await h.engine.delete(OWNER, session.id)
    assert not list((tmp_path / "indexes").iterdir())


NOTE = "[Files that the user saved or changed since the last turn]\n<untrusted from='workspace'>\n"


def texts_of(h: Harness, number: int) -> list[str]:
    """What the user said, as the model was given it in its n-th call."""
    said = [one for one in h.model.requests[number].messages if one.role is Role.USER]
    return [one.text for one in said]


async def save(h: Harness, session: Any, options: dict[str, Any], workspace: Path, text: str) -> Checkpoint:
    (workspace / "made.txt").write_text(text)
    made = await options["recorder"].save(await h.store.sessions.get(OWNER, session.id), workspace)
    assert made is not None
    assert made.cause is Cause.SAVED
    return made


async def test_e01_the_model_is_told_with_the_next_message_what_the_user_saved(
    store: Store, options: dict[str, Any], workspace: Path
) -> None:
    """Once, before the user's words, also if the turn calls no tool; later turns see the same history."""
    async with open_harness(store, [WRITE], "done", "seen", "later", **options) as h:
        session = await h.new_session()
        await h.run(session, "write")
        await save(h, session, options, workspace, "saved by the user")
        await h.run(session, "look")
        await h.run(session, "again")
        assert texts_of(h, 2) == ["write", f"{NOTE}'made.txt' (changed)\n</untrusted>\nlook"]
        assert texts_of(h, 3) == [*texts_of(h, 2), "again"]
        assert (
            h.model.requests[3].messages[: len(h.model.requests[2].messages)] == h.model.requests[2].messages
        )
        told = await payloads(h, session, ev.MessageAdded)
    assert [part.total for one in told for part in one.message.parts if isinstance(part, SavedFiles)] == [1]


async def test_e01_what_was_saved_before_the_first_turn_is_told_with_it(
    store: Store, options: dict[str, Any], workspace: Path
) -> None:
    async with open_harness(store, "seen", **options) as h:
        session = await h.new_session()
        await save(h, session, options, workspace, "from the start")
        await h.run(session, "look")
        assert texts_of(h, 0) == [f"{NOTE}'made.txt' (added)\n</untrusted>\nlook"]


async def test_e01_a_turn_that_is_asked_again_is_told_the_same(
    store: Store, options: dict[str, Any], workspace: Path
) -> None:
    async with open_harness(store, "one", "two", "three", **options) as h:
        session = await h.new_session()
        await h.run(session, "hello")
        await save(h, session, options, workspace, "saved")
        turn = await h.run(session, "look")
        again = await h.engine.retry(OWNER, session.id, RetriedTurn(turn.id), Request())
        await h.settled(again.turn.id)
        assert NOTE in texts_of(h, 2)[-1]
        assert texts_of(h, 2) == texts_of(h, 1)


async def test_e01_a_resumed_turn_is_told_what_it_was_told_before(
    store: Store, probe: HoldingProbe, options: dict[str, Any], workspace: Path
) -> None:
    """What the user saves while the turn has no worker belongs to it, and is told with the next one."""
    probe.hold(Moment.MODEL_CALLED)
    async with crashing_harness(store, probe=probe, **options) as h:
        session = await h.new_session()
        await save(h, session, options, workspace, "saved")
        accepted = await h.send(session, "look")
        await probe.reached(Moment.MODEL_CALLED)
        await save(h, session, options, workspace, "saved again")
    probe.release_all()
    async with open_harness(store, "seen", "later", **options) as h:
        await h.settled(accepted.turn.id)
        await h.run(session, "again")
        first = f"{NOTE}'made.txt' (added)\n</untrusted>\nlook"
        assert texts_of(h, 0) == [first]
        assert texts_of(h, 1) == [first, f"{NOTE}'made.txt' (changed)\n</untrusted>\nagain"]
