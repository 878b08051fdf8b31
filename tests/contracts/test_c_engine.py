"""Promises C01-C11 as far as the engine keeps them, on both stores.

A crash is made inside the process: the engine's tasks end where they are, nothing is written or handed
over, and the worker's lock goes. ``tests/crash`` kills real processes at every moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.asks import LimitAnswer
from everturn.domain.events import Event
from everturn.domain.fold import fold
from everturn.domain.messages import Call, Outcome, Result, Role, Text
from everturn.domain.model import Abilities, ModelRequest
from everturn.domain.probe import Moment
from everturn.domain.store_values import Request
from everturn.domain.tool import Emit, Tool, ToolCall, ToolResult, Verdict
from everturn.domain.turns import Recovery, TurnState
from everturn.engine.lease import Lease
from everturn.store import Store
from everturn.testing import (
    CallTool,
    CountingTool,
    FakeClock,
    FakeTool,
    HoldingProbe,
    Pause,
    Say,
    ScriptedModel,
    Think,
    count_effects,
)
from everturn.testing.harness import OWNER, Harness, crashing_harness, open_harness, quiet_settings
from everturn.testing.models import Answer, ScriptStep
from tests.waiting import task_waits_in

pytestmark = pytest.mark.anyio
FOREVER = 1e6


async def _crash_at(
    store: Store, clock: FakeClock, moment: Moment, *script: Any, nth: int = 1, **more: Any
) -> tuple[Any, str]:
    """Run a turn until this moment and crash there; the session and the turn's id."""
    probe = HoldingProbe()
    probe.hold(moment, nth=nth)
    async with crashing_harness(store, *script, clock=clock, probe=probe, **more) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(moment)
    return session, accepted.turn.id


def _results(messages: Sequence[Any]) -> list[Result]:
    return [part for message in messages for part in message.parts if isinstance(part, Result)]


# --- C01 ----------------------------------------------------------------------------------------------


async def test_c01_a_dead_processs_turn_is_found_at_start(store: Store, clock: FakeClock) -> None:
    _, turn_id = await _crash_at(store, clock, Moment.CLAIM_COMMITTED, "never")
    async with open_harness(store, "here it is", clock=clock) as h:
        assert (await h.settled(turn_id)).state is TurnState.COMPLETED


async def test_c01_a_dead_processs_turn_is_found_by_looking(
    store: Store, open_another: Any, clock: FakeClock
) -> None:
    other = await open_another()
    async with open_harness(other, "here it is", clock=clock) as h:
        _, turn_id = await _crash_at(store, clock, Moment.MODEL_CALLED, "never")
        await clock.jump(10)
        assert (await h.settled(turn_id)).state is TurnState.COMPLETED


async def test_c01_a_dead_processs_turn_is_found_when_its_session_is_read(
    store: Store, open_another: Any, clock: FakeClock
) -> None:
    other = await open_another()
    async with open_harness(other, "here it is", clock=clock) as h:
        session, turn_id = await _crash_at(store, clock, Moment.MODEL_CALLED, "never")
        await h.engine.session(OWNER, session.id)
        assert (await h.settled(turn_id)).state is TurnState.COMPLETED


# --- C02 ----------------------------------------------------------------------------------------------


async def test_c02_a_finished_call_is_not_run_again(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    pay = CountingTool("pay", tmp_path / "effects")
    session, turn_id = await _crash_at(
        store, clock, Moment.TOOL_FINISHED, [Say("Paying. "), CallTool("pay")], tools=[pay]
    )
    async with open_harness(store, "Paid.", tools=[pay], clock=clock) as h:
        assert (await h.settled(turn_id)).state is TurnState.COMPLETED
        assert list(count_effects(tmp_path / "effects").values()) == [1]
        assert len(h.model.requests) == 1, "the finished step is not asked again either"
        assert "effect of call_1" in _results(h.model.requests[0].messages)[0].text
        assert await h.texts(session) == ["user: hello", "assistant: Paying. ", "tool: ", "assistant: Paid."]


@pytest.mark.parametrize("moment", [Moment.TOOL_STARTED, Moment.TOOL_RAN])
@pytest.mark.parametrize(
    ("answer", "effects", "outcome"),
    [("check", 0, Outcome.UNKNOWN), ("run again", 1, Outcome.OK), ("take it as done", 0, Outcome.OK)],
)
async def test_c02_a_call_in_doubt_asks_the_user(
    store: Store,
    clock: FakeClock,
    tmp_path: Path,
    moment: Moment,
    answer: str,
    effects: int,
    outcome: Outcome,
) -> None:
    pay = CountingTool("pay", tmp_path / "effects")
    session, turn_id = await _crash_at(store, clock, moment, [CallTool("pay")], tools=[pay])
    before = sum(count_effects(tmp_path / "effects").values())
    async with open_harness(store, "I see.", tools=[pay], clock=clock) as h:
        turn = await h.settled(turn_id)
        assert turn.state is TurnState.WAITING
        ask = await h.ask(session)
        assert (ask.topic, ask.name) == ("doubt", "pay")
        assert sum(count_effects(tmp_path / "effects").values()) == before, "never silently twice"
        assert (await h.answer(session, answer)).state is TurnState.COMPLETED
        assert sum(count_effects(tmp_path / "effects").values()) == before + effects
        (result,) = _results(h.model.requests[0].messages)
        assert result.outcome is outcome


@pytest.mark.parametrize(("moment", "effects"), [(Moment.TOOL_STARTED, 1), (Moment.TOOL_RAN, 2)])
async def test_c02_run_again_allows_one_run_and_a_crash_in_it_asks_again(
    store: Store, clock: FakeClock, probe: HoldingProbe, tmp_path: Path, moment: Moment, effects: int
) -> None:
    pay = CountingTool("pay", tmp_path / "effects")
    more: dict[str, Any] = {"tools": [pay], "clock": clock}
    session, turn_id = await _crash_at(store, clock, Moment.TOOL_RAN, [CallTool("pay")], tools=[pay])
    async with crashing_harness(store, "never", probe=probe, **more) as h:
        assert (await h.settled(turn_id)).state is TurnState.WAITING
        first = await h.ask(session)
        probe.hold(moment)
        await h.engine.answer(OWNER, first.id, "run again", by="ada")
        await probe.reached(moment)
    probe.release(moment)
    async with open_harness(store, "I see.", **more) as h:
        assert (await h.settled(turn_id)).state is TurnState.WAITING
        second = await h.ask(session)
        assert second.topic == "doubt"
        assert second.id != first.id
        assert sum(count_effects(tmp_path / "effects").values()) == effects, "not run without an answer"
        assert (await h.answer(session, "run again")).state is TurnState.COMPLETED
        assert sum(count_effects(tmp_path / "effects").values()) == effects + 1


@pytest.mark.parametrize(("ability", "effects"), [("is_safe_to_repeat", 2), ("takes_key", 1)])
async def test_c02_a_call_in_doubt_is_rerun_if_that_is_declared_safe(
    store: Store, clock: FakeClock, tmp_path: Path, ability: str, effects: int
) -> None:
    pay = CountingTool("pay", tmp_path / "effects", **{ability: True})
    _, turn_id = await _crash_at(store, clock, Moment.TOOL_RAN, [CallTool("pay")], tools=[pay])
    async with open_harness(store, "Done.", tools=[pay], clock=clock) as h:
        assert (await h.settled(turn_id)).state is TurnState.COMPLETED
        counted = count_effects(tmp_path / "effects")
        assert list(counted.values()) == [effects], "every attempt has the same key"


async def test_c02_an_approval_survives_the_crash_and_holds_for_its_call_only(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    pay = CountingTool("pay", tmp_path / "effects")
    rules = {"pay": Verdict.ASK}
    session, turn_id = await _crash_at(
        store, clock, Moment.ASK_COMMITTED, [CallTool("pay", {"sum": 5})], tools=[pay], rules=rules
    )
    script: tuple[Answer, ...] = ([CallTool("pay", {"sum": 5})], "never")
    async with open_harness(store, *script, tools=[pay], rules=rules, clock=clock) as h:
        turn = await h.answer(session, "once")
        assert turn.id == turn_id
        assert turn.state is TurnState.WAITING, "the second call, equal but for its id, asks again"
        assert sum(count_effects(tmp_path / "effects").values()) == 1


@pytest.mark.parametrize("moment", [Moment.ANSWER_COMMITTED, Moment.TOOL_STARTED, Moment.TOOL_RAN])
async def test_c02_a_call_that_the_user_changed_runs_changed_after_a_crash_too(
    store: Store, clock: FakeClock, probe: HoldingProbe, moment: Moment
) -> None:
    pay = FakeTool("pay", is_safe_to_repeat=True)
    rules = {"pay": Verdict.ASK}
    more: dict[str, Any] = {"tools": [pay], "rules": rules, "clock": clock}
    async with crashing_harness(store, [CallTool("pay", {"sum": 500})], probe=probe, **more) as h:
        session = await h.new_session()
        turn = await h.run(session)
        ask = await h.ask(session)
        probe.hold(moment)
        async with anyio.create_task_group() as group:
            give = partial(h.engine.answer, OWNER, ask.id, "once", by="ada", arguments='{"sum": 5}')
            group.start_soon(give)
            await probe.reached(moment)
            group.cancel_scope.cancel()
    probe.release(moment)  # the store finishes what it has begun before it closes
    async with open_harness(store, "Paid.", **more) as h:
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert pay.calls
        assert {call.arguments["sum"] for call in pay.calls} == {5}
        (result,) = _results(h.model.requests[0].messages)
        assert result.text.startswith("[The user changed the arguments of this call")
        assert '{"sum": 5}' in result.text


async def test_c02_an_in_doubt_question_that_expires_becomes_unknown_outcome(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    pay = CountingTool("pay", tmp_path / "effects")
    session, turn_id = await _crash_at(store, clock, Moment.TOOL_RAN, [CallTool("pay")], tools=[pay])
    settings = quiet_settings(ask_expires_s=60)
    async with open_harness(store, "I see.", tools=[pay], clock=clock, settings=settings) as h:
        assert (await h.settled(turn_id)).state is TurnState.WAITING
        await clock.jump(70)
        await h.seen(session, "question.answered")
        assert (await h.settled(turn_id)).state is TurnState.COMPLETED
        assert _results(await h.messages(session))[0].outcome is Outcome.UNKNOWN


async def test_c02_text_of_an_abandoned_attempt_is_shown_and_never_given_to_the_model(
    store: Store, clock: FakeClock
) -> None:
    async with crashing_harness(store, [Think("hm"), Say("Half an ans"), Pause(FOREVER)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
    async with open_harness(store, "A whole answer.", clock=clock) as h:
        await h.settled(accepted.turn.id)
        assert [m.text for m in h.model.requests[0].messages] == ["hello"]
        message = (await h.messages(session))[-1]
        texts = [(p.text, p.is_abandoned) for p in message.parts if isinstance(p, Text)]
        assert texts == [("Half an ans", True), ("A whole answer.", False)]
        abandoned = (await h.seen(session, "step.abandoned")).payload
        assert (abandoned.reason, abandoned.continues) == ("crash", False)


async def test_c02_a_model_that_is_able_to_continues_the_same_answer(store: Store, clock: FakeClock) -> None:
    async with crashing_harness(store, [Say("Half an ans"), Pause(FOREVER)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
    model = ScriptedModel("wer.", abilities=Abilities(continues=True))
    async with open_harness(store, model=model, clock=clock) as h:
        await h.settled(accepted.turn.id)
        assert model.requests[0].prefix == "Half an ans"
        assert (await h.messages(session))[-1].text == "Half an answer."


async def test_c02_resumption_has_a_budget(store: Store, clock: FakeClock) -> None:
    settings = quiet_settings(resume_attempts_max=2)
    session, turn_id = await _crash_at(store, clock, Moment.MODEL_CALLED, settings=settings)
    for _ in range(2):
        await _crash_again(store, clock, Moment.MODEL_CALLED, settings=settings)
    async with open_harness(store, "too late", "new", "resumed", clock=clock, settings=settings) as h:
        turn = await h.settled(turn_id)
        assert turn.state is TurnState.INTERRUPTED
        assert turn.failure is not None
        assert turn.failure.code == "resume_attempts"
        assert h.model.requests == []
        await h.engine.resume(OWNER, turn_id)
        await h.seen(session, "turn.completed")
        assert (await h.turn(turn_id)).state is TurnState.COMPLETED, "pressing Resume begins anew"


async def _crash_again(store: Store, clock: FakeClock, moment: Moment, *script: Any, **more: Any) -> None:
    probe = HoldingProbe()
    probe.hold(moment)
    async with crashing_harness(store, *script, clock=clock, probe=probe, **more):
        await probe.reached(moment)


async def test_c02_a_finished_step_refills_the_budget(store: Store, clock: FakeClock) -> None:
    settings = quiet_settings(resume_attempts_max=2)
    tools = [FakeTool("look", is_safe_to_repeat=True)]
    _, turn_id = await _crash_at(store, clock, Moment.MODEL_CALLED, tools=tools, settings=settings)
    await _crash_again(store, clock, Moment.MODEL_CALLED, tools=tools, settings=settings)
    await _crash_again(store, clock, Moment.STEP_FINISHED, [CallTool("look")], tools=tools, settings=settings)
    await _crash_again(store, clock, Moment.TOOL_STARTED, tools=tools, settings=settings)
    async with open_harness(store, "done", tools=tools, clock=clock, settings=settings) as h:
        turn = await h.settled(turn_id)
        assert turn.state is TurnState.COMPLETED
        assert (await h.store.turns.get(OWNER, turn_id)).attempts >= 3


async def test_c02_a_turn_past_its_age_is_interrupted_and_waiting_does_not_count(
    store: Store, clock: FakeClock
) -> None:
    day = 24 * 3600
    tools = [FakeTool("pay")]
    session, turn_id = await _crash_at(
        store, clock, Moment.ASK_COMMITTED, [CallTool("pay")], tools=tools, rules={"pay": Verdict.ASK}
    )
    await clock.jump(3 * day)
    async with open_harness(store, "Paid.", tools=tools, rules={"pay": Verdict.ASK}, clock=clock) as h:
        assert (await h.answer(session, "once")).state is TurnState.COMPLETED
    session, turn_id = await _crash_at(store, clock, Moment.MODEL_CALLED)
    await clock.jump(day + 60)
    async with open_harness(store, clock=clock) as h:
        turn = await h.settled(turn_id)
        assert turn.state is TurnState.INTERRUPTED
        assert turn.failure is not None
        assert turn.failure.code == "resume_age"


@pytest.mark.parametrize("jump_s", [24 * 3600 + 60, -24 * 3600], ids=["forward", "back"])
async def test_c02_a_wall_clock_that_is_set_while_a_turn_runs_neither_ages_it_nor_uses_its_minutes(
    store: Store, clock: FakeClock, probe: HoldingProbe, jump_s: float
) -> None:
    """It is set during the model call; then the turn asks, is answered, and works on."""
    tools, rules = [FakeTool("pay"), FakeTool("look")], {"pay": Verdict.ASK}
    script: tuple[Answer, ...] = ([CallTool("pay")], [CallTool("look")], "Paid.")
    settings = quiet_settings(minutes_max=10.0)
    async with open_harness(
        store, *script, tools=tools, rules=rules, clock=clock, probe=probe, settings=settings
    ) as h:
        session = await h.new_session()
        probe.hold(Moment.MODEL_CALLED)
        accepted = await h.send(session)
        await probe.reached(Moment.MODEL_CALLED)
        clock.set_wall(jump_s)
        probe.release(Moment.MODEL_CALLED)
        assert (await h.settled(accepted.turn.id)).state is TurnState.WAITING
        probe.hold(Moment.TOOL_STARTED)
        ask = await h.ask(session)
        await h.engine.answer(OWNER, ask.id, "once", by=OWNER)
        await probe.reached(Moment.TOOL_STARTED)
        clock.set_wall(jump_s)
        probe.release(Moment.TOOL_STARTED)
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED, turn.failure
        topics = [e.payload.topic for e in await h.events(session) if e.kind == "question.asked"]
        assert topics == []


async def test_c02_minutes_are_counted_by_the_monotonic_clock(store: Store, clock: FakeClock) -> None:
    """Work before a question and after it adds up, whatever the wall clock was set to in between."""

    async def slow(call: ToolCall, emit: Emit) -> ToolResult:
        clock.set_wall(-3600)
        clock.stand_still(6 * 60)
        return ToolResult("done")

    tools = [FakeTool("pay", slow)]
    script: tuple[Answer, ...] = ([CallTool("pay")], [CallTool("pay")], "Paid.")
    settings = quiet_settings(minutes_max=10.0)
    async with open_harness(
        store, *script, tools=tools, rules={"pay": Verdict.ASK}, clock=clock, settings=settings
    ) as h:
        session = await h.new_session()
        await h.run(session)
        assert (await h.answer(session, "once")).state is TurnState.WAITING
        turn = await h.answer(session, "once")
        assert turn.state is TurnState.WAITING
        assert (await h.ask(session)).topic == "limit"
        assert "12 minutes" in (await h.ask(session)).text
        assert (await h.answer(session, "continue")).state is TurnState.COMPLETED


async def test_c02_a_stop_at_a_limit_survives_a_crash(store: Store, clock: FakeClock) -> None:
    settings = quiet_settings(steps_max=1)
    tools = [FakeTool("look")]
    session, _turn_id = await _crash_at(
        store, clock, Moment.ASK_COMMITTED, [CallTool("look")], tools=tools, settings=settings
    )
    async with open_harness(store, tools=tools, settings=settings, clock=clock) as h:
        assert (await h.answer(session, LimitAnswer.STOP)).state is TurnState.CANCELLED
        assert h.model.requests == []


# --- C03 ----------------------------------------------------------------------------------------------


async def test_c03_an_interrupted_turn_shows_what_it_had_and_frees_the_session(
    store: Store, clock: FakeClock
) -> None:
    settings = quiet_settings(resume_attempts_max=0)
    script: tuple[Answer, ...] = ([Say("First. "), CallTool("look")], [Say("Then half"), Pause(FOREVER)])
    async with crashing_harness(store, *script, tools=[FakeTool("look", "seen")], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta", 2)
    async with open_harness(store, "fresh", tools=[FakeTool("look")], clock=clock, settings=settings) as h:
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.INTERRUPTED
        assert turn.recovery is Recovery.FINAL
        messages = await h.messages(session)
        assert [f"{m.role}: {m.text}" for m in messages] == [
            "user: hello",
            "assistant: First. ",
            "tool: ",
            "assistant: Then half",
        ]
        assert all(m.is_recovered for m in messages[1:])
        assert (await h.engine.session(OWNER, session.id)).active_turn is None
        assert (await h.run(session, "next")).state is TurnState.COMPLETED


# --- C07, C08 -----------------------------------------------------------------------------------------


async def test_c07_many_readers_take_a_dead_turn_over_once(
    store: Store, open_another: Any, clock: FakeClock
) -> None:
    other = await open_another()
    async with open_harness(other, "once", clock=clock) as h:
        session, turn_id = await _crash_at(store, clock, Moment.MODEL_CALLED, "never")
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(h.engine.messages, OWNER, session.id)
        await h.settled(turn_id)
        assert len(h.model.requests) == 1
        assert (await h.kinds(session)).count("turn.resumed") == 1


async def test_c08_the_transcript_is_the_fold_of_the_journal_also_after_a_crash(
    store: Store, clock: FakeClock
) -> None:
    tools = [FakeTool("look", "seen")]
    session, turn_id = await _crash_at(
        store, clock, Moment.STEP_FINISHED, [Think("hm"), Say("Let me see. "), CallTool("look")], tools=tools
    )
    async with open_harness(store, "It is a cat.", tools=tools, clock=clock) as h:
        await h.settled(turn_id)
        journal = await store.journal.of_turn(OWNER, turn_id)
        folded = fold(turn_id, journal, is_ended=True)
        assert tuple(await h.messages(session))[1:] == folded.messages
        before = (await h.messages(session), await h.engine.session(OWNER, session.id))
        assert not await store.journal.recover(OWNER, session.id)
        assert (await h.messages(session), await h.engine.session(OWNER, session.id)) == before


# --- C09 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [Moment.CLAIM_COMMITTED, Moment.STEP_FINISHED])
async def test_c09_a_worker_that_was_thought_dead_starts_nothing_and_writes_nothing(
    store: Store, open_another: Any, clock: FakeClock, tmp_path: Path, moment: Moment
) -> None:
    effects = tmp_path / "effects"
    zombie_probe = HoldingProbe()
    zombie_probe.hold(moment)
    other = await open_another()
    tools = [CountingTool("pay", effects)]
    async with open_harness(
        store, [CallTool("pay")], "zombie", tools=tools, clock=clock, probe=zombie_probe
    ) as z:
        session = await z.new_session()
        accepted = await z.send(session)
        await zombie_probe.reached(moment)
        asked = len(z.model.requests)
        store.workers.close()  # as if its process were gone
        survivors = () if moment is Moment.STEP_FINISHED else ([CallTool("pay")],)
        async with open_harness(other, *survivors, "survivor", tools=tools, clock=clock) as h:
            assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
            before = await h.events(session)
            zombie_probe.release(moment)
            with anyio.fail_after(60):
                while z.engine.status()["running"]:
                    await anyio.lowlevel.checkpoint()
            assert await h.events(session) == before, "nothing of it landed"
            assert len(z.model.requests) == asked, "it called no model"
            assert sum(count_effects(effects).values()) == 1, "it ran no tool"


@pytest.mark.parametrize("lease_s", [15.0])
async def test_c09_a_worker_that_cannot_renew_its_lease_waits_before_it_starts_anything(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    if store.kind == "sqlite":
        pytest.skip("SQLite has no leases: there the lock decides")
    look = FakeTool("look")
    probe.hold(Moment.TOOL_STARTED)
    async with open_harness(store, [CallTool("look")], "ok", tools=[look], clock=clock, probe=probe) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.TOOL_STARTED)
        # The process stands still past its lease: nothing could be renewed.
        clock.stand_still(60)
        probe.release(Moment.TOOL_STARTED)
        await task_waits_in(Lease.wait_held)
        assert look.calls == []
        await clock.jump(5)  # the next heartbeat renews it, and the turn is still ours
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        assert len(look.calls) == 1


# --- C10, C11 -----------------------------------------------------------------------------------------


async def test_c10_a_reader_continues_after_the_crash_without_gap_or_repeat(
    store: Store, open_another: Any, clock: FakeClock
) -> None:
    seen: list[Event] = []
    async with crashing_harness(store, [Say("one two ", 4), Pause(FOREVER)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        async for batch in h.engine.follow(OWNER, session.id, accepted.cursor):
            seen.extend(batch)
            if any(event.kind == "text.delta" for event in batch):
                break
    other = await open_another()
    async with open_harness(other, "three", clock=clock) as h:
        async for batch in h.engine.follow(OWNER, session.id, seen[-1].position):
            seen.extend(batch)
            if batch[-1].kind == "turn.completed":
                break
        positions = [event.position for event in seen]
        assert positions == list(range(accepted.cursor + 1, accepted.cursor + 1 + len(seen)))
        assert seen == await h.events(session)


ENGINE_MOMENTS = (
    Moment.CLAIM_COMMITTED,
    Moment.MODEL_CALLED,
    Moment.DELTA_OFFERED,
    Moment.STEP_FINISHED,
    Moment.TOOL_STARTED,
    Moment.TOOL_RAN,
    Moment.TOOL_FINISHED,
    Moment.WRITER_QUIET,
)


@pytest.mark.parametrize("moment", ENGINE_MOMENTS)
@pytest.mark.parametrize("nth", [1, 2])
async def test_c11_whatever_moment_the_crash_chose_the_model_gets_a_valid_history(
    store: Store, clock: FakeClock, tmp_path: Path, moment: Moment, nth: int
) -> None:
    if moment is Moment.WRITER_QUIET and nth == 2:
        pytest.skip("a turn is quiet once")
    if moment is Moment.CLAIM_COMMITTED and nth == 2:
        pytest.skip("one process claims a turn once")
    effects = tmp_path / "effects"
    tools: list[Tool] = [CountingTool("pay", effects), FakeTool("look", "seen", is_safe_to_repeat=True)]
    calls: list[ScriptStep] = [Say("Two things. "), CallTool("pay", {"sum": 1}), CallTool("look")]
    script: tuple[Answer, ...] = (calls, [Say("And one more. "), CallTool("look", {"n": 2})], "All done.")
    session, turn_id = await _crash_at(store, clock, moment, *script, nth=nth, tools=tools)
    model = ScriptedModel(then="All done.")
    async with open_harness(store, model=model, tools=tools, clock=clock) as h:
        turn = await h.settled(turn_id)
        if turn.state is TurnState.WAITING:
            turn = await h.answer(session, "check")
        assert turn.state is TurnState.COMPLETED
        await h.run(session, "and now?")
        for request in model.requests:
            _check_valid(request)
        assert sum(count_effects(effects).values()) <= 1
        assert (await h.texts(session)).count("user: hello") == 1


def _check_valid(request: ModelRequest) -> None:
    """Every call has its result right after it, every result its call, and nothing abandoned is there."""
    open_calls: list[str] = []
    for message in request.messages:
        results = [part.call_id for part in message.parts if isinstance(part, Result)]
        assert sorted(results) == sorted(open_calls)
        open_calls = [part.id for part in message.parts if isinstance(part, Call)]
        assert not any(getattr(part, "is_abandoned", False) for part in message.parts)
    assert open_calls == []
    assert request.messages[0].role is Role.USER


async def test_c11_a_cancelled_tool_call_is_stated_as_unknown(store: Store, clock: FakeClock) -> None:
    async def forever(call: Any, emit: Any) -> Any:
        await anyio.sleep_forever()

    async with open_harness(
        store,
        [CallTool("forever"), CallTool("forever")],
        "ok",
        tools=[FakeTool("forever", forever)],
        clock=clock,
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "tool.started")
        await h.engine.cancel(OWNER, accepted.turn.id)
        await h.run(session, "go on")
        outcomes = [result.outcome for result in _results(h.model.requests[-1].messages)]
        assert outcomes == [Outcome.UNKNOWN, Outcome.CANCELLED]
        _check_valid(h.model.requests[-1])


async def test_a_handed_over_turn_continues_elsewhere_and_costs_no_attempt(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, [Say("half"), Pause(FOREVER)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
    assert await _kinds_of(store, session.id) == "text.delta"
    async with open_harness(store, "whole", clock=clock) as h:
        turn = await h.settled(accepted.turn.id)
        assert (turn.state, turn.attempts) == (TurnState.COMPLETED, 0)
        resumed = (await h.seen(session, "turn.resumed")).payload
        assert resumed.reason == "handed_over"
        await h.engine.undo(OWNER, session.id, Request(key="u"))


async def _kinds_of(store: Store, session_id: str) -> str:
    return (await store.journal.after(OWNER, session_id, 0))[-1].kind


async def test_a_turn_that_may_not_run_more_at_once_waits_for_its_place(
    store: Store, clock: FakeClock
) -> None:
    gate = anyio.Event()

    async def held(call: Any, emit: Any) -> Any:
        await gate.wait()
        return await FakeTool("x").run(call, emit)

    # One turn may be given several of the calls, and is not to be asked about it.
    settings = quiet_settings(owner_turns_max=2, repeats_max=10)
    model = ScriptedModel(*[[CallTool("held")]] * 4, then="ok")
    async with open_harness(
        store, model=model, tools=[FakeTool("held", held)], clock=clock, settings=settings
    ) as h:
        sessions = [await h.new_session() for _ in range(4)]
        accepted = [await h.send(session) for session in sessions]
        await _until_running(h, 2)
        await clock.jump(5)
        states = [(await h.turn(a.turn.id)).state for a in accepted]
        assert states.count(TurnState.RUNNING) == 2
        assert states.count(TurnState.QUEUED) == 2
        gate.set()
        for one in accepted:
            assert (await h.settled(one.turn.id)).state is TurnState.COMPLETED


async def _until_running(h: Harness, count: int) -> None:
    with anyio.fail_after(60):
        while h.engine.status()["running"] < count:
            await anyio.lowlevel.checkpoint()
