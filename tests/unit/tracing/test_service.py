"""Traces of real turns, as a collector receives them over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256

import anyio
import pytest

from everturn.delivery import AccountService, AccountServices
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.model_errors import ModelRefused
from everturn.domain.tool import Verdict
from everturn.domain.turn_traces import TurnTraces
from everturn.domain.turns import TurnState
from everturn.testing import CallTool, FakeTool, Say
from everturn.testing.harness import OWNER, crashing_harness, open_harness
from everturn.testing.models import Wait
from everturn.testing.platform import FakePlatform
from everturn.tracing import TraceSettings, open_traces
from tests.otlp_collector import Collector
from tests.serving import FAST, admit, arrived, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().serve() as collector:
        yield collector


def settings(collector: Collector) -> TraceSettings:
    return TraceSettings(endpoint=collector.address, batch_s=0.01, timeout_s=0.2)


async def test_a_turn_is_one_trace_from_its_acceptance_to_its_end(store, clock, collector):
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(
            store, [CallTool("look")], "done", tools=[FakeTool("look")], clock=clock, traces=traces
        ) as h,
    ):
        turn = await h.run(await h.new_session())
        await until("the trace arrives", lambda: collector.named("turn"))
    root = collector.one("turn")
    assert {span.trace_id for span in collector.spans} == {sha256(turn.id.encode()).digest()[:16].hex()}
    assert root.parent_id == ""
    assert root.attributes["everturn.turn.state"] == "completed"
    assert root.attributes["gen_ai.conversation.id"] == turn.session_id
    run, tool = collector.one("run"), collector.one("execute_tool look")
    models = [span for span in collector.spans if span.name.startswith("chat ")]
    assert [span.parent_id for span in (collector.one("accept"), collector.one("queue"), run)] == [
        root.span_id
    ] * 3
    assert [span.parent_id for span in (*models, tool)] == [run.span_id] * 3
    assert models[0].end_ns <= tool.start_ns <= tool.end_ns <= models[1].start_ns
    assert models[1].events == ["first token"]
    assert collector.resource["service.name"] == "everturn"
    assert not any(span.error for span in collector.spans)


async def test_no_text_of_the_conversation_is_in_a_trace(store, clock, collector):
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(
            store, [CallTool("look")], "my secret", tools=[FakeTool("look")], clock=clock, traces=traces
        ) as h,
    ):
        await h.run(await h.new_session(title="secret plans"), "the secret question")
        await until("the trace arrives", lambda: collector.named("turn"))
    assert "secret" not in repr(collector.spans)


async def test_a_worker_that_takes_a_turn_over_continues_its_trace(store, open_another, clock, collector):
    """The first worker dies in mid-call with nothing sent but the acceptance; the second sends all."""
    async with (
        open_traces(settings(collector), store, clock) as traces,
        crashing_harness(store, [Say("half"), Wait(anyio.Event())], clock=clock, traces=traces) as h,
    ):
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        first = h.engine.worker
    second_store = await open_another()
    async with (
        open_traces(settings(collector), second_store, clock) as traces,
        open_harness(second_store, "whole", clock=clock, traces=traces) as h,
    ):
        turn = await h.settled(accepted.turn.id)
        await until("the trace arrives", lambda: collector.named("turn"))
        second = h.engine.worker
    assert turn.state is TurnState.COMPLETED
    assert len({span.trace_id for span in collector.spans}) == 1
    runs = sorted(collector.named("run"), key=lambda span: span.start_ns)
    assert [(run.attributes["everturn.worker"], run.attributes["everturn.reason"]) for run in runs] == [
        (first, "new"),
        (second, "crash"),
    ]
    assert [run.error for run in runs] == ["worker lost", ""]
    assert runs[0].end_ns <= runs[1].start_ns
    models = [span for span in collector.spans if span.name.startswith("chat ")]
    assert [(span.parent_id, span.error) for span in models] == [
        (runs[0].span_id, "worker lost"),
        (runs[1].span_id, ""),
    ]


async def test_a_wait_for_a_person_is_a_span_between_two_runs(store, clock, collector):
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(
            store,
            [CallTool("look")],
            "done",
            tools=[FakeTool("look")],
            rules={"look": Verdict.ASK},
            clock=clock,
            traces=traces,
        ) as h,
    ):
        session = await h.new_session()
        await h.run(session)
        await h.answer(session, "once")
        await until("the trace arrives", lambda: collector.named("turn"))
    before, after = collector.named("run")
    wait = collector.one("wait")
    assert before.end_ns == wait.start_ns <= wait.end_ns == after.start_ns
    assert len(collector.named("turn")) == 1


async def test_a_turn_that_is_cancelled_while_it_waits_is_sent_too(store, clock, collector):
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(
            store,
            [CallTool("look")],
            tools=[FakeTool("look")],
            rules={"look": Verdict.ASK},
            clock=clock,
            traces=traces,
        ) as h,
    ):
        turn = await h.run(await h.new_session())
        await h.engine.cancel(OWNER, turn.id)
        await until("the trace arrives", lambda: collector.named("turn"))
    assert collector.one("turn").attributes["everturn.turn.state"] == "cancelled"


async def test_a_failed_turn_says_why(store, clock, collector):
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(store, ModelRefused("refused"), clock=clock, traces=traces) as h,
    ):
        turn = await h.run(await h.new_session())
        await until("the trace arrives", lambda: collector.named("turn"))
    assert collector.one("turn").error == turn.failure.code


async def test_delivery_to_a_chat_is_in_the_trace_of_its_turn(store, clock, collector):
    platform = FakePlatform()
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(store, Say("hello there"), clock=clock, traces=traces) as h,
    ):
        services = AccountServices(h.store, h.engine, h.clock, h.engine.worker, traces=traces)
        async with serving(AccountService(platform.account, platform, admit, FAST, services)):
            platform.say("u1", "hi")
            await arrived(platform, 1)
            await until("all of it arrives", lambda: {"turn", "deliver fake"} <= _names(collector))
    delivered, root = collector.one("deliver fake"), collector.one("turn")
    assert (delivered.trace_id, delivered.parent_id) == (root.trace_id, root.span_id)
    assert delivered.end_ns >= root.end_ns - 2_000_000  # times of the journal are whole milliseconds
    assert "accept" in _names(collector)


def _names(collector: Collector) -> set[str]:
    return {span.name for span in collector.spans}


async def test_a_collector_that_refuses_is_logged_once_and_disturbs_no_turn(store, clock, collector, caplog):
    collector.status = 400
    async with (
        open_traces(settings(collector), store, clock) as traces,
        open_harness(store, "one", "two", clock=clock, traces=traces) as h,
    ):
        for text in ("first", "second"):
            turn = await h.run(await h.new_session(), text)
            assert turn.state is TurnState.COMPLETED
            await until("it is logged", lambda: "were not sent" in caplog.text)
    own = [record for record in caplog.records if record.name == "everturn.traces"]
    assert len(own) == 1


async def test_what_is_left_is_sent_when_the_server_stops(store, clock, collector):
    slow = TraceSettings(endpoint=collector.address, batch_s=3600)
    async with (
        open_traces(slow, store, clock) as traces,
        open_harness(store, "done", clock=clock, traces=traces) as h,
    ):
        await h.run(await h.new_session())
    assert collector.named("turn")


async def test_too_much_that_waits_is_dropped(store, clock, collector, caplog):
    few = TraceSettings(endpoint=collector.address, waiting_max=1)
    async with open_traces(few, store, clock) as traces:
        traces.turn_left(OWNER, "trn_one")
        traces.turn_left(OWNER, "trn_two")
    assert "1 entries of traces were dropped" in caplog.text


async def test_without_an_endpoint_nothing_is_imported(store, clock, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    async with open_traces(TraceSettings(), store, clock) as traces:
        assert type(traces) is TurnTraces


async def test_a_missing_extra_is_named_with_the_command_that_adds_it(store, clock, monkeypatch, collector):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Invalid) as raised:
        async with open_traces(settings(collector), store, clock):
            await anyio.sleep_forever()
    assert "everturn[traces]" in raised.value.hint
