"""Two store instances on one database live at random beside a model; they must always agree with it.

A failing example is printed by hypothesis and is the same every time. ``EVERTURN_SIMULATIONS=500`` runs
that many lives with new seeds.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from everturn.domain import events as ev
from everturn.domain.errors import Busy, Fenced, Gone, KeyReused, NotFound, NothingToDo, Stale, WrongState
from everturn.domain.events import Event
from everturn.domain.fold import fold
from everturn.domain.messages import Message, Role, Summary
from everturn.domain.sessions import NewSession, SessionPatch
from everturn.domain.store_values import ImportedSession, Request, RetriedTurn, Submission, WhenBusy
from everturn.domain.turns import TurnKind
from everturn.store import Store, open_store
from everturn.store.scripts.script import Script, Tx, q
from everturn.testing import FakeClock
from everturn.testing.acting import CRASHED, ME, answer, ask, transcript, words
from everturn.testing.postgres_server import PostgresServer
from tests.simulation.model import Said, SessionModel, TurnModel

T = TypeVar("T")
WHICH = st.integers(min_value=0, max_value=1)  # of the two instances
PICK = st.integers(min_value=0, max_value=1 << 16)
NO_KEY = Request()
LIVES = int(os.environ.get("EVERTURN_SIMULATIONS", "0"))
BUSY = st.sampled_from(WhenBusy)
pytestmark = pytest.mark.timeout(24 * 3600 if LIVES else 120)


class Life(RuleBasedStateMachine):
    """The rules pick what they act on by a number, so that every rule can always be tried."""

    def __init__(self, url: AbstractContextManager[str]) -> None:
        super().__init__()
        self._database = ExitStack()
        self._url = self._database.enter_context(url)
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self._names = itertools.count(1)
        self.clock = FakeClock()
        self.sessions: dict[str, SessionModel] = {}
        self.deleted: dict[str, list[str]] = {}
        self.copies: dict[str, list[str]] = {}
        self.seen: dict[str, list[Event]] = {}
        self.versions: dict[str, int] = {}
        self.held: list[tuple[str, str, int, int]] = []  # turn, session, epoch, last number, ever held
        self.spools: list[tuple[str, int, int]] = []  # turn, epoch, number of the next spooled event
        self.stacks: list[AsyncExitStack] = []
        self.stores: list[Store] = []
        self.workers: list[str] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, 180))

    def teardown(self) -> None:
        try:
            self.run(self._sound())
        finally:
            for stack in self.stacks:
                self.run(stack.aclose())
            self._runner.close()
            self._database.close()
            self._folder.cleanup()

    async def _open(self) -> tuple[AsyncExitStack, Store]:
        stack = AsyncExitStack()
        opened = open_store(self._url, data_dir=Path(self._folder.name) / "data", clock=self.clock)
        return stack, await stack.enter_async_context(opened)

    @initialize()
    def open_both(self) -> None:
        for _ in range(2):
            stack, store = self.run(self._open())
            self.stacks.append(stack)
            self.stores.append(store)
            self.workers.append(f"wrk_{next(self._names)}")
            self.run(store.workers.register(self.workers[-1]))
        self.create(0)

    # --- picking -------------------------------------------------------------------------------------------

    def session(self, pick: int) -> SessionModel:
        return list(self.sessions.values())[pick % len(self.sessions)]

    def turn(self, pick: int, *states: str) -> tuple[SessionModel, TurnModel] | None:
        found = [
            (session, turn)
            for session in self.sessions.values()
            for turn in session.turns.values()
            if turn.state in states
        ]
        return found[pick % len(found)] if found else None

    def text(self, kind: str) -> str:
        return f"{kind} {next(self._names)}"

    # --- sessions ------------------------------------------------------------------------------------------

    @rule(which=WHICH)
    def create(self, which: int) -> None:
        session = self.run(self.stores[which].sessions.create(ME, NewSession(title=self.text("title"))))
        self.sessions[session.id] = SessionModel(session.id, session.title)

    @rule(which=WHICH, pick=PICK, is_stale=st.booleans())
    def rename(self, which: int, pick: int, is_stale: bool) -> None:
        model, title = self.session(pick), self.text("name")
        now = self.run(self.stores[1 - which].sessions.get(ME, model.id))
        change = self.stores[which].sessions.change(
            ME, model.id, SessionPatch(title=title), version=now.version - is_stale
        )
        if is_stale:
            with pytest.raises(Stale):
                self.run(change)
        else:
            self.run(change)
            model.title = title

    @rule(which=WHICH, pick=PICK)
    def generate_title(self, which: int, pick: int) -> None:
        """Every session here was named by a user: a generated title never replaces that."""
        self.run(self.stores[which].sessions.set_title(ME, self.session(pick).id, "generated"))

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(which=WHICH, pick=PICK)
    def delete(self, which: int, pick: int) -> None:
        model = self.session(pick)
        self.run(self.stores[which].sessions.delete(ME, model.id))
        del self.sessions[model.id]
        self.deleted[model.id] = list(model.turns)
        self.seen.pop(model.id, None)

    @rule(which=WHICH, pick=PICK)
    def branch(self, which: int, pick: int) -> None:
        model = self.session(pick)
        if model.head is None or not model.turns[model.head].is_ended:
            return
        call = self.stores[which].transcript.branch(ME, model.id, None, NO_KEY)
        if model.is_busy:
            with pytest.raises(Busy):
                self.run(call)
            return
        copy = self.run(call)
        self._adopt(which, copy.id, model)

    @rule(which=WHICH, pick=PICK)
    def export_and_import(self, which: int, pick: int) -> None:
        model = self.session(pick)
        if not all(turn.is_ended for turn in model.turns.values()):
            return
        exported = self.run(self.stores[which].transcript.export(ME, model.id))
        copy = self.run(self.stores[1 - which].transcript.import_session(ME, ImportedSession(*exported)))
        assert (copy.title, copy.messages) == (exported[0].title, exported[0].messages)
        self._adopt(which, copy.id, model)

    def _adopt(self, which: int, copy_id: str, model: SessionModel) -> None:
        """A copy has the original's words and never changes afterwards."""
        store = self.stores[which]
        assert self.run(words(store, copy_id)) == model.words()
        assert [m.text for m in self.run(store.transcript.context(ME, copy_id))] == model.context()
        self.copies[copy_id] = model.words()

    # --- turns ---------------------------------------------------------------------------------------------

    @rule(
        which=WHICH,
        pick=PICK,
        when_busy=st.sampled_from(WhenBusy),
        keyed=st.booleans(),
    )
    def submit(self, which: int, pick: int, when_busy: WhenBusy, keyed: bool) -> None:
        model, text = self.session(pick), self.text("said")
        key = text if keyed else None
        submission = Submission(text=text, when_busy=when_busy, key=key)
        accepted = self.run(self.stores[which].turns.accept(ME, model.id, submission))
        active = model.active
        if key is not None:
            model.keys[key] = (when_busy, accepted.turn.id)
        if when_busy is WhenBusy.STEER and active is not None and not active.is_compaction:
            assert accepted.is_steering
            active.steering.append(text)
            return
        following = active or model.claimable()
        is_first = when_busy is WhenBusy.INTERRUPT and following is not None
        if is_first and active is not None:
            self._requeue(which, model, model.end(active, "cancelled", is_sealed=False))
        elif is_first and following is not None:
            model.cancel_unclaimed(following)
        model.add(TurnModel(accepted.turn.id, text), is_first=is_first)

    def _requeue(self, which: int, model: SessionModel, steering: list[str]) -> None:
        """Steering that was not taken became queued turns, in order; only the store knows their ids."""
        if not steering:
            return
        queue = self.run(self.stores[which].turns.queue(ME, model.id))
        new = [turn for turn in queue if turn.id not in model.turns and turn.text in steering]
        assert [turn.text for turn in new] == steering
        for turn in new:
            model.add(TurnModel(turn.id, turn.text))

    @rule(which=WHICH, pick=PICK, changes=st.booleans())
    def submit_again(self, which: int, pick: int, changes: bool) -> None:
        model = self.session(pick)
        if not model.keys:
            return
        key, (when_busy, turn_id) = list(model.keys.items())[pick % len(model.keys)]
        text = "something else" if changes else key
        again = self.stores[which].turns.accept(
            ME, model.id, Submission(text=text, when_busy=when_busy, key=key)
        )
        if changes:
            with pytest.raises(KeyReused):
                self.run(again)
        else:
            accepted = self.run(again)
            assert (accepted.turn.id, accepted.is_repeat) == (turn_id, True)

    @rule(which=WHICH, pick=PICK)
    def compact(self, which: int, pick: int) -> None:
        model = self.session(pick)
        accepted = self.run(
            self.stores[which].turns.accept(ME, model.id, Submission(kind=TurnKind.COMPACTION))
        )
        model.add(TurnModel(accepted.turn.id, "", is_compaction=True))

    @rule(which=WHICH, pick=PICK)
    def claim(self, which: int, pick: int) -> None:
        model = self.session(pick)
        claims = self.run(self.stores[which].turns.claim(self.workers[which], session_id=model.id))
        expected = model.claimable()
        assert [held.turn.id for held in claims] == ([expected.id] if expected else [])
        for held in claims:
            assert expected is not None
            model.take(expected, self.workers[which], held.epoch)
            assert (held.epoch, held.number) == (expected.epoch, 1)
            self.held.append((held.turn.id, model.id, held.epoch, 1))

    @rule(which=WHICH, pick=PICK, again=st.booleans())
    def append(self, which: int, pick: int, again: bool) -> None:
        """The holder of a turn journals one step; perhaps the answer is lost and it sends it again."""
        found = self.turn(pick, "running")
        if found is None or found[1].is_ready or found[1].is_compaction:
            return
        _, turn = found
        text, step = self.text("answer"), turn.number + 1 + turn.epoch * 1000
        payloads = answer(text, step)
        for _ in range(1 + again):
            self.run(self.stores[which].journal.append(turn.id, turn.epoch, turn.number + 1, payloads))
        turn.said.append(Said(turn.epoch, turn.number + 2, text))
        turn.number += len(payloads)

    @rule(which=WHICH, pick=PICK)
    def append_as_a_zombie(self, which: int, pick: int) -> None:
        """A worker that no longer holds a turn can write nothing."""
        if not self.held:
            return
        turn_id, session_id, epoch, _ = self.held[pick % len(self.held)]
        model = self.sessions.get(session_id)
        turn = model.turns.get(turn_id) if model else None
        if turn is not None and turn.state == "running" and turn.epoch == epoch and not turn.is_ready:
            return
        store = self.stores[which]
        with pytest.raises((Fenced, NotFound)):
            self.run(store.journal.append(turn_id, epoch, 2, [ev.TextDelta(1, "from the dead")]))
        folded = fold(turn_id, [])
        with pytest.raises((Fenced, NotFound)):
            self.run(store.turns.complete(turn_id, epoch, 1, folded))

    @rule(which=WHICH, pick=PICK)
    def take_steering(self, which: int, pick: int) -> None:
        found = self.turn(pick, "running")
        if found is None or found[1].is_ready:
            return
        turn = found[1]
        taken = self.run(self.stores[which].turns.take_steering(turn.id, turn.epoch, turn.number + 1))
        assert [message.text for message in taken] == turn.steering
        for text in turn.steering:
            turn.number += 1
            turn.said.append(Said(turn.epoch, turn.number, text, is_work=False))
        turn.steering = []

    @rule(which=WHICH, pick=PICK)
    def complete(self, which: int, pick: int) -> None:
        found = self.turn(pick, "running")
        if found is None or found[1].is_ready:
            return
        model, turn = found
        store = self.stores[which]
        if turn.is_compaction and not turn.said:
            self._summarise(store, model, turn)
        journal = self.run(store.journal.of_turn(ME, turn.id))
        complete = store.turns.complete(
            turn.id, turn.epoch, turn.number, fold(turn.id, journal, is_ended=True)
        )
        if turn.steering:
            with pytest.raises(WrongState):
                self.run(complete)
            return
        self.run(complete)
        model.end(turn, "completed", is_sealed=True)

    def _summarise(self, store: Store, model: SessionModel, turn: TurnModel) -> None:
        messages = self.run(transcript(store, model.id))
        covers = messages[-1].id if messages else ""
        text = self.text("summary")
        message = Message("", turn.id, Role.SUMMARY, (Summary(text, covers=covers),), 0)
        self.run(store.journal.append(turn.id, turn.epoch, turn.number + 1, [ev.MessageAdded(message)]))
        turn.number += 1
        turn.said.append(Said(turn.epoch, turn.number, text, is_work=False))

    @rule(which=WHICH, pick=PICK, how=st.sampled_from(["cancel", "fail", "interrupt", "interrupt_unsealed"]))
    def end_early(self, which: int, pick: int, how: str) -> None:
        found = self.turn(pick, "running", "waiting")
        if found is None:
            return
        model, turn = found
        turns = self.stores[which].turns
        is_held = turn.state == "running" and not turn.is_ready
        epoch = turn.epoch if is_held and how != "interrupt_unsealed" else None
        if how == "cancel":
            self.run(turns.cancel(ME, turn.id))
        elif how == "fail":
            self.run(turns.fail(turn.id, epoch, CRASHED))
        else:
            self.run(turns.interrupt(turn.id, epoch, CRASHED))
        state = {"cancel": "cancelled", "fail": "failed"}.get(how, "interrupted")
        is_sealed = how != "cancel" and epoch is not None
        self._requeue(which, model, model.end(turn, state, is_sealed=is_sealed))

    @rule(which=WHICH, pick=PICK, how=st.sampled_from(["cancel", "fail"]))
    def end_queued(self, which: int, pick: int, how: str) -> None:
        found = self.turn(pick, "queued")
        if found is None:
            return
        model, turn = found
        if how == "cancel":
            self.run(self.stores[which].turns.cancel(ME, turn.id))
            model.cancel_unclaimed(turn)
            return
        model.queue.remove(turn.id)
        self.run(self.stores[which].turns.fail(turn.id, None, CRASHED))
        turn.state = "failed"
        if model.active is None:
            model.join(turn)

    @rule(which=WHICH, pick=PICK)
    def resume(self, which: int, pick: int) -> None:
        found = self.turn(pick, "interrupted")
        if found is None:
            return
        model, turn = found
        call = self.stores[which].turns.resume(ME, turn.id)
        if model.active is not None or (model.queue and not turn.is_ready):
            with pytest.raises(Busy):
                self.run(call)
        elif model.head != turn.id:
            with pytest.raises(WrongState):
                self.run(call)
        else:
            try:
                self.run(call)
            except WrongState:
                assert turn.may_be_pruned
            else:
                turn.is_ready = True

    @rule(which=WHICH, pick=PICK)
    def hand_over(self, which: int, pick: int) -> None:
        found = self.turn(pick, "running")
        if found is None or found[1].is_ready:
            return
        turn = found[1]
        self.run(self.stores[which].turns.hand_over(turn.id, turn.epoch))
        turn.is_ready, turn.worker = True, ""
        turn.writers.pop(turn.epoch, None)

    @rule(which=WHICH, pick=PICK)
    def wait(self, which: int, pick: int) -> None:
        found = self.turn(pick, "running")
        if found is None or found[1].is_ready:
            return
        model, turn = found
        turn.ask = f"ask_{next(self._names)}"
        asks = [ask(turn.ask, turn.id, model.id)]
        self.run(self.stores[which].turns.wait(turn.id, turn.epoch, turn.number + 1, asks, []))
        turn.state, turn.worker = "waiting", ""
        turn.writers.pop(turn.epoch, None)

    @rule(which=WHICH, pick=PICK)
    def answer_ask(self, which: int, pick: int) -> None:
        found = self.turn(pick, "waiting")
        if found is None:
            return
        turn = found[1]
        assert turn.ask is not None
        self.run(self.stores[which].asks.answer(ME, turn.ask, "yes", by="me"))
        self.run(self.stores[1 - which].asks.answer(ME, turn.ask, "yes", by="me"))
        with pytest.raises(WrongState):
            self.run(self.stores[1 - which].asks.answer(ME, turn.ask, "no", by="me"))
        turn.is_ready = True

    # --- the transcript ------------------------------------------------------------------------------------

    @rule(which=WHICH, pick=PICK, move=st.sampled_from(["undo", "redo", "clear"]))
    def move(self, which: int, pick: int, move: str) -> None:
        model = self.session(pick)
        call = getattr(self.stores[which].transcript, move)(ME, model.id, NO_KEY)
        if model.is_busy:
            with pytest.raises(Busy):
                self.run(call)
            return
        if (model.redo if move == "redo" else model.head) is None:
            with pytest.raises(NothingToDo):
                self.run(call)
            return
        self.run(call)
        {"undo": model.undo, "redo": model.step_forward, "clear": model.clear}[move]()
        model.forget_resumption()

    @rule(which=WHICH, pick=PICK, edits=st.booleans())
    def retry(self, which: int, pick: int, edits: bool) -> None:
        model = self.session(pick)
        if model.head is None or model.is_busy or model.turns[model.head].is_compaction:
            return
        head = model.turns[model.head]
        text = self.text("edited") if edits else None
        accepted = self.run(self.stores[which].transcript.retry(ME, model.id, RetriedTurn(text=text), NO_KEY))
        model.add(TurnModel(accepted.turn.id, text or head.text, parent=head.parent, has_parent=True))

    # --- crashes and what comes late -----------------------------------------------------------------------

    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        """One instance dies; the other takes its turns over, and a new one is opened."""
        self.run(self.stacks[which].aclose())
        dead, other = self.workers[which], 1 - which
        orphans = [t for s in self.sessions.values() for t in s.turns.values() if t.worker == dead]
        assert self.run(self.stores[other].workers.take_over(self.workers[other])) == len(orphans)
        for turn in orphans:
            turn.is_ready, turn.worker = True, ""
        for session in self.sessions.values():
            for turn in session.turns.values():
                turn.writers = {epoch: w for epoch, w in turn.writers.items() if w != dead}
        self.stacks[which], self.stores[which] = self.run(self._open())
        self.workers[which] = f"wrk_{next(self._names)}"
        self.run(self.stores[which].workers.register(self.workers[which]))

    @rule(which=WHICH, pick=PICK, repeats=st.booleans())
    def deliver_late(self, which: int, pick: int, repeats: bool) -> None:
        """A former worker's spool arrives: it counts for an epoch that is not sealed."""
        found = [
            (turn, epoch)
            for session in self.sessions.values()
            for turn in session.turns.values()
            for epoch in turn.writers
            if not turn.is_compaction
            and not (turn.state == "running" and turn.epoch == epoch)
            and not turn.may_be_pruned
        ]
        if not found:
            return
        turn, epoch = found[pick % len(found)]
        first = 500 + next(self._names) * 10
        text = self.text("late")
        payloads = answer(text, 900 + first)
        events = [
            Event("", 0, turn.id, ev.kind_of(p), 0, ev.encode(p), epoch, first + n)
            for n, p in enumerate(payloads)
        ]
        delivered = self.run(self.stores[which].journal.deliver_late(turn.id, epoch, events))
        assert delivered == len(events)
        if repeats:
            assert self.run(self.stores[1 - which].journal.deliver_late(turn.id, epoch, events)) == 0
        turn.said.append(Said(epoch, first + 1, text, is_late=True))

    @rule(which=WHICH)
    def tidy(self, which: int) -> None:
        """Pruning and indexing take nothing from the transcript."""
        store = self.stores[which]
        self.run(store.upkeep.prune(older_than_ms=-1_000))
        self.run(store.search.index())
        for session in self.sessions.values():
            for turn in session.turns.values():
                turn.may_be_pruned = turn.may_be_pruned or turn.is_ended

    # --- what must always hold -----------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        which = random.Random(len(self.held)).randrange(2)
        if self.stores:
            for model in self.sessions.values():
                self.run(self._compare(self.stores[which], model))

    async def _compare(self, store: Store, model: SessionModel) -> None:
        await store.journal.recover(ME, model.id)
        session = await store.sessions.get(ME, model.id)
        active = model.active
        assert (session.title, session.head) == (model.title, model.head)
        assert session.active_turn == (active.id if active else None)
        assert session.active_state == (active.state if active else None)
        assert session.redo_to == model.redo
        assert session.queued == len(model.queue)
        assert [turn.id for turn in await store.turns.queue(ME, model.id)] == model.queue
        assert await words(store, model.id) == model.words()
        shown = {turn.id for turn in model.path()}
        for turn_id, is_off in (await store.database.read(_off_path, model.id)).items():
            if model.turns[turn_id].state == "completed":
                assert bool(is_off) == (turn_id not in shown), "memory is owed what is shown"
        assert session.version >= self.versions.get(model.id, 0)
        self.versions[model.id] = session.version
        await self._read_on(store, model.id)

    async def _read_on(self, store: Store, session_id: str) -> None:
        """A reader with a cursor sees what follows it, without a gap and without a repeat."""
        seen = self.seen.setdefault(session_id, [])
        while batch := await store.journal.after(ME, session_id, seen[-1].position if seen else 0):
            for event in batch:
                before = seen[-1].position if seen else 0
                assert event.position == before + 1 or (event.kind == "snapshot" and event.position > before)
                seen.append(event)

    async def _sound(self) -> None:
        if not self.stores:
            return
        for store in self.stores:
            assert await store.upkeep.check() == []
            for session_id in self.deleted:
                with pytest.raises(Gone):
                    await store.sessions.get(ME, session_id)
            for session_id, before in self.copies.items():
                assert await words(store, session_id) == before
        for model in self.sessions.values():
            context = [m.text for m in await self.stores[0].transcript.context(ME, model.id)]
            assert context == model.context()
            for turn in model.turns.values():
                assert (await self.stores[0].turns.get(ME, turn.id)).state == turn.state


def _off_path(tx: Tx, session_id: str) -> Script[dict[str, int]]:
    row = (yield q("session_row", session_id, ME))[0]
    found = {}
    for turn in (yield q("turns_of_session", row[0])):
        found[turn[1]] = (yield q("turn_parent", turn[0]))[0][1]
    return found


def _settings(lives: int, steps: int) -> settings:
    return settings(
        max_examples=LIVES or lives,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not LIVES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def live_on(new_url: Callable[[], AbstractContextManager[str]], lives: int, steps: int) -> None:
    class LifeHere(Life):
        def __init__(self) -> None:
            super().__init__(new_url())

    run_state_machine_as_test(LifeHere, settings=_settings(lives, steps))


def test_two_instances_on_one_sqlite_file_agree_with_the_model() -> None:
    live_on(lambda: nullcontext(""), lives=25, steps=40)


def test_two_instances_on_one_postgresql_agree_with_the_model(postgres: PostgresServer) -> None:
    live_on(postgres.database, lives=8, steps=30)
