"""However a worker's run of a turn ends, what lived only during it (such as Python's interpreter) is ended."""

import anyio
import pytest

from everturn.domain.errors import StoreAway
from everturn.domain.model_errors import ModelRefused
from everturn.domain.tool import Verdict
from everturn.domain.turns import TurnState
from everturn.testing import CallTool, FakeTool, Pause, Say
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.tools import FakeToolbox

pytestmark = pytest.mark.anyio


async def test_after_an_answer(store, clock):
    async with open_harness(store, [CallTool("look")], "done", tools=[FakeTool("look")], clock=clock) as h:
        turn = await h.run(await h.new_session())
    assert turn.state is TurnState.COMPLETED
    assert h.toolbox.left == [turn.id]


async def test_after_a_failure(store, clock):
    async with open_harness(store, ModelRefused("refused"), clock=clock) as h:
        turn = await h.run(await h.new_session())
    assert turn.state is TurnState.FAILED
    assert h.toolbox.left == [turn.id]


async def test_after_a_stop_in_mid_call(store, clock):
    async def waits(call, emit):
        await anyio.sleep_forever()

    async with open_harness(store, [CallTool("wait")], tools=[FakeTool("wait", waits)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "tool.started")
        await h.engine.cancel(OWNER, accepted.turn.id)
        await h.settled(accepted.turn.id)
    assert h.toolbox.left == [accepted.turn.id]


async def test_when_it_waits_for_the_user_and_again_after_the_answer(store, clock):
    script = ([CallTool("look")], "done")
    tools, rules = [FakeTool("look")], {"look": Verdict.ASK}
    async with open_harness(store, *script, tools=tools, rules=rules, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.WAITING
        turn = await h.answer(session, "once")
        assert turn.state is TurnState.COMPLETED
    assert h.toolbox.left == [turn.id, turn.id]


async def test_when_the_store_goes_away_and_the_turn_is_released(store, clock, monkeypatch):
    complete, refusals = store.turns.complete, [StoreAway("away")] * 2

    async def refuses(*args, **more):
        if refusals:
            raise refusals.pop()
        return await complete(*args, **more)

    monkeypatch.setattr(store.turns, "complete", refuses)
    async with open_harness(store, "done", clock=clock) as h:
        turn = await h.run(await h.new_session())
    assert turn.state is TurnState.COMPLETED
    assert set(h.toolbox.left) == {turn.id}


async def test_at_a_shutdown_and_then_by_the_worker_that_takes_the_turn_over(store, open_another, clock):
    async with open_harness(store, [Say("first words"), Pause(1e6)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
    assert h.toolbox.left == [accepted.turn.id]
    async with open_harness(await open_another(), "done", clock=clock) as other:
        turn = await other.settled(accepted.turn.id)
    assert turn.state is TurnState.COMPLETED
    assert other.toolbox.left == [turn.id]


async def test_a_failure_to_end_it_ends_no_other_turn(store, clock, caplog):
    class Stuck(FakeToolbox):
        async def leave(self, turn_id):
            raise OSError("no such process")

    async with open_harness(store, "one", "two", toolbox=Stuck(), clock=clock) as h:
        session = await h.new_session()
        first, second = await h.run(session, "1"), await h.run(session, "2")
    assert {first.state, second.state} == {TurnState.COMPLETED}
    assert "could not be ended" in caplog.text
