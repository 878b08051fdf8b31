"""A07: any number of writers, in two processes, and every state that is read really existed.

One test holds a write open and shows that the others wait for it; one lets a crowd loose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Refused, Stopped
from everturn.domain.fold import fold
from everturn.domain.probe import Moment
from everturn.domain.sessions import SessionPatch
from everturn.domain.store_values import Request
from everturn.domain.turns import ACTIVE, ENDED, TurnState
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import (
    ME,
    answer,
    answered,
    append,
    complete,
    new_session,
    positions,
    say,
    start,
    words,
)
from tests.conftest import OpenAnother
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio
ROUNDS = 25


class Crowd:
    """Everything at once to one session. What is refused is refused; nothing else may happen."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.refusals: list[str] = []
        self.is_over = False

    async def writer(self, store: Store, worker: str) -> None:
        for _ in range(ROUNDS):
            for held in await store.turns.claim(worker, session_id=self.session_id):
                await self.tolerate(self.run(store, held.turn.id, held.epoch, held.number))
            await self.tolerate(say(store, self.session_id, f"from {worker}"))

    async def run(self, store: Store, turn_id: str, epoch: int, number: int) -> None:
        payloads: list[ev.Payload] = answer("words")
        await store.journal.append(turn_id, epoch, number + 1, payloads)
        folded = fold(turn_id, await store.journal.of_turn(ME, turn_id), is_ended=True)
        await store.turns.complete(turn_id, epoch, number + len(payloads), folded)

    async def meddler(self, store: Store) -> None:
        for count in range(ROUNDS):
            await self.tolerate(store.transcript.undo(ME, self.session_id, Request()))
            await self.tolerate(store.transcript.redo(ME, self.session_id, Request()))
            await self.tolerate(store.sessions.change(ME, self.session_id, SessionPatch(title=f"{count}")))
            session = await store.sessions.get(ME, self.session_id)
            if session.active_turn and count % 3 == 0:
                await self.tolerate(store.turns.cancel(ME, session.active_turn))

    async def reader(self, store: Store) -> None:
        last = 0
        while not self.is_over:
            session, turns, messages = await store.transcript.export(ME, self.session_id)
            states = [turn.state for turn in turns]
            assert session.messages == len(messages)
            assert session.queued == states.count(TurnState.QUEUED)
            assert [turn.id for turn in turns if turn.state in ACTIVE] == (
                [session.active_turn] if session.active_turn else []
            )
            spoken = {message.turn_id for message in messages if message.ordinal > 0}
            assert spoken <= {turn.id for turn in turns if turn.state in ENDED}
            assert session.version >= last
            last = session.version

    async def tolerate(self, act: object) -> None:
        try:
            await act  # type: ignore[misc]  # an awaitable of any kind
        except (Refused, Stopped) as error:
            self.refusals.append(error.code)


async def test_a07_a_crowd_in_two_processes_never_collides(store: Store, open_another: OpenAnother) -> None:
    other = await open_another()
    session = await new_session(store)
    crowd = Crowd(session.id)
    with anyio.fail_after(180):
        async with anyio.create_task_group() as readers:
            readers.start_soon(crowd.reader, store)
            readers.start_soon(crowd.reader, other)
            async with anyio.create_task_group() as writers:
                writers.start_soon(crowd.writer, store, "wrk_one")
                writers.start_soon(crowd.writer, other, "wrk_two")
                writers.start_soon(crowd.meddler, store)
                writers.start_soon(crowd.meddler, other)
            crowd.is_over = True
    known = {"session_busy", "nothing_to_do", "fenced", "wrong_state"}
    assert set(crowd.refusals) <= known
    assert await store.upkeep.check() == []
    found = await positions(store, session.id)
    assert found == list(range(1, (await store.sessions.get(ME, session.id)).position + 1))


@pytest.mark.parametrize(
    "moment", [Moment.ACCEPT_WRITTEN, Moment.BATCH_WRITTEN, Moment.END_WRITTEN, Moment.MOVE_WRITTEN]
)
async def test_a07_writers_of_two_processes_wait_for_the_one_that_is_under_way(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp, moment: Moment
) -> None:
    """One write is held before its commit: the others wait, and readers see the state before it."""
    other = await open_another()
    session = await new_session(store)
    await answered(store, session.id, "a", "A")
    before = await store.transcript.export(ME, session.id)
    writes: dict[Moment, Callable[[], Awaitable[object]]] = {
        Moment.ACCEPT_WRITTEN: lambda: say(store, session.id, "b"),
        Moment.MOVE_WRITTEN: lambda: store.transcript.undo(ME, session.id, Request()),
    }
    if moment not in writes:
        held = await start(store, session.id, "b")
        number = await append(store, held, answer("B"))
        before = await store.transcript.export(ME, session.id)
        writes[Moment.BATCH_WRITTEN] = lambda: append(store, held, [ev.TextDelta(2, "more")], number)
        writes[Moment.END_WRITTEN] = lambda: complete(store, held, number)
    crowd = Crowd(session.id)
    done: list[str] = []

    async def act(name: str, work: Awaitable[object]) -> None:
        await crowd.tolerate(work)
        done.append(name)

    probe.hold(moment)
    with anyio.fail_after(180):
        async with anyio.create_task_group() as group:
            group.start_soon(act, "held", writes[moment]())
            await probe.reached(moment)
            rename = store.sessions.change(ME, session.id, SessionPatch(title="here"))
            await held_up.start(group, store, act, "rename here", rename)
            rename = other.sessions.change(ME, session.id, SessionPatch(title="there"))
            await held_up.start(group, other, act, "rename there", rename)
            await held_up.start(group, other, act, "say there", say(other, session.id, "from there"))
            assert done == []
            assert await store.transcript.export(ME, session.id) == before
            assert await other.transcript.export(ME, session.id) == before
            probe.release(moment)
    assert sorted(done) == ["held", "rename here", "rename there", "say there"]
    assert crowd.refusals == []
    assert await store.upkeep.check() == []
    assert await store.transcript.export(ME, session.id) == await other.transcript.export(ME, session.id)


async def test_a07_a_write_decides_by_what_the_one_before_it_left(
    store: Store, open_another: OpenAnother, probe: HoldingProbe, held_up: HeldUp
) -> None:
    """Two processes undo at once: the second has to see that the head has moved, and undoes one turn more."""
    other = await open_another()
    session = await new_session(store)
    for text in ("a", "b", "c"):
        await answered(store, session.id, text, text.upper())
    probe.hold(Moment.MOVE_WRITTEN)
    with anyio.fail_after(180):
        async with anyio.create_task_group() as group:
            group.start_soon(store.transcript.undo, ME, session.id, Request())
            await probe.reached(Moment.MOVE_WRITTEN)
            await held_up.start(group, other, other.transcript.undo, ME, session.id, Request())
            probe.release(Moment.MOVE_WRITTEN)
    assert await words(store, session.id) == ["a", "A"]
    assert await store.upkeep.check() == []
