"""The loop over the real store: what a turn does from its claim to its end."""

import anyio
import pytest

from everturn.domain.errors import FileUnreadable
from everturn.domain.messages import Outcome, Result, Role
from everturn.domain.model import Abilities
from everturn.domain.model_errors import (
    ContextTooLong,
    ModelDropped,
    ModelOverloaded,
    ModelRefused,
    ModelTimeout,
    ModelUnknown,
    RateLimited,
    StreamCut,
)
from everturn.domain.tool import ToolQuestion, ToolResult, Verdict
from everturn.domain.turns import TurnState, Usage
from everturn.testing import CallTool, FakeTool, ModelFails, Pause, Say, ScriptedModel, ScriptedModels, Think
from everturn.testing.harness import OWNER, open_harness, quiet_settings
from everturn.testing.models import End, Preparing
from tests.blobs import content_of, lose_bytes

pytestmark = pytest.mark.anyio
CUT = StreamCut("cut", retry_after_s=9.0)


async def test_a_plain_answer_is_folded_into_the_transcript(store, clock):
    async with open_harness(store, [Say("Good morning.", 3)], clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session, "hello")
        assert turn.state is TurnState.COMPLETED
        assert await h.texts(session) == ["user: hello", "assistant: Good morning."]
        assert turn.usage == Usage(input_tokens=10, output_tokens=5)
        assert [m.text for m in h.model.requests[0].messages] == ["hello"]


async def test_a_tool_call_runs_between_two_steps(store, clock):
    look = FakeTool("look", "a cat")
    script = ([Say("Let me look."), CallTool("look", {"at": "photo"})], "It is a cat.")
    async with open_harness(store, *script, tools=[look], clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session, "what is it?")
        assert turn.state is TurnState.COMPLETED
        assert look.calls[0].arguments == {"at": "photo"}
        assert look.calls[0].key == f"{turn.id}:call_1"
        last = h.model.requests[1].messages
        assert [m.role for m in last] == [Role.USER, Role.ASSISTANT, Role.TOOL]
        assert "a cat" in last[2].parts[0].text
        assert last[2].parts[0].text.startswith("<untrusted")
        assert await h.texts(session) == [
            "user: what is it?",
            "assistant: Let me look.",
            "tool: ",
            "assistant: It is a cat.",
        ]


async def test_queued_messages_run_one_after_the_other(store, clock):
    async with open_harness(store, "one", "two", "three", clock=clock) as h:
        session = await h.new_session()
        for text in ("a", "b"):
            await h.send(session, text)
        await h.run(session, "c")
        assert await h.texts(session) == [
            "user: a",
            "assistant: one",
            "user: b",
            "assistant: two",
            "user: c",
            "assistant: three",
        ]


async def test_bad_arguments_and_unknown_tools_are_reported_to_the_model(store, clock):
    look = FakeTool("look")
    script = ([CallTool("look", "{broken"), CallTool("lok", {}), CallTool("look", "[1]")], "I see.")
    async with open_harness(store, *script, tools=[look], clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.COMPLETED
        assert look.calls == []
        results = [p for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert [r.outcome for r in results] == [Outcome.ERROR] * 3
        assert "not valid JSON" in results[0].text
        assert "The tools are: look." in results[1].text
        assert "JSON object" in results[2].text


async def test_calls_with_the_same_id_are_distinguished(store, clock):
    look = FakeTool("look", "x")
    script = (
        [CallTool("look", {"n": 1}, id="same"), CallTool("look", {"n": 2}, id="same")],
        [CallTool("look", {"n": 3}, id="same")],
        "done",
    )
    async with open_harness(store, *script, tools=[look], clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        assert [c.arguments["n"] for c in look.calls] == [1, 2, 3]
        assert len({c.id for c in look.calls}) == 3
        results = [p.call_id for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert results == [c.id for c in look.calls]


async def test_a_raising_tool_is_contained(store, clock):
    async def broken(call, emit):
        raise KeyError("oops")

    async with open_harness(
        store, [CallTool("bad")], "sorry", tools=[FakeTool("bad", broken)], clock=clock
    ) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.COMPLETED
        (result,) = [p for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert result.outcome is Outcome.ERROR
        assert "KeyError" in result.text


async def test_a_tool_that_takes_too_long_is_ended(store, clock):
    ended = []

    async def slow(call, emit):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    tools = [FakeTool("slow", slow, timeout_s=30)]
    async with open_harness(store, [CallTool("slow")], "ok", tools=tools, clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await clock.someone_sleeps(30)
        await clock.advance(30)
        await h.settled(accepted.turn.id)
        (result,) = [p for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert "longer than 30 seconds" in result.text
        assert ended == [True]


async def test_live_output_is_bounded_and_the_whole_is_an_artifact(store, clock):
    async def noisy(call, emit):
        for _ in range(40):
            await emit("x" * 10_000)
        return ToolResult("y" * 100_000, full_output=b"z" * 500_000)

    tools = [FakeTool("noisy", noisy, output_bytes_max=3000)]
    async with open_harness(store, [CallTool("noisy")], "ok", tools=tools, clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        shown = [e.payload for e in await h.events(session) if e.kind == "tool.output"]
        assert sum(len(p.text) for p in shown) == 262_144
        (result,) = [p for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert len(result.text) < 3200
        assert "bytes left out" in result.text
        assert await content_of(store, OWNER, result.artifact) == b"z" * 500_000


async def test_live_output_has_at_most_ten_events_a_second(store, clock):
    async def ticking(call, emit):
        for _ in range(100):
            await emit("tick\n")
            await clock.advance(0.01)
        return ToolResult("done")

    tools = [FakeTool("ticking", ticking)]
    async with open_harness(store, [CallTool("ticking")], "ok", tools=tools, clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        shown = [e.payload for e in await h.events(session) if e.kind == "tool.output"]
        assert 2 <= len(shown) <= 12
        assert "".join(p.text for p in shown) == "tick\n" * 100


# --- asking -------------------------------------------------------------------------------------------


async def test_an_approved_call_runs_and_a_denied_one_does_not(store, clock):
    pay, wipe = FakeTool("pay"), FakeTool("wipe")
    script = ([CallTool("pay", {"sum": 5}), CallTool("wipe")], "done")
    rules = {"pay": Verdict.ASK, "wipe": Verdict.ASK}
    async with open_harness(store, *script, tools=[pay, wipe], rules=rules, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.WAITING
        asks = {ask.name: ask for ask in await store.asks.open(OWNER, session.id)}
        assert set(asks) == {"pay", "wipe"}, "both are asked at once"
        assert asks["pay"].topic == "approval"
        await h.engine.answer(OWNER, asks["pay"].id, "once", by="ada")
        assert pay.calls == [], "nothing runs before all is answered"
        await h.engine.answer(OWNER, asks["wipe"].id, "deny", by="ada")
        turn = await h.settled(turn.id)
        assert turn.state is TurnState.COMPLETED
        assert len(pay.calls) == 1
        assert wipe.calls == []
        results = [p for m in await h.messages(session) for p in m.parts if isinstance(p, Result)]
        assert [r.outcome for r in results] == [Outcome.OK, Outcome.DENIED]


async def test_an_answer_that_reaches_further_is_remembered(store, clock):
    pay = FakeTool("pay")
    script = ([CallTool("pay", {"n": 1})], [CallTool("pay", {"n": 2})], "done")
    async with open_harness(store, *script, tools=[pay], rules={"pay": Verdict.ASK}, clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        turn = await h.answer(session, "session")
        assert turn.state is TurnState.COMPLETED
        assert h.toolbox.remembered == [("pay", "session")]
        assert len(pay.calls) == 2


async def test_once_holds_for_one_call_only(store, clock):
    pay = FakeTool("pay")
    script = ([CallTool("pay", {"n": 1})], [CallTool("pay", {"n": 1})], "done")
    async with open_harness(store, *script, tools=[pay], rules={"pay": Verdict.ASK}, clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        assert (await h.answer(session, "once")).state is TurnState.WAITING
        assert len(pay.calls) == 1


async def test_a_denied_rule_never_asks(store, clock):
    wipe = FakeTool("wipe")
    async with open_harness(
        store, [CallTool("wipe")], "ok", tools=[wipe], rules={"wipe": Verdict.DENY}, clock=clock
    ) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.COMPLETED
        assert wipe.calls == []


async def test_a_tools_question_becomes_its_result(store, clock):
    async def asks(call, emit):
        return ToolQuestion("Red or blue?", ("red", "blue"))

    tools = [FakeTool("ask", asks, is_untrusted=False)]
    async with open_harness(store, [CallTool("ask")], "Blue it is.", tools=tools, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.WAITING
        ask = await h.ask(session)
        assert (ask.topic, ask.text, ask.choices) == ("question", "Red or blue?", ("red", "blue"))
        assert (await h.answer(session, "blue")).state is TurnState.COMPLETED
        assert h.model.requests[1].messages[-1].parts[0].text == "blue"


async def test_an_expired_approval_is_a_denial(store, clock):
    pay = FakeTool("pay")
    settings = quiet_settings(ask_expires_s=60)
    async with open_harness(
        store,
        [CallTool("pay")],
        "ok",
        tools=[pay],
        rules={"pay": Verdict.ASK},
        clock=clock,
        settings=settings,
    ) as h:
        session = await h.new_session()
        turn = await h.run(session)
        await clock.jump(66)
        await h.seen(session, "approval.resolved")
        turn = await h.settled(turn.id)
        assert turn.state is TurnState.COMPLETED
        assert pay.calls == []
        results = [message.parts[0] for message in await h.messages(session) if message.role is Role.TOOL]
        assert [(part.outcome, part.decision) for part in results] == [("denied", "expired")]


@pytest.mark.parametrize(("decision", "outcome"), [("deny", "denied"), ("session", "ok")])
async def test_the_transcript_keeps_what_an_approval_was_answered(store, clock, decision, outcome):
    tools, rules = [FakeTool("pay")], {"pay": Verdict.ASK}
    async with open_harness(store, [CallTool("pay")], "ok", tools=tools, rules=rules, clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        assert (await h.answer(session, decision)).state is TurnState.COMPLETED
        (result,) = (message.parts[0] for message in await h.messages(session) if message.role is Role.TOOL)
        assert (result.outcome, result.decision) == (outcome, decision)


async def test_the_same_call_with_the_same_result_three_times_asks(store, clock):
    look = FakeTool("look", "nothing")
    script = [[CallTool("look", {"at": 1})] for _ in range(6)]
    async with open_harness(store, *script, "gave up", tools=[look], clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.WAITING
        assert (await h.ask(session)).topic == "repeat"
        assert len(look.calls) == 3
        turn = await h.answer(session, "continue")
        assert turn.state is TurnState.WAITING
        assert len(look.calls) == 6
        turn = await h.answer(session, "stop")
        assert turn.state is TurnState.CANCELLED
        assert len(look.calls) == 6


async def test_the_step_limit_asks_and_a_grant_doubles_it(store, clock):
    look = FakeTool("look", "x")
    script = [[CallTool("look", {"n": n})] for n in range(5)]
    settings = quiet_settings(steps_max=2)
    async with open_harness(store, *script, tools=[look], clock=clock, settings=settings) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.WAITING
        ask = await h.ask(session)
        assert ask.topic == "limit"
        assert "2 steps" in ask.text
        assert (await h.answer(session, "continue")).state is TurnState.WAITING
        assert len(look.calls) == 4


async def test_the_minutes_limit_counts_work_and_not_waiting(store, clock):
    async def long(call, emit):
        await clock.jump(40 * 60)
        return ToolResult("ok")

    tools = [FakeTool("long", long, timeout_s=1e9), FakeTool("ask", "ok")]
    script = ([CallTool("ask")], [CallTool("long", {"n": 1})], [CallTool("long", {"n": 2})], "done")
    async with open_harness(store, *script, tools=tools, rules={"ask": Verdict.ASK}, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        await clock.jump(5 * 3600)
        turn = await h.answer(session, "once")
        assert turn.state is TurnState.WAITING
        assert "80 minutes" in (await h.ask(session)).text


@pytest.mark.parametrize(
    ("limit", "said"), [({"tokens_max": 30}, "30 tokens"), ({"cost_usd_max": 0.5}, "0.50 USD")]
)
async def test_token_and_cost_limits_ask(store, clock, limit, said):
    usage = Usage(input_tokens=10, output_tokens=5, cost_usd=0.25)
    model = ScriptedModel(*[[CallTool("look", {"n": n})] for n in range(4)], usage=usage)
    async with open_harness(
        store, model=model, tools=[FakeTool("look")], clock=clock, settings=quiet_settings(**limit)
    ) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.WAITING
        assert said in (await h.ask(session)).text


# --- model trouble ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RateLimited, ModelOverloaded, ModelTimeout, ModelDropped])
async def test_transient_trouble_is_retried_visibly(store, clock, error):
    async with open_harness(store, error("busy", retry_after_s=7.0), "fine", clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await clock.someone_sleeps(7.0)
        abandoned = (await h.seen(session, "step.abandoned")).payload
        assert (abandoned.reason, abandoned.retry_in_ms) == (error.reason, 7000)
        await clock.advance(7.0)
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED


async def test_a_cut_stream_is_asked_again_and_its_text_is_kept_aside(store, clock):
    async with open_harness(
        store, [Say("Half an ans"), ModelFails(CUT)], "A whole answer.", clock=clock
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await clock.someone_sleeps(9.0)
        await clock.advance(9.0)
        await h.settled(accepted.turn.id)
        message = (await h.messages(session))[-1]
        assert message.text == "A whole answer."
        assert [(p.text, p.is_abandoned) for p in message.parts] == [
            ("Half an ans", True),
            ("A whole answer.", False),
        ]
        assert [m.text for m in h.model.requests[1].messages] == ["hello"]


async def test_a_model_that_is_able_to_continues_its_own_text(store, clock):
    model = ScriptedModel(
        [Say("Half an ans"), ModelFails(CUT)], "wer.", abilities=Abilities(continues=True), clock=clock
    )
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await clock.someone_sleeps(9.0)
        await clock.advance(9.0)
        await h.settled(accepted.turn.id)
        assert model.requests[1].prefix == "Half an ans"
        assert [m.text for m in model.requests[1].messages] == ["hello"]
        assert (await h.messages(session))[-1].text == "Half an answer."


async def test_after_its_attempts_the_next_model_of_the_chain_answers(store, clock):
    first = ScriptedModel(then=ModelOverloaded("busy", retry_after_s=9.0), name="a:first", clock=clock)
    second = ScriptedModel([CallTool("look")], "from the second", name="b:second", clock=clock)
    settings = quiet_settings(fallback_models=("b:second",), model_attempts_max=3)
    async with open_harness(
        store,
        model=first,
        models=ScriptedModels(first, second),
        tools=[FakeTool("look")],
        clock=clock,
        settings=settings,
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        for _ in range(2):
            await clock.someone_sleeps(9.0)
            await clock.advance(9.0)
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.COMPLETED
        assert len(first.requests) == 3, "the second step stays with the model that works"
        assert len(second.requests) == 2
        assert (await h.messages(session))[-1].model == "b:second"


async def test_a_half_answer_of_one_model_is_not_continued_by_another(store, clock):
    can = Abilities(continues=True)
    first = ScriptedModel([Say("Half"), ModelFails(ModelRefused("no credit"))], name="a:first", abilities=can)
    second = ScriptedModel("Whole.", name="b:second", abilities=can)
    settings = quiet_settings(fallback_models=("b:second",))
    async with open_harness(
        store, model=first, models=ScriptedModels(first, second), clock=clock, settings=settings
    ) as h:
        session = await h.new_session()
        assert (await h.run(session)).state is TurnState.COMPLETED
        assert second.requests[0].prefix == ""
        assert (await h.messages(session))[-1].text == "Whole."


async def test_a_refusal_without_a_fallback_fails_with_the_reason(store, clock):
    async with open_harness(store, ModelRefused("The key is wrong.", hint="Set another."), clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.FAILED
        assert turn.failure.code == "model_refused"
        assert turn.failure.message == "The key is wrong."
        assert turn.failure.hint == "Set another."


async def test_a_model_that_is_never_ready_is_given_up(store, clock):
    models = ScriptedModels(
        ScriptedModel(name="a:one"), troubles={"a:one": ModelDropped("not up", retry_after_s=9.0)}
    )
    settings = quiet_settings(model_attempts_max=3)
    async with open_harness(store, models=models, clock=clock, settings=settings) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        for _ in range(2):
            await clock.someone_sleeps(9.0)
            await clock.advance(9.0)
        turn = await h.settled(accepted.turn.id)
        assert turn.state is TurnState.FAILED
        assert turn.failure.code == "model_dropped"


async def test_a_provider_that_wants_too_long_is_given_up(store, clock):
    async with open_harness(store, RateLimited("tomorrow", retry_after_s=86_400.0), clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert (turn.state, turn.failure.code) == (TurnState.FAILED, "model_rate_limited")


async def test_a_silent_stream_is_ended_by_the_watch(store, clock):
    settings = quiet_settings(model_silence_max_s=20, model_attempts_max=1)
    async with open_harness(store, [Say("a"), Pause(1e6)], clock=clock, settings=settings) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        await clock.advance(22)
        turn = await h.settled(accepted.turn.id)
        assert turn.failure.code == "model_timeout"
        assert h.model.open_streams == 0


async def test_an_unknown_model_fails_the_turn(store, clock):
    async with open_harness(store, "never", clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session, model="a:typo")
        assert turn.failure.code == ModelUnknown.code
        assert (await h.run(session, "again")).state is TurnState.COMPLETED


async def test_reasoning_is_kept_and_given_back_only_to_its_model(store, clock):
    one = ScriptedModel([Think("hm", opaque={"sig": 1}), Say("A")], "B", name="a:one")
    two = ScriptedModel("C", name="a:two")
    async with open_harness(store, model=one, models=ScriptedModels(one, two), clock=clock) as h:
        session = await h.new_session()
        await h.run(session, "1")
        await h.run(session, "2")
        assert one.requests[1].messages[1].parts[0].opaque == {"sig": 1}
        await h.run(session, "3", model="a:two")
        assert all(p.__class__.__name__ != "Reasoning" for m in two.requests[0].messages for p in m.parts)


async def test_a_download_is_shown_as_progress(store, clock):
    async with open_harness(store, [Preparing("Fetching", 1, 10), Say("hi")], clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        progress = (await h.seen(session, "progress")).payload
        assert (progress.label, progress.done, progress.total) == ("Fetching", 1, 10)


async def test_a_filtered_answer_says_so(store, clock):
    async with open_harness(store, [End("filtered")], clock=clock) as h:
        session = await h.new_session()
        assert (await h.run(session)).failure.code == "model_filtered"


# --- steering and context -----------------------------------------------------------------------------


async def test_steering_joins_between_steps(store, clock):
    gate = anyio.Event()

    async def slow(call, emit):
        await gate.wait()
        return ToolResult("ok")

    async with open_harness(
        store, [CallTool("slow")], "As you wish.", tools=[FakeTool("slow", slow)], clock=clock
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session, "go")
        await h.seen(session, "tool.started")
        steering = await h.send(session, "but in green", when_busy="steer")
        assert steering.is_steering
        gate.set()
        await h.settled(accepted.turn.id)
        assert [m.text for m in h.model.requests[1].messages] == ["go", "", "", "but in green"]
        assert await h.texts(session) == [
            "user: go",
            "assistant: ",
            "tool: ",
            "user: but in green",
            "assistant: As you wish.",
        ]


async def test_interrupting_ends_the_running_turn_and_runs_the_new_message(store, clock):
    async with open_harness(store, [Say("long"), Pause(1e6)], "short", clock=clock) as h:
        session = await h.new_session()
        first = await h.send(session, "one")
        await h.seen(session, "text.delta")
        turn = await h.run(session, "two", when_busy="interrupt")
        assert turn.state is TurnState.COMPLETED
        assert (await h.turn(first.turn.id)).state is TurnState.CANCELLED
        assert h.model.open_streams == 0
        assert await h.texts(session) == ["user: one", "assistant: long", "user: two", "assistant: short"]


async def test_a_context_refusal_is_compacted_and_tried_once_more(store, clock):
    script = ("one", "two", ContextTooLong("too long"), "THE SUMMARY", "three")
    async with open_harness(store, *script, clock=clock) as h:
        session = await h.new_session()
        for text in ("a" * 6000, "b" * 6000):
            await h.run(session, text)
        turn = await h.run(session, "c")
        assert turn.state is TurnState.COMPLETED
        last = h.model.requests[-1].messages
        assert "THE SUMMARY" in last[0].text
        assert last[-1].text == "c"
        assert not any("a" * 6000 in m.text for m in last)
        assert len(await h.messages(session)) == 7, "the older messages stay readable"


async def test_a_failing_summary_is_reported_and_loses_nothing(store, clock):
    script = ("one", ContextTooLong("too long"), ModelRefused("no"))
    async with open_harness(store, *script, clock=clock) as h:
        session = await h.new_session()
        await h.run(session, "a" * 9000)
        turn = await h.run(session, "b")
        assert (turn.state, turn.failure.code) == (TurnState.FAILED, "compaction_failed")
        assert "summary failed" in turn.failure.message
        assert (await h.texts(session))[0] == "user: " + "a" * 9000


async def test_a_single_message_longer_than_the_window_fails_clearly(store, clock):
    model = ScriptedModel("never", abilities=Abilities(context_tokens=500))
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session, "a" * 9000)
        assert turn.state is TurnState.FAILED
        assert "longer than the model's window" in turn.failure.message
        assert model.requests == []


@pytest.mark.parametrize(
    ("prompt", "is_brief", "told"),
    [("Long words.", True, "Few."), ("Long words.", False, "Long words."), ("My own.", True, "My own.")],
)
async def test_a_small_model_with_tools_is_given_the_short_form_of_a_prompt_that_has_one(
    store, clock, prompt, is_brief, told
):
    model = ScriptedModel("Yes.", abilities=Abilities(is_brief=is_brief))
    settings = quiet_settings(system_prompt=prompt, short_prompts={"Long words.": "Few."})
    async with open_harness(
        store, model=model, settings=settings, tools=[FakeTool("look")], clock=clock
    ) as h:
        await h.run(await h.new_session(), "hello")
        assert model.requests[0].system == told
        assert [tool.name for tool in model.requests[0].tools] == ["look"]


async def test_past_the_threshold_a_compaction_follows_by_itself(store, clock):
    model = ScriptedModel("one", "two", "SUMMARY", "three", abilities=Abilities(context_tokens=2000))
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        await h.run(session, "a" * 3000)
        await h.run(session, "b" * 3000)
        await h.seen(session, "turn.completed", 3)
        await h.run(session, "c")
        assert "SUMMARY" in model.requests[-1].messages[0].text


async def test_halves_of_characters_from_a_model_or_a_tool_do_not_fail_the_turn(store, clock):
    broken = FakeTool("look", "bad \udcff")
    script = ([Say("half \ud83d"), CallTool("look", {})], "Done.")
    async with open_harness(store, *script, tools=[broken], clock=clock) as h:
        session = await h.new_session()
        assert (await h.run(session, "go")).state is TurnState.COMPLETED
        assert (await h.texts(session))[1] == "assistant: half ?"


@pytest.mark.parametrize("media_type", ["text/plain", "application/pdf", "image/png"])
async def test_an_attachment_that_is_gone_from_the_disk_does_not_end_the_session(store, clock, media_type):
    model = ScriptedModel("One.", "Two.", clock=clock, abilities=Abilities(images=True))
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        file = await store.files.put(OWNER, "notes", media_type, b"bytes")
        await lose_bytes(store, OWNER, file.id)
        for turn in (await h.run(session, attachments=(file.id,)), await h.run(session)):
            assert turn.state is TurnState.COMPLETED
        assert "notes" in h.model.requests[0].messages[0].text


async def test_a_turn_whose_attachment_cannot_be_read_now_is_interrupted_and_not_answered_without_it(
    store, clock, monkeypatch
):
    model = ScriptedModel("One.", clock=clock)
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        file = await store.files.put(OWNER, "notes", "text/plain", b"bytes")
        read = store.files.read

        async def read_that_fails(*_):
            raise FileUnreadable("The file cannot be read: Too many open files.")
            yield b""

        monkeypatch.setattr(store.files, "read", read_that_fails)
        turn = await h.run(session, attachments=(file.id,))
        assert (turn.state, turn.failure.code) == (TurnState.INTERRUPTED, "file_unreadable")
        assert model.requests == []
        monkeypatch.setattr(store.files, "read", read)
        assert (await h.run(session, "again")).state is TurnState.COMPLETED
        assert "bytes" in str(model.requests[0].messages)


async def test_a_file_of_a_later_turn_is_shown_then_and_in_the_turns_after(store, clock):
    """The history before was shown without files and is not searched again; what came since is."""
    model = ScriptedModel("One.", "Two.", "Three.", "Four.", clock=clock)
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        await h.run(session, "no file")
        await h.run(session, "none here either")
        file = await store.files.put(OWNER, "notes.txt", "text/plain", b"what the file says")
        await h.run(session, "read this", attachments=(file.id,))
        await h.run(session, "and?")
        shows_file = ["what the file says" in str(request.messages) for request in model.requests]
        assert shows_file == [False, False, True, True]
