"""E10: a turn that reaches a budget waits as for a question, and goes on when there is room again."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain.asks import AskTopic, BudgetAnswer
from everturn.domain.budgets import BudgetScope, Unit
from everturn.domain.errors import Invalid
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelRefused
from everturn.domain.probe import Moment
from everturn.domain.store_values import Submission
from everturn.domain.tool import Emit, ToolCall, ToolResult
from everturn.domain.turns import TurnState, Usage
from everturn.engine.budget_settings import BudgetSettings
from everturn.store import Store
from everturn.testing import (
    CallTool,
    Cut,
    FakeClock,
    FakeTool,
    HoldingProbe,
    Say,
    ScriptedModel,
    ScriptedModels,
)
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness, quiet_settings
from everturn.testing.models import Answer, Wait
from tests.budgeting import limit, only
from tests.conftest import OpenAnother
from tests.scheduling import at
from tests.waiting import until

pytestmark = pytest.mark.anyio
DAY = BudgetScope.DAY


def model(*script: Answer, name: str = "scripted:model") -> ScriptedModel:
    """Each call may answer with 100 tokens and reports that it has used 60 and 40."""
    abilities = Abilities(output_tokens=100)
    return ScriptedModel(*script, name=name, abilities=abilities, usage=Usage(60, 40), then="answer")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at(16, 7))


async def resumed(harness: Harness, turn_id: str) -> TurnState:
    return (await harness.settled(turn_id)).state


async def test_e10_usage_is_counted_and_a_turn_waits_when_it_is_used_up(
    store: Store, clock: FakeClock
) -> None:
    played = model("one", "two")
    async with open_harness(store, model=played, clock=clock) as harness:
        await harness.engine.put_budget(OWNER, limit(100_000))
        session = await harness.new_session()
        assert (await harness.run(session)).state is TurnState.COMPLETED
        budget = await only(store, OWNER)
        assert (budget.spent, budget.reserved, budget.estimated) == (100, 0, 0)

        await harness.engine.put_budget(OWNER, limit(150))
        turn = await harness.run(session, "again")
        assert turn.state is TurnState.WAITING
        ask = await harness.ask(session)
        assert (ask.topic, ask.choices) == (AskTopic.BUDGET, ("raise", "stop"))
        assert ask.text.startswith(
            "Today's budget of 150 tokens does not cover the next model call: 50 tokens left. "
            "Raise it by 300 tokens?"
        )
        assert len(played.requests) == 1
        kinds = await harness.kinds(session)
        assert kinds[-3:] == ["budget.reached", "question.asked", "turn.waiting"]

        await harness.engine.put_budget(OWNER, limit(100_000))
        assert await resumed(harness, turn.id) is TurnState.COMPLETED
        assert (await only(store, OWNER)).spent == 200
        assert (await harness.kinds(session)).count("budget.reached") == 1


async def test_e10_one_raise_lets_the_turn_go_on_however_small_the_budget_is(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, model=model("one"), clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(7))
        await harness.run(session)
        ask = await harness.ask(session)
        assert ask.budget is not None
        offered = ask.budget.offered
        assert offered is not None
        assert f"Raise it by {offered:,} tokens?" in ask.text
        turn = await harness.answer(session, BudgetAnswer.RAISE)
        assert turn.state is TurnState.COMPLETED
        assert (await only(store, OWNER)).extra == offered
        assert offered % 7 == 0


async def test_e10_the_answer_raise_allows_the_amount_once_more_and_stop_ends_the_turn(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, model=model("one"), clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(300, BudgetScope.SESSION, subject=session.id))
        await harness.engine.put_budget(OWNER, limit(100))
        asked = await harness.run(session)
        assert asked.state is TurnState.WAITING
        while (turn := await harness.answer(session, BudgetAnswer.RAISE)).state is TurnState.WAITING:
            pass  # once for each budget
        assert turn.state is TurnState.COMPLETED
        assert (await harness.kinds(session)).count("budget.reached") <= 2
        session_budget, day_budget = await store.budgets.list(OWNER)
        assert (session_budget.spent, day_budget.spent) == (100, 100)
        assert day_budget.extra % 100 == 0 < day_budget.extra

        await harness.engine.remove_budget(OWNER, session_budget.limit.key)
        await harness.engine.put_budget(OWNER, limit(0))
        turn = await harness.run(session, "more")
        assert (await harness.ask(session)).choices == ("stop",)  # once more nothing is nothing
        turn = await harness.answer(session, BudgetAnswer.STOP)
        assert turn.state is TurnState.CANCELLED


async def test_e10_a_waiting_turn_survives_a_restart_and_goes_on_when_it_is_raised(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    async with crashing_harness(store, model=model("one"), clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(2_000))
        assert (await harness.run(session)).state is TurnState.COMPLETED
        await harness.engine.put_budget(OWNER, limit(150))
        turn = await harness.run(session, "again")
        assert turn.state is TurnState.WAITING
    again = await open_another()
    played = model("two")
    async with open_harness(again, model=played, clock=clock) as harness:
        await clock.advance(5)
        assert (await harness.turn(turn.id)).state is TurnState.WAITING
        await harness.engine.put_budget(OWNER, limit(2_000))
        assert await resumed(harness, turn.id) is TurnState.COMPLETED
        assert len(played.requests) == 1


async def test_e10_a_turn_goes_on_when_the_day_turns_over(store: Store, clock: FakeClock) -> None:
    # Late in the day, because each second that passes wakes what looks every second.
    clock.set_back((clock.now_ms() - at(16, 23, 55)) / 1000)
    async with open_harness(store, model=model(), clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(2_000, timezone="Europe/Vienna"))
        turn = await harness.run(session)
        while turn.state is not TurnState.WAITING:
            turn = await harness.run(session, "again")
        spent = (await only(store, OWNER)).spent
        await clock.advance((at(17, 0) - clock.now_ms()) / 1000 - 60)
        assert (await harness.turn(turn.id)).state is TurnState.WAITING
        assert (await only(store, OWNER)).spent == spent
        await clock.advance(120)
        await harness.seen(session, "question.answered")
        assert await resumed(harness, turn.id) is TurnState.COMPLETED
        assert (await only(store, OWNER)).spent == 100


async def test_e10_a_crash_during_a_call_leaves_an_estimate(
    store: Store, clock: FakeClock, open_another: OpenAnother
) -> None:
    async with crashing_harness(store, model=model([Say("o"), Wait(anyio.Event())]), clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(100_000))
        accepted = await harness.send(session)
        await harness.seen(session, "text.delta")
        reserved = (await only(store, OWNER)).reserved
        assert reserved > 100
    again = await open_another()
    async with open_harness(again, model=model("two"), clock=clock) as harness:
        assert await resumed(harness, accepted.turn.id) is TurnState.COMPLETED
        budget = await only(again, OWNER)
        assert (budget.spent, budget.estimated, budget.reserved) == (reserved + 100, reserved, 0)


async def test_e10_a_stopped_call_counts_what_it_had_sent(store: Store, clock: FakeClock) -> None:
    played = model([Say("x" * 90), Wait(anyio.Event())])
    async with open_harness(store, model=played, clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(100_000))
        accepted = await harness.send(session)
        await harness.seen(session, "text.delta")
        reserved = (await only(store, OWNER)).reserved
        await harness.engine.cancel(OWNER, accepted.turn.id, by="test")

        async def is_charged() -> bool:
            budget = await only(store, OWNER)
            return not (budget.spent == budget.reserved == 0)

        await until("the budget shows the call", is_charged)
    budget = await only(store, OWNER)
    assert budget.spent == budget.estimated == reserved - 70  # 30 tokens of 100


async def test_e10_failed_attempts_and_a_fallback_model_have_their_own_price(
    store: Store, clock: FakeClock
) -> None:
    dear = model(ModelRefused("no"), name="scripted:dear")
    cheap = model([Say("half"), Cut()], "whole", name="scripted:cheap")
    models = ScriptedModels(
        dear, cheap, prices={"scripted:dear": (0.01, 0.01), "scripted:cheap": (0.0001, 0.001)}
    )
    settings = quiet_settings(fallback_models=("scripted:cheap",), retry_first_s=0.0)
    async with open_harness(store, model=dear, models=models, settings=settings, clock=clock) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(100_000_000, unit=Unit.USD))
        assert (await harness.run(session)).state is TurnState.COMPLETED
        budget = await only(store, OWNER)
        # 60 and 40 tokens at the cheap price, and what the cut stream is estimated to have used.
        assert budget.spent - budget.estimated == 46_000
        assert 0 < budget.estimated < 100_000
        assert (budget.reserved, budget.unpriced_tokens) == (0, 0)


async def test_e10_turns_at_once_wait_for_each_other_and_never_exceed(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    played = model(*(["one"] * 3))
    async with open_harness(store, model=played, clock=clock, probe=probe) as harness:
        first, second = await harness.new_session(), await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(100_000))
        probe.hold(Moment.MODEL_CALLED)
        accepted = await harness.send(first)
        await probe.reached(Moment.MODEL_CALLED)
        reserved = (await only(store, OWNER)).reserved
        await harness.engine.put_budget(OWNER, limit(reserved + reserved // 2))
        waiting = await harness.run(second)
        assert waiting.state is TurnState.WAITING
        probe.release(Moment.MODEL_CALLED)
        assert await resumed(harness, accepted.turn.id) is TurnState.COMPLETED
        await clock.advance(10)  # the first call has cost less than was reserved for it
        await harness.seen(second, "question.answered")
        assert await resumed(harness, waiting.id) is TurnState.COMPLETED
        assert (await only(store, OWNER)).spent == 200


async def test_e10_summaries_and_titles_count(store: Store, clock: FakeClock) -> None:
    played = model("one", "A title", "two", "Summary.")
    settings = quiet_settings(makes_titles=True, keep_recent=0.0, keep_messages_min=0)
    async with open_harness(store, model=played, clock=clock, settings=settings) as harness:
        session = await harness.new_session()
        await harness.engine.put_budget(OWNER, limit(100_000))
        await harness.run(session)
        await harness.seen(session, "session.changed")  # the title
        assert (await only(store, OWNER)).spent == 200
        await harness.run(session, "again")
        await harness.engine.put_budget(OWNER, limit(0))
        accepted = await harness.engine.compact(OWNER, session.id)
        assert (await harness.settled(accepted.turn.id)).state is TurnState.WAITING
        await harness.engine.put_budget(OWNER, limit(100_000))
        assert await resumed(harness, accepted.turn.id) is TurnState.COMPLETED
        assert ((await only(store, OWNER)).spent, (await only(store, OWNER)).reserved) == (400, 0)


async def test_e10_a_budget_that_is_set_during_a_turn_bounds_its_next_call(
    store: Store, clock: FakeClock
) -> None:
    released = anyio.Event()
    played = model(CallTool("look"), "done")

    async def look(call: ToolCall, emit: Emit) -> ToolResult:
        await released.wait()
        return ToolResult("seen")

    async with open_harness(store, model=played, clock=clock, tools=[FakeTool("look", look)]) as harness:
        session = await harness.new_session()
        accepted = await harness.send(session)
        await harness.seen(session, "tool.started")
        await harness.engine.put_budget(OWNER, limit(0))
        released.set()
        assert (await harness.settled(accepted.turn.id)).state is TurnState.WAITING
        assert len(played.requests) == 1


async def test_e10_without_a_budget_a_turn_asks_the_store_nothing_about_it(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    run = type(store.database).write
    read = type(store.database).read

    async def counted_write(self: object, script: object, *args: object, **more: object) -> object:
        called.append(script.__module__)
        return await run(self, script, *args, **more)  # type: ignore[arg-type]

    async def counted_read(self: object, script: object, *args: object, **more: object) -> object:
        called.append(script.__module__)
        return await read(self, script, *args, **more)  # type: ignore[arg-type]

    settings = quiet_settings(makes_titles=True)
    async with open_harness(store, model=model(), clock=clock, settings=settings) as harness:
        session = await harness.new_session()
        monkeypatch.setattr(type(store.database), "write", counted_write)
        monkeypatch.setattr(type(store.database), "read", counted_read)
        assert (await harness.run(session)).state is TurnState.COMPLETED
        await harness.seen(session, "session.changed")  # the title
    assert "everturn.store.turns.endings" in called
    assert "everturn.store.budgets" not in called


async def test_e10_a_guest_has_the_budget_of_the_settings_and_cannot_raise_it(
    store: Store, clock: FakeClock
) -> None:
    guest = "guest:main:eve"
    settings = BudgetSettings(guest_tokens_per_day=50)
    budgets = settings.guest_budgets()
    async with open_harness(store, model=model(), clock=clock, guest_budgets=budgets) as harness:
        session = await harness.engine.create_session(guest)
        await harness.engine.submit(guest, session.id, Submission(text="hello"))

        async def is_asked() -> bool:
            return bool(await store.asks.open(guest))

        await until("the guest is asked", is_asked)
        asks = await store.asks.open(guest)
        assert asks[0].choices == ("stop",)
        with pytest.raises(Invalid):
            await harness.engine.answer(guest, asks[0].id, BudgetAnswer.RAISE, by="eve")
        own = await harness.new_session()
        assert (await harness.run(own)).state is TurnState.COMPLETED  # the owner has no budget
