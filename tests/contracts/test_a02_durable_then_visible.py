"""A02: an event is shown only after it is durable."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.probe import Moment
from everturn.store import Store
from everturn.testing import HoldingProbe
from tests.acting import ME, append, new_session, positions, start
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_a02_a_reader_sees_nothing_of_a_batch_that_is_written_and_not_committed(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    seen: list[int] = []
    saw_all = anyio.Event()

    async def read() -> None:
        async for events in store.journal.follow(ME, session.id, 0):
            seen.extend(event.position for event in events)
            if len(seen) == 3:
                saw_all.set()

    async with anyio.create_task_group() as reading:
        reading.start_soon(read)
        probe.hold(Moment.BATCH_WRITTEN)
        async with anyio.create_task_group() as writing:
            writing.start_soon(append, store, held, [ev.TextDelta(1, "a")])
            await probe.reached(Moment.BATCH_WRITTEN)
            assert await positions(other, session.id) == [1, 2]
            assert await positions(store, session.id) == [1, 2]
            assert seen in ([], [1, 2])
            probe.release(Moment.BATCH_WRITTEN)
        with anyio.fail_after(10):
            await saw_all.wait()
        assert seen == [1, 2, 3]
        reading.cancel_scope.cancel()


async def test_a02_what_was_committed_is_there_for_others_before_anybody_here_was_woken(
    store: Store, open_another: OpenAnother, probe: HoldingProbe
) -> None:
    other = await open_another()
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    is_answered = False

    async def write() -> None:
        nonlocal is_answered
        await append(store, held, [ev.TextDelta(1, "a")])
        is_answered = True

    probe.hold(Moment.BATCH_COMMITTED)
    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await probe.reached(Moment.BATCH_COMMITTED)
        assert await positions(other, session.id) == [1, 2, 3]
        assert not is_answered
        probe.release(Moment.BATCH_COMMITTED)
    assert is_answered
