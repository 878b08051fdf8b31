"""C07: many readers at once run a pending recovery once; the others get the session as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from everturn.domain import events as ev
from everturn.domain.probe import Moment
from everturn.domain.sessions import SessionPatch
from everturn.domain.turns import Recovery
from everturn.store import Store
from everturn.testing import HoldingProbe
from everturn.testing.acting import CRASHED, ME, late, new_session, say, start, words
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_c07_one_reader_recovers_and_no_other_reader_waits(store: Store, probe: HoldingProbe) -> None:
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
    with anyio.fail_after(60):
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


@pytest.fixture
def elsewhere() -> Iterator[HoldingProbe]:
    """The probe of the other worker."""
    probe = HoldingProbe()
    yield probe
    probe.release_all()


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_c07_a_second_worker_does_not_wait_for_the_one_that_recovers(
    store: Store, open_another: OpenAnother, elsewhere: HoldingProbe, tmp_path: Path
) -> None:
    """Another worker holds the session's lock, its recovery written and not committed. Only on PostgreSQL: on
    SQLite all processes share one write lock."""
    other = await open_another(probe=elsewhere, data_dir=tmp_path / "elsewhere")
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await store.journal.deliver_late(
        held.turn.id, held.epoch, late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "late")])
    )
    outcomes: list[bool] = []

    async def recover_there() -> None:
        outcomes.append(await other.journal.recover(ME, session.id))

    elsewhere.hold(Moment.BATCH_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(recover_there)
            await elsewhere.reached(Moment.BATCH_WRITTEN)
            with anyio.fail_after(60):
                assert not await store.journal.recover(ME, session.id), "it is done elsewhere"
                assert await words(store, session.id) == ["hello"], "as it is, at once"
            elsewhere.release(Moment.BATCH_WRITTEN)
    assert outcomes == [True]
    assert await words(store, session.id) == ["hello", "late"]
    assert not await store.journal.recover(ME, session.id), "once"


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_c07_a_second_worker_claims_past_a_session_that_is_being_written(
    store: Store, open_another: OpenAnother, elsewhere: HoldingProbe, tmp_path: Path
) -> None:
    """Another worker holds the lock of the first session, its write not committed; the second is free."""
    other = await open_another(probe=elsewhere, data_dir=tmp_path / "elsewhere")
    first, second = await new_session(store), await new_session(store)
    for session in (first, second):
        await say(store, session.id, "hello")
    elsewhere.hold(Moment.BATCH_WRITTEN)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(other.sessions.change, ME, first.id, SessionPatch(title="busy"))
            await elsewhere.reached(Moment.BATCH_WRITTEN)
            with anyio.fail_after(60):
                claims = await store.turns.claim("wrk_two", limit=10)
            assert [held.session.id for held in claims] == [second.id]
            elsewhere.release(Moment.BATCH_WRITTEN)
        claims = await store.turns.claim("wrk_two", limit=10)
        assert [held.session.id for held in claims] == [first.id], "the next look finds it"
