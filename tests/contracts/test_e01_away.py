"""E01: a step that changed files while PostgreSQL was away has a checkpoint of its own once it is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everturn.domain import events as ev
from everturn.domain.asks import DoubtAnswer
from everturn.domain.checkpoints import Cause
from everturn.domain.probe import Moment
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.turns import TurnState
from everturn.store import Store, StoreSettings, open_store
from everturn.testing import CallTool, FakeClock, FakeTool, FakeToolbox, HoldingProbe
from everturn.testing.checkpoints import files_in
from everturn.testing.harness import OWNER, crashing_harness, open_harness
from everturn.testing.postgres_proxy import PostgresProxy
from everturn.workspace import FilesSettings, Recorder

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("store_kind", ["postgresql"], indirect=True),
]
WRITE = CallTool("write", {"path": "made.txt", "text": "made"})


async def write(call: ToolCall, emit: Emit) -> ToolResult:
    (call.workspace / str(call.arguments["path"])).write_text(str(call.arguments["text"]))
    return ToolResult("written")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = (tmp_path / "workspace").resolve()
    folder.mkdir()
    return folder


def options(store: Store, workspace: Path, clock: FakeClock, probe: HoldingProbe) -> dict[str, Any]:
    return {
        "toolbox": FakeToolbox(FakeTool("write", write), FakeTool("idle"), workspace=workspace),
        "recorder": Recorder(store, workspace.parent / "indexes", FilesSettings()),
        "clock": clock,
        "probe": probe,
    }


async def test_e01_a_step_while_the_database_is_away_has_its_own_checkpoint_afterwards(
    store: Store,
    spooling: Store,
    proxy: PostgresProxy,
    probe: HoldingProbe,
    clock: FakeClock,
    workspace: Path,
) -> None:
    """The database goes away while the tool runs, and returns when its result is in the spool. The next call
    runs only after the checkpoint."""
    probe.hold(Moment.TOOL_RAN)
    second = CallTool("write", {"path": "second.txt", "text": "two"})
    given = options(spooling, workspace, clock, probe)
    async with open_harness(spooling, [WRITE], [second], "done", **given) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
        proxy.go_away()
        probe.hold(Moment.SPOOL_SYNCED)
        probe.release(Moment.TOOL_RAN)
        await probe.reached(Moment.SPOOL_SYNCED)
        proxy.come_back()
        probe.release(Moment.SPOOL_SYNCED)
        turn = await h.settled(accepted.turn.id)
    assert turn.state is TurnState.COMPLETED
    first, next_one = await store.checkpoints.of_turn(OWNER, turn.id)
    events = [event.payload for event in await store.journal.of_turn(OWNER, turn.id)]
    results = [payload for payload in events if isinstance(payload, ev.ToolFinished)]
    changed = [payload for payload in events if isinstance(payload, ev.FilesChanged)]
    assert "could not be recorded yet" in results[0].text
    assert (first.call_id, first.cause) == (results[0].call_id, Cause.CALL)
    assert [payload.call_id for payload in changed] == [result.call_id for result in results]
    assert events.index(changed[0]) < events.index(changed[1])
    assert await files_in(store, first.tree) == {"made.txt": b"made"}
    assert await files_in(store, next_one.tree) == {"made.txt": b"made", "second.txt": b"two"}


async def test_e01_a_worker_that_dies_while_the_database_is_away_loses_no_files(
    store: Store,
    spooling: Store,
    proxy: PostgresProxy,
    probe: HoldingProbe,
    clock: FakeClock,
    workspace: Path,
    tmp_path: Path,
    postgres_url: str,
    lease_s: float,
) -> None:
    """Its result is delivered from the spool, and its files are found by the next look on that machine."""
    probe.hold(Moment.TOOL_RAN)
    given = options(spooling, workspace, clock, probe)
    async with crashing_harness(spooling, [WRITE], **given) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_RAN)
        proxy.go_away()
        probe.hold(Moment.SPOOL_SYNCED)
        probe.release(Moment.TOOL_RAN)
        await probe.reached(Moment.SPOOL_SYNCED)
    probe.release_all()
    proxy.come_back()
    settings = StoreSettings(lease_s=lease_s)
    async with open_store(
        postgres_url, data_dir=tmp_path / "elsewhere", clock=clock, settings=settings
    ) as again:
        given = options(again, workspace, clock, probe)
        async with open_harness(again, [CallTool("idle")], "done", **given) as h:
            turn = await h.settled(accepted.turn.id)
            if turn.state is TurnState.WAITING:
                turn = await h.answer(session, DoubtAnswer.TAKE_AS_DONE)
    assert turn.state is TurnState.COMPLETED
    (found,) = await store.checkpoints.of_turn(OWNER, turn.id)
    assert found.cause is Cause.FOUND
    assert await files_in(store, found.tree) == {"made.txt": b"made"}
