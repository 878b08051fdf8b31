"""What the runner does when the store, the clock or the process does not behave."""

import asyncio

import anyio
import pytest

from everturn.domain.errors import DiskFull, NothingToDo, StoreAway, StoreBroken
from everturn.domain.probe import Moment
from everturn.domain.turns import TurnState
from everturn.engine.turn_writer import TurnWriter
from everturn.testing import CallTool, FakeTool, HoldingProbe, Pause, Say, ScriptedModel
from everturn.testing.harness import OWNER, open_harness, quiet_settings
from everturn.testing.models import Wait
from tests.waiting import task_waits_in

pytestmark = pytest.mark.anyio


class Failing:
    """Stands before one method of the store and refuses the first calls."""

    def __init__(self, monkeypatch, noun, name, *errors):
        self.errors = list(errors)
        self.calls = 0
        method = getattr(noun, name)

        async def called(*args, **more):
            self.calls += 1
            if self.errors:
                raise self.errors.pop(0)
            return await method(*args, **more)

        monkeypatch.setattr(noun, name, called)


async def test_a_store_that_is_away_at_the_end_costs_nothing(store, clock, monkeypatch):
    completing = Failing(monkeypatch, store.turns, "complete", StoreAway("away"))
    async with open_harness(store, "done", clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        turn = await h.settled(accepted.turn.id)
        assert (turn.state, turn.attempts) == (TurnState.COMPLETED, 0)
        assert completing.calls == 2
        assert len(h.model.requests) == 1, "the finished step is in the journal"


async def test_a_turn_is_released_as_soon_as_the_store_is_back(store, clock, monkeypatch):
    Failing(monkeypatch, store.turns, "complete", StoreAway("away"))
    letting_go = Failing(monkeypatch, store.turns, "hand_over", StoreAway("away"), StoreAway("away"))
    settings = quiet_settings(store_patience_s=3.0)
    async with open_harness(store, "done", clock=clock, settings=settings) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        for _ in range(2):
            await clock.someone_sleeps(3.0)
            await clock.advance(3.0)
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        assert letting_go.calls == 3


async def test_a_turn_that_cannot_be_ended_is_logged_once_and_again_when_the_reason_changes(
    store, clock, monkeypatch, caplog
):
    Failing(monkeypatch, store.turns, "complete", StoreAway("away"))
    errors = [StoreAway("away")] * 3 + [RuntimeError("odd")] * 2 + [StoreAway("away")]
    Failing(monkeypatch, store.turns, "hand_over", *errors)
    settings = quiet_settings(store_patience_s=3.0)
    async with open_harness(store, "done", clock=clock, settings=settings) as h:
        accepted = await h.send(await h.new_session())
        for _ in errors:
            await clock.someone_sleeps(3.0)
            await clock.advance(3.0)
        await h.settled(accepted.turn.id)
    assert caplog.text.count("could not be ended yet") == 3


async def test_a_claim_that_fails_unexpectedly_ends_nothing_else(store, clock, monkeypatch):
    """One row that cannot be read must not take the whole server down at every start."""
    async with open_harness(store, "hi", clock=clock, settings=quiet_settings(poll_s=0.7)) as h:
        session = await h.new_session()
        failing = Failing(monkeypatch, store.turns, "claim", RuntimeError("unreadable"))
        accepted = await h.send(session)
        with anyio.fail_after(60):
            while not failing.calls:
                await anyio.lowlevel.checkpoint()
        assert h.engine.status()["trouble"] == "RuntimeError: unreadable"
        await clock.someone_sleeps(0.7)
        await clock.advance(0.7)
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        with anyio.fail_after(60):  # the turn may end before the claim returns
            while h.engine.status()["trouble"]:
                await anyio.lowlevel.checkpoint()


class BreakingProbe(HoldingProbe):
    """Something of ours breaks when the model's second piece has been offered."""

    def __init__(self):
        super().__init__()
        self.pieces = 0
        self.is_broken = anyio.Event()

    async def reach(self, moment, subject=""):
        await super().reach(moment, subject)
        if moment is Moment.DELTA_OFFERED:
            self.pieces += 1
            if self.pieces == 2:
                self.is_broken.set()
                raise RuntimeError("a screw is loose")


async def test_what_was_said_before_an_unexpected_error_is_in_the_transcript(open_another, clock):
    """The first piece is on its way into the journal, the second waits behind it, when the turn breaks."""
    probe = BreakingProbe()
    store = await open_another(probe=probe)
    go_on = anyio.Event()
    model = ScriptedModel([Say("Half"), Wait(go_on), Say(" more"), Say(" never")], clock=clock)
    async with open_harness(store, model=model, clock=clock, probe=probe) as h:
        session = await h.new_session()
        probe.hold(Moment.MODEL_CALLED)
        accepted = await h.send(session)
        await probe.reached(Moment.MODEL_CALLED)
        probe.hold(Moment.BATCH_WRITTEN)
        probe.release(Moment.MODEL_CALLED)
        await probe.reached(Moment.BATCH_WRITTEN)
        go_on.set()
        await probe.is_broken.wait()
        await task_waits_in(TurnWriter.quiet)
        probe.release(Moment.BATCH_WRITTEN)
        turn = await h.settled(accepted.turn.id)
        assert (turn.state, turn.failure.code) == (TurnState.FAILED, "internal_error")
        assert (await h.texts(session))[1] == "assistant: Half more"


async def test_what_kept_the_last_events_out_of_the_journal_is_in_the_log_with_its_traceback(
    store, clock, monkeypatch, caplog
):
    async def complete(*args, **more):
        Failing(monkeypatch, store.journal, "wait_delivered", ZeroDivisionError("another fault"))
        raise RuntimeError("a fault")

    monkeypatch.setattr(store.turns, "complete", complete)
    caplog.set_level("INFO", "everturn.engine")
    async with open_harness(store, "done", clock=clock) as h:
        turn = await h.run(await h.new_session())
        assert (turn.state, turn.failure.code) == (TurnState.FAILED, "internal_error")
    faults = {record.exc_info[0] for record in caplog.records if record.exc_info}
    assert faults == {RuntimeError, ZeroDivisionError}


async def test_a_broken_store_interrupts_the_turn_and_resume_continues(store, clock, monkeypatch):
    more = anyio.Event()

    async def slow(call, emit):
        await more.wait()
        return await FakeTool("x", "seen").run(call, emit)

    script = ([Say("Let me see. "), CallTool("slow")], "It is a cat.")
    async with open_harness(
        store, *script, tools=[FakeTool("slow", slow, is_safe_to_repeat=True)], clock=clock
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "tool.started")
        Failing(monkeypatch, store.journal, "append", StoreBroken("The disk failed."))
        more.set()
        turn = await h.settled(accepted.turn.id)
        assert (turn.state, turn.failure.code) == (TurnState.INTERRUPTED, "store_broken")
        assert (await h.texts(session))[1] == "assistant: Let me see. "
        await h.engine.resume(OWNER, turn.id)
        await h.seen(session, "turn.completed")
        assert (await h.texts(session))[-1] == "assistant: It is a cat."


@pytest.mark.parametrize("noun", ["register", "take_over"])
async def test_a_store_that_refuses_the_start_is_reported_and_nothing_is_left_running(
    store, clock, monkeypatch, noun
):
    before = asyncio.all_tasks()
    Failing(monkeypatch, store.workers, noun, DiskFull("The disk is full."))
    with pytest.raises(DiskFull):
        async with open_harness(store, clock=clock):
            pass
    assert asyncio.all_tasks() == before


async def test_claiming_continues_after_the_store_was_away(store, clock, monkeypatch):
    async with open_harness(store, "hi", clock=clock, settings=quiet_settings(poll_s=0.7)) as h:
        session = await h.new_session()
        failing = Failing(monkeypatch, store.turns, "claim", StoreAway("away"))
        accepted = await h.send(session)
        with anyio.fail_after(60):
            while not failing.calls:
                await anyio.lowlevel.checkpoint()
        assert h.engine.status()["trouble"] == "away"
        await clock.someone_sleeps(0.7)
        await clock.advance(0.7)
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        assert h.engine.status()["trouble"] == ""


async def test_a_stop_lets_running_turns_finish_within_the_grace(store, clock):
    gate = anyio.Event()

    async def slow(call, emit):
        await gate.wait()
        return await FakeTool("x").run(call, emit)

    async with open_harness(
        store, [CallTool("slow")], "end", tools=[FakeTool("slow", slow)], clock=clock
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "tool.started")
        async with anyio.create_task_group() as group:
            group.start_soon(h.engine.stop, 30.0)
            await clock.someone_sleeps(30.0)
            gate.set()
        # The tool could finish; the next step is left to the worker that claims the turn.
        turn = await h.turn(accepted.turn.id)
        assert (turn.state, turn.is_ready) == (TurnState.RUNNING, True)
        assert "tool.finished" in await h.kinds(session)


async def test_a_stop_past_the_grace_hands_over_with_the_last_words(store, clock):
    async with open_harness(store, [Say("last words"), Pause(1e6)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        async with anyio.create_task_group() as group:
            group.start_soon(h.engine.stop, 30.0)
            await clock.someone_sleeps(30.0)
            await clock.advance(30.0)
        turn = await h.turn(accepted.turn.id)
        assert (turn.state, turn.is_ready) == (TurnState.RUNNING, True)
        assert h.model.open_streams == 0
        assert h.engine.status()["is_stopping"]


async def test_compacting_next_to_nothing_is_refused(store, clock):
    async with open_harness(store, clock=clock) as h:
        session = await h.new_session()
        with pytest.raises(NothingToDo):
            await h.engine.compact(OWNER, session.id)


async def test_two_engines_on_one_store_share_the_work(store, open_another, clock):
    other = await open_another()
    one, two = ScriptedModel(then="one"), ScriptedModel(then="two")
    async with (
        open_harness(store, model=one, clock=clock) as a,
        open_harness(other, model=two, clock=clock) as b,
    ):
        session = await a.new_session()
        first = await a.run(session, "1")
        second = await b.run(session, "2")
        assert {first.state, second.state} == {TurnState.COMPLETED}
        assert len(one.requests) + len(two.requests) == 2
        assert [m.text for m in (one.requests + two.requests)[-1].messages][-1] in ("1", "2")
        assert len(await a.messages(session)) == 4


async def test_a_stop_that_is_cut_short_still_hands_its_turn_over(store, clock):
    async with open_harness(store, [Say("Half"), Pause(1e6)], clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        async with anyio.create_task_group() as group:
            group.start_soon(h.engine.stop, 600.0)
            await clock.someone_sleeps(600.0)
            group.cancel_scope.cancel()
        await h.engine.stop(600.0)
    async with open_harness(store, "Whole.", clock=clock) as h:
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED
        resumed = await h.seen(session, "turn.resumed")
        assert resumed.payload.reason == "handed_over"
