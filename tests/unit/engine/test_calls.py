"""Several calls of one step: what only reads runs side by side, everything else in the model's order."""

import anyio
import anyio.lowlevel
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import DiskFull, StoreAway, StoreBroken
from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolResult, Verdict
from everturn.domain.turns import TurnState
from everturn.testing import CallTool, FakeTool
from everturn.testing.harness import OWNER, crashing_harness, open_harness, quiet_settings

pytestmark = pytest.mark.anyio


class Meeting:
    """The work of a tool whose calls wait for each other: run one by one, the first never ends."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._present = 0
        self._all = anyio.Event()
        self.ended: list[str] = []

    async def __call__(self, call, emit):
        self._present += 1
        if self._present == self._size:
            # The last one to come is the first to go.
            self._all.set()
        else:
            await self._all.wait()
        self.ended.append(call.id)
        return ToolResult(f"read {call.id}")


def reading(name, work="read", **more):
    return FakeTool(name, work, reads_only=True, **more)


async def results(harness, session):
    return [part for m in await harness.messages(session) if m.role == "tool" for part in m.parts]


async def test_calls_that_only_read_run_side_by_side_and_keep_their_order(store, clock):
    meeting = Meeting(3)
    script = ([CallTool("look", {"at": 1}), CallTool("look", {"at": 2}), CallTool("peek")], "Seen.")
    tools = [reading("look", meeting), reading("peek", meeting)]
    async with open_harness(store, *script, tools=tools, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.COMPLETED
        assert meeting.ended[0] == "call_3"
        assert [part.text for part in await results(h, session)] == [f"read call_{n}" for n in (1, 2, 3)]
        kinds = [kind for kind in await h.kinds(session) if kind.startswith("tool.")]
        assert kinds == ["tool.started"] * 3 + ["tool.finished"] * 3


async def test_a_read_behind_a_change_waits_for_it(store, clock):
    order = []

    async def work(call, emit):
        order.append(f"begin {call.name}")
        await anyio.lowlevel.checkpoint()
        order.append(f"end {call.name}")
        return ToolResult("done")

    script = ([CallTool("look"), CallTool("write"), CallTool("peek"), CallTool("glance")], "Done.")
    tools = [reading("look", work), FakeTool("write", work), reading("peek", work), reading("glance", work)]
    async with open_harness(store, *script, tools=tools, clock=clock) as h:
        await h.run(await h.new_session())
    assert order[:5] == ["begin look", "end look", "begin write", "end write", "begin peek"]
    assert set(order[4:6]) == {"begin peek", "begin glance"}


async def test_a_read_that_has_to_be_asked_about_runs_only_when_it_was_allowed(store, clock):
    look, peek = reading("look"), reading("peek")
    script = ([CallTool("look"), CallTool("look"), CallTool("peek"), CallTool("look")], "Done.")
    rules = {"peek": Verdict.ASK}
    async with open_harness(store, *script, tools=[look, peek], rules=rules, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.WAITING
        assert (len(look.calls), len(peek.calls)) == (2, 0)
        turn = await h.answer(session, "once")
        assert turn.state is TurnState.COMPLETED
        assert (len(look.calls), len(peek.calls)) == (3, 1)
        assert {part.outcome for part in await results(h, session)} == {Outcome.OK}


async def test_reads_that_a_crash_ended_run_again_and_the_one_with_a_result_does_not(store, clock, probe):
    stuck, quick = anyio.Event(), reading("quick")

    async def wait(call, emit):
        await stuck.wait()
        return ToolResult("read at last")

    slow = reading("slow", wait)
    script = [CallTool("quick"), CallTool("slow")]
    async with crashing_harness(store, script, tools=[quick, slow], clock=clock, probe=probe) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "tool.finished")
    stuck.set()
    async with open_harness(store, "Done.", tools=[quick, slow], clock=clock, probe=probe) as h:
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED
        assert (len(quick.calls), len(slow.calls)) == (1, 2)
        assert [part.text for part in await results(h, session)] == ["read", "read at last"]


async def test_a_failure_of_the_store_beside_other_calls_is_reported_unchanged(store, clock, monkeypatch):
    """The first call's output cannot be kept: the turn is interrupted for that reason, not for a group's."""

    async def long(call, emit):
        return ToolResult("a part", full_output=b"the whole")

    async def full(*args, **more):
        raise StoreBroken("the disk failed")

    monkeypatch.setattr(store.files, "put", full)
    script = [CallTool("look"), CallTool("peek")]
    tools = [reading("look", long), reading("peek", Meeting(2))]
    async with open_harness(store, script, tools=tools, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert (turn.state, turn.failure.code) == (TurnState.INTERRUPTED, "store_broken")
        started = [e.payload for e in await h.events(session) if isinstance(e.payload, ev.ToolStarted)]
        assert [event.call_id for event in started] == ["call_1", "call_2"]


@pytest.mark.parametrize(
    "trouble", [StoreBroken("it failed"), StoreAway("it is away")], ids=["broken", "away"]
)
async def test_a_call_whose_whole_output_cannot_be_kept_is_not_in_doubt(store, clock, monkeypatch, trouble):
    """It has taken effect, and the journal says so before the trouble is dealt with."""

    async def long(call, emit):
        return ToolResult("paid", full_output=b"the whole")

    async def refused(*args, **more):
        raise trouble

    pay = FakeTool("pay", long)
    with monkeypatch.context() as broken:
        broken.setattr(store.files, "put", refused)
        async with open_harness(store, [CallTool("pay")], "Done.", tools=[pay], clock=clock) as h:
            session = await h.new_session()
            turn = await h.run(session)
    async with open_harness(store, "Done.", tools=[pay], clock=clock) as h:
        if turn.state is TurnState.INTERRUPTED:
            assert turn.failure.code == "store_broken"
            await h.engine.resume(OWNER, turn.id)
        await h.seen(session, "turn.completed")
        assert len(pay.calls) == 1
        (result,) = await results(h, session)
        assert result.text == f"paid\n[The whole output could not be kept: {trouble.message}]"
        assert result.not_kept == trouble.message


async def test_a_result_does_not_wait_for_ever_for_room_for_the_whole_output(store, clock, monkeypatch):
    async def long(call, emit):
        return ToolResult("paid", full_output=b"the whole")

    async def refused(*args, **more):
        raise DiskFull("no room")

    monkeypatch.setattr(store.files, "put", refused)
    settings = quiet_settings(output_patience_s=2.0, store_patience_s=0.7)
    pay = FakeTool("pay", long)
    async with open_harness(
        store, [CallTool("pay")], "Done.", tools=[pay], clock=clock, settings=settings
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        for _ in range(3):
            assert "tool.finished" not in await h.kinds(session)
            await clock.someone_sleeps(0.7)
            await clock.advance(0.7)
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        (result,) = await results(h, session)
        assert result.text == "paid\n[The whole output could not be kept: no room]"
