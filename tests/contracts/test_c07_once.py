"""C07: many readers at once run a pending recovery once; the others get the session as it is."""

from __future__ import annotations

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.probe import Moment
from everturn.domain.turns import Recovery
from everturn.store import Store
from everturn.testing import HoldingProbe
from tests.acting import CRASHED, ME, late, new_session, start, words

pytestmark = pytest.mark.anyio


async def test_c07_one_reader_recovers_and_nobody_waits_for_it(store: Store, probe: HoldingProbe) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "late")])
    await store.journal.deliver_late(held.turn.id, held.epoch, spooled)
    before = (await store.sessions.get(ME, session.id)).version
    outcomes: list[bool] = []

    async def read() -> None:
        outcomes.append(await store.journal.recover(ME, session.id))

    probe.hold(Moment.BATCH_WRITTEN)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await probe.reached(Moment.BATCH_WRITTEN)
            for _ in range(20):
                assert not await store.journal.recover(ME, session.id)
            assert await words(store, session.id) == ["hello"], "as it is, at once"
            probe.release(Moment.BATCH_WRITTEN)
    assert outcomes == [True]
    assert await words(store, session.id) == ["hello", "late"]
    now = await store.sessions.get(ME, session.id)
    assert now.version == before + 1
    assert (await store.turns.get(ME, held.turn.id)).recovery is Recovery.RECOVERED
    assert not await store.journal.recover(ME, session.id)
