"""Promises A01-A17 as far as the engine keeps them, on both stores."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from everturn.domain.errors import Busy, Gone, KeyReused, NotFound, Overloaded
from everturn.domain.messages import Attachment, Role, Summary
from everturn.domain.model_errors import ModelKeyMissing
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session, SessionPatch
from everturn.domain.store_values import Request, RetriedTurn, Submission
from everturn.domain.tool import Verdict
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import (
    CallTool,
    Chunks,
    FakeClock,
    FakeTool,
    HoldingProbe,
    Pause,
    Say,
    ScriptedModel,
    ScriptedModels,
)
from everturn.testing.harness import OWNER, crashing_harness, open_harness, quiet_settings
from everturn.testing.models import Answer, Wait
from tests.waiting import reader_waits, until

pytestmark = pytest.mark.anyio
FOREVER = 1e6


async def test_a01_the_message_is_durable_before_any_model_is_called(
    store: Store, open_another: Any, clock: FakeClock, probe: HoldingProbe
) -> None:
    file = await store.files.put(OWNER, "a.txt", "text/plain", b"abc")
    probe.hold(Moment.MODEL_CALLED)
    async with open_harness(store, "hi", clock=clock, probe=probe) as h:
        session = await h.new_session()
        accepted = await h.send(session, "keep me", attachments=(file.id,))
        await probe.reached(Moment.MODEL_CALLED)
        assert h.model.requests == []
        other = await open_another()
        (message,) = (await other.transcript.messages(OWNER, session.id)).items
        assert message.text == "keep me"
        assert isinstance(message.parts[1], Attachment)
        probe.release(Moment.MODEL_CALLED)
        assert (await h.settled(accepted.turn.id)).state is TurnState.COMPLETED


async def test_a01_the_same_key_is_the_same_turn_and_another_body_is_refused(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, "one", "two", clock=clock) as h:
        session = await h.new_session()
        first = await h.run(session, "hello", key="k1")
        again = await h.send(session, "hello", key="k1")
        assert again.is_repeat
        assert again.turn.id == first.id
        with pytest.raises(KeyReused):
            await h.send(session, "other", key="k1")
        assert await h.texts(session) == ["user: hello", "assistant: one"]
        assert len(h.model.requests) == 1


async def test_a01_a_message_accepted_while_the_engine_stops_is_refused_whole(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, clock=clock) as h:
        session = await h.new_session()
        await h.engine.stop(0)
        with pytest.raises(Overloaded, match="Nothing was stored"):
            await h.send(session, "too late")
        assert await h.messages(session) == ()


async def test_a02_an_event_is_shown_only_after_it_is_durable(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    gate = anyio.Event()
    async with open_harness(store, [Wait(gate), Say("word"), Pause(FOREVER)], clock=clock, probe=probe) as h:
        session = await h.new_session()
        await h.send(session)
        await h.seen(session, "step.started")
        shown: list[str] = []

        async def read() -> None:
            async for batch in h.engine.follow(OWNER, session.id, 0):
                shown.extend(event.kind for event in batch)

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await reader_waits()  # its first look at the journal would show what is committed
            probe.hold(Moment.BATCH_COMMITTED)
            gate.set()
            await probe.reached(Moment.BATCH_COMMITTED)
            assert "text.delta" not in shown, "committed, and no reader has been woken yet"
            probe.release(Moment.BATCH_COMMITTED)
            await h.seen(session, "text.delta")
            group.cancel_scope.cancel()


async def test_a03_a_turn_without_activity_writes_nothing(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(store, [Say("a"), Pause(FOREVER)], clock=clock) as h:
        session = await h.new_session()
        await h.send(session)
        await h.seen(session, "text.delta")
        await store.search.index()
        writes = _count_writes(store, monkeypatch)
        sleepers = len(clock.sleeping)
        for _ in range(20):
            await clock.jump(5)
            await until("all that the clock woke sleep again", lambda: len(clock.sleeping) == sleepers)
        assert writes == []


def _count_writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the writes from now on, without the worker's heartbeat."""
    writes: list[str] = []
    database = store.database
    write, append = database.write, database.append

    async def counted_write(script: Any, *args: Any) -> Any:
        if script.__name__ != "_renew":
            writes.append(script.__name__)
        return await write(script, *args)

    async def counted_append(*args: Any) -> Any:
        writes.append("append")
        return await append(*args)

    monkeypatch.setattr(database, "write", counted_write)
    monkeypatch.setattr(database, "append", counted_append)
    return writes


async def test_a04_a_turn_reads_its_history_once_however_much_it_says(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: tuple[Answer, ...] = (
        [Chunks("x", 300), CallTool("look")],
        [Chunks("y", 300), CallTool("look", {"n": 1})],
        [Chunks("z", 300)],
    )
    async with open_harness(store, *script, tools=[FakeTool("look")], clock=clock) as h:
        session = await h.new_session()
        reads: list[str] = []
        context = store.transcript.context

        async def counted(*args: Any, **more: Any) -> Any:
            reads.append("context")
            return await context(*args, **more)

        monkeypatch.setattr(store.transcript, "context", counted)
        assert (await h.run(session)).state is TurnState.COMPLETED
        assert reads == ["context"]


async def test_a05_progress_moves_updated_at_and_a_title_does_not(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    gate = anyio.Event()
    settings = quiet_settings(makes_titles=True)
    script: tuple[Answer, ...] = ([Wait(gate), Say("word")], "A Title")
    probe.hold(Moment.TITLE_MADE)
    async with open_harness(store, *script, clock=clock, probe=probe, settings=settings) as h:
        session = await h.new_session()
        await h.send(session)
        await h.seen(session, "step.started")
        before = (await h.engine.session(OWNER, session.id)).updated_at
        await clock.jump(60)
        gate.set()
        await probe.reached(Moment.TITLE_MADE)
        moved = (await h.engine.session(OWNER, session.id)).updated_at
        assert moved >= before + 60_000
        await clock.jump(60)
        probe.release(Moment.TITLE_MADE)
        await h.seen(session, "session.changed")
        named = await h.engine.session(OWNER, session.id)
        assert (named.title, named.updated_at) == ("A Title", moved)


async def test_a07_readers_see_only_states_that_existed_while_many_write(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, [Chunks("ab", 200)], [Chunks("cd", 200)], clock=clock) as h:
        session = await h.new_session()
        first = await h.run(session, "one")
        seen: list[list[str]] = []

        async def read() -> None:
            while True:
                seen.append(await h.texts(session))
                # A claim that met a locked session looks again after a while.
                await clock.jump(1)

        async def rename() -> None:
            for number in range(20):
                await store.sessions.change(OWNER, session.id, SessionPatch(title=f"name {number}"))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            async with anyio.create_task_group() as writers:
                writers.start_soon(rename)
                writers.start_soon(h.run, session, "two")
            await h.engine.undo(OWNER, session.id, Request(key="u"))
            await h.texts(session)
            group.cancel_scope.cancel()
        one = ["user: one", "assistant: " + "ab" * 200]
        allowed = [one, [*one, "user: two"], [*one, "user: two", "assistant: " + "cd" * 200]]
        assert seen
        assert all(state in allowed for state in seen)
        assert (await h.engine.session(OWNER, session.id)).head == first.id


async def test_a08_all_progress_is_durable_before_the_end_and_nothing_lands_after_it(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    probe.hold(Moment.WRITER_QUIET)
    async with open_harness(store, [Chunks("x", 500)], clock=clock, probe=probe) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await probe.reached(Moment.WRITER_QUIET)
        said = [e.payload for e in await h.events(session) if e.kind == "text.delta"]
        assert sum(len(p.text) for p in said) == 500  # type: ignore[misc]  # only text deltas are left
        assert (await h.turn(accepted.turn.id)).state is TurnState.RUNNING
        probe.release(Moment.WRITER_QUIET)
        await h.settled(accepted.turn.id)
        events = await store.journal.of_turn(OWNER, accepted.turn.id)
        assert events[-1].kind == "turn.completed"
        assert [e.number for e in events if e.epoch == 1] == list(range(1, len(events)))


@pytest.mark.parametrize("cause", ["unknown model", "missing key", "broken tools"])
async def test_a09_a_turn_that_fails_before_it_began_says_why_and_frees_the_session(
    store: Store, clock: FakeClock, cause: str
) -> None:
    model = ScriptedModel("fine now", name="a:good")
    models = ScriptedModels(model, troubles={"a:keyless": ModelKeyMissing("There is no key for a.")})
    async with open_harness(store, model=model, models=models, clock=clock) as h:
        session = await h.new_session()
        if cause == "broken tools":
            h.toolbox.trouble = ValueError("tools.toml has no [tools]")
        wanted = {"unknown model": "a:typo", "missing key": "a:keyless"}.get(cause)
        turn = await h.run(session, model=wanted)
        assert turn.state is TurnState.FAILED
        assert turn.failure is not None
        expected = {"unknown model": "a:typo", "missing key": "no key", "broken tools": "tools.toml"}
        assert expected[cause] in turn.failure.message
        h.toolbox.trouble = None
        assert (await h.engine.session(OWNER, session.id)).active_turn is None
        assert (await h.run(session, "again")).state is TurnState.COMPLETED


@pytest.mark.parametrize("answer", ["", " \n"])
async def test_a10_a_model_that_answers_nothing_fails_visibly(
    store: Store, clock: FakeClock, answer: str
) -> None:
    async with open_harness(store, [Say(answer)], clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session)
        assert turn.state is TurnState.FAILED
        assert turn.failure is not None
        assert turn.failure.code == "model_silent"
        assert "returned an empty answer" in turn.failure.message


async def test_a11_a_name_given_while_a_title_is_made_wins(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    probe.hold(Moment.TITLE_MADE)
    settings = quiet_settings(makes_titles=True)
    async with open_harness(store, "hi", "Generated", "yo", clock=clock, probe=probe, settings=settings) as h:
        session = await h.new_session()
        await h.run(session)
        await probe.reached(Moment.TITLE_MADE)
        await store.sessions.change(OWNER, session.id, SessionPatch(title="Mine", tags=("t",)))
        probe.release(Moment.TITLE_MADE)
        await h.run(session, "more")
        now = await h.engine.session(OWNER, session.id)
        assert (now.title, now.tags) == ("Mine", ("t",))


async def test_a11_a_title_is_written_to_the_session_as_it_is_now(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    probe.hold(Moment.TITLE_MADE)
    settings = quiet_settings(makes_titles=True)
    async with open_harness(store, "hi", "Generated", clock=clock, probe=probe, settings=settings) as h:
        session = await h.new_session()
        await h.run(session)
        await probe.reached(Moment.TITLE_MADE)
        await store.sessions.change(OWNER, session.id, SessionPatch(pinned=True, tags=("t",)))
        probe.release(Moment.TITLE_MADE)
        while (now := await h.engine.session(OWNER, session.id)).title == "":
            await anyio.lowlevel.checkpoint()
        assert (now.title, now.pinned, now.tags) == ("Generated", True, ("t",))


async def test_a12_cancel_keeps_what_was_said_and_ends_in_one_step(store: Store, clock: FakeClock) -> None:
    async with open_harness(store, [Say("half an "), Pause(FOREVER)], "next", clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        turn = await h.engine.cancel(OWNER, accepted.turn.id, by="ada")
        assert turn.state is TurnState.CANCELLED
        now = await h.engine.session(OWNER, session.id)
        assert (now.active_turn, now.last_state) == (None, TurnState.CANCELLED)
        assert await h.texts(session) == ["user: hello", "assistant: half an "]
        assert (await h.run(session, "go on")).state is TurnState.COMPLETED
        assert h.model.open_streams == 0


async def test_a12_a_progress_write_under_way_cannot_revive_a_cancelled_turn(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    more = anyio.Event()
    async with open_harness(
        store, [Say("seen"), Wait(more), Say(" unseen"), Pause(FOREVER)], clock=clock, probe=probe
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "text.delta")
        probe.hold(Moment.CANCEL_COMMITTED)
        async with anyio.create_task_group() as group:
            group.start_soon(h.engine.cancel, OWNER, accepted.turn.id)
            await probe.reached(Moment.CANCEL_COMMITTED)
            probe.hold(Moment.DELTA_OFFERED)
            more.set()  # the runner does not know yet and writes on
            await probe.reached(Moment.DELTA_OFFERED)
            probe.release(Moment.DELTA_OFFERED)
            probe.release(Moment.CANCEL_COMMITTED)
        turn = await h.turn(accepted.turn.id)
        assert turn.state is TurnState.CANCELLED
        assert await h.texts(session) == ["user: hello", "assistant: seen"]
        assert (await h.kinds(session))[-1] == "turn.cancelled"


async def test_a12_a_cancel_by_another_process_ends_the_work_here(
    store: Store, open_another: Any, clock: FakeClock
) -> None:
    ended = anyio.Event()

    async def forever(call: Any, emit: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    tools = [FakeTool("forever", forever, timeout_s=1e9)]
    async with open_harness(store, [CallTool("forever")], tools=tools, clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        await h.seen(session, "tool.started")
        other = await open_another()
        await other.turns.cancel(OWNER, accepted.turn.id, by="elsewhere")
        with anyio.fail_after(60):
            while not ended.is_set():
                await clock.jump(2)
        assert (await h.turn(accepted.turn.id)).state is TurnState.CANCELLED


async def test_a13_undo_and_retry_are_refused_while_a_turn_runs_or_waits(
    store: Store, clock: FakeClock
) -> None:
    script: tuple[Answer, ...] = ("first", [CallTool("pay")], [Say("x"), Pause(FOREVER)])
    async with open_harness(
        store,
        *script,
        tools=[FakeTool("pay")],
        rules={"pay": Verdict.ASK},
        clock=clock,
    ) as h:
        session = await h.new_session()
        await h.run(session, "one")
        waiting = await h.run(session, "two")
        assert waiting.state is TurnState.WAITING
        before = await h.texts(session)
        await _refused_as_busy(h, session)
        assert await h.texts(session) == before
        await h.engine.answer(OWNER, (await h.ask(session)).id, "once", by="ada")
        await h.seen(session, "text.delta", 2)
        await _refused_as_busy(h, session)
        assert await h.texts(session) == before


async def _refused_as_busy(h: Any, session: Session) -> None:
    with pytest.raises(Busy):
        await h.engine.undo(OWNER, session.id, Request(key="u"))
    with pytest.raises(Busy):
        await h.engine.retry(OWNER, session.id, RetriedTurn(), Request(key="r"))


async def test_a13_undo_redo_retry_edit_and_repeats(store: Store, clock: FakeClock) -> None:
    async with open_harness(store, "1", "2", "2b", "2c", clock=clock) as h:
        session = await h.new_session()
        await h.run(session, "a")
        second = await h.run(session, "b")
        once = await h.engine.undo(OWNER, session.id, Request(key="u1"))
        again = await h.engine.undo(OWNER, session.id, Request(key="u1"))
        assert once.head == again.head
        assert await h.texts(session) == ["user: a", "assistant: 1"]
        await h.engine.redo(OWNER, session.id, Request(key="r1"))
        assert (await h.texts(session))[-1] == "assistant: 2"
        retried = await h.engine.retry(OWNER, session.id, RetriedTurn(second.id), Request(key="t1"))
        await h.settled(retried.turn.id)
        assert (await h.texts(session))[2:] == ["user: b", "assistant: 2b"]
        edited = await h.engine.retry(OWNER, session.id, RetriedTurn(second.id, text="b!"), Request(key="t2"))
        await h.settled(edited.turn.id)
        assert (await h.texts(session))[2:] == ["user: b!", "assistant: 2c"]
        assert [m.text for m in h.model.requests[-1].messages] == ["a", "1", "b!"]
        await h.engine.select(OWNER, session.id, second.id, Request(key="s1"))
        assert (await h.texts(session))[2:] == ["user: b", "assistant: 2"]


async def test_a14_compaction_takes_the_slot_and_later_messages_queue(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    script: tuple[Answer, ...] = ("one", "two", "SHORT", "three")
    async with open_harness(store, *script, clock=clock, probe=probe) as h:
        session = await h.new_session()
        for text in ("a" * 6000, "b" * 6000):
            await h.run(session, text)
        probe.hold(Moment.SUMMARY_MADE)
        compaction = await h.engine.compact(OWNER, session.id, focus="numbers")
        await probe.reached(Moment.SUMMARY_MADE)
        assert "numbers" in h.model.requests[-1].messages[0].text
        queued = await h.send(session, "c")
        assert (await h.turn(queued.turn.id)).state is TurnState.QUEUED
        with pytest.raises(Busy):
            await h.engine.undo(OWNER, session.id, Request(key="u"))
        probe.release(Moment.SUMMARY_MADE)
        await h.settled(queued.turn.id)
        assert (await h.turn(compaction.turn.id)).state is TurnState.COMPLETED
        given = h.model.requests[-1].messages
        messages = await h.messages(session)
        (summary,) = [m.parts[0] for m in messages if m.role is Role.SUMMARY]
        assert isinstance(summary, Summary)
        covered = [m.id for m in messages].index(summary.covers)
        assert "SHORT" in given[0].text
        kept = [m.text for m in messages[covered + 1 :] if m.role is not Role.SUMMARY]
        assert [m.text for m in given[1:]] == kept[:-1]
        assert (await h.engine.session(OWNER, session.id)).id == session.id
        assert len([m for m in messages if m.role is not Role.SUMMARY]) == 6


async def test_a14_a_session_deleted_during_its_compaction_stays_deleted(
    store: Store, clock: FakeClock, probe: HoldingProbe
) -> None:
    async with open_harness(store, "one", "two", "SHORT", clock=clock, probe=probe) as h:
        session = await h.new_session()
        for text in ("a" * 6000, "b" * 6000):
            await h.run(session, text)
        probe.hold(Moment.SUMMARY_MADE)
        await h.engine.compact(OWNER, session.id)
        await probe.reached(Moment.SUMMARY_MADE)
        await store.sessions.delete(OWNER, session.id)
        probe.release(Moment.SUMMARY_MADE)
        while h.engine.status()["running"]:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(Gone):
            await h.engine.session(OWNER, session.id)
        with pytest.raises(Gone):
            await h.send(session, "hello?")


async def test_a14_a_summary_that_fails_is_reported_and_changes_nothing(
    store: Store, clock: FakeClock
) -> None:
    model = ScriptedModel("one", "two", then=[Say("")])
    async with open_harness(store, model=model, clock=clock) as h:
        session = await h.new_session()
        for text in ("a", "b"):
            await h.run(session, text)
        compaction = await h.engine.compact(OWNER, session.id)
        turn = await h.settled(compaction.turn.id)
        assert turn.failure is not None
        assert turn.failure.code == "compaction_failed"
        assert "Nothing was changed" in turn.failure.message
        model.add("three")
        await h.run(session, "c")
        assert [m.text for m in model.requests[-1].messages] == ["a", "one", "b", "two", "c"]


async def test_a16_queued_steering_and_asked_survive_a_crash(store: Store, clock: FakeClock) -> None:
    pay = FakeTool("pay")
    rules = {"pay": Verdict.ASK}
    async with crashing_harness(store, [CallTool("pay")], tools=[pay], rules=rules, clock=clock) as h:
        session = await h.new_session()
        turn = await h.run(session, "pay it")
        ask = await h.ask(session)
        await h.send(session, "in euros", when_busy="steer")
        queued = await h.send(session, "and then?")
    async with open_harness(store, "Paid.", "Nothing.", tools=[pay], rules=rules, clock=clock) as h:
        assert (await h.ask(session)).id == ask.id
        assert pay.calls == []
        await h.engine.answer(OWNER, ask.id, "once", by="ada")
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert (await h.settled(queued.turn.id)).state is TurnState.COMPLETED
        assert await h.texts(session) == [
            "user: pay it",
            "assistant: ",
            "tool: ",
            "user: in euros",
            "assistant: Paid.",
            "user: and then?",
            "assistant: Nothing.",
        ]
        assert len(pay.calls) == 1


async def test_a17_deleting_a_session_ends_its_turn_and_nothing_reappears(
    store: Store, clock: FakeClock
) -> None:
    ended = anyio.Event()

    async def forever(call: Any, emit: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    tools = [FakeTool("forever", forever)]
    async with open_harness(store, [Say("x"), CallTool("forever")], tools=tools, clock=clock) as h:
        session = await h.new_session()
        accepted = await h.send(session, "unforgettable")
        await h.seen(session, "tool.started")
        await h.engine.delete(OWNER, session.id)
        with anyio.fail_after(60):
            await ended.wait()
            while h.engine.status()["running"]:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(Gone):
            await h.engine.session(OWNER, session.id)
        with pytest.raises((Gone, NotFound)):
            await h.turn(accepted.turn.id)
        await store.search.index()
        assert await store.search.find(OWNER, "unforgettable") == []
        assert (await store.sessions.list(OWNER)).items == ()


async def test_a17_a_message_for_a_deleted_session_is_refused(store: Store, clock: FakeClock) -> None:
    async with open_harness(store, clock=clock) as h:
        session = await h.new_session()
        await h.engine.delete(OWNER, session.id)
        with pytest.raises(Gone):
            await h.engine.submit(OWNER, session.id, Submission(text="late"))
