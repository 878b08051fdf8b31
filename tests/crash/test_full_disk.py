"""The disk is full for a while: running turns wait for it and continue by themselves."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from everturn.domain.errors import DiskFull
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.turns import TurnState
from everturn.engine.turn_writer import TurnWriter
from everturn.store import Store, open_store
from everturn.testing import CallTool, FakeClock, FakeTool, HoldingProbe, Say, ScriptedModel
from everturn.testing.faulty_disk import FaultyDisk, FaultyVfs, Platter
from everturn.testing.harness import OWNER, Harness, open_harness, quiet_settings
from everturn.testing.models import Answer, Chunks, ScriptStep, Wait
from tests.blobs import content_of
from tests.waiting import task_waits_in

pytestmark = pytest.mark.anyio

PATIENCE_S = 180
RETRY_S = 0.2


@pytest.fixture
async def store(
    anyio_backend: str, platter: Platter, vfs: FaultyVfs, clock: FakeClock, probe: HoldingProbe
) -> AsyncIterator[Store]:
    disk = FaultyDisk(platter, vfs.name)
    async with open_store(data_dir=platter.root, disk=disk, clock=clock, probe=probe) as store:
        yield store
        platter.heal()


async def _disk_fills_up(platter: Platter, store: Store) -> None:
    platter.fail("write", errno.ENOSPC)
    with anyio.fail_after(PATIENCE_S):
        with pytest.raises(DiskFull):
            await store.records.put(OWNER, "settings", "a", 1)
        await store.health_changed(None)


async def _writers_tried_again(clock: FakeClock, times: int) -> None:
    """Every turn that has something to write has tried so often, and was refused."""
    for _ in range(times):
        await clock.someone_sleeps(RETRY_S)
        await clock.advance(RETRY_S)


@asynccontextmanager
async def _retries_come(clock: FakeClock, retry_s: float = 0.5) -> AsyncIterator[None]:
    """What sleeps at most this long until its next try is woken at once. The clock stands still otherwise."""

    async def tick() -> None:
        while True:
            if clock.sleeping[0] <= retry_s:
                await clock.advance(clock.sleeping[0])
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        with anyio.fail_after(PATIENCE_S):
            yield
        group.cancel_scope.cancel()


class Slow(FakeTool):
    """A tool that returns when it is released."""

    def __init__(self, name: str, result: ToolResult) -> None:
        super().__init__(name, self._return)
        self.may_return = anyio.Event()
        self._result = result

    async def _return(self, call: ToolCall, emit: Emit) -> ToolResult:
        await self.may_return.wait()
        return self._result


async def _kinds(h: Harness, session: Session) -> list[str]:
    return [kind for kind in await h.kinds(session) if kind != "text.delta"]


async def test_turns_in_every_place_wait_for_a_full_disk_and_continue_by_themselves(
    store: Store, platter: Platter, clock: FakeClock
) -> None:
    """One streams, one has a tool running, one is about to start a tool."""
    may_stream, may_wish = anyio.Event(), anyio.Event()
    script: tuple[Answer, ...] = (
        [Say("One, "), Wait(may_stream), Say("two, "), Say("three.")],
        [CallTool("pay")],
        [Say("Let me see. "), Wait(may_wish), CallTool("look")],
    )
    model = ScriptedModel(*script, clock=clock, then="Done.")
    pay = Slow("pay", ToolResult("paid", full_output=b"the whole bill"))
    look = FakeTool("look", "a cat")
    settings = quiet_settings(store_retry_s=RETRY_S)
    async with open_harness(store, model=model, tools=[pay, look], clock=clock, settings=settings) as h:
        streaming, paying, looking = [await h.new_session() for _ in range(3)]
        turns = [(await h.send(streaming)).turn.id]
        await h.seen(streaming, "text.delta")
        turns.append((await h.send(paying)).turn.id)
        await h.seen(paying, "tool.started")
        turns.append((await h.send(looking)).turn.id)
        await h.seen(looking, "text.delta")
        before = {session.id: await h.kinds(session) for session in (streaming, paying, looking)}
        await _disk_fills_up(platter, store)
        for event in (may_stream, pay.may_return, may_wish):
            event.set()
        await _writers_tried_again(clock, 5)
        assert len(model.requests) == 3, "no model is called"
        assert not look.calls, "no tool starts"
        for session in (streaming, paying, looking):
            assert await h.kinds(session) == before[session.id], "nothing is shown that is not durable"
        platter.heal()
        async with _retries_come(clock):
            ended = [await h.settled(turn_id) for turn_id in turns]
        assert [turn.state for turn in ended] == [TurnState.COMPLETED] * 3
        assert (len(pay.calls), len(look.calls)) == (1, 1)
        assert (await h.texts(streaming))[-1] == "assistant: One, two, three."
        for session in (streaming, paying, looking):
            kinds = await _kinds(h, session)
            assert not {"turn.resumed", "turn.interrupted", "step.abandoned", "question.asked"} & set(kinds)
        kinds = await _kinds(h, paying)
        assert kinds.index("tool.finished") < len(kinds) - 1 - kinds[::-1].index("step.started")
        [file] = [e.payload.artifact for e in await h.events(paying) if e.kind == "tool.finished"]
        assert file is not None
        assert await content_of(store, OWNER, file) == b"the whole bill"
    assert await store.upkeep.check() == []


async def test_a_disk_that_fills_up_at_the_very_end_costs_no_step(
    store: Store, platter: Platter, clock: FakeClock, probe: HoldingProbe
) -> None:
    """Everything is in the journal, and the end of the turn is refused."""
    async with open_harness(store, "Hello.", clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.WRITER_QUIET)
        accepted = await h.send(session)
        await probe.reached(Moment.WRITER_QUIET)
        await _disk_fills_up(platter, store)
        probe.release(Moment.WRITER_QUIET)
        await clock.someone_sleeps(h.engine.settings.store_patience_s)
        platter.heal()
        async with _retries_come(clock, h.engine.settings.store_patience_s):
            turn = await h.settled(accepted.turn.id)
        assert (turn.state, turn.attempts) == (TurnState.COMPLETED, 0)
        assert len(h.model.requests) == 1
        assert await h.texts(session) == ["user: hello", "assistant: Hello."]


async def test_a_step_whose_start_is_journaled_waits_before_the_model_is_called(
    store: Store, platter: Platter, clock: FakeClock, probe: HoldingProbe
) -> None:
    """The store fails for another caller between the start of the step and the call."""
    tool = FakeTool("look", "a cat")
    async with open_harness(store, [CallTool("look")], "A cat.", tools=[tool], clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.TOOL_STARTED)
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_STARTED)
        await _disk_fills_up(platter, store)
        probe.release(Moment.TOOL_STARTED)
        await task_waits_in(store.health_changed)
        assert not tool.calls
        platter.heal()
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        assert len(tool.calls) == 1


async def test_a_model_that_is_held_back_by_a_full_disk_is_not_taken_for_silent(
    store: Store, platter: Platter, clock: FakeClock
) -> None:
    settings = quiet_settings(
        store_retry_s=RETRY_S, outstanding_bytes_max=1_000, model_silence_max_s=60.0, lost_poll_s=1.0
    )
    may_go_on = anyio.Event()
    script: list[ScriptStep] = [Say("One "), Wait(may_go_on), Chunks("word ", 100)]
    async with open_harness(store, script, clock=clock, settings=settings) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        await _disk_fills_up(platter, store)
        may_go_on.set()
        await task_waits_in(TurnWriter.offer_text)
        for _ in range(20):
            await clock.advance(10.0)
        platter.heal()
        async with _retries_come(clock):
            turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED
        assert len(h.model.requests) == 1
        assert (await h.texts(session))[-1] == "assistant: One " + "word " * 100


async def test_a_server_that_stops_while_the_disk_is_full_leaves_its_turns_to_the_next(
    store: Store, platter: Platter, clock: FakeClock
) -> None:
    may_stream = anyio.Event()
    script: list[ScriptStep] = [Say("One, "), Wait(may_stream), Say("two.")]
    settings = quiet_settings(store_retry_s=RETRY_S, drain_s=0.1)
    with anyio.fail_after(PATIENCE_S):
        async with open_harness(store, script, clock=clock, settings=settings) as h:
            session = await h.new_session()
            accepted = await h.send(session)
            await h.seen(session, "text.delta")
            await _disk_fills_up(platter, store)
            may_stream.set()
            await _writers_tried_again(clock, 1)
    store.workers.close()  # its process has gone
    platter.heal()
    async with open_harness(store, "One, two.", clock=clock) as h:
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
