"""A08: nothing that was on its way can land after the end of the turn."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Fenced, WrongState
from everturn.domain.probe import Moment
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import ME, answer, append, complete, new_session, say, start, words
from tests.conftest import OpenAnother
from tests.waiting import HeldUp

pytestmark = pytest.mark.anyio


async def test_a08_progress_that_waits_behind_the_end_is_refused(
    store: Store, probe: HoldingProbe, held_up: HeldUp
) -> None:
    """The end is written and not committed when the last delta arrives at the store."""
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, answer("done"))
    refused: list[str] = []

    async def straggle() -> None:
        try:
            await append(store, held, [ev.TextDelta(1, "too late")], number)
        except Fenced as error:
            refused.append(error.code)

    probe.hold(Moment.END_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(complete, store, held, number)
            await probe.reached(Moment.END_WRITTEN)
            await held_up.start(group, store, straggle)
            probe.release(Moment.END_WRITTEN)
    assert refused == ["fenced"]
    kinds = [event.kind for event in await store.journal.after(ME, session.id, 0)]
    assert kinds[-1] == "turn.completed"
    assert await words(store, session.id) == ["hello", "done"]


async def test_a08_the_end_is_refused_while_progress_is_there_that_its_writer_has_not_counted(
    store: Store, open_another: OpenAnother
) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, answer("done"))
    await append(store, held, [ev.TextDelta(2, "more")], number)
    with pytest.raises(WrongState):
        await complete(store, held, number)
    assert (await store.turns.get(ME, held.turn.id)).state == "running"


async def test_a08_the_end_is_refused_while_steering_waits_that_the_turn_has_not_taken(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    number = await append(store, held, answer("done"))
    await say(store, session.id, "wait, one more thing", when_busy="steer")
    with pytest.raises(WrongState):
        await complete(store, held, number)
    taken = await store.turns.take_steering(held.turn.id, held.epoch, number + 1)
    assert [message.text for message in taken] == ["wait, one more thing"]
    await complete(store, held, number + 1)
    assert await words(store, session.id) == ["hello", "done", "wait, one more thing"]
