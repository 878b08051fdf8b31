"""C06: what a pending recovery costs, and when it gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain import events as ev
from everturn.domain.turns import Recovery
from everturn.store import Store, StoreSettings
from everturn.testing import FakeClock
from everturn.testing.acting import CRASHED, ME, append, late, new_session, start, words
from everturn.testing.web_server import run_web
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio
DAY_S = 24 * 3600


async def _recovery(store: Store, turn_id: str) -> Recovery:
    return (await store.turns.get(ME, turn_id)).recovery


async def test_c06_a_journal_that_is_still_arriving_costs_no_attempt(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    for _ in range(20):
        assert not await store.journal.recover(ME, session.id)
    assert await _recovery(store, held.turn.id) is Recovery.PENDING
    spooled = late(held, 2, [ev.StepStarted(1, "m"), ev.TextDelta(1, "at last")])
    await store.journal.deliver_late(held.turn.id, held.epoch, spooled)
    await store.journal.recover(ME, session.id)
    assert await words(store, session.id) == ["hello", "at last"]


async def test_c06_a_journal_that_was_sealed_empty_costs_one_attempt_per_read(
    open_another: OpenAnother,
) -> None:
    store = await open_another(settings=StoreSettings(recovery_attempts_max=3))
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    turn = await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    assert turn.recovery is Recovery.PENDING
    for expected in (Recovery.PENDING, Recovery.PENDING, Recovery.FINAL):
        assert await store.journal.recover(ME, session.id)
        assert await _recovery(store, held.turn.id) is expected
    # Final and neutral: nothing is claimed about the output, and nothing more is done.
    version = (await store.sessions.get(ME, session.id)).version
    assert not await store.journal.recover(ME, session.id)
    assert (await store.sessions.get(ME, session.id)).version == version
    assert await words(store, session.id) == ["hello"]


async def test_c06_a_sealed_journal_with_output_is_final_at_once(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await append(store, held, [ev.StepStarted(1, "m"), ev.TextDelta(1, "half")])
    turn = await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
    assert turn.recovery is Recovery.FINAL
    assert not await store.journal.recover(ME, session.id)


async def test_c06_past_the_maximum_age_the_notice_becomes_final(store: Store, clock: FakeClock) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "hello")
    await store.turns.interrupt(held.turn.id, None, CRASHED)
    await clock.advance(DAY_S - 1)
    assert not await store.journal.recover(ME, session.id)
    assert await _recovery(store, held.turn.id) is Recovery.PENDING
    await clock.advance(2)
    assert await store.journal.recover(ME, session.id)
    assert await _recovery(store, held.turn.id) is Recovery.FINAL
    assert not await store.journal.recover(ME, session.id)


async def test_c06_one_look_at_the_page_costs_one_attempt_and_a_change_costs_none(
    open_another: OpenAnother, tmp_path: Path
) -> None:
    store = await open_another(settings=StoreSettings(recovery_attempts_max=3))
    async with run_web(store, tmp_path) as server:
        session = await new_session(store)
        held = await start(store, session.id, "hello")
        await store.turns.interrupt(held.turn.id, held.epoch, CRASHED)
        for expected in (Recovery.PENDING, Recovery.PENDING, Recovery.FINAL):
            renamed = await server.http.patch(f"/api/sessions/{session.id}", json={"title": "A name"})
            assert renamed.status_code == 200
            page = (await server.http.get(f"/api/sessions/{session.id}/messages")).json()
            assert page["turns"][0]["recovery"] == expected
