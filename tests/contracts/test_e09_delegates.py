"""E09: a delegate is an ordinary session with an ordinary turn, whose result its parent gets once."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic
from everturn.domain.budgets import BudgetScope
from everturn.domain.delegates import DelegateBounds, DelegateTask, DueDelegates, NewDelegates
from everturn.domain.errors import Gone, NotFound, WrongState
from everturn.domain.messages import Outcome
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.store_values import Submission, WhenBusy
from everturn.domain.tool import Emit, ToolCall, ToolResult, Verdict
from everturn.domain.turns import Failure, TurnState
from everturn.engine import DelegateSettings
from everturn.store import Store
from everturn.testing import CallTool, FakeClock, FakeTool, HoldingProbe, Say
from everturn.testing.acting import ME, answer, append, claim, complete, new_session, start
from everturn.testing.harness import OWNER
from everturn.testing.models import Wait
from everturn.testing.waiting import within
from tests.budgeting import limit
from tests.conftest import OpenAnother
from tests.delegating import Delegating, delegating, hand_over, task
from tests.file_sessions import put_files, writing
from tests.waiting import until

pytestmark = pytest.mark.anyio


async def started(d: Delegating, session: Session, text: str = "go") -> str:
    """Send a message; return its turn when its delegates are at work."""
    accepted = await d.h.send(session, text)
    await d.h.seen(session, "delegate.started")
    return accepted.turn.id


async def test_e09_the_parent_waits_without_a_worker_and_gets_each_result_once(
    store: Store, clock: FakeClock
) -> None:
    gate = anyio.Event()
    script = [hand_over(task("one", name="First"), task("two")), "all done"]
    async with delegating(store, script, [[Wait(gate), Say("found it")], "found it, too"], clock=clock) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        await d.h.seen(session, "turn.waiting")
        waiting = await d.h.turn(turn_id)
        assert waiting.state is TurnState.WAITING
        assert d.h.engine.status()["running"] <= 2, "only the delegates hold workers"
        # No list for people shows the delegates or what the parent waits for.
        assert await store.asks.open(OWNER) == []
        assert [one.id for one in (await store.sessions.list(OWNER)).items] == [session.id]
        assert (await store.sessions.overview(OWNER, limit=10)).asks == ()
        assert await store.upkeep.check() == []
        gate.set()

        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        first, second = await d.delegates(turn_id)
        assert (first.name, second.name, first.depth, first.is_given) == ("First", "two", 1, True)
        (result,) = await d.results(session)
        assert result.outcome is Outcome.OK
        assert result.text.count("found it") == 2
        assert "(First) is done" in result.text
        kinds = await d.h.kinds(session)
        assert (kinds.count("delegate.started"), kinds.count("delegate.ended")) == (2, 2)
        # The delegate is a session like any other: it has the task as its message, and a title of its own.
        own = await store.sessions.get(OWNER, first.id)
        assert (own.title, own.parent_turn, own.parent_session) == ("First", turn_id, session.id)
        assert (await d.h.texts(own))[0] == "user: one"
        assert not result.is_untrusted


@pytest.mark.parametrize("moment", [Moment.ASK_COMMITTED, Moment.END_COMMITTED, Moment.ANSWER_COMMITTED])
async def test_e09_a_crash_at_any_moment_loses_no_result_and_repeats_no_work(
    store: Store, clock: FakeClock, open_another: OpenAnother, moment: Moment
) -> None:
    """The parent waits; the delegate has ended, and its result is not given; it is given, and the parent has
    not gone on."""
    probe = HoldingProbe()
    probe.hold(moment)
    used = await open_another(probe=probe)
    async with delegating(
        used, [hand_over(task()), "thanks"], ["found"], clock=clock, crashes=True, probe=probe
    ) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        await probe.reached(moment)
        probe.release_all()
    async with delegating(store, ["thanks"], ["found"], clock=clock) as d:
        await clock.advance(5)
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (delegate,) = await d.delegates(turn_id)
        assert (await d.h.turn(delegate.turn_id)).state is TurnState.COMPLETED
        (result,) = await d.results(session)
        assert "found" in result.text
        assert (await d.h.kinds(session)).count("delegate.ended") == 1
        steps = [event.kind for event in await store.journal.of_turn(OWNER, delegate.turn_id)]
        assert steps.count("step.finished") == 1, "the delegate answered once"


@pytest.mark.parametrize("how", ["cancel", "fail", "interrupt", "delete", "restart"])
async def test_e09_a_parent_that_ends_early_asks_its_delegates_to_stop(
    store: Store, clock: FakeClock, how: str, open_another: OpenAnother
) -> None:
    gate = anyio.Event()
    async with delegating(store, [hand_over(task())], [[Wait(gate)]], clock=clock) as d:
        session = await d.h.new_session()
        turn_id = await started(d, session)
        await d.h.seen(session, "turn.waiting")
        (delegate,) = await d.delegates(turn_id)
        other = await open_another() if how == "restart" else store
        if how == "delete":
            await d.h.engine.delete(OWNER, session.id)
            with pytest.raises(Gone):
                await store.sessions.get(OWNER, delegate.id)
            return
        if how in ("cancel", "restart"):  # the latter: another process ends it, and this one finds out
            await other.turns.cancel(OWNER, turn_id, by="test")
        elif how == "fail":
            await store.turns.fail(turn_id, None, Failure("broken", "It broke."))
        else:
            await store.turns.interrupt(turn_id, None, Failure("broken", "It broke."))
        await clock.advance(2)
        assert (await d.ended(delegate.turn_id)).state is TurnState.CANCELLED
        await d.h.seen(session, "delegate.ended")
        assert await store.delegates.due() == DueDelegates()


async def test_e09_a_deleted_or_cancelled_delegate_does_not_hold_its_parent(
    store: Store, clock: FakeClock
) -> None:
    gate = anyio.Event()
    script = [hand_over(task("a"), task("b")), "noted"]
    async with delegating(store, script, [[Wait(gate)], [Wait(gate)]], clock=clock) as d:
        session = await d.h.new_session()
        turn_id = await started(d, session)
        await d.h.seen(session, "turn.waiting")
        first, second = await d.delegates(turn_id)
        with pytest.raises(WrongState, match="cannot be interrupted"):
            await d.h.engine.submit(OWNER, first.id, Submission(text="stop", when_busy=WhenBusy.INTERRUPT))
        await d.h.engine.cancel(OWNER, first.turn_id)
        await d.h.engine.delete(OWNER, second.id)
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (result,) = await d.results(session)
        assert result.outcome is Outcome.ERROR
        assert "was stopped" in result.text
        assert "Its session was deleted." in result.text


async def test_e09_one_that_is_not_waited_for_outlives_the_turn_and_wakes_the_session(
    store: Store, clock: FakeClock
) -> None:
    gate = anyio.Event()
    script = [hand_over(task(), wait=False), "started it", "thank you"]
    async with delegating(store, script, [[Wait(gate), Say("late news")]], clock=clock) as d:
        session = await d.h.new_session()
        turn_id = await started(d, session)
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (delegate,) = await d.delegates(turn_id)
        assert delegate.state in (TurnState.RUNNING, TurnState.QUEUED)
        gate.set()
        await d.ended(delegate.turn_id)
        await d.h.seen(session, "turn.completed", 2)
        texts = await d.h.texts(session)
        assert texts[-2].startswith(f"user: Delegate {delegate.id} has ended: completed.")
        assert "late news" not in texts[-2], "a report holds our words alone"
        await d.h.engine.delegates.look()
        assert len(await d.h.texts(session)) == len(texts), "it reports once"


async def test_e09_a_delegate_that_delegates_for_ever_gets_a_clear_answer(
    store: Store, clock: FakeClock
) -> None:
    child = [hand_over(task("deeper")), hand_over(task("deeper still")), "I did it myself", "done", "done"]
    async with delegating(store, [hand_over(task("deep")), "fine"], child, clock=clock) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        found = await d.delegates(turn_id)
        assert [one.depth for one in found] == [1, 2]
        assert {one.root_session for one in found} == {session.id}
        deepest = await store.sessions.get(OWNER, found[1].id)
        (refused,) = await d.results(deepest)
        assert refused.text.startswith("A delegate at depth 2 cannot delegate further.")
    narrow = DelegateSettings(at_once_max=2)
    three = [hand_over(task("a"), task("b"), task("c")), "too many"]
    async with delegating(store, three, clock=clock, settings=narrow) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        await d.ended(turn_id)
        (refused,) = await d.results(session)
        assert refused.text.startswith("3 more delegates would be too many: 0 are at work")
        assert await d.delegates(turn_id) == []


async def test_e09_a_delegate_has_no_more_rights_than_its_parent_and_taint_passes_both_ways(
    store: Store, clock: FakeClock
) -> None:
    read, danger = FakeTool("read", "text of a page"), FakeTool("danger", is_untrusted=False)
    parent: list[Any] = [
        hand_over(task(tools=["nothing"])),
        hand_over(task(profile="open")),
        hand_over(task("use it", tools=["danger", "delegate"])),
        hand_over(task("again")),
        "end",
    ]
    child: list[Any] = [
        [CallTool("read")],  # which it was not given
        hand_over(task("nested", tools=["danger", "read"])),
        [CallTool("read")],  # in the nested one: neither
        "nested done",
        "first done",
        [CallTool("danger")],
        "second done",
    ]
    async with delegating(store, parent, child, clock=clock, tools=[read, danger]) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        unknown, excess, first, second = await d.results(session)
        assert unknown.text.startswith("You have no tool 'nothing' to hand on.")
        assert "allows more than this session: it reaches more of the network" in excess.text
        assert read.calls == []
        # An unknown tool's name is an error, which may quote text from outside: so all of it is tainted now.
        assert first.is_untrusted
        found = await d.delegates(turn_id)
        assert [one.depth for one in found] == [1, 2, 1]
        (call,) = danger.calls
        assert call.session_id == found[2].id
        assert call.is_tainted, "the parent had text from outside in its context, so its delegate has"
        assert second.is_untrusted


async def test_e09_what_a_delegate_asks_is_seen_where_its_parent_is(store: Store, clock: FakeClock) -> None:
    child = [[CallTool("danger")], "did it"]
    tools, rules = [FakeTool("danger")], {"danger": Verdict.ASK}
    async with delegating(
        store, [hand_over(task()), "ok"], child, clock=clock, tools=tools, rules=rules
    ) as d:
        session = await d.h.new_session()
        turn_id = await started(d, session)
        (delegate,) = await d.delegates(turn_id)
        await d.h.settled(delegate.turn_id)
        ask = await d.h.ask(session)
        assert (ask.session_id, ask.root_session, ask.topic) == (delegate.id, session.id, AskTopic.APPROVAL)
        assert (await store.sessions.get(OWNER, session.id)).asks == 1
        assert (await store.sessions.overview(OWNER, limit=5)).asks == (session.id,)
        (now,) = await d.delegates(turn_id)
        assert (now.state, now.asks) == (TurnState.WAITING, 1)
        (own,) = [
            event for event in await store.journal.of_turn(OWNER, turn_id) if event.kind == "turn.waiting"
        ]
        waited_for = own.payload
        assert isinstance(waited_for, ev.TurnWaiting)
        with pytest.raises(NotFound):  # no person answers what the parent waits for
            await store.asks.answer(OWNER, waited_for.asks[0], "done", by="me")
        await store.sessions.mark_deleted(OWNER, session.id, due_at=1 << 50)
        assert await store.asks.open(OWNER) == [], "what belongs to a deleted session asks nobody"
        await store.sessions.restore(OWNER, session.id)
        await d.h.engine.answer(OWNER, ask.id, "once", by="me")
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        assert (await store.sessions.get(OWNER, session.id)).asks == 0


async def test_e09_files_come_back_as_changes_that_the_parent_applies(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    parent: list[Any] = [writing(a_txt="one", b_txt="one"), hand_over(task()), "seen"]
    child: list[Any] = [writing(a_txt="two", c_txt="new", b_txt=None), "changed"]
    async with delegating(store, parent, child, clock=clock, home=tmp_path) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (delegate,) = await d.delegates(turn_id)
        folder = tmp_path / "workspaces" / session.id

        def files() -> dict[str, str]:
            return {path.name: path.read_text() for path in folder.iterdir()}

        assert files() == {"a.txt": "one", "b.txt": "one"}, "the delegate worked in a copy"
        assert "a.txt (changed), b.txt (deleted), c.txt (added)" in (await d.results(session))[-1].text
        put_files(folder, {"a.txt": "mine"})
        apply = {"delegate_id": delegate.id}
        d.parent.add([CallTool("delegate_apply", apply)], "a conflict")
        await d.h.run(session, "take them")
        assert (await d.results(session))[-1].text.endswith(
            "Nothing was written: changed here meanwhile: a.txt. Say what to do with on_conflict."
        )
        assert files() == {"a.txt": "mine", "b.txt": "one"}
        d.parent.add([CallTool("delegate_apply", {**apply, "on_conflict": "keep"})], "taken")
        await d.h.run(session, "keep mine")
        assert files() == {"a.txt": "mine", "c.txt": "new"}
        d.parent.add([CallTool("delegate_apply", {**apply, "on_conflict": "restore"})], "taken")
        await d.h.run(session, "take theirs")
        assert files() == {"a.txt": "two", "c.txt": "new"}
        assert (await store.delegates.get(OWNER, delegate.id)).applied_at is not None


async def test_e09_a_delegate_gets_only_the_files_that_its_task_names(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    parent: list[Any] = [writing(a_txt="one", b_md="two"), hand_over(task(paths=["*.txt"])), "seen"]
    child: list[Any] = [writing(a_txt="changed", c_txt="new"), "changed"]
    async with delegating(store, parent, child, clock=clock, home=tmp_path) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (delegate,) = await d.delegates(turn_id)

        def files(of: str) -> dict[str, str]:
            return {path.name: path.read_text() for path in (tmp_path / "workspaces" / of).iterdir()}

        assert files(delegate.id) == {"a.txt": "changed", "c.txt": "new"}
        assert "a.txt (changed), c.txt (added)" in (await d.results(session))[-1].text
        d.parent.add([CallTool("delegate_apply", {"delegate_id": delegate.id})], "taken")
        await d.h.run(session, "take them")
        assert files(session.id) == {"a.txt": "changed", "b.md": "two", "c.txt": "new"}, (
            "b.md was not deleted"
        )
        assert await store.upkeep.check() == []
        for wrong, why in ((["none/"], "No file matches none/"), (["!a.txt"], "not patterns")):
            d.parent.add(hand_over(task(paths=wrong)), "refused")
            await d.h.run(session, "again")
            result = (await d.results(session))[-1]
            assert (result.outcome, why in result.text) == (Outcome.ERROR, True), result.text


async def test_e09_a_delegate_that_only_reads_has_the_files_and_nothing_that_changes_them(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async def look(call: ToolCall, emit: Emit) -> ToolResult:
        assert call.workspace is not None
        return ToolResult(",".join(sorted(path.name for path in call.workspace.iterdir())))

    looking = FakeTool("look", look, reads_only=True)
    parent: list[Any] = [writing(a_txt="one"), hand_over(task(files="read")), "seen"]
    child: list[Any] = [[CallTool("look", {})], writing(a_txt="two"), "tried"]
    async with delegating(store, parent, child, clock=clock, home=tmp_path, tools=[looking]) as d:
        session = await d.h.new_session()
        turn_id = (await d.h.send(session)).turn.id
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        (delegate,) = await d.delegates(turn_id)
        own = await store.sessions.get(OWNER, delegate.id)
        read, refused = await d.results(own)
        assert read.text == "a.txt"
        assert refused.outcome is not Outcome.OK
        assert (tmp_path / "workspaces" / own.id / "a.txt").read_text() == "one"
        assert delegate.result is not None
        assert delegate.result.files is None or delegate.result.files.total == 0, "nothing is offered"
        d.parent.add(hand_over(task(files="read", tools=["write"])), "refused")
        await d.h.run(session, "again")
        assert "The tool 'write' can change something" in (await d.results(session))[-1].text


async def test_e09_delegates_spend_from_the_budget_of_the_session_they_work_for(
    store: Store, clock: FakeClock
) -> None:
    script = [hand_over(task(budget_tokens=100_000)), "end"]
    async with delegating(store, script, ["spent"], clock=clock) as d:
        session = await d.h.new_session()
        await d.h.engine.put_budget(OWNER, limit(1_000_000, BudgetScope.SESSION, subject=session.id))
        turn_id = (await d.h.send(session)).turn.id
        await d.ended(turn_id)
        (delegate,) = await d.delegates(turn_id)
        whole, own = await store.budgets.list(OWNER)
        assert (whole.limit.key.subject, own.limit.key.subject) == (session.id, delegate.id)
        assert (whole.spent, own.spent) == (45, 15)  # three calls of 15, one of them the delegate's


async def test_e09_a_delegate_owes_no_memory(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    asked = NewDelegates(held.turn.id, "call_1", (DelegateTask("look"),), True, False, DelegateBounds(2, 8))
    (delegate,) = await store.delegates.start(asked)
    assert [one.id for one in await store.delegates.start(asked)] == [delegate.id], "once"
    child = await claim(store, session_id=delegate.id)
    number = await append(store, child, answer("done"))
    await complete(store, child, number, provider="notes")
    assert await store.ledger.next(ME, delegate.id, "wrk_one") is None
    # Its result waits until the parent does, and is dropped if the parent ends without it.
    assert await store.delegates.give(delegate.id) is None
    assert (await store.delegates.get(ME, delegate.id)).is_given is False
    await store.turns.cancel(ME, held.turn.id)
    assert (await store.delegates.due()).to_give == (delegate.id,)
    assert await store.delegates.give(delegate.id) is None
    assert await store.delegates.due() == DueDelegates()


async def test_e09_a_delegate_can_be_steered(store: Store, clock: FakeClock) -> None:
    gate = anyio.Event()
    child = [[CallTool("slow")], "steered"]

    async def slow(call: ToolCall, emit: Emit) -> ToolResult:
        await gate.wait()
        return ToolResult("slow")

    async with delegating(
        store, [hand_over(task()), "ok"], child, clock=clock, tools=[FakeTool("slow", slow)]
    ) as d:
        session = await d.h.new_session()
        turn_id = await started(d, session)
        (delegate,) = await d.delegates(turn_id)
        own = await store.sessions.get(OWNER, delegate.id)
        await d.h.seen(own, "tool.started")
        await d.h.send(own, "also this", when_busy=WhenBusy.STEER)
        gate.set()
        assert (await d.ended(turn_id)).state is TurnState.COMPLETED
        assert "user: also this" in await d.h.texts(own)


async def test_e09_two_servers_share_the_work(
    store: Store, clock: FakeClock, open_another: OpenAnother, store_kind: str
) -> None:
    if store_kind == "sqlite":
        pytest.skip("two servers share a PostgreSQL")
    other = await open_another()
    script: list[Any] = [hand_over(*(task(f"part {number}") for number in range(8))), "all"]
    child = [f"answer {number}" for number in range(8)]
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(delegating(store, script, child, clock=clock))
        session = await one.h.new_session()
        turn_id = (await one.h.send(session)).turn.id
        # Only then: the other server could claim the turn itself, and its model would not delegate.
        await until("the first server has the turn", lambda: one.parent.requests)
        two = await stack.enter_async_context(delegating(other, ["all"], child, clock=clock))
        with within("the parent has ended"):
            while (await one.h.turn(turn_id)).state is not TurnState.COMPLETED:
                await clock.advance(1)
        assert len(one.child.requests) + len(two.child.requests) == 8, "each ran once"
        kinds = await one.h.kinds(session)
        assert kinds.count("delegate.ended") == 8
        (result,) = await one.results(session)
        assert result.text.count("is done") == 8
