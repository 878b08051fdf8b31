"""A02: an event is shown only after it is durable."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import DoubtAnswer
from everturn.domain.fold import UNKNOWN_TEXT
from everturn.domain.messages import Message, Result
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.store import Store
from everturn.testing import CallTool, FakeClock, FakeTool, HoldingProbe
from everturn.testing.acting import ME, append, new_session, positions, start
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_a02_a_reader_sees_nothing_of_a_batch_that_is_written_and_not_committed(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    seen: list[int] = []
    saw_all = anyio.Event()

    async def read() -> None:
        async for events in store.journal.follow(ME, session.id, 0):
            seen.extend(event.position for event in events)
            if len(seen) == 3:
                saw_all.set()

    async with anyio.create_task_group() as reading:
        reading.start_soon(read)
        probe.hold(Moment.BATCH_WRITTEN)
        async with anyio.create_task_group() as writing:
            writing.start_soon(append, store, held, [ev.TextDelta(1, "a")])
            await probe.reached(Moment.BATCH_WRITTEN)
            assert await positions(other, session.id) == [1, 2]
            assert await positions(store, session.id) == [1, 2]
            assert seen in ([], [1, 2])
            probe.release(Moment.BATCH_WRITTEN)
        with anyio.fail_after(60):
            await saw_all.wait()
        assert seen == [1, 2, 3]
        reading.cancel_scope.cancel()


async def test_a02_what_was_committed_is_there_for_others_before_anybody_here_was_woken(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    is_answered = False

    async def write() -> None:
        nonlocal is_answered
        await append(store, held, [ev.TextDelta(1, "a")])
        is_answered = True

    probe.hold(Moment.BATCH_COMMITTED)
    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await probe.reached(Moment.BATCH_COMMITTED)
        assert await positions(other, session.id) == [1, 2, 3]
        assert not is_answered
        probe.release(Moment.BATCH_COMMITTED)
    assert is_answered


# --- what a command printed while it ran -----------------------------------------------------------------

PRINTED = "compiled 40 of 100\n"


def printing_tool() -> FakeTool:
    """Prints something and never comes to its end."""

    async def work(call: ToolCall, emit: Emit) -> ToolResult:
        await emit(PRINTED)
        await anyio.sleep_forever()
        raise AssertionError("the tool is never released")

    return FakeTool("build", work)


async def shown_output(h: Harness, session: Session) -> list[str | None]:
    """The output that each call shows in the transcript."""
    return [part.output for m in await h.messages(session) for part in m.parts if isinstance(part, Result)]


async def test_a02_output_that_was_seen_is_there_after_stop_and_after_pruning(
    store: Store, clock: FakeClock
) -> None:
    asked: list[Message] = []
    build = CallTool("build", id="c1")
    async with open_harness(store, [build], "Never mind.", tools=[printing_tool()], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session, "build it")
        await h.seen(session, "tool.output")
        await h.engine.cancel(OWNER, accepted.turn.id)
        await h.settled(accepted.turn.id)
        assert await shown_output(h, session) == [PRINTED]
        await clock.advance(3600)
        await store.upkeep.prune(older_than_ms=1000)
        assert "tool.output" not in await h.kinds(session), "the journal is pruned"
        assert await shown_output(h, session) == [PRINTED]
        await h.run(session, "and now?")
        asked += h.model.requests[-1].messages
    (told,) = [part for message in asked for part in message.parts if isinstance(part, Result)]
    assert (told.text, told.output) == (UNKNOWN_TEXT, None), "the model is never given it as the result"


@pytest.mark.parametrize("answer", [DoubtAnswer.CHECK, DoubtAnswer.TAKE_AS_DONE])
async def test_a02_output_that_was_seen_is_there_after_a_crash_whatever_is_answered_about_the_call(
    store: Store, open_another: OpenAnother, clock: FakeClock, answer: str
) -> None:
    tools = [printing_tool()]
    async with crashing_harness(store, [CallTool("build", id="c1")], tools=tools, clock=clock) as h:
        session = await h.new_session()
        await h.send(session, "build it")
        await h.seen(session, "tool.output")
    other = await open_another()
    async with open_harness(other, "I see.", tools=tools, clock=clock) as h:
        await h.engine.session(OWNER, session.id)
        await h.seen(session, "question.asked")
        outputs = [event.payload for event in await h.events(session) if event.kind == "tool.output"]
        assert [output.text for output in outputs if isinstance(output, ev.ToolOutput)] == [PRINTED]
        await h.answer(session, answer)
        assert await shown_output(h, session) == [PRINTED]
        sent = [part for m in h.model.requests[-1].messages for part in m.parts if isinstance(part, Result)]
        assert [part.output for part in sent] == [None]
        assert all(PRINTED not in part.text for part in sent)
